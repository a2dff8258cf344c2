"""3x3 convolutions of stride 1, whichever algorithm computes them, are the integers of the definition.

float64 holds every sum, so PyTorch's convolution in it is the definition. Shapes are those that Winograd's algorithm
takes, and some around them; the extremes are where its windows end. `native/check/winograd.h` has it for every kernel
by itself.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from zeropoint.ops.geometry import Geometry
from zeropoint.ops.layers import make_conv_layer, run_conv

# 255 times the sum of the sizes of an output channel's weights is the width of its window, which has 2^26 integers.
WINDOW = (2**26 - 4) // 255


def sums(x: torch.Tensor, weight: torch.Tensor, zero_points: tuple[int, torch.Tensor], padding: int) -> torch.Tensor:
    """The exact sums of a convolution, from the kernels: float32 with all scales at one."""
    geometry = Geometry("conv2d", 2, [1], [padding], [1], 1)
    x_zero_point, w_zero_point = zero_points
    layer = make_conv_layer(geometry, weight, torch.ones(1), w_zero_point, None)
    return run_conv(geometry, x, 1.0, x_zero_point, weight, layer, 1.0, 0, dtype=torch.float32)


def defined(x: torch.Tensor, weight: torch.Tensor, zero_points: tuple[int, torch.Tensor], padding: int) -> torch.Tensor:
    w = weight.double() - zero_points[1].double().reshape(-1, 1, 1, 1)
    return torch.nn.functional.conv2d(x.double() - zero_points[0], w, padding=padding).float()


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    kind = torch.uint8 if draw(st.booleans()) else torch.int8
    low, high = (0, 255) if kind == torch.uint8 else (-128, 127)
    spread = draw(st.sampled_from([20, 99, 127]))  # of weights around their zero points
    return {
        "images": draw(st.integers(1, 3)),
        "channels": draw(st.sampled_from([4, 16, 32, 48, 64, 68, 96, 128])),
        "outputs": draw(st.integers(1, 70)),
        "size": (draw(st.integers(1, 29)), draw(st.integers(1, 29))),
        "padding": draw(st.integers(1, 3)),
        "dtype": kind,
        "x_zero_point": draw(st.integers(low, high)),
        "spread": spread,
        "w_zero_point": draw(st.integers(spread - 128, 127 - spread)),
        "channels_last": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**31)),
    }


@given(c=convolutions())
def test_any_shape_gives_the_sums_of_the_definition(c: dict[str, Any], isa: str) -> None:
    generator = torch.Generator().manual_seed(c["seed"])
    low, high = (0, 256) if c["dtype"] == torch.uint8 else (-128, 128)
    x = torch.randint(low, high, (c["images"], c["channels"], *c["size"]), generator=generator).to(c["dtype"])
    if c["channels_last"]:
        x = x.contiguous(memory_format=torch.channels_last)
    shape = (c["outputs"], c["channels"], 3, 3)
    weight = torch.randint(-c["spread"], c["spread"] + 1, shape, generator=generator) + c["w_zero_point"]
    zero_points = c["x_zero_point"], torch.tensor([c["w_zero_point"]])
    y = sums(x, weight.to(torch.int8), zero_points, c["padding"])
    assert torch.equal(y, defined(x, weight, zero_points, c["padding"]))


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 200])
def test_sums_at_the_ends_of_their_window_are_exact(isa: str, sign: int, beyond: int) -> None:
    channels, images = 256, 4
    total = WINDOW + beyond
    weight = torch.full((32, channels * 9), total // (channels * 9), dtype=torch.int64)
    weight[:, : total % (channels * 9)] += 1
    assert int(weight.max()) < 128
    weight = (sign * weight).reshape(32, channels, 3, 3)
    for zero_point in (0, 255):
        # All inputs at one end, all at the other, and either.
        x = torch.randint(0, 2, (images, channels, 20, 20), generator=torch.Generator().manual_seed(1)) * 255
        x[0], x[1] = 0, 255
        zero_points = zero_point, torch.zeros(1, dtype=torch.int64)
        y = sums(x.to(torch.uint8), weight.to(torch.int8), zero_points, 1)
        assert torch.equal(y, defined(x, weight, zero_points, 1))


def test_weights_far_from_their_zero_point_are_exact(isa: str) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(0, 256, (2, 64, 24, 24), generator=generator)
    weight = torch.randint(0, 256, (48, 64, 3, 3), generator=generator)
    for zero_point in (0, 23, 27, 28, 128, 255):
        zero_points = 7, torch.tensor([zero_point])
        y = sums(x.to(torch.uint8), weight.to(torch.uint8), zero_points, 1)
        assert torch.equal(y, defined(x, weight, zero_points, 1))
