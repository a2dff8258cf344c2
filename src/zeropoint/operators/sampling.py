"""Images read at places that a model computes: grids, and the values between pixels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from zeropoint.operators.float_forms import FloatCall, in_parts
from zeropoint.operators.record import Operator

__all__ = ["RECORDS"]

aten, ours = torch.ops.aten, torch.ops.zeropoint
_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1


def _affine_grid(g: Any, a: dict[str, Any]) -> FloatCall | None:
    """``(x, y, 1) theta'`` for every place of an image of fixed size."""
    height, width = a["size"][-2:]
    if len(a["size"]) != 4 or not isinstance(height, int) or not isinstance(width, int):
        return None
    places = F.affine_grid(torch.eye(2, 3)[None], [1, 1, height, width], a["align_corners"])
    stored = torch.cat([places.reshape(-1, 2), torch.ones(height * width, 1)], 1)
    turned = g.call(aten.transpose.int, g.floats(a["theta"]), 1, 2)
    flat = g.call(ours.float_matmul.default, g.constant(f"places_{height}_{width}", stored), turned)
    return aten.unflatten.int, (flat, 1, [height, width])


class _Sampler:
    """The nodes of one call."""

    def __init__(self, g: Any, a: dict[str, Any], channels: int, sizes: tuple[int, int]) -> None:
        self.g, self.a, self.channels, self.sizes = g, a, channels, sizes
        self.flat = g.call(aten.flatten.using_ints, g.floats(a["input"]), 2, -1)
        self.rows = g.call(aten.sym_size.int, g.floats(a["grid"]), 1)

    def place(self, axis: int, size: int) -> fx.Node:
        """Where to read along an axis, in pixels: -1 and 1 are its ends, or the edges of its first and last pixel."""
        at = self.g.call(aten.add.Tensor, self.g.call(aten.select.int, self.g.floats(self.a["grid"]), 3, axis), 1.0)
        if self.a["align_corners"]:
            at = self.g.call(aten.mul.Tensor, at, (size - 1) / 2)
        else:
            at = self.g.call(
                aten.mul.Tensor, self.g.call(aten.sub.Tensor, self.g.call(aten.mul.Tensor, at, size), 1), 0.5
            )
        return self.g.call(aten.clamp.default, at, 0, size - 1) if self.a["padding_mode"] == _BORDER else at

    def read(self, x: fx.Node, y: fx.Node) -> fx.Node:
        """The pixels at whole places; zeros outside of the image."""
        call = self.g.call
        inside, kept = None, []
        for at, size in ((x, self.sizes[1]), (y, self.sizes[0])):
            low, high = call(aten.ge.Scalar, at, 0), call(aten.le.Scalar, at, size - 1)
            both = call(aten.logical_and.default, low, high)
            inside = both if inside is None else call(aten.logical_and.default, inside, both)
            kept.append(call(aten.to.dtype, call(aten.clamp.default, at, 0, size - 1), torch.int64))
        index = call(aten.add.Tensor, call(aten.mul.Tensor, kept[1], self.sizes[1]), kept[0])
        lines = call(aten.unsqueeze.default, call(aten.flatten.using_ints, index, 1, 2), 1)
        found = call(aten.gather.default, self.flat, 2, call(aten.expand.default, lines, [-1, self.channels, -1]))
        image = call(aten.unflatten.int, found, 2, [self.rows, -1])
        return call(aten.where.ScalarOther, call(aten.unsqueeze.default, inside, 1), image, 0.0)


def _sampled(g: Any, a: dict[str, Any]) -> FloatCall | None:
    """The nearest pixel, or the weighted mean of the four around a place."""
    value = g.unobserved(a["input"]).meta["val"]
    shape = list(value.shape)
    known = a["interpolation_mode"] in (_BILINEAR, _NEAREST) and a["padding_mode"] in (_ZEROS, _BORDER)
    if not known or len(shape) != 4 or any(not isinstance(n, int) for n in shape[1:]):
        return None
    s = _Sampler(g, a, shape[1], (shape[2], shape[3]))
    x, y = s.place(0, shape[3]), s.place(1, shape[2])
    if a["interpolation_mode"] == _NEAREST:
        return aten.alias.default, (s.read(*(g.call(aten.round.default, at) for at in (x, y))),)
    low = [g.call(aten.floor.default, at) for at in (x, y)]
    high = [g.call(aten.add.Tensor, at, 1.0) for at in low]
    shares = [(g.call(aten.sub.Tensor, h, at), g.call(aten.sub.Tensor, at, b)) for at, b, h in zip((x, y), low, high)]
    parts = []
    for down in (0, 1):
        for along in (0, 1):
            weight = g.call(aten.mul.Tensor, shares[0][along], shares[1][down])
            pixels = s.read((low, high)[along][0], (low, high)[down][1])
            parts.append(g.call(aten.mul.Tensor, pixels, g.call(aten.unsqueeze.default, weight, 1)))
    first = g.call(aten.add.Tensor, parts[0], parts[1])
    return aten.add.Tensor, (g.call(aten.add.Tensor, first, parts[2]), parts[3])


RECORDS = (
    Operator("affine_grid", ("affine_grid_generator.default",), float_form=in_parts(_affine_grid)),
    Operator("grid_sampler", ("grid_sampler.default", "grid_sampler_2d.default"), float_form=in_parts(_sampled)),
)
