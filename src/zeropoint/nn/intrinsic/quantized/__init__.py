"""Fused layers on quantized tensors, under the paths of torch.ao.nn.intrinsic.quantized."""

from zeropoint.nn.intrinsic.quantized.conv import ConvAdd2d, ConvAddReLU2d, ConvReLU1d, ConvReLU2d, ConvReLU3d
from zeropoint.nn.intrinsic.quantized.linear import LinearLeakyReLU, LinearReLU, LinearTanh

__all__ = [
    "ConvAdd2d",
    "ConvAddReLU2d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearLeakyReLU",
    "LinearReLU",
    "LinearTanh",
]
