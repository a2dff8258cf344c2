"""A layer's result that two operators read: what only one of them asks for is not done to the layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zeropoint


class TwoReaders(nn.Module):
    """Gives what `function` makes of the layer's result, and that result."""

    def __init__(self, layer: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layer(x)
        return self.function(y), y


def images() -> Tensor:
    return torch.randn(4, 3, 6, 6)


def batch_norm() -> nn.BatchNorm2d:
    bn = nn.BatchNorm2d(4)
    bn.running_mean, bn.running_var = torch.rand(4) + 1, torch.rand(4) + 2
    return bn


def assert_within_steps(found: Tensor, exact: Tensor, steps: float) -> None:
    """In steps of 8 bits over the exact values."""
    assert (found - exact).abs().max() <= steps * float(exact.max() - exact.min()) / 255


def test_batch_norm_stays_behind_a_convolution_that_others_read() -> None:
    model, x = TwoReaders(nn.Conv2d(3, 4, 3), batch_norm()).eval(), images()
    prepared = zeropoint.prepare_graph(model, zeropoint.get_default_qconfig_mapping("native"), (x,))
    with torch.no_grad():
        for found, exact in zip(prepared(x), model(x), strict=True):
            torch.testing.assert_close(found, exact)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "sigmoid": torch.sigmoid,
    "hardswish": F.hardswish,
    "pad": lambda y: F.pad(y, (1, 2, 0, 1)),
    "batch norm": batch_norm(),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=list(FUNCTIONS))
@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "program"])
def test_both_readers_get_the_result_of_the_layer(function: Callable[[Tensor], Tensor], compiled: bool) -> None:
    model, x = TwoReaders(nn.Conv2d(3, 4, 3), function).eval(), images()
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    computed = zeropoint.compile(quantized, (x,)) if compiled else quantized
    with torch.no_grad():
        for found, exact in zip(computed(x), model(x), strict=True):
            assert_within_steps(torch.as_tensor(found), exact, 3)
