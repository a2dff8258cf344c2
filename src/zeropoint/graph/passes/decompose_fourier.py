"""The real part of a discrete Fourier transform, as products with cosines and sines in float.

Networks such as FNet mix tokens so. Graphs on integers and programs have no complex numbers: along each axis of n
values the transform is a product with ``cos(2 pi j k / n) - i sin(2 pi j k / n)``, and of two axes the real part is
``C x C' - S x S'``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call
from zeropoint.operators.node import arguments

__all__ = ["FOURIER"]

aten, ours = torch.ops.aten, torch.ops.zeropoint
_TRANSFORMS = (aten.fft_fft.default, aten.fft_fft2.default, aten.fft_fftn.default)


def _real_part(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    transform = a["self"]
    if not isinstance(transform, fx.Node) or transform.target not in _TRANSFORMS:
        return None
    b = arguments(transform)
    x, norm = b["self"], b["norm"]
    value = x.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or norm not in (None, "backward"):
        return None
    if b.get("n") is not None or b.get("s") is not None:
        return None
    given = b["dim"]
    axes = [given] if isinstance(given, int) else list(range(value.dim()) if given is None else given)
    axes = sorted(axis % value.dim() for axis in axes)
    if len(axes) > 2:
        return None
    cosines, sines = x, x
    for axis in axes:
        cosine, sine = _matrices(graph, node, x, axis)
        cosines = _product(graph, node, cosines, cosine, axis, value.dim())
        sines = _product(graph, node, sines, sine, axis, value.dim())
    return cosines if len(axes) == 1 else call(graph, node, aten.sub.Tensor, cosines, sines)


def _matrices(graph: fx.Graph, node: fx.Node, x: fx.Node, axis: int) -> list[fx.Node]:
    """Cosines and sines for the places of an axis. The angle is taken from ``j k`` modulo n, which is exact."""
    size: Any = x.meta["val"].shape[axis]
    if not isinstance(size, int):
        size = call(graph, node, aten.sym_size.int, x, axis)
    places = call(graph, node, aten.arange.default, size)
    products = call(graph, node, aten.mul.Tensor, call(graph, node, aten.unsqueeze.default, places, 1), places)
    turns = call(graph, node, aten.remainder.Scalar, products, size)
    angles = call(graph, node, aten.mul.Tensor, call(graph, node, aten.to.dtype, turns, torch.float32), 2 * math.pi)
    angles = call(graph, node, aten.div.Tensor, angles, size)
    return [call(graph, node, function, angles) for function in (aten.cos.default, aten.sin.default)]


def _product(graph: fx.Graph, node: fx.Node, x: fx.Node, matrix: fx.Node, axis: int, rank: int) -> fx.Node:
    """Along the last axis, or the one before it; others are turned there. The matrices are symmetric."""
    last = rank - 1
    if axis == last:
        return call(graph, node, ours.float_matmul.default, x, matrix)
    if axis == last - 1:
        return call(graph, node, ours.float_matmul.default, matrix, x)
    turned = call(graph, node, aten.transpose.int, x, axis, last)
    return call(
        graph, node, aten.transpose.int, call(graph, node, ours.float_matmul.default, turned, matrix), axis, last
    )


FOURIER: dict[str, Any] = {"real.default": _real_part}
