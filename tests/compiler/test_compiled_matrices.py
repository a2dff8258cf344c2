"""Linear algebra of small matrices: graphs and programs give PyTorch's results, and refuse singular matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.ops.matrices import MATRIX_FUNCTIONS, matrices

L = torch.linalg


class _Beside(nn.Module):
    """A layer to quantize, and a function of other inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, side: Tensor, *others: Tensor) -> Any:
        return [self.layer(side), self.function(*others)]


def _made(function: Callable[..., Any], *given: Tensor) -> tuple[Any, Any]:
    inputs = (torch.randn(3, 4), *given)
    graph = zeropoint.to_int8(_Beside(function).eval(), inputs, [inputs], progress=False)
    return graph, zeropoint.compile(graph, inputs)


def _check(function: Callable[..., Any], *given: Tensor) -> None:
    side, expected = torch.randn(3, 4), function(*given)
    results = [run(side, *given)[1] for run in _made(function, *given)]
    for found in results:
        torch.testing.assert_close(
            list(found) if isinstance(found, (tuple, list)) else found,
            list(expected) if isinstance(expected, (tuple, list)) else expected,
            rtol=1e-4, atol=1e-5,
        )  # fmt: skip
    first, second = ([r] if isinstance(r, Tensor) else r for r in results)
    assert all(map(torch.equal, first, second))


def _matrices(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)) + 2 * torch.eye(*shape[-2:])


OF_ONE: dict[str, Callable[[Tensor], Any]] = {
    "inv": L.inv, "inverse": torch.inverse, "inv_ex": L.inv_ex, "det": L.det, "slogdet": L.slogdet, "pinv": L.pinv,
    "logdet": torch.logdet, "lu_factor": L.lu_factor, "lu_factor_ex": L.lu_factor_ex, "lu": L.lu, "qr": L.qr,
    "complete qr": lambda x: L.qr(x, "complete"), "geqrf": torch.geqrf, "svdvals": L.svdvals, "cond": L.cond,
    "eigvalsh": L.eigvalsh, "eigvalsh of the upper": lambda x: L.eigvalsh(x, "U"), "cholesky": L.cholesky,
    "upper cholesky": lambda x: L.cholesky(x, upper=True), "cholesky_ex": L.cholesky_ex,
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one_matrix(name: str) -> None:
    x = _matrices(2, 5, 5)
    _check(OF_ONE[name], x @ x.mT if "cholesky" in name else x)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (2, 4, 1)])
@pytest.mark.parametrize("function", [L.qr, L.svdvals, L.pinv, L.lu, torch.geqrf], ids=lambda f: f.__name__)
def test_matrices_that_are_not_square(function: Callable[[Tensor], Any], shape: tuple[int, ...]) -> None:
    _check(function, _matrices(*shape))


def test_ranks_are_counted() -> None:
    x = torch.cat([_matrices(3, 4), _matrices(1, 4) * 2, torch.zeros(1, 4)])
    inputs = (torch.randn(3, 4), x)
    graph = zeropoint.to_int8(_Beside(L.matrix_rank).eval(), inputs, [inputs], progress=False, dynamic_shapes={})
    for run in (graph, zeropoint.compile(graph, inputs)):
        assert run(*inputs)[1] == L.matrix_rank(x)


SOLVED: dict[str, tuple[Callable[[Tensor, Tensor], Any], tuple[int, ...]]] = {
    "solve": (L.solve, (2, 5, 3)), "a vector": (L.solve, (2, 5)), "solve_ex": (L.solve_ex, (2, 5, 3)),
    "from the right": (lambda a, b: L.solve(a, b, left=False), (2, 3, 5)),
    "an upper triangle": (lambda a, b: L.solve_triangular(a, b, upper=True), (2, 5, 3)),
    "a lower triangle with ones": (lambda a, b: L.solve_triangular(a, b, upper=False, unitriangular=True), (2, 5, 3)),
    "a triangle from the right": (lambda a, b: L.solve_triangular(a, b, upper=True, left=False), (2, 3, 5)),
    "a turned triangle": (lambda a, b: torch.triangular_solve(b, a, True, True)[0], (2, 5, 3)),
    "with cholesky": (lambda a, b: torch.cholesky_solve(b, a.tril()), (2, 5, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", SOLVED)
def test_systems_of_equations(name: str) -> None:
    function, shape = SOLVED[name]
    _check(function, _matrices(2, 5, 5), torch.randn(shape, generator=torch.Generator().manual_seed(4)))


@pytest.mark.parametrize(
    ("function", "message"),
    [(L.inv, "singular: pivot 2 of 2"), (L.lu_factor, "singular"), (L.cholesky, "not positive definite")],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_matrix_without_result_is_refused(function: Callable[[Tensor], Any], message: str) -> None:
    side = torch.randn(3, 4)
    for run in _made(function, torch.eye(2) * 2):
        with pytest.raises(ValueError, match=message):
            run(side, torch.tensor([[1.0, 2.0], [2.0, 4.0]]) * -1)


def test_small_numbers_beside_large_ones_are_not_singular() -> None:
    _check(L.inv, torch.diag(torch.tensor([1e20, 1.0, 1e-20])))


@pytest.mark.parametrize("isa", zeropoint.cpu_info().available)
def test_the_bytes_do_not_depend_on_the_cpu(isa: str) -> None:

    a, b = _matrices(3, 6, 6), _matrices(3, 6, 2)
    a = a @ a.mT
    for name in MATRIX_FUNCTIONS:
        other = b if "solve" in name else None
        expected = matrices(a, other, name)
        with zeropoint.use_isa(isa):
            assert torch.equal(matrices(a, other, name), expected), name


def test_nothing_has_an_inverse() -> None:
    side, x = torch.randn(3, 4), torch.zeros(2, 0, 0)
    graph = zeropoint.to_int8(_Beside(L.inv).eval(), (side, x), [(side, x)], progress=False, dynamic_shapes={})
    for run in (graph, zeropoint.compile(graph, (side, x))):
        assert run(side, x)[1].shape == x.shape
