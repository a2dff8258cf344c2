"""Interpolation of QTensors. The result has the qparams, and the layout, of the input.

torch.compile and torch.export take interpolation apart before a tensor subclass is asked. Of the nearest kind what is
left is indexing (`shape.py`), with the same result. Of the bilinear kind it is arithmetic on floats, which QTensors
refuse: compiled code calls `zeropoint.nn.quantized.functional.interpolate`, one operator for all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from zeropoint.ops.resampling import stored_bilinear, stored_nearest
from zeropoint.tensor.pooling import per_tensor
from zeropoint.tensor.qtensor import HANDLERS, QTensor, implements
from zeropoint.tensor.recording import run

aten = torch.ops.aten


def _sizes(
    q: QTensor, spatial: int, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> tuple[Sequence[int], Sequence[float | None]]:
    """The output size, and the scales if the caller gave them instead of it."""
    if output_size is not None:
        return output_size, [None] * spatial
    assert scale_factors is not None
    return [math.floor(n * s) for n, s in zip(q.shape[-spatial:], scale_factors)], list(scale_factors)


def _nearest(name: str, spatial: int, exact: bool) -> None:
    operator = getattr(aten, name)

    def nearest(q: QTensor, output_size: Sequence[int], *scales: float | None) -> QTensor:
        per_tensor(name, q)
        given = [s or 0.0 for s in (*scales, *(None,) * (spatial - len(scales)))]
        return q.with_values(run(stored_nearest, q.values(), output_size, given, exact))

    def nearest_vec(q: QTensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> QTensor:
        size, scales = _sizes(q, spatial, output_size, scale_factors)
        return nearest(q, size, *scales)

    nearest.__name__ = nearest_vec.__name__ = name
    implements(operator.default)(nearest)
    implements(operator.vec)(nearest_vec)


for _spatial in (1, 2, 3):
    _nearest(f"upsample_nearest{_spatial}d", _spatial, False)
    _nearest(f"_upsample_nearest_exact{_spatial}d", _spatial, True)


@implements(aten.upsample_bilinear2d.default)
def upsample_bilinear2d(
    q: QTensor,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> QTensor:
    zero_point = per_tensor("upsample_bilinear2d", q).zero_point
    limits = q._qdtype.qmin, q._qdtype.qmax
    values = run(stored_bilinear, q.values(), output_size, align_corners, scales_h, scales_w, zero_point, *limits)
    return q.with_values(values)


@implements(aten.upsample_bilinear2d.vec)
def upsample_bilinear2d_vec(
    q: QTensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> QTensor:
    size, scales = _sizes(q, 2, output_size, scale_factors)
    return upsample_bilinear2d(q, size, align_corners, *scales)


@implements(aten.grid_sampler_2d.default)
def grid_sampler_2d(
    q: QTensor, grid: torch.Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> QTensor:
    """Places between integers, in float32; outside of the input is the zero point. Halves are rounded away from 0."""
    quantizer = per_tensor("grid_sample", q)
    steps = q.values().to(torch.float32) - quantizer.zero_point
    sampled = aten.grid_sampler_2d.default(steps, grid, interpolation_mode, padding_mode, align_corners)
    places = sampled + quantizer.zero_point
    rounded = torch.trunc(places + torch.copysign(torch.full_like(places, 0.5), places))
    return q.with_values(rounded.clamp(q._qdtype.qmin, q._qdtype.qmax).to(q.values().dtype))


def _refused(mode: str, name: str) -> None:
    # Their decompositions would work on a QTensor as if it were a float tensor.
    def refuse(q: QTensor, *arguments: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"interpolation mode {mode!r} is not defined for quantized tensors: call .dequantize() first"
        )

    refuse.__name__ = name
    for overload in ("default", "vec"):
        implements(getattr(getattr(aten, name), overload))(refuse)


_refused("linear", "upsample_linear1d")
_refused("trilinear", "upsample_trilinear3d")
_refused("bicubic", "upsample_bicubic2d")


@implements(torch.ops.zeropoint.interpolate.default)
def interpolate(
    q: QTensor, size: Sequence[int] | None, scale_factors: Sequence[float] | None, mode: str, align_corners: bool
) -> QTensor:
    if mode == "bilinear":
        return upsample_bilinear2d_vec(q, size, align_corners, scale_factors)
    exact = "_exact" if mode == "nearest-exact" else ""
    nearest = getattr(aten, f"{'_' if exact else ''}upsample_nearest{exact}{q.dim() - 2}d").vec
    return HANDLERS[nearest](q, size, scale_factors)
