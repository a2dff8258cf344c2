"""Batch norm with a ReLU, on quantized tensors, rounded once."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from zeropoint import qfunctions
from zeropoint.nn import quantized as nnq
from zeropoint.nn.quantized.batchnorm import batch_norm_graph


class BNReLU2d(nnq.BatchNorm2d):
    """`zeropoint.nn.quantized.BatchNorm2d` with a ReLU."""

    _NAME = "QuantizedBNReLU2d"
    _OP: ClassVar[Any] = staticmethod(qfunctions.batch_norm2d_relu)
    _graph = batch_norm_graph(torch.ops.zeropoint.batch_norm2d_relu)


class BNReLU3d(nnq.BatchNorm3d):
    """`zeropoint.nn.quantized.BatchNorm3d` with a ReLU."""

    _NAME = "QuantizedBNReLU3d"
    _OP: ClassVar[Any] = staticmethod(qfunctions.batch_norm3d_relu)
    _graph = batch_norm_graph(torch.ops.zeropoint.batch_norm3d_relu)
