"""Writing to QTensors in place, against PyTorch's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, reject
from pairs import BYTES, DTYPES, PACKED, Pair, assert_equal_qtensors, assert_pair, every_kind, make, pairs, torch_dtype
from strategies import assert_same, examples, lay_out, layouts, numbers, seeds

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, quint4x2, quint8
from zeropoint.tensor import QTensor
from zeropoint.tensor.errors import QTensorError

TORCH_SCHEMES = ("per_tensor", "per_channel")
FILLS = (-1, 1, 2**32, 0.3)


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def like(q: QTensor, seed: int = 0) -> torch.Tensor:
    """Floats of the shape of `q`, in the range of its qparams and beyond."""
    step = q.q_per_channel_scales().max().item() if q.qscheme().per_channel and q.numel() else 0.1
    return numbers(seed, tuple(q.shape), step, special=False, far=False)


# ------------------------------------------------------------------------------------------------------- floats into q


@examples(60)
@given(pairs(schemes=TORCH_SCHEMES), layouts, seeds)
def test_copy_floats(pair: Pair, layout: str, seed: int) -> None:
    ours, oracle = pair
    x = lay_out(like(ours, seed), layout)
    assert ours.copy_(x) is ours
    expected = ours._quantizer.quantize(x.contiguous(), ours.qdtype)
    assert_same(ours.int_repr().contiguous(), expected)
    with contextlib.suppress(RuntimeError):  # PyTorch needs a dense source
        assert_pair(ours, oracle.copy_(x))


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_copied_floats_are_quantized_floats(dtype: QuantizedDtype, scheme: str) -> None:
    q = make(dtype, scheme)
    x = torch.rand(3, 4)
    expected = q.with_values(q._quantizer.quantize(x, dtype))
    assert_equal_qtensors(q.copy_(x), expected)
    assert_equal_qtensors(q.copy_(x.double()), expected)
    row = torch.rand(4)
    assert_same(q.copy_(row).dequantize(), q.copy_(row.expand(3, 4)).dequantize())


def test_float_copy_needs_dense_memory() -> None:
    shape = (2, 3, 5)
    for q in (make(quint8, shape=shape), make(qint8, "per_channel", shape, axis=1), make(quint4x2, shape=shape)):
        before = q.clone()
        with pytest.raises(RuntimeError, match=r"Quantized copy only works with contiguous and NHWC Tensors.* mask"):
            q[:, 0] = torch.rand(2, 5)
        assert_equal_qtensors(q, before)
        last = q.transpose(0, 2) if not q.qscheme().per_channel else q
        last.copy_(torch.rand(last.shape))  # dense in another order is fine


def test_only_floats_are_quantized() -> None:
    with pytest.raises(QTensorError, match=r"only floats can be quantized .* got torch\.int64: call \.float\(\)"):
        make(quint8).copy_(torch.ones(3, 4, dtype=torch.int64))


@pytest.mark.parametrize("dtype", BYTES, ids=repr)
@pytest.mark.parametrize("axis", range(4))
def test_assignment_by_parts_per_channel(dtype: QuantizedDtype, axis: int) -> None:
    x, y = torch.rand(2, 3, 5, 5), torch.rand(2, 3, 5, 5)
    steps = torch.rand(x.shape[axis], dtype=torch.float64) + 0.01
    zero_points = torch.randint(0, 50, (x.shape[axis],))
    q = zeropoint.quantize_per_channel(x, steps, zero_points, axis, dtype)
    oracle = torch.quantize_per_channel(x, steps, zero_points, axis, torch_dtype(dtype))
    rest = slice(1, None)
    for key in ((0, 1, 2, 4), (0, 1, 2, slice(2, 4)), (0, 1, 2), (0, 1, rest), (0, 1), (0, rest), (0,)):
        q[key] = y[key]
        oracle[key] = y[key]
        assert_same(q.int_repr(), oracle.int_repr())
    q[:1] = y[:1]
    q[:] = y[:]
    assert_equal_qtensors(q, zeropoint.quantize_per_channel(y, steps, zero_points, axis, dtype))
    with pytest.raises(RuntimeError, match="Quantized copy only works with contiguous and NHWC Tensors"):
        q[:, 0] = y[:, 0]


@pytest.mark.parametrize("dtype", BYTES, ids=repr)
def test_assignment_of_one_value(dtype: QuantizedDtype) -> None:
    q = zeropoint.quantize_per_tensor(torch.ones(1), 1.0, 2, dtype)
    assert q.item() == q[0].item() == 1
    assert isinstance(q[0], QTensor)
    q[0] = torch.tensor([11.3])
    assert q.item() == 11
    q[:] = torch.ones(1) * 15.3
    assert q.item() == 15
    q[0] = 4
    assert q.item() == 4
    q[...] = 5.4
    assert q.item() == 5


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_numbers_go_anywhere(dtype: QuantizedDtype, scheme: str) -> None:
    q = make(dtype, scheme, (3, 4))
    x = q.dequantize()
    for key in ((slice(None), 1), (slice(None, None, 2), slice(1, 3)), 2, (2, 3), ...):
        if scheme == "per_channel_float" and key in (2, (2, 3)):
            continue  # one channel cannot be taken out
        q[key] = 0.3
        x[key] = 0.3
        assert_same(q.int_repr(), q.with_values(q._quantizer.quantize(x, dtype)).int_repr())
        x = q.dequantize()


# ------------------------------------------------------------------------------------------------------------- q into q


@examples(60)
@given(st.sampled_from(BYTES), st.data())
def test_copy_takes_the_qparams_over(dtype: QuantizedDtype, data: st.DataObject) -> None:
    ours, oracle = data.draw(pairs((dtype,), ("per_tensor",)))
    other = zeropoint.empty_affine_quantized(ours.shape, scale=3.2, zero_point=5, dtype=dtype)
    theirs = torch._empty_affine_quantized(oracle.shape, scale=3.2, zero_point=5, dtype=torch_dtype(dtype))
    theirs.copy_(oracle)
    assert other.copy_(ours) is other
    assert_pair(other, theirs)


def test_copy_takes_another_scheme_over() -> None:
    """Which PyTorch refuses."""
    q = make(qint8)
    assert_equal_qtensors(q.copy_(make(qint8, "per_channel")), make(qint8, "per_channel"))
    assert_equal_qtensors(q.copy_(make(qint8)), make(qint8))


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_copy_between_layouts(dtype: QuantizedDtype, scheme: str) -> None:
    q = make(dtype, scheme, (2, 3, 4, 5))
    last = zeropoint.empty_like(q, memory_format=torch.channels_last)
    last.copy_(q)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert_same(last.dequantize(), q.dequantize())


def test_copy_into_a_part_keeps_the_qparams_of_the_whole() -> None:
    q = zeropoint.quantize_per_tensor(torch.zeros(2, 2), 0.5, 10, quint8)
    q[0].copy_(zeropoint.quantize_per_tensor(torch.tensor([1.0, 2.2]), 0.2, 3, quint8))
    assert (q.q_scale(), q[0].q_scale()) == (0.5, 0.5)
    assert q.dequantize().tolist() == [[1.0, 2.0], [0.0, 0.0]]


def test_copy_needs_one_dtype_and_shape() -> None:
    with pytest.raises(QTensorError, match="cannot copy a qint8 tensor into a quint8 tensor"):
        make(quint8).copy_(make(qint8))
    with pytest.raises(QTensorError, match="cannot get the qparams"):
        make(quint8).copy_(zeropoint.quantize_per_tensor(torch.ones(4), 9.0, 0, quint8))
    q = make(quint8)
    q.copy_(q[:1].clone())
    assert_same(q.int_repr(), q.int_repr()[:1].expand(3, 4))


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_floats_do_not_take_quantized(dtype: QuantizedDtype, scheme: str) -> None:
    x = torch.zeros(3, 4)
    for write in (lambda: x.copy_(make(dtype, scheme)), lambda: x.__setitem__(..., make(dtype, scheme))):
        with pytest.raises(RuntimeError, match="please use dequantize"):
            write()
    assert x.eq(0).all()


# -------------------------------------------------------------------------------------------------------------- filling


@examples(60)
@given(pairs(schemes=TORCH_SCHEMES), st.sampled_from(FILLS))
def test_fill(pair: Pair, value: float) -> None:
    ours, oracle = pair
    assert ours.fill_(value) is ours
    try:
        oracle.fill_(value)
    except RuntimeError:  # torch fills no tensor that is neither contiguous nor channels-last
        reject()
    assert_same(ours.int_repr().contiguous(), oracle.int_repr().contiguous())


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
@pytest.mark.parametrize("value", FILLS)
def test_filled_is_quantized(dtype: QuantizedDtype, scheme: str, value: float) -> None:
    for memory_format in (torch.contiguous_format, torch.channels_last):
        q = make(dtype, scheme, (2, 3, 4, 5)).contiguous(memory_format=memory_format)
        expected = q._quantizer.quantize(torch.full(q.shape, float(value)), dtype)
        for fill in (
            lambda q: q.fill_(value),
            lambda q: q.fill_(torch.tensor(float(value))),
            lambda q: q.masked_fill_(torch.tensor(True), value),
            lambda q: q.copy_(torch.tensor(float(value))),
        ):
            filled = fill(q.clone())
            assert_same(filled.values().contiguous(), expected)
            assert filled._quantizer.same(q._quantizer)
            assert filled.stride() == q.stride()


@examples(60)
@given(pairs(schemes=("per_tensor",), min_dims=1), st.sampled_from(FILLS), seeds)
def test_masked_fill(pair: Pair, value: float, seed: int) -> None:
    ours, oracle = pair
    mask = torch.rand(ours.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    assert_same(ours.masked_fill(mask, value).int_repr(), oracle.masked_fill(mask, value).int_repr())
    assert_pair(ours.masked_fill_(mask, value), oracle.masked_fill_(mask, value))
    assert_pair(ours.masked_fill_(mask[:1], torch.tensor(0.1)), oracle.masked_fill_(mask[:1], torch.tensor(0.1)))


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_masked_fill_of_every_kind(dtype: QuantizedDtype, scheme: str) -> None:
    q = make(dtype, scheme)
    mask = torch.arange(12).view(3, 4) % 3 == 0
    filled = torch.full_like(q, 0.3).dequantize()
    assert_same(q.masked_fill(mask, 0.3).dequantize(), torch.where(mask, filled, q.dequantize()))
    q[mask] = 0.3
    assert_same(q.dequantize()[mask], filled[mask])


def test_a_filling_value_has_no_dimensions() -> None:
    with pytest.raises((QTensorError, RuntimeError), match=r"0-dimension|no dimensions"):
        make(quint8).fill_(torch.ones(2))


# ------------------------------------------------------------------------------------------------------- index tensors


@pytest.mark.parametrize("dtype", BYTES, ids=repr)
@pytest.mark.parametrize("values", [torch.tensor(2.5), torch.rand(7) * 1000])
def test_index_put(dtype: QuantizedDtype, values: torch.Tensor) -> None:
    x = torch.rand(10, 10)
    where = tuple(torch.tensor([[0, 0], [1, 1], [5, 5], [7, 3], [0, 5], [6, 9], [-1, -1]]).t())
    q = zeropoint.quantize_per_tensor(x, 0.5, 10, dtype)
    q[where] = values
    x[where] = values
    assert_equal_qtensors(q, zeropoint.quantize_per_tensor(x, 0.5, 10, dtype))


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("dtype", BYTES, ids=repr)
def test_index_put_deterministic(dtype: QuantizedDtype) -> None:
    """Of several values for one place the last one stays, as for floats."""
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        values, where = torch.rand(25_000, generator=g), torch.randint(15, (25_000,), generator=g)
        x = torch.rand(15, generator=g)
        q = zeropoint.quantize_per_tensor(x, 0.5, 10, dtype).index_put((where,), values)
        assert_equal_qtensors(q, zeropoint.quantize_per_tensor(x.index_put((where,), values), 0.5, 10, dtype))


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "key",
    [
        (torch.tensor([2, 0]),),
        (slice(None), torch.tensor([3, 1])),
        (torch.tensor([2, 0]), torch.tensor([1, 1])),
        (torch.tensor([[True, False, True, False]] * 3),),
        (torch.tensor([False, True, True]),),
        (torch.tensor([], dtype=torch.int64),),
    ],
)
def test_index_put_of_every_kind(dtype: QuantizedDtype, scheme: str, axis: int, key: Any) -> None:
    q = make(dtype, scheme, (3, 4), axis)
    x = q.dequantize()
    values = torch.linspace(-0.3, 2.1, x[key].numel()).view(x[key].shape)
    q[key] = values
    x[key] = values
    assert_same(q.int_repr(), q.with_values(q._quantizer.quantize(x, dtype)).int_repr())
    q[key] = 0.4
    x[key] = 0.4
    assert_same(q.int_repr(), q.with_values(q._quantizer.quantize(x, dtype)).int_repr())


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_index_put_of_quantized_values(dtype: QuantizedDtype) -> None:
    q = make(dtype)
    where = torch.tensor([2, 0])
    source = q[:2].clone()
    expected = q.int_repr().clone() if dtype in PACKED else q.int_repr().index_put((where,), source.int_repr())
    q[where] = source
    if dtype not in PACKED:
        assert_same(q.int_repr(), expected)
    assert_same(q.dequantize()[where], source.dequantize())
    other = zeropoint.quantize_per_tensor(torch.full((2, 4), 0.3), 0.1, 0, dtype)
    q[where] = other
    assert_same(q.dequantize()[where], torch.full((2, 4), 0.25))


@pytest.mark.parametrize(
    "scatter",
    [
        lambda t, s: t.select_scatter(s[0], 0, 1),
        lambda t, s: t.slice_scatter(s[:1], 0, 1, 2),
        lambda t, s: torch.index_put(t, (torch.tensor([1]),), s[:1]),
    ],
)
def test_scattering_gives_a_new_tensor(scatter: Callable[..., torch.Tensor]) -> None:
    q, x = make(quint8), torch.zeros(3, 4)
    before = q.clone()
    assert_same(scatter(q, x).dequantize(), scatter(q.dequantize(), x))
    assert_equal_qtensors(q, before)


def test_accumulation_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="accumulate=True is not supported"):
        make(quint8).index_put_((torch.tensor([0]),), torch.ones(4), accumulate=True)
