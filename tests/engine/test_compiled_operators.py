"""Every operator that recipes quantize, in every spelling: the bytes of the graph, by native steps unless listed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from operator_cases import CASES, MOVING_CASES, POOLING_CASES, model_of, spelled
from torch.utils import _pytree as pytree

import zeropoint
from zeropoint.engine import Unsupported

_EVERY = [case for table in (CASES, MOVING_CASES, POOLING_CASES) for case in spelled(table)]
# What PyTorch must still compute. Write a step for one, and take it off this list.
FOREIGN = {
    "aten": (
        "clip.default", "cumsum.default", "gather.default", "index.Tensor", "pad.default",
        "remainder.Scalar", "repeat_interleave.self_int", "rot90.default", "sort.default", "sort.stable",
        "tensor_split.sections", "to.dtype", "topk.default",
    ),
    "zeropoint": ("stored_mean_over.default",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shape", "tried"), [c for t in (CASES, MOVING_CASES, POOLING_CASES) for c in spelled(t)]
)
def test_operator_gives_the_bytes_of_the_graph(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    model, x = model_of(tried, shape)
    quantized = zeropoint.to_int8(model, (x,), progress=False)
    program = zeropoint.compile(quantized, (x,), fallback=True)
    with torch.no_grad():
        expected, found = pytree.tree_leaves(quantized(x)), pytree.tree_leaves(program(x))
    assert len(expected) == len(found)
    for e, f in zip(expected, found):
        assert e.dtype == f.dtype
        assert torch.equal(e, f)
    assert set(program.computed_by_torch) <= {f"{space}.{op}" for space, ops in FOREIGN.items() for op in ops}
    if program.computed_by_torch:
        with pytest.raises(Unsupported, match=program.computed_by_torch[0].split(".")[1]):
            zeropoint.compile(quantized, (x,))
        with pytest.raises(ValueError, match="no file"):
            program.save("never.zpt")
