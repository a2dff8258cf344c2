"""Functions, norms, softmax and products of float32 tensors against PyTorch's, in float64 where that tells more."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.nn import functional as F

from zeropoint.ops import float_functions

FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "gelu": (float_functions.float_gelu, F.gelu),
    "gelu by tanh": (lambda x: float_functions.float_gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "tanh": (float_functions.float_tanh, torch.tanh),
    "sigmoid": (float_functions.float_sigmoid, torch.sigmoid),
    "silu": (float_functions.float_silu, F.silu),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "turned": lambda x: x.transpose(-1, -2),
    "sliced": lambda x: x[..., 1:],
    "every other": lambda x: x[..., ::2, :],
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(st.floats(0.01, 40.0), st.integers(0, 2**31))
def test_function_is_within_a_millionth_of_the_exact_one(name: str, size: float, seed: int) -> None:
    ours, torchs = FUNCTIONS[name]
    x = torch.randn(3, 37, generator=torch.Generator().manual_seed(seed)) * size
    exact = torchs(x.double())
    assert ((ours(x).double() - exact).abs() <= 1e-6 * exact.abs() + 1e-6 * x.abs().clamp(max=1) + 1e-37).all()


# Written down, not asked of torch: its float32 gelu gives NaN or not at the ends by the vectors of the CPU.
ENDS = [math.inf, math.nan, 0.0, -0.0, 1e30, -1e30, 3e38]
PASSED = [math.inf, math.nan, 0.0, 0.0, 1e30, 0.0, 3e38]
AT_THE_ENDS = {
    "gelu": PASSED,
    "gelu by tanh": PASSED,
    "silu": PASSED,
    "tanh": [1.0, math.nan, 0.0, 0.0, 1.0, -1.0, 1.0],
    "sigmoid": [1.0, math.nan, 0.5, 0.5, 1.0, 0.0, 1.0],
}

UNDERFLOW = 1e-34  # what is left of an exponential whose argument is cut off, where the limit is 0


@pytest.mark.parametrize("copies", [1, 16])  # left over by vectors, and in them
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_what_is_no_number_is_its_limit(name: str, copies: int) -> None:
    found = FUNCTIONS[name][0](torch.tensor(ENDS * copies))
    expected = torch.tensor(AT_THE_ENDS[name] * copies)
    torch.testing.assert_close(found, expected, rtol=0, atol=UNDERFLOW, equal_nan=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_keeps_the_layout_and_does_not_depend_on_it(name: str, layout: str) -> None:
    ours, torchs = FUNCTIONS[name]
    x = LAYOUTS[layout](torch.randn(4, 10, 12))
    before = x.clone()
    assert torch.equal(ours(x), ours(x.contiguous()))
    assert ours(x).stride() == torchs(x).stride()
    assert torch.equal(x, before)


@given(st.integers(1, 3), st.integers(1, 150), st.floats(-1000, 1000), st.floats(0.01, 100), st.booleans())
def test_layer_norm_is_that_of_torch(rows: int, length: int, shift: float, size: float, affine: bool) -> None:
    g = torch.Generator().manual_seed(length)
    x = torch.randn(rows, length, generator=g) * size + shift
    numbers = tuple(torch.randn(2, length, generator=g)) if affine else (None, None)
    exact = F.layer_norm(x.double(), [length], *(t if t is None else t.double() for t in numbers))
    # What rounding of the mean alone may cost.
    room = 2e-6 + 2e-7 * abs(shift) / (x.double().std(-1, correction=0).min().item() + 3e-3)
    bound = room * (1 + exact.abs() + (0 if numbers[0] is None else numbers[0].abs()))
    assert ((float_functions.float_layer_norm(x, [length], *numbers).double() - exact).abs() <= bound).all()


def test_layer_norm_over_several_axes_of_a_turned_tensor() -> None:
    x, weight, bias = torch.randn(5, 3, 4).transpose(0, 1), torch.randn(5, 4), torch.randn(5, 4)
    found = float_functions.float_layer_norm(x, [5, 4], weight, bias, 1e-3)
    torch.testing.assert_close(found, F.layer_norm(x, [5, 4], weight, bias, 1e-3))
    assert found.is_contiguous()


def test_long_rows_lose_nothing() -> None:
    x = torch.randn(1, 1_000_003) + 3
    exact = F.layer_norm(x.double(), x.shape[1:])
    assert (float_functions.float_layer_norm(x, x.shape[1:]).double() - exact).abs().max() < 2e-6


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_is_that_of_torch_along_every_axis(dim: int, layout: str) -> None:
    x = LAYOUTS[layout](torch.randn(4, 20, 37) * 5)
    exact = torch.softmax(x.double(), dim)
    for softmax in (float_functions.float_softmax, float_functions.float_safe_softmax):
        torch.testing.assert_close(softmax(x, dim).double(), exact, rtol=1e-5, atol=1e-37)


@given(st.integers(1, 100), st.floats(0.01, 60), st.integers(0, 2**31))
def test_softmax_is_as_close_as_its_differences_allow(length: int, size: float, seed: int) -> None:
    x = torch.randn(3, length, generator=torch.Generator().manual_seed(seed)) * size
    exact = torch.softmax(x.double(), -1)
    room = 1e-6 + 1e-7 * (x.max(-1, keepdim=True).values - x)  # what rounding of the difference may cost
    assert ((float_functions.float_softmax(x, -1).double() - exact).abs() <= room * exact + 1e-37).all()


def test_rows_without_any_key_are_zero_if_safe_and_else_nan() -> None:
    least = torch.full((2, 21), -math.inf)
    least[1, 3] = math.nan
    assert float_functions.float_softmax(least, -1).isnan().all()
    safe = float_functions.float_safe_softmax(least, -1)
    assert torch.equal(safe[0], torch.zeros(21))
    assert safe[1].isnan().all()
    masked = torch.tensor([[1.0, torch.finfo(torch.float32).min, 2.0]])
    torch.testing.assert_close(float_functions.float_softmax(masked, -1), torch.softmax(masked, -1))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 1), (1, 1)),
        ((7, 33), (33, 70)),
        ((3, 5, 8), (3, 8, 17)),
        ((2, 1, 6, 9), (3, 9, 4)),
        ((4, 9), (2, 9, 16)),
        ((2, 3, 0, 4), (4, 5)),
        ((2, 0), (0, 3)),
        ((130, 40), (40, 65)),
    ],
)
def test_product_is_that_of_torch(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = torch.randn(a), torch.randn(b)
    exact = x.double() @ y.double()
    turned = y.transpose(-1, -2).contiguous().transpose(-1, -2)
    apart = torch.randn(*a[:-1], 2 * a[-1])[..., ::2].copy_(x)
    found = float_functions.float_matmul(x, y)
    assert found.is_contiguous()
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-5)
    for left, right in ((x, turned), (apart, y), (x.expand(*a), y.expand(*b))):
        assert torch.equal(float_functions.float_matmul(left, right), found)


def test_heads_are_multiplied_where_they_lie() -> None:
    q, k = (torch.randn(2, 12, 3, 8).transpose(1, 2) for _ in range(2))
    found = float_functions.float_matmul(q, k.transpose(-1, -2))
    torch.testing.assert_close(found, q @ k.transpose(-1, -2))
    assert torch.equal(found, float_functions.float_matmul(q.contiguous(), k.transpose(-1, -2).contiguous()))


def test_wrong_arguments_are_refused() -> None:
    x = torch.zeros(2, 3)
    for dtype in (torch.float64, torch.int8):
        with pytest.raises(TypeError, match="float_tanh: input must be"):
            float_functions.float_tanh(x.to(dtype))
    with pytest.raises(ValueError, match="approximate must be 'none' or 'tanh', got 'erf'"):
        float_functions.float_gelu(x, "erf")
    with pytest.raises(ValueError, match="normalized_shape must be the last sizes"):
        float_functions.float_layer_norm(x, [2])
    with pytest.raises(ValueError, match="weight must have the shape"):
        float_functions.float_layer_norm(x, [3], torch.zeros(2))
    with pytest.raises(ValueError, match="eps must not be negative"):
        float_functions.float_layer_norm(x, [3], eps=-1.0)
    with pytest.raises(IndexError, match="dim 2 is out of range"):
        float_functions.float_softmax(x, 2)
    with pytest.raises(ValueError, match="it takes"):
        float_functions.float_matmul(x, x)
    with pytest.raises(NotImplementedError, match="its kernels run on the CPU"):
        float_functions.float_matmul(torch.empty(2, 3, device="meta"), torch.zeros(3, 2))
