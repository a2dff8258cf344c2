"""Products and norms of vectors and matrices as other operators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, axis_of, compose, counted


def _cross(x: Tensor, y: Tensor, dim: int | None = -1) -> Tensor:
    if x.dim() != y.dim():
        raise NotComposed
    if dim is None:
        fixed = [axis for axis, n in enumerate(x.shape) if isinstance(n, int) and n == 3]
        if not fixed:
            raise NotComposed
        dim = fixed[0]
    (a, b, c), (d, e, f) = x.unbind(dim), y.unbind(dim)
    return torch.stack([b * f - c * e, c * d - a * f, a * e - b * d], dim)


def _linalg_cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    return _cross(x, y, dim)


def _inner(x: Tensor, y: Tensor) -> Tensor:
    if not x.dim() or not y.dim():
        return x * y
    return torch.tensordot(x, y, dims=([-1], [-1]))


def _kron(x: Tensor, y: Tensor) -> Tensor:
    rank = max(x.dim(), y.dim())
    x = x.reshape([1] * (rank - x.dim()) + list(x.shape))
    y = y.reshape([1] * (rank - y.dim()) + list(y.shape))
    shape = [m * n for m, n in zip(x.shape, y.shape)]
    for axis in range(rank):
        x, y = x.unsqueeze(2 * axis + 1), y.unsqueeze(2 * axis)
    return (x * y).reshape(shape)


def _matrix_power(x: Tensor, n: int) -> Tensor:
    if n < 0 or (n == 0 and str(x.shape[-1]) != str(x.shape[-2])):  # it may be refused when it runs
        raise NotComposed
    if n == 0:
        return (counted(x, -1) == counted(x, -2)).to(x.dtype)
    result: Tensor | None = None
    square = x
    while n:
        if n % 2:
            result = square if result is None else result @ square
        n //= 2
        square = square @ square if n else square
    assert result is not None
    return result.clone()


def _matrix_norm(
    x: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, **options: Any
) -> Tensor:
    """Those that are sums and extremes of the elements."""
    if options.get("dtype") is not None or not x.is_floating_point():
        raise NotComposed
    rows, columns = (axis_of(x, axis) for axis in dim)
    if ord == "fro":
        return torch.linalg.vector_norm(x, 2, [rows, columns], keepdim)
    if isinstance(ord, str) or abs(ord) not in (1, math.inf):
        raise NotComposed
    summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = x.abs().sum(summed, keepdim=True)
    found = sums.amax(other, keepdim=True) if ord > 0 else sums.amin(other, keepdim=True)
    return found if keepdim else found.squeeze([rows, columns])


def _times_vector(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1) if not x.is_floating_point() else (x @ y.unsqueeze(-1)).squeeze(-1)


def _add_product(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``addmm`` of integers, whose factors are what is before the point."""
    if x.is_floating_point():
        raise NotComposed
    return x * int(beta) + (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2) * int(alpha)


def _pair_distances(x: Tensor, p: float = 2.0) -> Tensor:
    """The norms of the differences between each row and those behind it."""
    if not isinstance(x.shape[0], int):
        raise NotComposed
    pairs = list(itertools.combinations(range(x.shape[0]), 2))
    first, second = (torch.tensor([pair[k] for pair in pairs], dtype=torch.int64) for k in (0, 1))
    return torch.linalg.vector_norm(x.index_select(0, first) - x.index_select(0, second), p, -1)


compose("cross.default", _cross)
compose("linalg_cross.default", _linalg_cross)
compose("inner.default", _inner)
compose("kron.default", _kron)
compose("mv.default", _times_vector)
compose("addmm.default", _add_product)
compose("pdist.default", _pair_distances)
compose("linalg_matrix_power.default", _matrix_power)
compose("linalg_matrix_norm.default", _matrix_norm)
compose("linalg_matrix_norm.str_ord", _matrix_norm)
