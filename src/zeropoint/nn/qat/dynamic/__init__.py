"""Layers in training for dynamic quantization, under the paths of torch.ao.nn.qat.dynamic."""

from zeropoint.nn.qat.dynamic.linear import Linear

__all__ = ["Linear"]
