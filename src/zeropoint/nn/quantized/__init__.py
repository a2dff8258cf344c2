"""Quantized layers, and functions on quantized tensors."""

from zeropoint.nn.quantized import functional

__all__ = ["functional"]
