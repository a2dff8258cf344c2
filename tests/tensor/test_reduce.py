"""max, min, argmax, std, sort and topk, against PyTorch's quantized tensors."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import lay_out, layouts, scales, seeds, shapes
from twins import DTYPES, assert_twins, integers_near, mine, theirs, zero_points

import zeropoint
from zeropoint import qint8, quint4x2, quint8
from zeropoint.tensor import QTensor

by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)


@st.composite
def tensors(
    draw: st.DrawFn, dtype: zeropoint.QuantizedDtype, min_dims: int = 0, min_side: int = 1
) -> tuple[QTensor, torch.Tensor]:
    scale, zero_point = draw(scales()), draw(zero_points(dtype))
    shape = draw(shapes(min_dims=min_dims, min_side=min_side))
    x = lay_out(integers_near(draw(seeds), shape, zero_point, dtype), draw(layouts))
    if draw(st.booleans()):
        x = lay_out(x // 64 * 64, "contiguous")  # many equal ones
    return mine(x, scale, zero_point, dtype), theirs(x, scale, zero_point)


def some_dim(data: st.DataObject, q: QTensor) -> int:
    rank = max(q.dim(), 1)
    return data.draw(st.integers(-rank, rank - 1))


@by_dtype
@given(data=st.data())
def test_the_extreme_of_all(dtype, data):
    q, oracle = data.draw(tensors(dtype))
    assert_twins(q.max(), oracle.max())
    assert_twins(torch.min(q), torch.min(oracle))


@by_dtype
@given(data=st.data())
def test_the_extreme_along_an_axis(dtype, data):
    q, oracle = data.draw(tensors(dtype))
    dim, keepdim = some_dim(data, q), data.draw(st.booleans())
    for name in ("max", "min"):
        ours, expected = getattr(q, name)(dim, keepdim), getattr(oracle, name)(dim, keepdim)
        assert_twins(ours.values, expected.values)
        assert torch.equal(ours.indices, expected.indices)


@by_dtype
@given(data=st.data())
def test_where_the_extreme_is(dtype, data):
    """PyTorch has no argmax of quantized tensors: the integers say what it is."""
    q, _ = data.draw(tensors(dtype))
    dim, keepdim = some_dim(data, q), data.draw(st.booleans())
    for function in (torch.argmax, torch.argmin):
        assert torch.equal(function(q), function(q.int_repr()))
        assert torch.equal(function(q, dim, keepdim), function(q.int_repr(), dim, keepdim))
    assert q.int_repr().flatten()[q.argmax()] == q.max().int_repr()


@pytest.mark.parametrize("dtype", [qint8, quint8], ids=lambda d: d.name)
@given(data=st.data())
def test_the_standard_deviation(dtype, data):
    """It is a sum of floats, whose order is nobody's promise: a value between two steps may go to either."""
    q, oracle = data.draw(tensors(dtype, min_dims=1, min_side=2))
    dim, keepdim, correction = some_dim(data, q), data.draw(st.booleans()), data.draw(st.sampled_from((0, 1)))
    for ours, expected in (
        (torch.std(q), torch.std(oracle)),
        (
            torch.std(q, dim, correction=correction, keepdim=keepdim),
            torch.std(oracle, dim, correction=correction, keepdim=keepdim),
        ),
    ):
        assert isinstance(ours, QTensor)
        assert (ours.q_scale(), ours.q_zero_point()) == (expected.q_scale(), expected.q_zero_point())
        assert ours.shape == expected.shape
        assert (ours.int_repr().int() - expected.int_repr().int()).abs().max() <= 1


@by_dtype
@given(data=st.data())
def test_sort(dtype, data):
    q, oracle = data.draw(tensors(dtype, min_side=0))
    dim, descending = some_dim(data, q), data.draw(st.booleans())
    for stable in (False, True):
        ours = torch.sort(q, dim=dim, descending=descending, stable=stable)
        expected = torch.sort(oracle, dim=dim, descending=descending, stable=stable)
        assert_twins(ours.values, expected.values)
        if stable:
            assert torch.equal(ours.indices, expected.indices)
        elif q.dim():
            assert torch.equal(q.int_repr().gather(dim, ours.indices), ours.values.int_repr())
    assert torch.equal(
        torch.argsort(q, dim=dim, descending=descending, stable=True),
        torch.argsort(oracle, dim=dim, descending=descending, stable=True),
    )


@by_dtype
@given(data=st.data())
def test_msort_and_argsort(dtype, data):
    q, oracle = data.draw(tensors(dtype, min_dims=1))
    assert_twins(torch.msort(q), torch.msort(oracle))
    order = q.argsort(-1)
    assert torch.equal(q.int_repr().gather(-1, order), q.sort(-1).values.int_repr())


@by_dtype
@given(data=st.data())
def test_topk(dtype, data):
    q, oracle = data.draw(tensors(dtype, min_dims=1))
    dim, largest, in_order = some_dim(data, q), data.draw(st.booleans()), data.draw(st.booleans())
    k = data.draw(st.integers(0, q.shape[dim]))
    ours, expected = (torch.topk(t, k, dim, largest, in_order) for t in (q, oracle))
    if in_order:
        assert_twins(ours.values, expected.values)
    else:
        assert_twins(ours.values.sort(dim).values, expected.values.sort(dim).values)
    # Which of several equal elements is named is nobody's promise.
    assert torch.equal(q.int_repr().gather(dim, ours.indices), ours.values.int_repr())


def test_packed_tensors():
    q = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 7.0, 3.0], [2.0, 2.0, 15.0]]), 1.0, 0, quint4x2)
    assert q.max().item() == 15
    assert q.max(1).values.values().tolist() == [7, 15]
    assert q.sort(1, descending=True).values.values().tolist() == [[7, 3, 1], [15, 2, 2]]
    assert q.topk(2).values.values().tolist() == [[7, 3], [15, 2]]
    assert q.argmin(1).tolist() == [0, 0]
    assert q.sort(1).values.nbytes == 3


@pytest.mark.parametrize("name", ["max", "min", "argmax", "sort"])
def test_an_empty_tensor_has_no_extreme(name):
    q = zeropoint.quantize_per_tensor(torch.empty(0, 3), 1.0, 0, quint8)
    if name == "sort":
        assert q.sort(0).values.shape == (0, 3)
        return
    with pytest.raises((RuntimeError, IndexError)):
        getattr(q, name)()


@pytest.mark.parametrize(
    "function",
    [
        torch.max,
        torch.min,
        lambda q: q.max(0),
        torch.argmax,
        torch.argmin,
        torch.sort,
        torch.msort,
        torch.std,
        lambda q: q.topk(1),
    ],
)
def test_per_channel_is_refused(function):
    q = zeropoint.quantize_per_channel(torch.randn(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3), 0, qint8)
    with pytest.raises(RuntimeError, match=r"needs per-tensor quantization.*call \.dequantize\(\) first"):
        function(q)


@pytest.mark.parametrize("function", [torch.amax, torch.amin, torch.aminmax, torch.median])
def test_what_pytorch_lacked_too_is_refused(function):
    q = zeropoint.quantize_per_tensor(torch.randn(3, 4), 0.1, 0, qint8)
    with pytest.raises(NotImplementedError, match=r"call \.dequantize\(\) first"):
        function(q)
