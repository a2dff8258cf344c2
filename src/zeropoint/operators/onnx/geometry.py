"""Kernel sizes, strides and padding of ONNX convolutions and pools."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from zeropoint.operators.onnx_forms import OnnxReader, ReadNode


def pads_of(r: OnnxReader, n: ReadNode, x: Any, kernel: list[int], stride: list[int], dilation: list[int]) -> list[Any]:
    """How many values are added before and after each axis: all before, then all after."""
    dims, auto = len(kernel), n.attribute("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return list(n.attribute("pads", [0] * (2 * dims)))
    if auto == "VALID":
        return [0] * (2 * dims)
    before, after = [], []
    for axis in range(dims):
        size = x.shape[2 + axis]
        span = dilation[axis] * (kernel[axis] - 1) + 1
        steps = (size + stride[axis] - 1) // stride[axis]
        total = max((steps - 1) * stride[axis] + span - size, 0)
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return before + after


def padded(
    r: OnnxReader, n: ReadNode, x: Any, kernel: list[int], stride: list[int], dilation: list[int]
) -> tuple[Any, list[Any]]:
    """The input and the padding that ATen takes, which is the same before and after; what is not, is added here."""
    pads = pads_of(r, n, x, kernel, stride, dilation)
    dims = len(pads) // 2
    before, after = pads[:dims], pads[dims:]
    if before == after:
        return x, before
    sides = [side for axis in reversed(range(dims)) for side in (before[axis], after[axis])]
    return F.pad(x, sides), [0] * dims
