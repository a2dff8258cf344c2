"""Functions of small float32 matrices, the last two axes of tensors: inverses, factors, values.

They are computed in float64 in one fixed order of operations and rounded once (`native/operators/matrices.h`), so that
they do not depend on the CPU, and programs of the engine have the bytes of their graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.ops import checks
from zeropoint.ops.library import operator

Sizes = Callable[[Any, Any, Any], list[Any]]
_OF_A: Sizes = lambda m, n, k: [m, n]  # noqa: E731
_OF_B: Sizes = lambda m, n, k: [m, k]  # noqa: E731
_VECTOR: Sizes = lambda m, n, k: [torch.sym_min(m, n)]  # noqa: E731
_NUMBER: Sizes = lambda m, n, k: []  # noqa: E731
# What each makes of m x n matrices, and of others with k columns.
MATRIX_FUNCTIONS: dict[str, Sizes] = {
    **dict.fromkeys(
        ("solve", "solve_any", "solve_lower", "solve_upper", "solve_unit_lower", "solve_unit_upper"), _OF_B
    ),
    **dict.fromkeys(
        ("inverse", "inverse_any", "lu", "lu_any", "cholesky", "cholesky_any", "reflectors", "r_complete"), _OF_A
    ),
    **dict.fromkeys(("pivots", "factors", "eigenvalues", "singular_values"), _VECTOR),
    **dict.fromkeys(("determinant", "sign_of_determinant", "log_of_determinant", "lu_info", "cholesky_info"), _NUMBER),
    **dict.fromkeys(("pseudo_inverse", "pseudo_inverse_of_lower"), lambda m, n, k: [n, m]),
    **dict.fromkeys(("q", "lower"), lambda m, n, k: [m, torch.sym_min(m, n)]),
    **dict.fromkeys(("r", "upper"), lambda m, n, k: [torch.sym_min(m, n), n]),
    **dict.fromkeys(("q_complete", "permutation"), lambda m, n, k: [m, m]),
}


def _sizes(a: Tensor, b: Tensor | None) -> tuple[Any, Any, Any]:
    return a.shape[-2], a.shape[-1], 0 if b is None else b.shape[-1]


def _fake(a: Tensor, b: Tensor | None, function: str) -> Tensor:
    return a.new_empty([*a.shape[:-2], *MATRIX_FUNCTIONS[function](*_sizes(a, b))])


@operator(fake=_fake)
def matrices(a: Tensor, b: Tensor | None, function: str) -> Tensor:
    """A function of each matrix, or of each with another that has as many rows; `MATRIX_FUNCTIONS` has their names.

    Raises:
        ValueError: if a matrix is singular, or not positive definite.

    Example:
        >>> matrices(torch.tensor([[2.0, 0.0], [1.0, 4.0]]), None, "inverse")
        tensor([[ 0.5000,  0.0000],
                [-0.1250,  0.2500]])
    """
    if function not in MATRIX_FUNCTIONS:
        raise ValueError(f"matrices: function must be one of {', '.join(MATRIX_FUNCTIONS)}, got {function!r}")
    for name, x in (("a", a), ("b", b)):
        if x is None:
            continue
        checks.require_dtype("matrices", name, x.dtype, (torch.float32,))
        if x.dim() < 2:
            raise ValueError(f"matrices: {name} must have two axes or more, got {list(x.shape)}")
        if x.device.type != "cpu":
            raise NotImplementedError(f"matrices: {name} is on {x.device}, its kernels run on the CPU: call .cpu()")
    takes_b, square = _native.matrix_traits(function)
    if takes_b != (b is not None) or (b is not None and b.shape[:-1] != a.shape[:-1]):
        given = None if b is None else list(b.shape)
        raise ValueError(
            f"matrices: {function} takes {'two tensors' if takes_b else 'one'}, got {list(a.shape)}, {given}"
        )
    if square and a.shape[-1] != a.shape[-2]:
        raise ValueError(f"matrices: {function} takes square matrices, got {list(a.shape)}")
    y, left, right = _fake(a, b, function), a.contiguous(), None if b is None else b.contiguous()
    if y.numel():
        batch = y.shape[: a.dim() - 2].numel()
        _native.matrices(
            function, left.data_ptr(), 0 if right is None else right.data_ptr(), y.data_ptr(), batch, _sizes(a, b)
        )
    return y
