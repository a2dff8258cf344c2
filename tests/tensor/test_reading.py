"""What a quantized tensor is asked, as operators: for scripted, traced, exported and compiled code."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import zeropoint

ops = torch.ops.zeropoint
X = torch.tensor([[0.5, -1.0, 2.0], [0.0, 3.0, -2.5]])
WHOLE = zeropoint.quantize_per_tensor(X, 0.05, 60, zeropoint.quint8)
ROWS = zeropoint.quantize_per_channel(X, torch.tensor([0.1, 0.2]), torch.tensor([0, 3]), 0, zeropoint.qint8)


@pytest.mark.parametrize("q", [WHOLE, ROWS], ids=["per tensor", "per channel"])
def test_operators_answer_as_methods_do(q: zeropoint.QTensor) -> None:
    assert torch.equal(ops.int_repr(q), q.int_repr())
    assert torch.equal(ops.dequantize(q), q.dequantize())
    assert ops.is_quantized(q)
    assert ops.qscheme(q) == q.qscheme().name
    assert ops.qdtype(q) == q.qdtype.name


def test_parameters() -> None:
    assert (ops.q_scale(WHOLE), ops.q_zero_point(WHOLE)) == (0.05, 60)
    assert ops.q_zero_point_number(WHOLE) == 60.0
    assert torch.equal(ops.q_per_channel_scales(ROWS), ROWS.q_per_channel_scales())
    assert torch.equal(ops.q_per_channel_zero_points(ROWS), ROWS.q_per_channel_zero_points())
    assert ops.q_per_channel_axis(ROWS) == 0


def test_scripted_code_asks() -> None:
    def ask(q: Tensor) -> tuple[Tensor, float, int]:
        read = torch.ops.zeropoint.int_repr(q), torch.ops.zeropoint.q_scale(q), torch.ops.zeropoint.q_zero_point(q)
        return read

    integers, scale, zero_point = torch.jit.script(ask)(WHOLE)
    assert torch.equal(integers, WHOLE.int_repr())
    assert (scale, zero_point) == (0.05, 60)


@pytest.mark.parametrize("name", ["int_repr", "q_scale", "q_zero_point", "q_per_channel_axis", "qscheme", "qdtype"])
def test_plain_tensors_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} reads a quantized tensor .* got a torch\.float32 tensor of shape"):
        getattr(ops, name)(X)


def test_plain_tensors_are_not_quantized_and_dequantize_to_themselves() -> None:
    assert not ops.is_quantized(X)
    assert torch.equal(ops.dequantize(X), X)
