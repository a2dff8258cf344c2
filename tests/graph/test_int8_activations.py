"""Activations of int8 meet functions whose results have parameters of their own, which are uint8."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import zeropoint

UNIT, SYMMETRIC = 1 / 256, 2 / 256  # the steps of results from 0 to 1 and from -1 to 1


@pytest.mark.parametrize(
    ("function", "step"),
    [(nn.Sigmoid(), UNIT), (nn.Hardsigmoid(), UNIT), (nn.Tanh(), SYMMETRIC)],
    ids=["sigmoid", "hardsigmoid", "tanh"],
)
@pytest.mark.parametrize(
    "name", ["default_symmetric_qnnpack_qconfig", "default_per_channel_symmetric_qnnpack_qconfig", "default_qconfig"]
)
def test_results_are_the_function_of_the_quantized_layer(function: nn.Module, step: float, name: str) -> None:
    """Bytes of int8 were read as uint8: sigmoid was off by up to a half, tanh was refused."""
    torch.manual_seed(0)
    layer, x = nn.Linear(8, 8).eval(), torch.randn(64, 8)
    given = {"calibration": [x], "qconfig": getattr(zeropoint, name), "progress": False}
    options = {**given, "policy": {"float_outputs": False}}
    alone = zeropoint.to_int8(layer, (x,), **options)
    both = zeropoint.to_int8(nn.Sequential(layer, function).eval(), (x,), **options)
    expected = function(alone(x)).clamp(-1.0, 1.0 - step)
    # Half a step of rounding; float32 computes the function to far less.
    assert (both(x) - expected).abs().max() <= step / 2 + 1e-6
    program = zeropoint.compile(both, (x,))
    assert torch.equal(torch.as_tensor(program(x)), both(x))
