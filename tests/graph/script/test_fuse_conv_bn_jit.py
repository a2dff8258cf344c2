"""Batch norms folded into the convolutions before them, as a step of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from few_layers import Layers
from script_graphs import BOTH_WAYS, scripted
from torch import Tensor, nn

import zeropoint

SIZES = {1: (2, 3, 9), 2: (2, 3, 7, 6), 3: (2, 3, 5, 4, 5)}


class ConvBn(nn.Module):
    def __init__(self, dims: int, bias: bool, affine: bool = True, channels: int = 3) -> None:
        super().__init__()
        self.conv = getattr(nn, f"Conv{dims}d")(channels, channels, 3, bias=bias)
        self.bn = getattr(nn, f"BatchNorm{dims}d")(channels, eps=0.0023, affine=affine)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x))


class Two(nn.Module):
    """Two pairs whose parts are of the same classes."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.second = ConvBn(2, bias), ConvBn(2, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


def filled(model: nn.Module, seed: int = 0) -> nn.Module:
    """In evaluation mode, with batch norms that change something."""
    torch.manual_seed(seed)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if "bn" in name and value.is_floating_point():
            value.data = torch.rand_like(value) + 0.5
    return model.eval()


def batch_norms_called(model: Any) -> int:
    """Of the inlined graph, so also those within submodules."""
    return str(model.inlined_graph).count("aten::batch_norm(")


def assert_folded(model: nn.Module, script: Any, x: Tensor, tolerance: float = 2e-5) -> None:
    folded = zeropoint.fuse_conv_bn_jit(script)
    assert batch_norms_called(folded) == 0, folded.inlined_graph
    assert batch_norms_called(script) > 0
    torch.testing.assert_close(folded(x), model(x), atol=tolerance, rtol=tolerance)


@BOTH_WAYS
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
def test_modules_that_share_a_class_keep_their_own_numbers(bias: bool, traced: bool) -> None:
    model, x = filled(Two(bias)), torch.randn(SIZES[2])
    assert_folded(model, scripted(model, traced, x), x)


@BOTH_WAYS
@pytest.mark.parametrize("count", [1, 3])
def test_pairs_in_a_row(count: int, traced: bool) -> None:
    layers = [part for _ in range(count) for part in (nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3))]
    model, x = filled(nn.Sequential(*layers)), torch.randn(SIZES[2])
    for part in model[1::2]:
        part.running_mean.uniform_(-1, 1)
    assert_folded(model, scripted(model, traced, x), x)


def test_a_result_that_is_read_before_the_norm_is_left_alone() -> None:
    class Read(Layers):
        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return self.bn(y) + y

    model, x = filled(Read(conv=nn.Conv2d(3, 3, 1), bn=nn.BatchNorm2d(3))), torch.randn(SIZES[2])
    folded = zeropoint.fuse_conv_bn_jit(torch.jit.script(model))
    assert batch_norms_called(folded) == 1
    assert torch.equal(folded(x), model(x))


def test_weights_that_two_convolutions_share_are_left_alone() -> None:
    model, x = filled(Two(False)), torch.randn(SIZES[2])
    model.second.conv.weight = model.first.conv.weight
    folded = zeropoint.fuse_conv_bn_jit(torch.jit.script(model))
    torch.testing.assert_close(folded(x), model(x), atol=2e-5, rtol=2e-5)
