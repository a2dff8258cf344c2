"""Products of floats on 8 bits: each row of one and each column of the other by its own range."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import zeropoint

matmul_dynamic = torch.ops.zeropoint.matmul_dynamic
EPS = torch.finfo(torch.float32).eps


def _rows(x: Tensor, upward: bool) -> tuple[Tensor, Tensor]:
    """Integers, exact in float64, and the scale of each row."""
    steps = 255 if upward else 127
    scale = (x.abs().amax(-1, keepdim=True) / steps).clamp(min=EPS)
    return (x * (1 / scale)).round().clamp(0 if upward else -steps, steps).double(), scale


def _expected(a: Tensor, b: Tensor) -> Tensor:
    (qa, a_scale), (qb, b_scale) = _rows(a, bool((a >= 0).all())), _rows(b.mT, False)
    return ((qa @ qb.mT).float() * b_scale.mT) * a_scale


@pytest.mark.parametrize("batch", [((), ()), ((3,), (3,)), ((2, 1), (4,)), ((2, 3), ())], ids=str)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 1, 1), (5, 16, 7), (33, 65, 40), (7, 300, 19)])
@pytest.mark.parametrize("positive", [False, True], ids=["any", "positive"])
def test_a_product_is_that_of_the_integers(batch: tuple, rows: int, depth: int, columns: int, positive: bool) -> None:
    g = torch.Generator().manual_seed(rows)
    a = torch.randn(*batch[0], rows, depth, generator=g)
    b = torch.randn(*batch[1], columns, depth, generator=g).mT  # columns are contiguous
    a = a.abs() if positive else a
    for isa in zeropoint.cpu_info().available:
        with zeropoint.use_isa(isa):
            assert torch.equal(matmul_dynamic(a, b), _expected(a, b)), isa
            assert torch.equal(matmul_dynamic(a, b.contiguous()), _expected(a, b)), isa


def test_each_value_is_within_the_rounding_of_its_row_and_its_column() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(6, 64).softmax(-1), torch.randn(64, 9) * torch.logspace(-3, 3, 9)
    a_step, b_step = a.amax(-1, keepdim=True) / 255, b.abs().amax(0, keepdim=True) / 127
    bound = a_step / 2 * b.abs().sum(0) + b_step / 2 * a.abs().sum(-1, keepdim=True) + 64 * a_step * b_step / 4
    assert ((matmul_dynamic(a, b) - a @ b).abs() <= bound * (1 + 1e-4)).all()


def test_rows_of_zeros_and_empty_batches_give_zeros_and_nothing() -> None:
    assert torch.equal(matmul_dynamic(torch.zeros(2, 3), torch.ones(3, 4)), torch.zeros(2, 4))
    assert matmul_dynamic(torch.zeros(0, 2, 3), torch.ones(3, 4)).shape == (0, 2, 4)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        matmul_dynamic(torch.full((2, 3), value), torch.ones(3, 4))
    with pytest.raises(ValueError, match="finite"):
        matmul_dynamic(torch.ones(2, 3), torch.full((3, 4), value))


def test_wrong_operands_are_refused() -> None:
    with pytest.raises(ValueError, match="multiply"):
        matmul_dynamic(torch.ones(2, 3), torch.ones(4, 3))
    with pytest.raises(ValueError, match="inner dimension must not be 0"):
        matmul_dynamic(torch.ones(2, 0), torch.ones(0, 3))
    with pytest.raises(TypeError, match="float64"):
        matmul_dynamic(torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 4))
