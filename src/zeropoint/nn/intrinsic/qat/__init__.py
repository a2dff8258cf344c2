"""Fused layers in quantization-aware training, under the paths of torch.ao.nn.intrinsic.qat."""

from zeropoint.nn.intrinsic.qat.batch_norm import (
    ConvBn1d,
    ConvBn2d,
    ConvBn3d,
    ConvBnReLU1d,
    ConvBnReLU2d,
    ConvBnReLU3d,
    LinearBn1d,
    freeze_bn_stats,
    update_bn_stats,
)
from zeropoint.nn.intrinsic.qat.relu import ConvReLU1d, ConvReLU2d, ConvReLU3d, LinearReLU

__all__ = [
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearReLU",
    "freeze_bn_stats",
    "update_bn_stats",
]
