"""Every operator that recipes quantize, in every spelling: the bytes of the graph, by native steps unless listed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_operators import CASES, MOVING_CASES, POOLING_CASES, Calls, spelled
from torch.utils import _pytree as pytree

import zeropoint
from zeropoint.engine import Unsupported

_MAKERS = ("arange.start_step", "ones_like.default", "cumsum.default", "remainder.Scalar", "to.dtype")
_INDICES = {f"aten.{name}" for name in _MAKERS}
_EVERY = [case for table in (CASES, MOVING_CASES, POOLING_CASES) for case in spelled(table)]
# What PyTorch must still compute in some spelling of an operator.
FOREIGN = {
    "cat": {"aten.hstack.default"},
    "clamp.default": {"aten.clip.default"},
    "embedding": {"zeropoint.embedding_byte.default", *_INDICES},
    "embedding_bag": {"zeropoint.embedding_bag_byte_rowwise_offsets.default", *_INDICES},
    "layer_norm": {"aten.layer_norm.default"},
    "mean.dim": {"zeropoint.stored_mean_over.default"},
    "quantized_gru": {"aten.zeros.default", "zeropoint.quantized_gru.input"},
    "quantized_lstm": {"aten.zeros.default", "zeropoint.quantized_lstm.input"},
    "sort.default": {"aten.sort.default"},
    "sort.stable": {"aten.sort.stable"},
    "topk.default": {"aten.topk.default"},
}


@pytest.mark.parametrize(
    ("name", "shape", "tried"), [c for t in (CASES, MOVING_CASES, POOLING_CASES) for c in spelled(t)]
)
def test_operator_gives_the_bytes_of_the_graph(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    torch.manual_seed(0)
    model = Calls(tried, shape).eval()
    x = torch.randn(shape)
    quantized = zeropoint.to_int8(model, (x,), progress=False)
    program = zeropoint.compile(quantized, (x,), fallback=True)
    with torch.no_grad():
        expected, found = pytree.tree_leaves(quantized(x)), pytree.tree_leaves(program(x))
    assert len(expected) == len(found)
    for e, f in zip(expected, found):
        assert e.dtype == f.dtype
        assert torch.equal(e, f)
    assert set(program.computed_by_torch) <= FOREIGN.get(name, set())
    if program.computed_by_torch:
        with pytest.raises(Unsupported, match=program.computed_by_torch[0].split(".")[1]):
            zeropoint.compile(quantized, (x,))
        with pytest.raises(ValueError, match="no file"):
            program.save("never.zpt")
