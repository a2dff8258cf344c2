"""Every operator that has a record, in every spelling: the bytes of the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from operator_cases import CASES, MOVING_CASES, POOLING_CASES, assert_same_bytes, model_of, spelled

import zeropoint


@pytest.mark.thorough  # tests/graph/workflow/test_operators.py compiles what it captured of each
@pytest.mark.parametrize(
    ("name", "shape", "tried"), [c for t in (CASES, MOVING_CASES, POOLING_CASES) for c in spelled(t)]
)
def test_operator_gives_the_bytes_of_the_graph(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    model, x = model_of(tried, shape)
    quantized = zeropoint.to_int8(model, (x,), progress=False)
    program = zeropoint.compile(quantized, (x,))
    assert_same_bytes(program, quantized, x)


# What is computed in float32 around layers that quantize what they get, or around one that alone is quantized.
MODES: dict[str, dict[str, Any]] = {
    "dynamic": {"mode": "dynamic"},
    "weights": {"mode": "weight_only"},
    "first": {"qconfig": zeropoint.QConfigMapping().set_module_name("first", zeropoint.get_default_qconfig())},
}
_EVERY = [case.values for table in (CASES, MOVING_CASES, POOLING_CASES) for case in spelled(table)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        # The float steps are those of every mode, and a model takes seconds.
        pytest.param(mode, shape, id=f"{mode}-{len(shape)}", marks=[pytest.mark.thorough] * (mode != "dynamic"))
        for mode in MODES
        for shape in sorted({shape for _, shape, _ in _EVERY})
        if mode != "weights" or len(shape) < 4  # of images there is nothing with weights alone
    ],
)
def test_operators_that_stay_float_give_the_bytes_of_the_graph(mode: str, shape: tuple[int, ...]) -> None:
    """All of them in one model; but for float bags, which have no step."""
    several = [t for name, at, tried in _EVERY if at == shape and name != "embedding_bag" for t in tried]
    model, x = model_of(several, shape)
    quantized = zeropoint.to_int8(model, (x,), progress=False, **MODES[mode])
    program = zeropoint.compile(quantized, (x,))
    assert_same_bytes(program, quantized, x)


class Chosen(torch.nn.Module):
    """Rows and elements by indices that come from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.table = torch.nn.Linear(4, 4), torch.nn.Embedding(6, 3)

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> Any:
        y = self.linear(x)
        return y.gather(1, at), y[at[:, 0]], self.table(at)


@pytest.mark.parametrize("wrong", [4, -1, 1 << 40, -(1 << 62)])
def test_index_out_of_range_is_an_error_of_the_call(wrong: int) -> None:
    torch.manual_seed(0)
    x, at = torch.randn(4, 4), torch.tensor([[0, 3], [2, 1], [3, 3], [1, 0]])
    mapping = zeropoint.get_default_qconfig_mapping().set_object_type(torch.nn.Embedding, None)
    quantized = zeropoint.to_int8(Chosen().eval(), (x, at), qconfig=mapping, progress=False)
    program = zeropoint.compile(quantized, (x, at))
    with torch.no_grad():
        for f, e in zip(program(x, at), quantized(x, at), strict=True):
            assert torch.equal(f, e)
    bad = at.clone()
    bad[2, 1] = wrong
    with pytest.raises(ValueError, match=f"index {wrong} is outside an axis of"):
        program(x, bad)
