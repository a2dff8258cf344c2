"""Making QTensors, against PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from pairs import (
    BYTES,
    DTYPES,
    MEMORY_FORMATS,
    PACKED,
    assert_equal_qtensors,
    assert_pair,
    make,
    pairs,
    possible,
    torch_dtype,
)
from strategies import (
    assert_same,
    examples,
    lay_out,
    layouts,
    numbers,
    scale_lists,
    scales,
    seeds,
    shapes,
    zero_point_list,
)

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, qint32, quint2x4, quint4x2, quint8
from zeropoint.tensor import QTensor
from zeropoint.tensor.errors import QTensorError

# --------------------------------------------------------------------------------------------------------- from floats


@given(st.data(), st.sampled_from(BYTES), shapes(), layouts, scales(), seeds)
def test_quantize_per_tensor(
    data: st.DataObject, dtype: QuantizedDtype, shape: tuple[int, ...], layout: str, scale: float, seed: int
) -> None:
    zero_point = data.draw(st.integers(max(dtype.qmin, -300), min(dtype.qmax, 300)))
    x = lay_out(numbers(seed, shape, scale), layout)
    assert_pair(
        zeropoint.quantize_per_tensor(x, scale, zero_point, dtype),
        torch.quantize_per_tensor(x, scale, zero_point, torch_dtype(dtype)),
    )


@given(st.data(), st.sampled_from(PACKED), shapes(), scales(), seeds)
def test_quantize_per_tensor_packed_has_its_own_ties(
    data: st.DataObject, dtype: QuantizedDtype, shape: tuple[int, ...], scale: float, seed: int
) -> None:
    zero_point = data.draw(st.integers(0, 255))  # PyTorch allows what a byte allows
    x = numbers(seed, shape, scale)
    assert_pair(
        zeropoint.quantize_per_tensor(x, scale, zero_point, dtype),
        torch.quantize_per_tensor(x, scale, zero_point, torch_dtype(dtype)),
    )


@pytest.mark.parametrize("dtype", [quint8, *PACKED], ids=repr)
def test_where_a_tie_goes(dtype: QuantizedDtype) -> None:
    """rne(0.5) + 1 = 1 below a byte, rne(1.5) = 2 in a whole one."""
    q = zeropoint.quantize_per_tensor(torch.tensor([0.5, 1.5]), 1.0, 1, dtype)
    assert q.dequantize().tolist() == ([0.0, 2.0] if dtype in PACKED else [1.0, 1.0])


@examples(60)
@given(st.data(), st.sampled_from([qint8, quint8, qint32, quint4x2]), shapes(min_dims=1), st.booleans(), seeds)
def test_quantize_per_channel(
    data: st.DataObject, dtype: QuantizedDtype, shape: tuple[int, ...], channels_last: bool, seed: int
) -> None:
    floating = dtype in PACKED or (dtype != qint32 and data.draw(st.booleans()))
    axis = data.draw(st.integers(0, len(shape) - 1))
    steps = data.draw(scale_lists(shape[axis], torch.float64, wild=False))
    zero_points = zero_point_list(seed, shape[axis], torch.float32 if floating else torch.int64, 0, 15)
    broadcast = [-1 if d == axis else 1 for d in range(len(shape))]
    x = numbers(seed, shape, steps.view(broadcast), far=dtype not in PACKED)
    if channels_last and len(shape) == 4 and axis < 2 and dtype not in PACKED:
        x = x.contiguous(memory_format=torch.channels_last)
    assert_pair(
        zeropoint.quantize_per_channel(x, steps, zero_points, axis, dtype),
        torch.quantize_per_channel(x, steps, zero_points, axis, torch_dtype(dtype)),
    )


def test_a_negative_axis_counts_from_the_end() -> None:
    q = zeropoint.quantize_per_channel(torch.ones(2, 3), torch.ones(3), torch.zeros(3, dtype=torch.int64), -1, qint8)
    assert q.q_per_channel_axis() == 1


@pytest.mark.parametrize("dtype", [qint8, quint8], ids=repr)
@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4, 5)])
def test_quantize_per_tensor_dynamic(dtype: QuantizedDtype, reduce_range: bool, shape: tuple[int, ...]) -> None:
    for seed in range(20):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3
        assert_pair(
            zeropoint.quantize_per_tensor_dynamic(x, dtype, reduce_range),
            torch.quantize_per_tensor_dynamic(x, torch_dtype(dtype), reduce_range),
        )


def test_dynamic_quantization_of_other_dtypes_is_refused() -> None:
    with pytest.raises(TypeError, match="qint8 and quint8, got qint32"):
        zeropoint.quantize_per_tensor_dynamic(torch.ones(2), qint32)


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_qparams_may_be_tensors(dtype: QuantizedDtype) -> None:
    x = torch.rand(3, 2) * 4 - 2
    q = zeropoint.quantize_per_tensor(x, torch.tensor(0.3), torch.tensor(2), dtype)
    assert_pair(q, torch.quantize_per_tensor(x, torch.tensor(0.3), torch.tensor(2), torch_dtype(dtype)))
    assert type(q.q_scale()) is float
    assert type(q.q_zero_point()) is int


def test_a_list_of_tensors() -> None:
    tensors = [torch.rand(2, 3), torch.rand(4), torch.rand(())]
    steps, zero_points = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 2, 3])
    ours = zeropoint.quantize_per_tensor(tensors, steps, zero_points, quint8)
    oracle = torch.quantize_per_tensor(tensors, steps, zero_points, torch.quint8)
    assert len(ours) == len(oracle) == 3
    for mine, theirs in zip(ours, oracle):
        assert_pair(mine, theirs)
    with pytest.raises(ValueError, match="a list of 3 tensors needs the same number of scales"):
        zeropoint.quantize_per_tensor(tensors, steps[:2], zero_points, quint8)


@pytest.mark.parametrize("spelled", [quint8, "quint8", torch.quint8], ids=repr)
def test_a_dtype_has_several_names(spelled: Any) -> None:
    assert zeropoint.quantize_per_tensor(torch.ones(1), 1.0, 0, spelled).qdtype is quint8


@pytest.mark.parametrize("x", [torch.ones(2).half(), torch.ones(2).double(), torch.ones(2).int()])
def test_only_float32_can_be_quantized(x: torch.Tensor) -> None:
    with pytest.raises(TypeError, match=r"only float32 tensors can be quantized, got torch\.\w+: call \.float\(\)"):
        zeropoint.quantize_per_tensor(x, 1.0, 0, quint8)


def test_quantizing_twice_is_refused() -> None:
    with pytest.raises(TypeError, match="already quantized"):
        zeropoint.quantize_per_tensor(make(quint8), 1.0, 0, quint8)


@pytest.mark.parametrize(
    ("dtype", "zero_point"), [(quint8, -1), (quint8, 256), (qint8, 128), (qint8, -129), (quint4x2, 256)]
)
def test_a_zero_point_has_a_range(dtype: QuantizedDtype, zero_point: int) -> None:
    with pytest.raises(QTensorError, match=f"zero_point {zero_point} is outside the range of {dtype.name}"):
        zeropoint.quantize_per_tensor(torch.ones(2), 1.0, zero_point, dtype)
    if dtype not in PACKED:
        with pytest.raises(QTensorError, match="outside the range"):
            zeropoint.quantize_per_channel(torch.ones(1, 2), torch.ones(1), torch.tensor([zero_point]), 0, dtype)


@pytest.mark.parametrize("scale", [0.0, math.nan, math.inf])
def test_a_scale_must_be_a_number(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        zeropoint.quantize_per_tensor(torch.ones(2), scale, 0, quint8)


def test_qparams_must_fit_the_axis() -> None:
    with pytest.raises(QTensorError, match=r"scales has shape \(3,\), expected \(2,\)"):
        zeropoint.quantize_per_channel(torch.ones(2, 3), torch.ones(3), torch.zeros(3, dtype=torch.int64), 0, qint8)
    with pytest.raises(QTensorError, match="axis 2 is out of range"):
        zeropoint.quantize_per_channel(torch.ones(2, 3), torch.ones(3), torch.zeros(3, dtype=torch.int64), 2, qint8)
    with pytest.raises(QTensorError, match="quint4x2 needs float zero points"):
        zeropoint.quantize_per_channel(torch.ones(2, 3), torch.ones(3), torch.zeros(3, dtype=torch.int64), 1, quint4x2)


def test_per_channel_qparams_are_copies() -> None:
    steps, zero_points = torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
    q = zeropoint.quantize_per_channel(torch.ones(2, 3), steps, zero_points, 0, qint8)
    steps.fill_(9)
    zero_points.fill_(9)
    assert q.dequantize().eq(1).all()


def test_gradients_stop_at_quantization() -> None:
    x = torch.ones(3, requires_grad=True)
    assert not zeropoint.quantize_per_tensor(x, 0.5, 0, qint8).dequantize().requires_grad


# ------------------------------------------------------------------------------------------------------- from integers


@given(pairs())
def test_make_from_integers(pair: tuple[QTensor, torch.Tensor]) -> None:
    assert_pair(*pair)


def test_make_copies_the_integers() -> None:
    integers = torch.zeros(3, dtype=torch.uint8)
    q = zeropoint.make_per_tensor_quantized_tensor(integers, 1.0, 0)
    integers.fill_(7)
    assert q.int_repr().eq(0).all()


def test_make_needs_integers_of_a_quantized_type() -> None:
    with pytest.raises(TypeError, match=r"int8, uint8 or int32 .* got torch.int64"):
        zeropoint.make_per_tensor_quantized_tensor(torch.zeros(3, dtype=torch.int64), 1.0, 0)


# --------------------------------------------------------------------------------------------------------------- empty


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
@pytest.mark.parametrize(
    ("shape", "memory_format"),
    [
        ((4, 5), torch.contiguous_format),
        ((0, 3), None),
        ((2, 3, 4, 5), torch.channels_last),
        ((2, 3, 4, 5, 2), torch.channels_last_3d),
    ],
)
def test_empty(dtype: QuantizedDtype, shape: tuple[int, ...], memory_format: Any) -> None:
    q = zeropoint.empty_affine_quantized(shape, scale=0.5, zero_point=10, dtype=dtype, memory_format=memory_format)
    assert (q.q_scale(), q.q_zero_point(), q.qdtype, q.shape) == (0.5, 10, dtype, shape)
    assert q.stride() == torch.empty(shape, memory_format=memory_format or torch.contiguous_format).stride()
    assert zeropoint.empty_affine_quantized(*shape, dtype=dtype).shape == shape
    for zero_points in (torch.arange(shape[1]), torch.rand(shape[1])):
        if not possible(dtype, "per_channel_float" if zero_points.is_floating_point() else "per_channel"):
            continue
        steps = torch.rand(shape[1]) + 0.1
        c = zeropoint.empty_per_channel_affine_quantized(
            shape, scales=steps, zero_points=zero_points, axis=1, dtype=dtype, memory_format=memory_format
        )
        assert c.stride() == q.stride()
        assert_same(c.q_per_channel_scales().float(), steps)
        assert_same(c.q_per_channel_zero_points(), zero_points)
        assert c.q_per_channel_axis() == 1


def test_empty_on_another_device() -> None:
    for dtype in (quint8, quint4x2):
        q = zeropoint.empty_affine_quantized(2, 3, dtype=dtype, device="meta")
        assert q.device.type == q.dequantize().device.type == "meta"
        assert q.view(-1).shape == (6,)
    c = zeropoint.empty_per_channel_affine_quantized(
        2, 3, scales=torch.ones(3), zero_points=torch.zeros(3).long(), axis=1, dtype=qint8, device="meta"
    )
    assert c.q_per_channel_scales().device.type == "meta"


@given(pairs(schemes=("per_tensor", "per_channel")))
def test_empty_like(pair: tuple[QTensor, torch.Tensor]) -> None:
    ours, oracle = zeropoint.empty_like(pair[0]), torch.empty_like(pair[1])
    assert not ours.numel() or ours.stride() == oracle.stride()
    assert_equal_qtensors(ours.copy_(pair[0]), pair[0].clone())


def test_empty_like_keeps_the_dtype() -> None:
    q = make(quint8)
    assert zeropoint.empty_like(q, dtype=quint8).qdtype is quint8
    for call in (lambda: zeropoint.empty_like(q, dtype=qint8), lambda: torch.empty_like(q, dtype=torch.qint8)):
        with pytest.raises(RuntimeError, match="empty_like of a quint8 tensor keeps its dtype"):
            call()


@pytest.mark.parametrize("dtype", [quint8, quint4x2, quint2x4], ids=repr)
def test_relatives_of_empty(dtype: QuantizedDtype) -> None:
    q = make(dtype)
    assert torch.full_like(q, 0.25).dequantize().eq(0.25).all()
    assert torch.zeros_like(q).dequantize().eq(0).all()
    assert torch.ones_like(q, memory_format=torch.contiguous_format).shape == q.shape
    assert q.new_full([2], 0.25).dequantize().tolist() == [0.25, 0.25]
    assert q.new_zeros(2, 3).dequantize().eq(0).all()
    assert q.new_empty(5)._quantizer == q._quantizer
    with pytest.raises(QTensorError, match="keeps its dtype"):
        torch.zeros_like(q, dtype=torch.float16)


# ---------------------------------------------------------------------------------------------------------- dequantize


def test_dequantize_takes_many_things() -> None:
    half = torch.randn(1, 2, 4, 4).half()
    assert_same(zeropoint.dequantize(half), half.float())
    q = make(quint8)
    assert_same(zeropoint.dequantize(q), q.dequantize())
    both = zeropoint.dequantize([q, half])
    assert isinstance(both, tuple)
    assert_same(both[0], q.dequantize())
    assert_same(both[1], half.float())
    with pytest.raises(TypeError, match="takes a tensor, or a list or tuple of tensors, got float"):
        zeropoint.dequantize(1.0)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", BYTES, ids=repr)
def test_values_survive_to_half_a_step(dtype: QuantizedDtype, channels_last: bool) -> None:
    for shape in ((3, 2, 4, 5), (3, 2, 4, 5, 6)):
        x = torch.rand(shape) * 2.4 - 1.2
        if channels_last:
            x = x.contiguous(memory_format=MEMORY_FORMATS[x.dim()])
        y = zeropoint.quantize_per_tensor(x, 0.02, 60, dtype).dequantize()
        assert y.stride() == x.stride()
        assert (x - y).abs().max() <= 0.0101
