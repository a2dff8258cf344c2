"""What torch.fx's symbolic trace calls the operators: the functions, methods and modules that FX graph mode quantizes.

A row has the name of a record, how observers treat the operator in FX graph mode, and what calls it. Layers need no
row: their modules, functions and fused forms stand in their records.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["Observed", "Traced", "traced"]


class Observed(enum.Enum):
    """How an operator is observed in FX graph mode."""

    SUM = "of two tensors: its result has a range of its own; of a tensor and a number: that of the tensor"
    PRODUCT = "a product of matrices: its result has a range of its own"
    JOINED = "inputs and result share one observer"
    OWN = "its result has a range of its own"
    NORM = "its result has a range of its own, weight and bias stay float"
    FIXED = "its result has the fixed range that the record names"
    SHARED = "its result has the observer of its input"
    PASSED = "not at all; between quantized tensors it takes and gives them"
    INFO = "it tells about a tensor and gives none"
    BATCH_NORM = "its result has a range of its own; a ReLU behind it can be a part of it"


class Traced(NamedTuple):
    """One row: the record, how it is observed, and what calls it."""

    record: str
    observed: Observed
    calls: tuple[Any, ...]


_ROWS = (
    Traced("add", Observed.SUM, (operator.add, torch.add)),
    Traced("mul", Observed.SUM, (operator.mul, torch.mul)),
    Traced("matmul", Observed.PRODUCT, (torch.matmul,)),
    Traced("cat", Observed.JOINED, (torch.cat,)),
    Traced("elu", Observed.OWN, (nn.ELU, F.elu)),
    Traced("leaky_relu", Observed.OWN, (nn.LeakyReLU, F.leaky_relu)),
    Traced("hardswish", Observed.OWN, (nn.Hardswish, F.hardswish)),
    Traced("instance_norm", Observed.OWN, (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, F.instance_norm)),
    Traced("group_norm", Observed.OWN, (F.group_norm,)),
    Traced("dropout", Observed.OWN, (nn.Dropout, F.dropout)),
    Traced("prelu", Observed.OWN, (nn.PReLU,)),
    Traced("layer_norm", Observed.NORM, (nn.LayerNorm, F.layer_norm)),
    Traced("batch_norm", Observed.BATCH_NORM, (nn.BatchNorm2d, nn.BatchNorm3d)),
    Traced("hardsigmoid", Observed.FIXED, (nn.Hardsigmoid, F.hardsigmoid, "hardsigmoid", "hardsigmoid_")),
    Traced("sigmoid", Observed.FIXED, (nn.Sigmoid, torch.sigmoid, "sigmoid", "sigmoid_")),
    Traced("softmax", Observed.FIXED, (nn.Softmax,)),
    Traced("tanh", Observed.FIXED, (nn.Tanh, torch.tanh, "tanh", "tanh_")),
    Traced("adaptive_avg_pool1d", Observed.SHARED, (nn.AdaptiveAvgPool1d, torch.adaptive_avg_pool1d)),
    Traced("adaptive_avg_pool2d", Observed.SHARED, (nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d)),
    Traced("adaptive_avg_pool3d", Observed.SHARED, (nn.AdaptiveAvgPool3d, F.adaptive_avg_pool3d)),
    Traced("avg_pool1d", Observed.SHARED, (nn.AvgPool1d, torch.avg_pool1d)),
    Traced("avg_pool2d", Observed.SHARED, (nn.AvgPool2d, F.avg_pool2d)),
    Traced("avg_pool3d", Observed.SHARED, (nn.AvgPool3d, F.avg_pool3d)),
    Traced("max_pool1d", Observed.SHARED, (nn.MaxPool1d, F.max_pool1d)),
    Traced("max_pool2d", Observed.SHARED, (nn.MaxPool2d, F.max_pool2d)),
    Traced("max_pool3d", Observed.SHARED, (nn.MaxPool3d, F.max_pool3d)),
    Traced("hardtanh", Observed.SHARED, (nn.Hardtanh, F.hardtanh, F.hardtanh_)),
    Traced("relu", Observed.SHARED, (nn.ReLU, F.relu, "relu", "relu_")),
    Traced("relu6", Observed.SHARED, (nn.ReLU6, F.relu6)),
    Traced("clamp", Observed.SHARED, (torch.clamp, "clamp")),
    Traced("alias", Observed.SHARED, (nn.Identity,)),
    Traced("pixel_shuffle", Observed.SHARED, (nn.PixelShuffle, F.pixel_shuffle)),
    Traced("pixel_unshuffle", Observed.SHARED, (nn.PixelUnshuffle, F.pixel_unshuffle)),
    Traced("channel_shuffle", Observed.PASSED, (nn.ChannelShuffle, torch.channel_shuffle)),
    Traced("upsample_bilinear2d", Observed.SHARED, (F.interpolate,)),
    Traced("flatten", Observed.SHARED, (torch.flatten,)),
    Traced("mean", Observed.SHARED, (torch.mean, "mean")),
    Traced("narrow", Observed.SHARED, (torch.narrow,)),
    Traced("repeat_interleave", Observed.SHARED, (torch.repeat_interleave, "repeat_interleave")),
    Traced("repeat", Observed.SHARED, ("repeat",)),
    Traced("transpose", Observed.SHARED, (torch.transpose, "transpose")),
    Traced("squeeze", Observed.SHARED, (torch.squeeze, "squeeze", "squeeze_")),
    Traced("unsqueeze", Observed.SHARED, (torch.unsqueeze, "unsqueeze", "unsqueeze_")),
    Traced("cat", Observed.SHARED, (torch.stack,)),
    Traced("floor_divide", Observed.SHARED, (operator.floordiv,)),
    Traced("contiguous", Observed.SHARED, ("contiguous",)),
    Traced("detach", Observed.SHARED, ("detach", "detach_")),
    Traced("permute", Observed.SHARED, ("permute",)),
    Traced("reshape", Observed.SHARED, ("reshape", "resize_", "view")),
    Traced("reshape", Observed.INFO, ("shape", "size")),
)


def traced(*observed: Observed) -> Iterator[Traced]:
    """The rows of operators that are observed in one of these ways; all rows, if none is named."""
    return (row for row in _ROWS if not observed or row.observed in observed)
