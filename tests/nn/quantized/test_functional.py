"""The functions of zeropoint.nn.quantized.functional that pool, resample and map values, against torch.ao's."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import torch.ao.nn.quantized.functional as theirs
from oracle_vectors import assert_same_in_vectors
from static_cases import numbers

import zeropoint
from zeropoint.nn.quantized import functional as ours

IMAGE, VOLUME, LINE = (2, 4, 8, 8), (2, 4, 8, 4, 8), (2, 4, 64)
CALLS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "adaptive_avg_pool2d": ("adaptive_avg_pool2d", IMAGE, {"output_size": (3, 2)}),
    "adaptive_avg_pool2d to one": ("adaptive_avg_pool2d", IMAGE, {"output_size": 1}),
    "adaptive_avg_pool3d": ("adaptive_avg_pool3d", VOLUME, {"output_size": (2, 4, 2)}),
    "avg_pool2d": ("avg_pool2d", IMAGE, {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
    "avg_pool2d, divisor": ("avg_pool2d", IMAGE, {"kernel_size": 2, "divisor_override": 3, "ceil_mode": True}),
    "avg_pool3d": ("avg_pool3d", VOLUME, {"kernel_size": 2}),
    "max_pool1d": ("max_pool1d", LINE, {"kernel_size": 3, "padding": 1}),
    "max_pool2d": ("max_pool2d", IMAGE, {"kernel_size": 3, "stride": 2, "dilation": 2, "ceil_mode": True}),
    "max_pool2d, stride unsaid": ("max_pool2d", IMAGE, {"kernel_size": (2, 1)}),
    "interpolate": ("interpolate", IMAGE, {"scale_factor": 2.0}),
    "interpolate, bilinear": ("interpolate", IMAGE, {"size": (5, 11), "mode": "bilinear", "align_corners": False}),
    "upsample": ("upsample", IMAGE, {"size": 16}),
    "upsample_bilinear": ("upsample_bilinear", IMAGE, {"scale_factor": 2}),
    "upsample_nearest": ("upsample_nearest", VOLUME, {"scale_factor": 2}),
    "celu": ("celu", LINE, {"scale": 0.05, "zero_point": 40, "alpha": 0.5}),
    "elu": ("elu", LINE, {"scale": 0.05, "zero_point": 40, "alpha": 1.5}),
    "hardswish": ("hardswish", LINE, {"scale": 0.05, "zero_point": 12}),
    "hardsigmoid": ("hardsigmoid", LINE, {}),
    "hardtanh": ("hardtanh", LINE, {"min_val": -0.5, "max_val": 2.0}),
    "clamp": ("clamp", LINE, {"min_": -0.5, "max_": 2.0}),
    "threshold": ("threshold", LINE, {"threshold": 0.52, "value": -0.25}),
    "leaky_relu": ("leaky_relu", LINE, {"negative_slope": 0.2}),
    "leaky_relu, rescaled": ("leaky_relu", LINE, {"negative_slope": 0.2, "scale": 0.1, "zero_point": 50}),
}


def twins(shape: tuple[int, ...], dtype: str) -> tuple[zeropoint.QTensor, torch.Tensor]:
    x, zero_point = numbers(*shape) * 3, 120 if dtype == "quint8" else -8
    mine = zeropoint.quantize_per_tensor(x, 0.05, zero_point, getattr(zeropoint, dtype))
    return mine, torch.quantize_per_tensor(x, 0.05, zero_point, getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
@pytest.mark.parametrize("call", CALLS)
def test_function_gives_the_integers_of_torch(call: str, dtype: str) -> None:
    name, shape, options = CALLS[call]
    if dtype == "qint8" and "zero_point" in options:
        options = options | {"zero_point": options["zero_point"] - 100}
    mine, other = twins(shape, dtype)
    y, expected = getattr(ours, name)(mine, **options), getattr(theirs, name)(other, **options)
    assert (y.q_scale(), y.q_zero_point()) == (expected.q_scale(), expected.q_zero_point())
    assert_same_in_vectors(y.int_repr(), expected.int_repr())


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CALLS.values()}))
def test_arguments_are_those_of_torch(name: str) -> None:
    mine, other = (inspect.signature(getattr(f, name)).parameters.values() for f in (ours, theirs))
    assert [(p.name, p.default) for p in mine] == [(p.name, p.default) for p in other]


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CALLS.values()}))
def test_floats_are_refused(name: str) -> None:
    options = next(o for n, _, o in CALLS.values() if n == name)
    with pytest.raises(TypeError, match="must be a quantized tensor"):
        getattr(ours, name)(torch.ones(1, 1, 4, 4), **options)


@pytest.mark.parametrize("name", ["leaky_relu", "hardtanh", "hardsigmoid"])
def test_in_place_changes_the_input(name: str) -> None:
    mine, _ = twins(LINE, "quint8")
    expected = getattr(ours, name)(mine)
    y = getattr(ours, name)(mine, inplace=True)
    assert torch.equal(mine.int_repr(), expected.int_repr())
    assert torch.equal(y.int_repr(), expected.int_repr())


def test_half_of_the_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="both scale and zero_point"):
        ours.leaky_relu(twins(LINE, "quint8")[0], scale=0.1)


@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d"])
def test_places_of_maxima_are_refused(name: str) -> None:
    mine, _ = twins(IMAGE if name == "max_pool2d" else LINE, "quint8")
    with pytest.raises(NotImplementedError, match="return_indices"):
        getattr(ours, name)(mine, 2, return_indices=True)


def test_all_functions_of_torch_are_there() -> None:
    assert set(theirs.__all__) <= set(ours.__all__)
