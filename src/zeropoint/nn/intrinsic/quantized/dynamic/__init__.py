"""Fused layers on floats, quantized on the way in, under the paths of torch.ao.nn.intrinsic.quantized.dynamic."""

from zeropoint.nn.intrinsic.quantized.dynamic.linear import LinearReLU

__all__ = ["LinearReLU"]
