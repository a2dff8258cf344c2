"""Images and lines of other sizes by weighted means that separate: a product of matrices along each axis."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.operators.float_forms import FloatCall, are_floats
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments
from zeropoint.operators.record import Operator

aten, ours = torch.ops.aten, torch.ops.zeropoint


def _weights(node: fx.Node, a: dict[str, Any], axis: int, dims: int, before: int, after: int) -> Tensor:
    """What each output along an axis takes of each input, (before, after): the operator's results for unit vectors.

    The other axes have two values each: with one, PyTorch 2.13 gives antialiased images with the axes confused. Volumes
    are resized along an axis as lines are.
    """
    target, factors = node.target, a["scale_factors"]
    if dims == 3:
        target, factors, axis, dims = aten.upsample_linear1d.vec, factors and [factors[axis]], 0, 1
    unit = torch.eye(before).reshape(1, before, *[before if d == axis else 1 for d in range(dims)])
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


def _resized(g: Lowering, node: fx.Node) -> FloatCall | None:
    """A product with the weights of each axis, if their sizes are fixed."""
    a = arguments(node)
    shapes = [t.meta.get("val") for t in (g.unobserved(a["input"]), node)]
    if "written" in node.meta or not are_floats(g, [a["input"], node]) or any(t is None for t in shapes):
        return None
    sizes = [list(t.shape[2:]) for t in shapes]
    if any(not isinstance(n, int) for part in sizes for n in part):
        return None
    x, dims = g.floats(a["input"]), len(sizes[0])
    made: FloatCall | None = None
    for d, pair in reversed(list(enumerate(zip(*sizes)))):
        if made is not None:
            x = g.call(made[0], *made[1])
        weights = g.constant(f"{node.name}_weights_{d}", _weights(node, a, d, dims, *pair))
        if d == dims - 1:
            made = ours.float_matmul.default, (x, weights)
            continue
        turned = g.call(aten.transpose.int, weights, 0, 1)
        if d == dims - 2:
            made = ours.float_matmul.default, (turned, x)
        else:  # the first axis of a volume
            x = g.call(ours.float_matmul.default, turned, g.call(aten.transpose.int, x, -3, -2))
            made = aten.transpose.int, (x, -3, -2)
    return made


_NAMES = (
    "upsample_linear1d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)
RECORDS = tuple(Operator(name, (f"{name}.vec",), float_form=_resized) for name in _NAMES)
