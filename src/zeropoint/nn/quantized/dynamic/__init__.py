"""Layers on floats that are quantized on the way in, under the paths of torch.ao.nn.quantized.dynamic."""

from zeropoint.nn.quantized.dynamic.linear import Linear

__all__ = ["Linear"]
