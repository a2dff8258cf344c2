"""Quantized layers: packed weights, and functions on quantized tensors."""

from zeropoint.nn.quantized import functional, packed

__all__ = ["functional", "packed"]
