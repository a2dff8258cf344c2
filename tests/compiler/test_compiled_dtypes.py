"""Integers, bools and empty tensors: programs give PyTorch's dtypes, shapes and values, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from few_layers import Beside
from torch import Tensor
from torch.nn import functional as F

import zeropoint


def _made(function: Callable[..., Tensor], *example: Tensor) -> tuple[Any, Any]:
    inputs = (torch.randn(3, 4), *example)
    graph = zeropoint.to_int8(Beside(function).eval(), inputs, [inputs], progress=False)
    return graph, zeropoint.compile(graph, inputs)


def _check(function: Callable[..., Tensor], example: tuple[Tensor, ...], *others: tuple[Tensor, ...]) -> None:
    side = torch.randn(3, 4)
    graph, program = _made(function, *example)
    for given in (example, *others):
        expected = function(*given)
        for run in (graph, program):
            found = run(side, *given)[1]
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=0, equal_nan=True)


UNARY = (
    "nan_to_num", "abs", "neg", "round", "floor", "ceil", "trunc", "sign", "square", "positive", "bitwise_not",
    "logical_not", "isnan", "isinf", "isfinite", "signbit", "sum", "prod", "any", "all", "max", "min", "argmax",
    "amax", "relu", "exp", "sqrt", "sigmoid", "reciprocal", "flip", "cumsum", "sort", "clamp", "mean", "count_nonzero",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "div", "maximum", "minimum", "remainder", "fmod", "floor_divide", "pow", "bitwise_and",
    "bitwise_or", "bitwise_xor", "eq", "lt", "logical_and", "atan2", "true_divide", "where",
)  # fmt: skip
MORE: dict[str, Any] = {
    "flip": lambda x: x.flip(0), "cumsum": lambda x: x.cumsum(0), "sort": lambda x: x.sort()[0],
    "clamp": lambda x: x.clamp(1, 3), "relu": F.relu, "where": lambda x, y: torch.where(x > y, x, y),
}  # fmt: skip
DTYPES = (torch.int64, torch.int32, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_integers_keep_pytorchs_dtype_and_value(name: str, dtype: torch.dtype) -> None:
    function = MORE.get(name) or getattr(torch, name)
    signed = dtype in (torch.int64, torch.int32)
    first = torch.tensor([1, 7, 0, -5 if signed else 5, 2], dtype=dtype)
    given = (first, torch.tensor([1, 2, 3, 4, 1], dtype=dtype)) if name in BINARY else (first,)
    try:
        function(*given)
    except RuntimeError:
        return  # PyTorch refuses it
    try:
        _made(function, *given)
    except NotImplementedError:
        return
    _check(function, given)


EMPTY: dict[str, Callable[..., Tensor]] = {
    "pow": lambda x: x**x, "atan2": lambda x: torch.atan2(x, x), "floor division": lambda x: x // 2.0,
    "exp": torch.exp, "maximum": lambda x: torch.maximum(x, x), "any": lambda x: (x > 0).any(0),
    "any of all": lambda x: (x > 0).any(), "all": lambda x: (x > 0).all(0), "all of all": lambda x: (x > 0).all(),
    "sum": lambda x: x.sum(0), "product": lambda x: x.prod(0), "product of all": lambda x: x.prod(),
    "roll": lambda x: x.roll(1, 0), "roll by a size": lambda x: x.roll(x.shape[0] // 2, 0),
    "sort": lambda x: x.sort(0)[0],
    "products of matrices": lambda x: x.T @ x, "cumsum": lambda x: x.cumsum(0), "clamp": lambda x: x.clamp(0, 1),
    "gather": lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.int64)), "flip": lambda x: x.flip(0),
    "softmax": lambda x: x.softmax(1), "nan_to_num": torch.nan_to_num, "hypot": lambda x: torch.hypot(x, x),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements_are_computed(name: str) -> None:
    example, empty = torch.ones(3, 2), torch.ones(0, 2)
    _check(EMPTY[name], (example,), (empty,))


NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "topk": lambda x: x.topk(1)[0], "least": lambda x: x.topk(1, largest=False)[1], "sort": lambda x: x.sort()[0],
    "squeeze": lambda x: x.squeeze(0), "unfold": lambda x: x.unfold(0, 1, 1), "flip": lambda x: x.flip([]),
    "scatter": lambda x: x.scatter(0, torch.tensor(0), 2.0), "sum": lambda x: x.sum(0), "any": lambda x: (x > 0).any(0),
    "gather": lambda x: x.gather(0, torch.tensor(0)), "cumsum": lambda x: x.cumsum(0), "max": lambda x: x.max(0)[0],
    "softmax": lambda x: x.softmax(0), "index_select": lambda x: x.index_select(0, torch.tensor([0])),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_tensors_without_axes_are_computed(name: str) -> None:
    _check(NUMBERS[name], (torch.tensor(3.0),), (torch.tensor(-1.5),))


def test_a_mask_that_is_larger_than_the_tensor_repeats_it() -> None:
    mask = torch.tensor([[True, False, True], [False, True, True]])
    _check(lambda x, s: x.masked_scatter(mask, s), (torch.zeros(3), torch.arange(6.0)))


def test_roll_takes_a_number_from_a_size() -> None:
    _check(torch.fft.fftshift, (torch.rand(4, 6),), (torch.rand(5, 6),))


TWO_BOOLS: dict[str, Callable[..., Tensor]] = {
    "a scaled sum": lambda x, y: torch.add(x, y, alpha=True), "outer": torch.outer, "sgn": lambda x, y: torch.sgn(x),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO_BOOLS)
def test_bools(name: str) -> None:
    x, y = torch.tensor([True, False, True]), torch.tensor([True, True, False])
    _check(TWO_BOOLS[name], (x, y))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_products_of_matrices_of_integers_wrap_in_their_dtype(dtype: torch.dtype) -> None:
    x, y = torch.arange(90, 102).reshape(3, 4).to(dtype), torch.arange(100, 120).reshape(4, 5).to(dtype)
    _check(torch.matmul, (x, y))


@pytest.mark.parametrize("factors", [(0.2, 1.7), (2, 3), (0, 1)])
def test_factors_of_sums_of_integers_are_integers(factors: tuple[Any, Any]) -> None:
    beta, alpha = factors
    x, m, v = torch.arange(3), torch.arange(12).reshape(3, 4), torch.arange(4)
    _check(lambda x, m, v: torch.addmv(x, m, v, beta=beta, alpha=alpha), (x, m, v))


@pytest.mark.parametrize("pads", [(-1, 1), (1, -2), (2, 1), (-1, -1)])
def test_what_a_circular_pad_cuts_off_does_not_come_back(pads: tuple[int, int]) -> None:
    _check(lambda x: F.pad(x, pads, "circular"), (torch.arange(12.0).reshape(1, 3, 4),))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_nothing_cannot_be_padded_with_itself(mode: str) -> None:
    side = torch.randn(3, 4)
    _, program = _made(lambda x: F.pad(x, (1, 1), mode), torch.ones(2, 3))
    with pytest.raises(ValueError, match="axis 0 has no elements"):
        program(side, torch.ones(0, 3))


def test_products_of_matrices_without_elements_stay_floats() -> None:
    side, x = torch.randn(3, 4), torch.ones(2, 0)
    model = Beside(lambda x: x @ x.T).eval()
    graph = zeropoint.to_int8(model, (side, x), [(side, x)], progress=False, dynamic_shapes={})
    for run in (graph, zeropoint.compile(graph, (side, x))):
        assert torch.equal(run(side, x)[1], torch.zeros(2, 2))


def test_a_line_of_free_length_is_resized_by_a_factor_that_is_computed_again() -> None:
    def function(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=0.6, mode="linear", recompute_scale_factor=True)

    _check(function, (torch.rand(1, 2, 10),), (torch.rand(1, 2, 15),))


OF_INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "logit": torch.logit, "lgamma": torch.lgamma, "sinc": torch.sinc,
    "logsumexp": lambda x: x.logsumexp(0), "xlogy": lambda x: torch.xlogy(x, x), "quotient": lambda x: x / 3,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_functions_of_integers_that_give_floats_are_not_quantized(name: str, dtype: torch.dtype) -> None:
    _check(OF_INTEGERS[name], (torch.tensor([1, 0, 1, 1]).to(dtype),))


def test_a_product_over_an_axis_of_one_sums_the_other() -> None:
    inputs = torch.randn(3, 4), torch.arange(3).reshape(3, 1), torch.arange(8).reshape(4, 2)
    model = Beside(lambda x, y: torch.tensordot(x, y, dims=([1], [0]))).eval()
    graph = zeropoint.to_int8(model, inputs, [inputs], progress=False, dynamic_shapes={})
    for run in (graph, zeropoint.compile(graph, inputs)):
        assert torch.equal(run(*inputs)[1], model(*inputs)[1])
