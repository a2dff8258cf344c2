"""Layers in training that other packages derive from private classes of torch.ao."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import zeropoint
from zeropoint.compat.trained_bases import _ConvBnNd, _ConvNd

QCONFIG = zeropoint.get_default_qat_qconfig("native")


class Transposed(_ConvNd, nn.ConvTranspose2d):
    """A transposed convolution in training, as coremltools has one."""

    _FLOAT_MODULE = _FLOAT_CONV_MODULE = nn.ConvTranspose2d

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, qconfig: object = None, **more: object):
        more = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "output_padding": (0, 0), "groups": 1} | more
        options = {"bias": True, "padding_mode": "zeros", **more}
        size = kernel_size if isinstance(kernel_size, tuple) else (kernel_size, kernel_size)
        super().__init__(in_channels, out_channels, size, transposed=True, qconfig=qconfig, **options)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight_fake_quant(self.weight)
        return F.conv_transpose2d(x, weight, self.bias, self.stride, self.padding)


def test_a_derived_layer_has_the_parameters_of_the_float_layer_and_gives_them_back() -> None:
    layer = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    layer.qconfig = QCONFIG
    made = Transposed.from_float(Transposed, layer)
    assert made.weight is layer.weight
    assert made.bias is layer.bias
    assert isinstance(made, (nn.ConvTranspose2d, _ConvNd))
    x = torch.randn(1, 2, 5, 5)
    assert torch.allclose(made(x), layer(x), atol=0.1)
    back = made.to_float()
    assert type(back) is nn.ConvTranspose2d
    assert torch.equal(back(x), layer(x))


class WithBatchNorm(_ConvBnNd, nn.Conv2d):
    """A convolution with its batch norm in training, with the classes of its parts named as torch.ao names them."""

    _FLOAT_MODULE = zeropoint.nn.intrinsic.ConvBn2d
    _FLOAT_CONV_MODULE = nn.Conv2d


@pytest.mark.parametrize("training", [True, False])
def test_a_derived_layer_with_batch_norm_computes_what_ours_computes(training: bool) -> None:
    made = WithBatchNorm(2, 3, (3, 3), (1, 1), (0, 0), (1, 1), False, (0, 0), 1, True, "zeros", qconfig=QCONFIG, dim=2)
    ours = zeropoint.nn.intrinsic.qat.ConvBn2d(2, 3, 3, bias=True, qconfig=QCONFIG)
    ours.load_state_dict(made.state_dict())
    x = torch.randn(4, 2, 6, 6)
    assert torch.equal(made.train(training)(x), ours.train(training)(x))
    assert torch.equal(made._forward(x), ours(x))
    if not training:
        assert torch.equal(made.to_float().eval()(x), ours.to_float().eval()(x))


def test_a_transposed_layer_folds_its_batch_norm_along_the_output_channels() -> None:
    made = _ConvBnNd(2, 6, (3, 3), (1, 1), (0, 0), (1, 1), True, (0, 0), 2, False, "zeros", qconfig=QCONFIG)
    made.bn.running_var.uniform_(0.5, 2.0)
    made.eval()
    weight, bias = made.folded()
    x = torch.randn(1, 2, 4, 4)
    expected = made.bn(F.conv_transpose2d(x, made.weight, None, groups=2))
    assert torch.allclose(F.conv_transpose2d(x, weight, bias, groups=2), expected, atol=1e-5)


def test_a_qconfig_is_needed() -> None:
    with pytest.raises(ValueError, match=r"qconfig must be provided for QAT module Transposed, .* got None"):
        Transposed(2, 3, 3)
