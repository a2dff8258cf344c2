"""Linear algebra of small matrices, written with the functions of `ops/matrices.py`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call, fixed_size, has_value

aten, ours = torch.ops.aten, torch.ops.zeropoint


class _Call:
    """The nodes that one call becomes."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self.graph, self.node = graph, node

    def of(self, target: Any, *args: Any) -> fx.Node:
        return call(self.graph, self.node, target, *args)

    def matrices(self, function: str, a: fx.Node, b: fx.Node | None = None) -> fx.Node:
        return self.of(ours.matrices.default, a, b, function)

    def integers(self, function: str, a: fx.Node) -> fx.Node:
        return self.of(aten.to.dtype, self.matrices(function, a), torch.int32)

    def turned(self, x: fx.Node, turns: bool = True) -> fx.Node:
        return self.of(aten.transpose.int, x, -2, -1) if turns else x

    def solved(self, function: str, a: fx.Node, b: fx.Node) -> fx.Node | None:
        """With the batches of both, whose sizes are the same, or fixed."""
        batches = [list(x.meta["val"].shape[:-2]) for x in (a, b)]
        if list(map(str, batches[0])) != list(map(str, batches[1])):
            if any(fixed_size(n) is None for batch in batches for n in batch):
                return None
            batch = list(torch.broadcast_shapes(*batches))
            a, b = (self.of(aten.expand.default, x, [*batch, -1, -1]) for x in (a, b))
        return self.matrices(function, a, b)

    def triangle(self, a: fx.Node, b: fx.Node, upper: bool, unit: bool, turned: bool = False) -> fx.Node | None:
        name = f"solve_{'unit_' if unit else ''}{'upper' if upper != turned else 'lower'}"
        return self.solved(name, self.turned(a, turned), b)


Results = Callable[[_Call, dict[str, Any]], "list[fx.Node | None] | None"]


def _made(results: Results) -> Any:
    """A rewriting of calls with one result or several, each of which who reads it gets from a call of its own."""

    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        tensors = [x for x in a.values() if isinstance(x, fx.Node)]
        if not has_value(node) or not all(has_value(x) and x.meta["val"].dtype == torch.float32 for x in tensors):
            return None
        several = isinstance(node.meta["val"], (tuple, list))
        if several and any(user.target is not operator.getitem for user in node.users):
            return None
        found = results(_Call(graph, node), a)
        if found is None or any(part is None for part in found):
            return None
        if several:
            for user in list(node.users):
                user.replace_all_uses_with(found[user.args[1]])
                graph.erase_node(user)
            node.meta["val"] = found[0].meta["val"]  # type: ignore[union-attr]
        return found[0]

    return made


def _solve(c: _Call, a: dict[str, Any], function: str) -> fx.Node | None:
    matrix, b, left = a["A"], a["B"], a["left"]
    shape, other = (list(x.meta["val"].shape) for x in (matrix, b))
    is_vector = len(other) == 1 or (
        len(shape) - 1 == len(other) and list(map(str, shape[:-1])) == list(map(str, other))
    )
    if is_vector:
        made = c.solved(function, c.turned(matrix, not left), c.of(aten.unsqueeze.default, b, -1)) if left else None
        return None if made is None else c.of(aten.squeeze.dim, made, -1)
    made = c.solved(function, c.turned(matrix, not left), c.turned(b, not left))
    return None if made is None else c.turned(made, not left)


def _solve_triangular(c: _Call, a: dict[str, Any]) -> list[fx.Node | None]:
    right = not a["left"]
    made = c.triangle(a["self"], c.turned(a["B"], right), a["upper"], a["unitriangular"], right)
    return [None if made is None else c.turned(made, right)]


def _cholesky(c: _Call, x: fx.Node, upper: bool, function: str) -> fx.Node:
    return c.turned(c.matrices(function, c.turned(x, upper)), upper)


def _solve_with_cholesky(c: _Call, a: dict[str, Any]) -> list[fx.Node | None]:
    factor = c.turned(a["input2"], a["upper"])
    half = c.triangle(factor, a["self"], False, False)
    return [None if half is None else c.triangle(factor, half, False, False, True)]


def _log_of_determinant(c: _Call, x: fx.Node) -> fx.Node:
    negative = c.of(aten.lt.Scalar, c.matrices("sign_of_determinant", x), 0)
    return c.of(aten.where.ScalarSelf, negative, float("nan"), c.matrices("log_of_determinant", x))


def _qr(c: _Call, x: fx.Node, mode: str) -> list[fx.Node | None] | None:
    end = {"reduced": "", "complete": "_complete"}.get(mode)
    return None if end is None else [c.matrices(f"q{end}", x), c.matrices(f"r{end}", x)]


