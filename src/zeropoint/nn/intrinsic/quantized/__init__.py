"""Fused layers on quantized tensors, under the paths of torch.ao.nn.intrinsic.quantized."""

from zeropoint.nn.intrinsic.quantized.bn_relu import BNReLU2d, BNReLU3d
from zeropoint.nn.intrinsic.quantized.conv import ConvAdd2d, ConvAddReLU2d, ConvReLU1d, ConvReLU2d, ConvReLU3d
from zeropoint.nn.intrinsic.quantized.linear import LinearLeakyReLU, LinearReLU, LinearTanh

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvAdd2d",
    "ConvAddReLU2d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearLeakyReLU",
    "LinearReLU",
    "LinearTanh",
]
