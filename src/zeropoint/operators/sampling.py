"""Images read at places that a model computes: grids, and the values between pixels."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from zeropoint.operators.float_forms import FloatCall, in_parts
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.record import Operator

aten, ours = torch.ops.aten, torch.ops.zeropoint
_BILINEAR, _NEAREST = 0, 1
_ZEROS, _REFLECTION = 0, 2  # and 1: the nearest pixel of the border


def _affine_grid(g: Lowering, a: dict[str, Any]) -> FloatCall | None:
    """``(x, y, 1) theta'`` for every place of an image of fixed size; ``(x, y, z, 1)`` for every place of a volume."""
    sizes = list(a["size"][2:])
    if len(sizes) not in (2, 3) or not all(isinstance(n, int) for n in sizes):
        return None
    axes = len(sizes)
    places = F.affine_grid(torch.eye(axes, axes + 1)[None], [1, 1, *sizes], a["align_corners"])
    stored = torch.cat([places.reshape(-1, axes), torch.ones(math.prod(sizes), 1)], 1)
    name = "_".join(["places", *map(str, sizes), "corners" if a["align_corners"] else "edges"])
    turned = g.call(aten.transpose.int, g.floats(a["theta"]), 1, 2)
    flat = g.call(ours.float_matmul.default, g.constant(name, stored), turned)
    return aten.unflatten.int, (flat, 1, sizes)


class _Sampler:
    """The nodes of one call; axes are counted from the last one of the image, as grids do."""

    def __init__(self, g: Lowering, a: dict[str, Any], channels: int, sizes: list[int]) -> None:
        self.g, self.a, self.channels, self.sizes = g, a, channels, sizes[::-1]
        self.flat = g.call(aten.flatten.using_ints, g.floats(a["input"]), 2, -1)
        self.outer = [g.call(aten.sym_size.int, g.floats(a["grid"]), axis) for axis in range(1, len(sizes))]

    def place(self, axis: int) -> fx.Node:
        """Where to read along an axis, in pixels: -1 and 1 are its ends, or the edges of its first and last pixel."""
        call, size, corners = self.g.call, self.sizes[axis], self.a["align_corners"]
        at = call(aten.add.Tensor, call(aten.select.int, self.g.floats(self.a["grid"]), -1, axis), 1.0)
        if corners:
            at = call(aten.mul.Tensor, at, (size - 1) / 2)
        else:
            at = call(aten.mul.Tensor, call(aten.sub.Tensor, call(aten.mul.Tensor, at, size), 1), 0.5)
        if self.a["padding_mode"] == _ZEROS:
            if len(self.sizes) == 2:
                return at
            near = call(aten.le.Scalar, call(aten.abs.default, at), 2.0**30)  # beyond, and NaN, is outside
            return call(aten.where.ScalarOther, near, at, -100.0)
        if self.a["padding_mode"] == _REFLECTION:
            at = self.reflected(at, 0.0 if corners else -0.5, size - 1.0 if corners else float(size))
        return self.kept(at, size)

    def kept(self, at: fx.Node, size: int) -> fx.Node:
        """Inside of an axis; what is not a number is its first place, in volumes the last."""
        first = 0.0 if len(self.sizes) == 2 else size - 1.0
        return self.g.call(aten.clamp.default, self.g.call(aten.nan_to_num.default, at, first), 0, size - 1)

    def reflected(self, at: fx.Node, low: float, span: float) -> fx.Node:
        """Places beyond the ends of an axis that begins at `low`, mirrored at these as often as it takes."""
        call = self.g.call
        if not span:
            return call(aten.mul.Tensor, at, 0.0)
        behind = call(aten.abs.default, call(aten.sub.Tensor, at, low))
        circle = self.g.constant(f"circle_{span}", torch.tensor(2 * span))
        there_and_back = call(ours.float_binary.default, behind, circle, "remainder")
        from_end = call(aten.abs.default, call(aten.sub.Tensor, there_and_back, span))
        return call(aten.add.Tensor, call(aten.mul.Tensor, from_end, -1.0), span + low)

    def read(self, places: list[fx.Node]) -> fx.Node:
        """The pixels at whole places; zeros outside of the image."""
        call = self.g.call
        inside = index = None
        for at, size in reversed(list(zip(places, self.sizes))):
            low, high = call(aten.ge.Scalar, at, 0), call(aten.le.Scalar, at, size - 1)
            both = call(aten.logical_and.default, low, high)
            inside = both if inside is None else call(aten.logical_and.default, inside, both)
            kept = call(aten.to.dtype, self.kept(at, size), torch.int64)
            index = kept if index is None else call(aten.add.Tensor, call(aten.mul.Tensor, index, size), kept)
        lines = call(aten.unsqueeze.default, call(aten.flatten.using_ints, index, 1, -1), 1)
        found = call(aten.gather.default, self.flat, 2, call(aten.expand.default, lines, [-1, self.channels, -1]))
        image = call(aten.unflatten.int, found, 2, [*self.outer, -1])
        return call(aten.where.ScalarOther, call(aten.unsqueeze.default, inside, 1), image, 0.0)


def _sampled(g: Lowering, a: dict[str, Any]) -> FloatCall | None:
    """The nearest pixel, or the weighted mean of those around a place: four in an image, eight in a volume."""
    shape = list(g.unobserved(a["input"]).meta["val"].shape)
    if a["interpolation_mode"] not in (_BILINEAR, _NEAREST) or any(not isinstance(n, int) for n in shape[1:]):
        return None
    axes = range(len(shape) - 2)
    s = _Sampler(g, a, shape[1], shape[2:])
    places = [s.place(axis) for axis in axes]
    if a["interpolation_mode"] == _NEAREST:
        return aten.alias.default, (s.read([g.call(aten.round.default, at) for at in places]),)
    low = [g.call(aten.floor.default, at) for at in places]
    high = [g.call(aten.add.Tensor, at, 1.0) for at in low]
    shares = [(g.call(aten.sub.Tensor, h, at), g.call(aten.sub.Tensor, at, b)) for at, b, h in zip(places, low, high)]
    parts = []
    for corner in itertools.product((0, 1), repeat=len(axes)):
        ends = corner[::-1]  # the last axis first
        weight = shares[0][ends[0]]
        for axis in axes[1:]:
            weight = g.call(aten.mul.Tensor, weight, shares[axis][ends[axis]])
        pixels = s.read([(low, high)[ends[axis]][axis] for axis in axes])
        parts.append(g.call(aten.mul.Tensor, pixels, g.call(aten.unsqueeze.default, weight, 1)))
    total = parts[0]
    for part in parts[1:-1]:
        total = g.call(aten.add.Tensor, total, part)
    return aten.add.Tensor, (total, parts[-1])


RECORDS = (
    Operator("affine_grid", ("affine_grid_generator.default",), float_form=in_parts(_affine_grid)),
    Operator(
        "grid_sampler",
        ("grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default"),
        float_form=in_parts(_sampled),
    ),
)
