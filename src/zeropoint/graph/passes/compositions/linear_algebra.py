"""Systems of equations that are factored already: substitution, a row of a fixed number after the other.

Sums of products stay float: they are no matrix products that could be computed on integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, compose, counted

_MOST_ROWS = 32


def _rows(x: Tensor, axis: int = -1) -> int:
    count = int(x.shape[axis])
    if count > _MOST_ROWS:
        raise NotComposed
    return count


def _applied(matrix: Tensor, x: Tensor) -> Tensor:
    """A row vector times a matrix."""
    return (matrix.unsqueeze(-1) * x).sum(-2)


def _solved(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, transpose: bool = False
) -> Tensor:
    """``a x = b`` with a triangular matrix: from the first row on, or from the last."""
    if not left:
        solved = _solved(a, b.mT, upper=upper, unitriangular=unitriangular, transpose=not transpose)
        return solved.mT
    if transpose:
        a, upper = a.mT, not upper
    count = _rows(a)
    if count == 0:
        return b.clone()
    found: list[Tensor] = []
    order = list(range(count))[:: -1 if upper else 1]
    for number, row in enumerate(order):
        rest = b.select(-2, row)
        if number:
            known = torch.stack(found[::-1] if upper else found, -2)
            factors = a.select(-2, row)[..., row + 1 :] if upper else a.select(-2, row)[..., :row]
            rest = rest - _applied(factors, known)
        found.append(rest if unitriangular else rest / a.select(-2, row)[..., row : row + 1])
    return torch.stack(found[::-1] if upper else found, -2)


def _triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    return _solved(a, b, upper=upper, transpose=transpose, unitriangular=unitriangular), a.clone()


def _cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    half = _solved(factor, b, upper=upper, transpose=upper)
    return _solved(factor, half, upper=upper, transpose=not upper)


def _identity(like: Tensor) -> Tensor:
    """Ones on the diagonal, in the shape of some matrices."""
    return (counted(like, -1) == counted(like, -2)).to(like.dtype)


def _order(pivots: Tensor, rows: int, like: Tensor) -> Tensor:
    """Which row each one is after the exchanges that pivots, counted from 1, say."""
    order = counted(like.select(-1, 0), -1)
    places = counted(order, -1)
    for row in range(_rows(pivots)):
        other = pivots.select(-1, row).unsqueeze(-1).long() - 1
        here, there = order[..., row : row + 1], order.gather(-1, other)
        order = torch.where(places == row, there, torch.where(places == other, here, order))
    return order


def _lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """``P L U x = b``"""
    if not left:
        return _lu_solve(lu, pivots, b.mT, adjoint=not adjoint).mT
    if b.dim() != lu.dim():
        raise NotComposed
    if _rows(lu) == 0:
        return b.clone()
    order = _order(pivots, _rows(lu), lu)
    if not adjoint:
        moved = b.gather(-2, order.unsqueeze(-1).expand_as(b))
        return _solved(lu, _solved(lu, moved, upper=False, unitriangular=True), upper=True)
    half = _solved(lu, b, upper=True, transpose=True)
    solved = _solved(lu, half, upper=False, unitriangular=True, transpose=True)
    back = order.argsort(-1)
    return solved.gather(-2, back.unsqueeze(-1).expand_as(solved))


def _lu_unpacked(
    lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = (_rows(lu, axis) for axis in (-2, -1))
    least = min(rows, columns)
    if not (unpack_data and unpack_pivots) or least == 0:
        raise NotComposed
    lower = lu[..., :least].tril(-1)
    order = _order(pivots, rows, lu)
    moved = order.unsqueeze(-2) == counted(order, -1).unsqueeze(-1)
    return moved.to(lu.dtype), lower + _identity(lower), lu[..., :least, :].triu()


def _vector(vectors: Tensor, number: int) -> Tensor:
    """What a reflection reflects at, from its own place on, which is 1: it is 0 before that."""
    below = vectors.select(-1, number)[..., number + 1 :]
    return torch.cat([torch.ones_like(vectors.select(-1, number)[..., :1]), below], -1)


def _reflection(vector: Tensor, factor: Tensor, x: Tensor) -> Tensor:
    """``x - tau v (v' x)``"""
    along = _applied(vector, x) * factor.unsqueeze(-1)
    return x - vector.unsqueeze(-1) * along.unsqueeze(-2)


def _householder_product(vectors: Tensor, factors: Tensor) -> Tensor:
    """All reflections, of the identity, from the last to the first; each changes what begins with its place."""
    x = _identity(vectors)
    for place in reversed(range(_rows(factors))):
        vector, factor = _vector(vectors, place), factors.select(-1, place)
        column = vector * -factor.unsqueeze(-1)
        column = torch.cat([column[..., :1] + 1, column[..., 1:]], -1).unsqueeze(-1)
        block = _reflection(vector, factor, x[..., place:, place + 1 :])
        below = torch.cat([x[..., place:, :place], column, block], -1)
        x = torch.cat([x[..., :place, :], below], -2)
    return x


def _times_q(vectors: Tensor, factors: Tensor, x: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """``Q x``, or ``x Q``, with the Q of reflections."""
    if not left:
        return _times_q(vectors, factors, x.mT, True, not transpose).mT
    places = range(_rows(factors))
    for place in places if transpose else reversed(places):
        below = _reflection(_vector(vectors, place), factors.select(-1, place), x[..., place:, :])
        x = torch.cat([x[..., :place, :], below], -2)
    return x


def _gradients(x: Tensor, spacing: Sequence[Any], dim: Any, edge_order: int) -> list[Tensor]:
    """Differences between the neighbours of each value; at the ends, between the value and its neighbour."""
    if edge_order != 1:
        raise NotComposed
    axes = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    steps = list(spacing) * (len(axes) if len(spacing) == 1 else 1)
    return [_gradient(x, axis % x.dim(), step) for axis, step in zip(axes, steps)]


def _gradient(x: Tensor, axis: int, step: Any) -> Tensor:
    size = x.shape[axis]
    before, here, after = (x.narrow(axis, begin, size - 2) for begin in (0, 1, 2))
    apart = x.narrow(axis, 1, size - 1) - x.narrow(axis, 0, size - 1)
    if not isinstance(step, Tensor):
        ends = [apart.narrow(axis, place, 1) / step for place in (0, size - 2)]
        return torch.cat([ends[0], (after - before) / (2 * step), ends[1]], axis)
    steps = (step.narrow(0, 1, size - 1) - step.narrow(0, 0, size - 1)).reshape([-1] + [1] * (x.dim() - 1 - axis))
    first, second = (steps.narrow(0, begin, size - 2) for begin in (0, 1))
    inner = first * first * after + (second * second - first * first) * here - second * second * before
    inner = inner / (first * second * (first + second))
    ends = [apart.narrow(axis, place, 1) / steps.narrow(0, place, 1) for place in (0, size - 2)]
    return torch.cat([ends[0], inner, ends[1]], axis)


def _gradient_of(x: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> list[Tensor]:
    given = [1] if spacing is None else list(spacing) if isinstance(spacing, (list, tuple)) else [spacing]
    return _gradients(x, given, dim, edge_order)


compose("linalg_solve_triangular.default", _solved, fixes=True)
compose("triangular_solve.default", _triangular_solve, fixes=True)
compose("cholesky_solve.default", _cholesky_solve, fixes=True)
compose("cholesky_inverse.default", lambda x, upper=False: _cholesky_solve(_identity(x), x, upper), fixes=True)
compose("linalg_lu_solve.default", _lu_solve, fixes=True)
compose("lu_solve.default", lambda b, lu, pivots: _lu_solve(lu, pivots, b), fixes=True)
compose("lu_unpack.default", _lu_unpacked, fixes=True)
compose("linalg_householder_product.default", _householder_product, fixes=True)
compose("ormqr.default", _times_q, fixes=True)
for _overload in torch.ops.aten.gradient.overloads():
    compose(f"gradient.{_overload}", _gradient_of)
