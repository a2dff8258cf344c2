"""Images read between their pixels with cubic weights; see operators/sampling.py for linear ones."""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, compose

_ZEROS, _REFLECTION = 0, 2  # and 1: the nearest pixel of the border
_CUBIC = 2
_A = -0.75  # of the cubic function that is used


def _sampled(image: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    if mode != _CUBIC or image.dim() != 4 or not all(isinstance(n, int) for n in image.shape[1:]):
        raise NotComposed
    height, width = (int(n) for n in image.shape[2:])
    columns, rows = (_in_pixels(grid.select(-1, axis), n, corners) for axis, n in ((0, width), (1, height)))
    flat = image.flatten(2)
    total: Tensor | None = None
    for row, row_weight in _taps(rows):
        y, y_inside = _kept(row, height, padding, corners)
        line: Tensor | None = None
        for column, weight in _taps(columns):
            x, x_inside = _kept(column, width, padding, corners)
            places = (y * width + x).flatten(1).unsqueeze(1).expand(-1, image.shape[1], -1)
            pixels = flat.gather(2, places).unflatten(2, (grid.shape[1], grid.shape[2]))
            inside = (y_inside & x_inside).unsqueeze(1)
            part = torch.where(inside, pixels, torch.zeros_like(pixels)) * weight.unsqueeze(1)
            line = part if line is None else line + part
        assert line is not None
        line = line * row_weight.unsqueeze(1)
        total = line if total is None else total + line
    assert total is not None
    return total


def _in_pixels(at: Tensor, size: int, corners: bool) -> Tensor:
    """-1 and 1 are the middles of the first and the last pixel, or their edges."""
    return (at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) / 2


def _taps(at: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The four pixels around a place, and their weights."""
    first = at.floor()
    t = at - first
    near = [((_A + 2) * d - (_A + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((_A * d - 5 * _A) * d + 8 * _A) * d - 4 * _A for d in (t + 1, 2 - t)]
    return [(first - 1, far[0]), (first, near[0]), (first + 1, near[1]), (first + 2, far[1])]


def _kept(at: Tensor, size: int, padding: int, corners: bool) -> tuple[Tensor, Tensor]:
    """A whole place inside of an axis, and whether it is read."""
    if padding == _REFLECTION:
        low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        if span:
            back = torch.remainder((at - low).abs(), 2 * span)
            at = span - (back - span).abs() + low
        else:
            at = torch.zeros_like(at)
    inside = (at >= 0) & (at <= size - 1) if padding == _ZEROS else torch.ones_like(at, dtype=torch.bool)
    return at.nan_to_num(0.0).clamp(0, size - 1).long(), inside


compose("grid_sampler.default", _sampled)
compose("grid_sampler_2d.default", _sampled)
