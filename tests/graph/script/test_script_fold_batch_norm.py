"""`fuse_conv_bn_jit`: numbers stay, the calls of batch norms go, everything else is what it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from few_layers import Layers
from script_graphs import reloaded, scripted
from torch import Tensor, nn

import zeropoint

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
X = {1: (2, 3, 10), 2: (2, 3, 8, 8), 3: (1, 3, 7, 7, 7)}


def calls(module: Any) -> int:
    """How many submodules a scripted module calls."""
    nodes = module._c._get_method("forward").graph.findAllNodes("prim::CallMethod")
    return sum(node.s("name").startswith("forward") for node in nodes)


class Pairs(nn.Module):
    """Convolutions, each with a batch norm behind it."""

    def __init__(self, dims: int, count: int, bias: bool, affine: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(count):
            norm = NORM[dims](3, affine=affine, eps=0.0023)
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
            if affine:
                nn.init.uniform_(norm.weight)
                nn.init.uniform_(norm.bias)
            layers += [CONV[dims](3, 3, 3, bias=bias), norm]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_norms_in_submodules_are_folded(
    traced: bool, dims: int, bias: bool, affine: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"sub": Pairs(dims, 2, bias, affine)})["sub"].eval().to(dtype)
    x = torch.randn(X[dims], dtype=dtype)
    script = scripted(model, traced, x)
    expected = model(x)
    fused = zeropoint.fuse_conv_bn_jit(script)
    assert (calls(script.layers), calls(fused.layers)) == (4, 2)
    torch.testing.assert_close(fused(x), expected)
    torch.testing.assert_close(reloaded(fused)(x), expected)
    assert torch.equal(script(x), expected)


def test_inplace_changes_the_model_itself() -> None:
    torch.manual_seed(0)
    model, x = Pairs(2, 1, True, True).eval(), torch.randn(X[2])
    script = torch.jit.script(model)
    assert zeropoint.fuse_conv_bn_jit(script, inplace=True) is script
    assert calls(script.layers) == 1
    torch.testing.assert_close(script(x), model(x))


class Named(Layers):
    """Modules that only have the names."""

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x))


def test_modules_of_other_classes_are_left() -> None:
    assert calls(zeropoint.fuse_conv_bn_jit(torch.jit.script(Named(conv=nn.Identity(), bn=nn.Identity())))) == 2


class Twice(nn.Module):
    """A convolution that is also called without its batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.bn.running_mean.fill_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)) + self.conv(x)


def test_a_convolution_that_something_else_calls_is_left() -> None:
    model, x = Twice().eval(), torch.randn(X[2])
    fused = zeropoint.fuse_conv_bn_jit(torch.jit.script(model))
    assert calls(fused) == 3
    torch.testing.assert_close(fused(x), model(x))


def test_a_batch_norm_in_training_is_left() -> None:
    model = Pairs(2, 1, True, True).train()
    assert calls(zeropoint.fuse_conv_bn_jit(torch.jit.script(model)).layers) == 2