def _with_pivots(c: _Call, a: dict[str, Any], function: str) -> list[fx.Node | None] | None:
    if not a["pivot"]:
        return None
    return [c.matrices(function, a["A"]), c.integers("pivots", a["A"]), c.integers("lu_info", a["A"])]


def _pseudo_inverse(c: _Call, a: dict[str, Any]) -> list[fx.Node | None] | None:
    if a.get("atol") is not None or a.get("rtol") is not None:
        return None
    return [c.matrices("pseudo_inverse_of_lower" if a["hermitian"] else "pseudo_inverse", a["self"])]


def _condition(c: _Call, a: dict[str, Any]) -> list[fx.Node | None] | None:
    """The largest singular value over the least one."""
    if a["p"] not in (None, 2, -2):
        return None
    values = c.matrices("singular_values", a["self"])
    ends = [c.of(aten.select.int, values, -1, place) for place in ((-1, 0) if a["p"] == -2 else (0, -1))]
    return [c.of(aten.div.Tensor, *ends)]


def _rank(c: _Call, a: dict[str, Any]) -> list[fx.Node | None] | None:
    """How many singular values are more than a part of the largest."""
    sizes = [fixed_size(n) or 0 for n in a["input"].meta["val"].shape[-2:]]  # 0: free, or there is no largest value
    if a.get("atol") is not None or a.get("rtol") is not None or 0 in sizes:
        return None
    values = c.matrices("singular_values", a["input"])
    if a["hermitian"]:
        values = c.of(aten.abs.default, c.matrices("eigenvalues", a["input"]))
    least = c.of(aten.mul.Tensor, c.of(aten.amax.default, values, [-1], True), max(sizes) * 2.0**-23)
    return [c.of(aten.sum.dim_IntList, c.of(aten.gt.Tensor, values, least), [-1])]


def _first(a: dict[str, Any]) -> Any:
    return next(iter(a.values()))


def _one(function: str) -> Any:
    return _made(lambda c, a: [c.matrices(function, _first(a))])


LINEAR_ALGEBRA: dict[str, Any] = {
    "inverse.default": _one("inverse"),
    "linalg_inv.default": _one("inverse"),
    "linalg_inv_ex.default": _made(lambda c, a: [c.matrices("inverse_any", a["A"]), c.integers("lu_info", a["A"])]),
    "linalg_solve.default": _made(lambda c, a: [_solve(c, a, "solve")]),
    "linalg_solve_ex.default": _made(lambda c, a: [_solve(c, a, "solve_any"), c.integers("lu_info", a["A"])]),
    "linalg_solve_triangular.default": _made(_solve_triangular),
    "triangular_solve.default": _made(
        lambda c, a: [c.triangle(a["A"], a["self"], a["upper"], a["unitriangular"], a["transpose"]), a["A"]]
    ),
    "det.default": _one("determinant"),
    "linalg_det.default": _one("determinant"),
    "logdet.default": _made(lambda c, a: [_log_of_determinant(c, a["self"])]),
    **{
        name: _made(lambda c, a: [c.matrices(f"{part}_of_determinant", _first(a)) for part in ("sign", "log")])
        for name in ("slogdet.default", "linalg_slogdet.default")
    },
    "cholesky.default": _made(lambda c, a: [_cholesky(c, a["self"], a["upper"], "cholesky")]),
    "linalg_cholesky.default": _made(lambda c, a: [_cholesky(c, a["self"], a["upper"], "cholesky")]),
    "linalg_cholesky_ex.default": _made(
        lambda c, a: [_cholesky(c, a["self"], a["upper"], "cholesky_any"), c.integers("cholesky_info", a["self"])]
    ),
    "cholesky_solve.default": _made(_solve_with_cholesky),
    "linalg_lu_factor.default": _made(lambda c, a: _with_pivots(c, a, "lu")),
    "linalg_lu_factor_ex.default": _made(lambda c, a: _with_pivots(c, a, "lu_any")),
    "linalg_lu.default": _made(
        lambda c, a: [c.matrices(n, a["A"]) for n in ("permutation", "lower", "upper")] if a["pivot"] else None
    ),
    "linalg_qr.default": _made(lambda c, a: _qr(c, a["A"], a["mode"])),
    "qr.default": _made(lambda c, a: _qr(c, a["self"], "reduced" if a["some"] else "complete")),
    "geqrf.default": _made(lambda c, a: [c.matrices("reflectors", a["self"]), c.matrices("factors", a["self"])]),
    "linalg_eigvalsh.default": _made(
        lambda c, a: [c.matrices("eigenvalues", c.turned(a["self"], a["UPLO"].upper() == "U"))]
    ),
    "linalg_pinv.atol_rtol_tensor": _made(_pseudo_inverse),
    "linalg_matrix_rank.atol_rtol_tensor": _made(_rank),
    "linalg_cond.default": _made(_condition),
    "linalg_svdvals.default": _one("singular_values"),
}
