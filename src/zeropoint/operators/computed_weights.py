"""Layers whose weights a model computes, as those of hypernetworks and StyleGAN: products of matrices in float."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.operators.float_forms import FloatCall
from zeropoint.operators.lowering import Lowering

aten, ours = torch.ops.aten, torch.ops.zeropoint


def computed_linear(g: Lowering, a: dict[str, Any]) -> FloatCall | None:
    """A linear layer with a weight that is computed: a product of matrices."""
    values = [g.unobserved(a[k]).meta.get("val") for k in ("input", "weight")]
    if any(value is None for value in values) or values[0].dim() < 2 or values[1].dim() != 2:
        return None
    turned = g.call(aten.transpose.int, g.floats(a["weight"]), 0, 1)
    product = ours.float_matmul.default, (g.floats(a["input"]), turned)
    if a["bias"] is None:
        return product
    return aten.add.Tensor, (g.call(product[0], *product[1]), g.floats(a["bias"]))


def computed_conv(g: Lowering, a: dict[str, Any]) -> FloatCall | None:
    """A convolution of images: its windows as columns, and one product for each group. Sizes of images are fixed."""
    x, weight = (g.unobserved(a[k]).meta.get("val") for k in ("input", "weight"))
    if not (isinstance(x, Tensor) and isinstance(weight, Tensor)) or x.dim() != 4 or weight.dim() != 4:
        return None
    if isinstance(a["padding"], str) or any(isinstance(n, fx.Node) for k in _NUMBERS for n in a[k]):
        return None
    stride, padding, dilation = (list(a[k]) * (2 if len(a[k]) == 1 else 1) for k in _NUMBERS)
    images, kernel = list(x.shape[2:]), list(weight.shape[2:])
    if dilation != [1, 1] or not all(isinstance(n, int) for n in (*images, *kernel, weight.shape[1])):
        return None
    rows, columns = ((n + 2 * p - k) // s + 1 for n, p, k, s in zip(images, padding, kernel, stride))
    inner, groups = weight.shape[1] * kernel[0] * kernel[1], g.argument(a["groups"])
    windows = g.call(aten.im2col.default, g.floats(a["input"]), kernel, dilation, padding, stride)
    windows = g.call(aten.reshape.default, windows, [-1, groups, inner, rows * columns])
    matrices = g.call(aten.reshape.default, g.floats(a["weight"]), [groups, -1, inner])
    product = g.call(ours.float_matmul.default, matrices, windows)
    result = aten.unflatten.int, (g.call(aten.flatten.using_ints, product, 1, 2), -1, [rows, columns])
    if a["bias"] is None:
        return result
    bias = g.call(aten.reshape.default, g.floats(a["bias"]), [-1, 1, 1])
    return aten.add.Tensor, (g.call(result[0], *result[1]), bias)


_NUMBERS = ("stride", "padding", "dilation")
