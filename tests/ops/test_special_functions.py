"""Special functions: within a few millionths of PyTorch's in float64, and its values at the ends of their range."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zeropoint.ops.float_maps import BINARY, UNARY, float_binary, float_unary

SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, 1e-42, -2.5])
ONES = (
    "erfinv", "erfcx", "ndtri", "log_ndtr", "lgamma", "digamma", "i0", "i0e", "i1", "i1e", "modified_bessel_k0",
    "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "bessel_j0", "bessel_j1",
    "bessel_y0", "bessel_y1", "spherical_bessel_j0", "airy_ai",
)  # fmt: skip
POLYNOMIALS = tuple(name for name in BINARY if "polynomial" in name)


def _torchs(name: str) -> Any:
    return getattr(torch, name, None) or getattr(torch.special, name)


def _check(found: torch.Tensor, exact: torch.Tensor) -> None:
    """PyTorch's own of float64 are exact to five digits only for some Bessel functions."""
    size = float(exact[exact.isfinite()].abs().clamp_max(1.0).max())
    torch.testing.assert_close(found, exact.float(), rtol=1e-5, atol=6e-6 * size, equal_nan=True)


@pytest.mark.parametrize("name", ONES)
def test_a_function_of_one_number(name: str) -> None:
    assert name in UNARY
    x = torch.cat([torch.linspace(-31.3, 31.3, 2001), torch.rand(200), torch.logspace(-6, 2, 200), SPECIAL])
    _check(float_unary(x, name), _torchs(name)(x.double()))


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_a_polynomial_of_low_and_high_degree(name: str) -> None:
    x = torch.cat([torch.linspace(-1.5, 1.5, 31), SPECIAL])
    highest = 128 if "hermite" in name else 100_000
    for degree in (-1, 0, 1, 2, 3.7, 20, 65, highest):
        n = torch.full_like(x, degree)
        exact = _torchs(name)(x.double(), n.double()).float()
        found = float_binary(x, n, name)
        loose = 5e-4 if degree > 65536 and "laguerre" in name else 1e-5
        both = exact.isfinite() & found.isfinite()
        torch.testing.assert_close(found[both], exact[both], rtol=loose, atol=loose)


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_parts_of_the_gamma_function(name: str) -> None:
    a = torch.cat([torch.rand(300) * 10, torch.rand(100) * 200, torch.rand(100) * 1e5])
    x = a * torch.rand(500) * 2
    first, second = torch.cartesian_prod(SPECIAL, SPECIAL).T
    a, x = torch.cat([a, first]), torch.cat([x, second])
    _check(float_binary(a, x, name), _torchs(name)(a.double(), x.double()))


def test_the_zeta_function_of_positive_and_negative_numbers() -> None:
    s, q = torch.cat([torch.rand(300) * 6, torch.arange(2.0, 302) % 7 + 2]), torch.randn(600) * 20
    exact = torch.special.zeta(s.double(), q.double()).float()
    torch.testing.assert_close(float_binary(s, q, "zeta"), exact, rtol=1e-6, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("n", range(5))
def test_derivatives_of_the_digamma_function(n: int) -> None:
    x = torch.cat([torch.linspace(-9.7, 30, 200), torch.tensor([float("inf"), float("nan")])])
    found = float_binary(torch.tensor(float(n)), x, "polygamma")
    torch.testing.assert_close(found, torch.polygamma(n, x.double()).float(), rtol=1e-6, atol=1e-6, equal_nan=True)


def test_mantissa_exponent_and_neighbour() -> None:
    x = torch.cat([torch.randn(500) * 10.0 ** torch.randint(-44, 38, (500,)), SPECIAL])
    mantissa, exponent = torch.frexp(x)
    torch.testing.assert_close(float_unary(x, "mantissa"), mantissa, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(float_unary(x, "exponent"), exponent.float())
    y = x.roll(3)
    for name in ("nextafter", "copysign"):
        torch.testing.assert_close(float_binary(x, y, name), _torchs(name)(x, y), rtol=0, atol=0, equal_nan=True)
