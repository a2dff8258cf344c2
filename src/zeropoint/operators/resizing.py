"""Images and lines of other sizes by weighted means that separate: sums of a few places along each axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.operators.float_forms import FloatCall, are_floats
from zeropoint.operators.node import arguments
from zeropoint.operators.record import Operator

__all__ = ["RECORDS"]

aten = torch.ops.aten


def _weights(node: fx.Node, a: dict[str, Any], axis: int, dims: int, sizes: tuple[int, int], one: float) -> Tensor:
    """What each output along an axis takes of each input: the operator's results for unit vectors, with their number.

    The other axes have two values each: with one, PyTorch 2.13 gives antialiased images with the axes confused. Volumes
    are resized along an axis as lines are.
    """
    (before, after), target, factors = sizes, node.target, a["scale_factors"]
    if dims == 3:
        target, factors, axis, dims = aten.upsample_linear1d.vec, factors and [factors[axis]], 0, 1
    unit = torch.zeros(before, before).fill_diagonal_(one)
    unit = unit.reshape(1, before, *[before if d == axis else 1 for d in range(dims)])
    unit = unit.expand(-1, -1, *[-1 if d == axis else 2 for d in range(dims)]).contiguous()
    given: dict[str, Any] = {"output_size": [after if d == axis else 2 for d in range(dims)], "scale_factors": None}
    if a["output_size"] is None:
        given = {
            "output_size": None,
            "scale_factors": [f if d == axis else 1.0 for d, f in enumerate(factors)],
        }
    with torch.no_grad():
        every = target(unit, align_corners=a["align_corners"], **given)
    return every.movedim(axis + 2, 2).reshape(before, after, -1)[..., 0]


def _taps(weights: Tensor, infinite: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The places that outputs read and their weights, one of each output at a time; of infinity they give `infinite`.

    So places are read whose weight is zero, and twice with weights of both signs if that gives NaN. Outputs that read
    fewer places than others take their last one in parts, halves of halves: that is exact.
    """
    columns: list[list[tuple[int, float]]] = []
    for given, weight in zip(infinite.T, weights.T):
        both = given.isnan() & (weight != 0)
        read = [(i, bool(both[i])) for i in (~given.isfinite()).nonzero()[:, 0].tolist()] or [(0, False)]
        columns.append([(i, share) for i, twice in read for share in ((2.0, -1.0) if twice else (1.0,))])
    most = max(map(len, columns), default=0)
    for column in columns:
        while len(column) < most:
            place, share = column.pop()
            column += [(place, share / 2)] * 2
    taken = torch.tensor(columns).reshape(len(columns), -1, 2)
    places = taken[..., 0].to(torch.int64)
    yield from zip(places.T.contiguous(), (weights.T.gather(1, places) * taken[..., 1]).T.contiguous())


def _along(g: Any, x: fx.Node, name: str, taps: Iterator[tuple[Tensor, Tensor]], axis: int) -> fx.Node | None:
    """The weighted means along an axis, which is counted from behind."""
    total = None
    for number, (places, values) in enumerate(taps):
        taken = g.call(aten.index_select.default, x, axis, g.constant(f"{name}_places_{number}", places))
        factor = values.reshape(-1, *[1] * (-axis - 1))
        part = g.call(aten.mul.Tensor, taken, g.constant(f"{name}_weights_{number}", factor))
        total = part if total is None else g.call(aten.add.Tensor, total, part)
    return total


def _resized(g: Any, node: fx.Node) -> FloatCall | None:
    """Weighted means along each axis, if their sizes are fixed."""
    a = arguments(node)
    shapes = [t.meta.get("val") for t in (g.unobserved(a["input"]), node)]
    if "written" in node.meta or not are_floats(g, [a["input"], node]) or any(t is None for t in shapes):
        return None
    sizes = [list(t.shape[2:]) for t in shapes]
    if any(not isinstance(n, int) for part in sizes for n in part):
        return None
    x, dims = g.floats(a["input"]), len(sizes[0])
    for d, pair in enumerate(zip(*sizes)):
        taps = _taps(*(_weights(node, a, d, dims, pair, one) for one in (1.0, math.inf)))
        x = _along(g, x, f"{node.name}_{d}", taps, d - dims)
    return aten.alias.default, (x,)


_NAMES = (
    "upsample_linear1d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)
RECORDS = tuple(Operator(name, (f"{name}.vec",), float_form=_resized) for name in _NAMES)
