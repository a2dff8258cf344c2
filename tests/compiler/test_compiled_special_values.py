"""NaN, infinities and numbers at the ends of their range: graphs and programs give what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from few_layers import Beside
from torch import Tensor
from torch.nn import functional as F

import zeropoint

SPECIAL = torch.tensor(
    [float("nan"), 1.5, float("inf"), -0.0, 1e-42, -float("inf"), 0.0, -2.5, 1e30, 1.0, -1e10, -90.0]
)


def _check(function: Callable[..., Tensor], *given: Tensor) -> None:
    """Calibrated on ordinary numbers, run on those that are given."""
    side = torch.randn(3, 4)
    inputs = (side, *(torch.rand(t.shape) for t in given))
    graph = zeropoint.to_int8(Beside(function).eval(), inputs, [inputs], progress=False, dynamic_shapes={})
    program = zeropoint.compile(graph, inputs)
    expected = function(*given)
    for run in (graph, program):
        torch.testing.assert_close(run(side, *given)[1], expected, rtol=1e-5, atol=1e-6, equal_nan=True)


def _turned(*shape: int, by: int = 0) -> Tensor:
    values = SPECIAL.roll(-by)
    return values.repeat(-(-torch.Size(shape).numel() // len(values)))[: torch.Size(shape).numel()].reshape(shape)


@pytest.mark.parametrize("function", [torch.sigmoid, F.silu, F.mish, torch.tanh], ids=lambda f: f.__name__)
def test_activations(function: Callable[[Tensor], Tensor]) -> None:
    _check(function, SPECIAL)


def test_gelu_vanishes_below_and_is_not_a_number_at_minus_infinity() -> None:
    x = torch.tensor([-float("inf"), -1e10, -20.0, -13.0, float("nan")])
    _check(F.gelu, x)


def test_gated_units() -> None:
    _check(lambda x: F.glu(x, 0), _turned(4, 7))


@pytest.mark.parametrize("weight", [0.25, 0.5, 0.75, -2.0, 1.0])
def test_interpolation_between_two_values(weight: float) -> None:
    _check(lambda x, y: torch.lerp(x, y, weight), _turned(12), _turned(12, by=5))
    _check(torch.lerp, _turned(12), _turned(12, by=5), torch.full((12,), weight))


def test_distances_that_count_differences() -> None:
    _check(lambda x, y: torch.cdist(x, y, 0.0), _turned(5, 3), _turned(4, 3, by=1))


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_volumes_read_at_places_that_are_no_numbers(padding_mode: str) -> None:
    places = torch.zeros(1, 3, 4, 1, 3)
    places[..., 1] = SPECIAL.reshape(3, 4, 1)
    image = torch.arange(24.0).reshape(1, 1, 2, 4, 3)
    _check(lambda x, at: F.grid_sample(x, at, padding_mode=padding_mode, align_corners=False), image, places)


@pytest.mark.parametrize(
    ("mode", "shape"), [("linear", (1, 2, 6)), ("bicubic", (1, 2, 5, 4)), ("trilinear", (1, 2, 3, 2, 4))]
)
@pytest.mark.parametrize("corners", [False, True])
def test_lines_images_and_volumes_are_resized(mode: str, shape: tuple[int, ...], corners: bool) -> None:
    _check(lambda x: F.interpolate(x, scale_factor=1.5, mode=mode, align_corners=corners), torch.rand(shape))
