"""Every operator that recipes quantize, in every spelling: the bytes of the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from operator_cases import CASES, MOVING_CASES, POOLING_CASES, model_of, spelled
from torch.utils import _pytree as pytree

import zeropoint


@pytest.mark.parametrize(
    ("name", "shape", "tried"), [c for t in (CASES, MOVING_CASES, POOLING_CASES) for c in spelled(t)]
)
def test_operator_gives_the_bytes_of_the_graph(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    model, x = model_of(tried, shape)
    quantized = zeropoint.to_int8(model, (x,), progress=False)
    program = zeropoint.compile(quantized, (x,))
    with torch.no_grad():
        expected, found = pytree.tree_leaves(quantized(x)), pytree.tree_leaves(program(x))
    assert len(expected) == len(found)
    for e, f in zip(expected, found):
        assert e.dtype == f.dtype
        assert torch.equal(e, f)
