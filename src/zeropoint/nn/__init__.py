"""Quantized modules and functions, under the paths of torch.ao.nn."""

from zeropoint.nn import intrinsic, qat, quantizable, quantized

__all__ = ["intrinsic", "qat", "quantizable", "quantized"]
