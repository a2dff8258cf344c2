"""Layers in quantization-aware training, under the paths of torch.ao.nn.qat."""

from zeropoint.nn.qat import dynamic
from zeropoint.nn.qat.conv import Conv1d, Conv2d, Conv3d
from zeropoint.nn.qat.embedding import Embedding, EmbeddingBag
from zeropoint.nn.qat.linear import Linear

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear", "dynamic"]
