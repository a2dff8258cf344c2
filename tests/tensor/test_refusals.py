"""What QTensors refuse: always with the reason and the way out, never by dequantizing in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import every_kind, make

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, quint8
from zeropoint.tensor.errors import QTensorError


def test_the_error_is_both_that_old_and_new_code_catch() -> None:
    assert issubclass(QTensorError, RuntimeError)
    assert issubclass(QTensorError, ValueError)


@pytest.mark.parametrize(
    "convert",
    [
        lambda q: q.double(),
        lambda q: q.half(),
        lambda q: q.bfloat16(),
        lambda q: q.int(),
        lambda q: q.long(),
        lambda q: q.bool(),
        lambda q: q.byte(),
        lambda q: q.char(),
        lambda q: q.to("cpu", torch.float16),
        lambda q: q.to(dtype=torch.int8),
        lambda q: q.to(torch.ones(1, dtype=torch.int8)),
        lambda q: q.to(other=torch.ones(1).half()),
        lambda q: q.to(zeropoint.quint8 if q.qdtype is qint8 else qint8),
        lambda q: q.type(torch.float64),
        lambda q: q.type_as(torch.ones(1)),
        lambda q: q.view(torch.int8),
        lambda q: q.new_zeros(2, dtype=torch.float64),
    ],
)
@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_another_dtype(dtype: QuantizedDtype, scheme: str, convert: Callable[[Any], Any]) -> None:
    with pytest.raises(QTensorError, match=r"would drop the qparams of a \w+ tensor: use q\.dequantize\(\) for floats"):
        convert(make(dtype, scheme))


def test_its_own_dtype_is_fine() -> None:
    q = make(quint8)
    for same in (q.to(quint8), q.to(torch.quint8), q.to("cpu", torch.quint8), q.to(q), q.to(dtype=quint8)):
        assert same is q
    assert q.type(quint8) is q
    for same in (q.to(torch.float32), q.float(), q.to(torch.ones(1)), q.type(torch.float32)):  # the dtype of its values
        assert same is q


@pytest.mark.parametrize(
    "operate",
    [
        lambda q: q + q,
        lambda q: q * 2.0,
        lambda q: q @ q.t(),
        lambda q: q.exp(),
        lambda q: torch.softmax(q, 0),
        lambda q: torch.nn.functional.linear(q, torch.ones(4, 4)),
        lambda q: torch.nn.functional.linear(torch.ones(4, 4), q),
        lambda q: torch.ones(3, 4) + q,
        lambda q: torch.ones(3, 4).add_(q),
        lambda q: torch.rand_like(q),
        lambda q: q.add_(1.0),
        lambda q: torch.where(torch.ones(3, 4).bool(), q, q),
        lambda q: q.index_add_(0, torch.tensor([0]), torch.ones(1, 4)),
    ],
)
def test_arithmetic_that_has_no_quantized_meaning(operate: Callable[[Any], Any]) -> None:
    with pytest.raises(NotImplementedError, match=r"aten\.\w+.* call \.dequantize\(\) first"):
        operate(make(quint8))


@pytest.mark.parametrize("name", ["transpose_", "t_", "squeeze_", "unsqueeze_", "swapaxes_"])
def test_shapes_do_not_change_in_place(name: str) -> None:
    arguments = {"transpose_": (0, 1), "swapaxes_": (0, 1), "unsqueeze_": (0,)}.get(name, ())
    with pytest.raises(NotImplementedError, match=r"shape of a quantized tensor in place: use [a-z]+, which returns"):
        getattr(make(quint8), name)(*arguments)


@pytest.mark.parametrize(
    "create", [{"device": "cpu"}, [6], torch.Size([2, 3]), torch.ones(2), torch.ones(2).untyped_storage()], ids=str
)
def test_legacy_new(create: Any) -> None:
    with pytest.raises(RuntimeError, match=r"use zeropoint\.empty_affine_quantized"):
        make(quint8).new(**create) if isinstance(create, dict) else make(quint8).new(create)


def test_gradients() -> None:
    q = make(quint8)
    for ask in (lambda: q.requires_grad_(), lambda: setattr(q, "requires_grad", True), lambda: torch.nn.Parameter(q)):
        with pytest.raises(QTensorError, match="cannot require gradients: train with fake quantization"):
            ask()
    assert q.requires_grad_(False) is q
    q.requires_grad = False
    assert not q.requires_grad


def test_other_containers() -> None:
    q = make(quint8)
    with pytest.raises(QTensorError, match=r"q\.dequantize\(\)\.tolist\(\)"):
        q.tolist()
    with pytest.raises(QTensorError, match=r"pin q\.int_repr\(\)"):
        q.pin_memory()
    with pytest.raises(TypeError, match="DLPack has no quantized tensors"):
        torch.from_dlpack(q)
    assert not q.is_pinned()


def test_float_zero_points_have_no_single_channel() -> None:
    with pytest.raises(QTensorError, match="use a slice, which keeps axis 0"):
        make(qint8, "per_channel_float")[0]
    assert make(qint8, "per_channel_float")[0:1].q_per_channel_axis() == 0


def test_dimensions_out_of_range() -> None:
    for q in (make(quint8), make(qint8, "per_channel"), make(zeropoint.quint4x2)):
        for ask in (lambda: q.select(2, 0), lambda: q.unbind(5), lambda: q.split(1, -3), lambda: q[9]):  # noqa: B023
            with pytest.raises(IndexError, match=r"out of (range|bounds)"):
                ask()
    with pytest.raises(QTensorError, match="positive size"):
        torch.ops.aten.split.Tensor(make(quint8), 0)
    with pytest.raises(QTensorError, match=r"split sizes \[1, 1\] must add up to the 3 elements"):
        torch.ops.aten.split_with_sizes.default(make(quint8), [1, 1])
