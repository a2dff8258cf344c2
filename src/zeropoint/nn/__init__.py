"""Quantized modules and functions, under the paths of torch.ao.nn."""

from zeropoint.nn import quantized

__all__ = ["quantized"]
