"""What passes values on, and what is written in place, in TorchScript."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from eight_bit_steps import steps_between
from script_graphs import BOTH_WAYS, STATIC, calls, quantized, scripted
from torch import Tensor, nn

import zeropoint


class FloatSumInPlace(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x += y
        return x


def test_an_input_that_the_model_writes_to_is_still_written_to() -> None:
    x, y = torch.ones(3), torch.ones(3)
    made = zeropoint.quantize_jit(torch.jit.script(FloatSumInPlace()), STATIC, lambda m: m(x.clone(), y), ())
    made(x, y)
    assert torch.equal(x, torch.full((3,), 2.0))


class General(nn.Module):
    """Convolutions with what only passes values on between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)
        self.max_pool, self.average_pool = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d((3, 2))
        self.dropout = nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        x = self.dropout(self.max_pool(x))
        x = shuffled(x, 2)
        parts = torch.chunk(x.transpose(2, 3).contiguous(), 2, 1)
        x = torch.cat([parts[1], parts[0]], 1)
        x = F.interpolate(x, size=(8, 7))
        return torch.flatten(self.conv2(self.average_pool(x)), 1)


def shuffled(x: Tensor, groups: int) -> Tensor:
    """A function of its own, which asks for sizes."""
    batch, channels, height, width = x.size()
    x = x.view(batch, groups, channels // groups, height, width)
    return torch.transpose(x, 1, 2).contiguous().view(batch, -1, height, width)


@BOTH_WAYS
def test_what_passes_values_on_needs_no_scale_of_its_own(traced: bool) -> None:
    model, x = General().eval(), torch.randn(2, 3, 10, 12)
    script = scripted(model, traced, x)
    prepared = zeropoint.prepare_jit(script, STATIC)
    # the input, the results of two convolutions and of cat, and two weights
    assert len([name for name, _ in prepared.named_modules() if "_observer_" in name.rsplit(".", 1)[-1]]) == 6
    made = quantized(script, x)
    found = calls(made)
    assert found.count("quantize_per_tensor") == found.count("dequantize") == 1
    assert steps_between(made(x), model(x)) <= 6  # of three results that are rounded, with seven bits each
    if not traced:  # other sizes, nearly in the range that was seen
        other: Any = x[:1].repeat(1, 1, 2, 1)[:, :, :14, :9]
        assert steps_between(made(other), model(other), model(x)) <= 8
