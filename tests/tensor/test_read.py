"""Reading QTensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from pairs import BYTES, DTYPES, PACKED, assert_pair, every_kind, make, pairs, torch_dtype
from strategies import assert_same

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, quint8
from zeropoint.tensor import QTensor
from zeropoint.tensor.errors import QTensorError


@pytest.mark.parametrize("dtype", BYTES, ids=repr)
def test_what_a_tensor_says_of_itself(dtype: QuantizedDtype) -> None:
    x = torch.ones(10)
    q = zeropoint.quantize_per_tensor(x, 1.0, 2, dtype)
    assert (q.q_scale(), q.q_zero_point()) == (1.0, 2)
    assert torch.ops.zeropoint.is_quantized(q)
    assert not torch.ops.zeropoint.is_quantized(x)
    assert q.qdtype is dtype
    assert q.dtype is torch.float32
    assert q.qscheme() is zeropoint.per_tensor_affine
    assert isinstance(q.qscheme(), zeropoint.QScheme)
    assert all(n == 3 for n in q.int_repr())
    assert all(n == 3 for n in q[2:].int_repr())
    assert q.dequantize().tolist() == x.tolist()
    assert isinstance(q, torch.Tensor)
    assert torch.is_tensor(q)
    assert (q.layout, q.device, q.dim(), q.numel(), len(q)) == (torch.strided, torch.device("cpu"), 1, 10, 10)
    assert (q.is_floating_point(), q.is_complex(), q.requires_grad, q.is_leaf) == (True, False, False, True)
    assert q.type() == repr(dtype)


def test_per_channel_says_so() -> None:
    q = make(qint8, "per_channel", axis=1)
    assert q.qscheme() is zeropoint.per_channel_affine
    assert q.q_per_channel_axis() == 1
    assert q.q_per_channel_scales().dtype == torch.float64
    assert q.q_per_channel_zero_points().dtype == torch.int64
    f = make(qint8, "per_channel_float")
    assert f.qscheme() is zeropoint.per_channel_affine_float_qparams
    assert f.q_per_channel_scales().dtype == f.q_per_channel_zero_points().dtype == torch.float32


def test_asking_for_the_qparams_of_the_other_scheme() -> None:
    per_tensor, per_channel = make(qint8), make(qint8, "per_channel")
    for name in ("q_scale", "q_zero_point"):
        with pytest.raises(QTensorError, match=f"{name} is defined for per-tensor .* use q_per_channel_scales"):
            getattr(per_channel, name)()
    for name in ("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis"):
        with pytest.raises(QTensorError, match=rf"{name} is defined for per-channel .* use q_scale\(\)"):
            getattr(per_tensor, name)()


@pytest.mark.parametrize(("dtype", "size"), [(d, d.itemsize) for d in DTYPES], ids=repr)
def test_sizes(dtype: QuantizedDtype, size: int) -> None:
    q = make(dtype)
    oracle = torch.quantize_per_tensor(torch.rand(3, 4), 0.1, 2, torch_dtype(dtype))
    assert q.element_size() == q.itemsize == oracle.element_size() == size
    assert q._data.untyped_storage().nbytes() == oracle.untyped_storage().nbytes()
    assert q.nbytes == q._data.untyped_storage().nbytes()  # PyTorch counts a whole byte for each sub-byte element


@given(pairs(max_dims=3))
def test_iteration(pair: tuple[QTensor, torch.Tensor]) -> None:
    ours, oracle = pair
    if ours.dim() == 0:
        with pytest.raises(TypeError, match="0-dim"):
            iter(ours)
        with pytest.raises(TypeError, match="0-d"):
            len(ours)
        return
    if ours.qscheme().float_zero_point and ours.q_per_channel_axis() == 0 and len(ours):
        with pytest.raises(QTensorError, match="use a slice"):
            list(ours)
        return
    assert len(ours) == len(oracle)
    rows = list(ours)
    assert len(rows) == len(oracle)
    if not ours.numel():  # where PyTorch has no rows per channel
        assert all(row.shape == ours.shape[1:] for row in rows)
        return
    for mine, theirs in zip(rows, oracle.dequantize() if ours.qscheme().float_zero_point else oracle):
        if theirs.dtype == torch.float32 or mine.qscheme().name != str(theirs.qscheme()).removeprefix("torch."):
            # PyTorch rounds float zero points here, and takes one channel to be per tensor.
            assert_same(mine.dequantize(), theirs if theirs.dtype == torch.float32 else theirs.dequantize())
        else:
            assert_pair(mine, theirs)


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_one_element(dtype: QuantizedDtype, scheme: str) -> None:
    q = make(dtype, scheme)[1:2, 2:3]
    value = q.dequantize().item()
    assert type(q.item()) is float
    assert q.item() == float(q) == value
    assert (int(q), bool(q), f"{q.reshape(1)[:, None].item():.2f}") == (int(value), bool(value), f"{value:.2f}")
    if not q.qscheme().per_channel:
        assert f"{q[0, 0]:.3f}" == f"{value:.3f}"
    with pytest.raises(QTensorError, match="one element, this one has 12"):
        make(dtype, scheme).item()


def test_dictionaries_know_tensors_by_identity() -> None:
    q, same = make(quint8), make(quint8)
    names = {q: "q", same: "same"}
    assert names[q] == "q"
    assert len({q, q, same}) == 2
    assert hash(q) != hash(same)


@pytest.mark.parametrize("convert", [lambda q: q.numpy(), np.asarray, np.array], ids=["numpy", "asarray", "array"])
def test_numpy_refuses_with_advice(convert: object) -> None:
    with pytest.raises(TypeError, match=r"q\.dequantize\(\)\.numpy\(\) .* q\.int_repr\(\)\.numpy\(\)"):
        convert(make(quint8))  # type: ignore[operator]


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_every_grad_mode(context: type, dtype: QuantizedDtype, scheme: str) -> None:
    outside = make(dtype, scheme)
    with context():
        q = make(dtype, scheme)
        q[1:].fill_(0.5)
        view = q.unsqueeze(0)
        assert_same(view.dequantize(), q.dequantize()[None])
        outside[1:].copy_(q[1:])
        assert repr(q)
    assert_same(outside[1:].dequantize(), q[1:].dequantize())
    assert not q.dequantize().requires_grad


def test_through_the_dispatcher() -> None:
    """As TorchScript and C++ would ask."""
    ours, q, c = torch.ops.zeropoint, make(quint8), make(qint8, "per_channel")
    assert_same(ours.dequantize(q), q.dequantize())
    assert_same(ours.int_repr(q), q.int_repr())
    assert (ours.q_scale(q), ours.q_zero_point(q), ours.q_zero_point_number(q)) == (0.25, 2, 2.0)
    assert_same(ours.q_per_channel_scales(c), c.q_per_channel_scales())
    assert_same(ours.q_per_channel_zero_points(c), c.q_per_channel_zero_points())
    assert ours.q_per_channel_axis(c) == 0
    assert (ours.qscheme(q), ours.qscheme(c)) == ("per_tensor_affine", "per_channel_affine")
    assert (ours.qdtype(q), ours.qdtype(c), ours.is_quantized(q)) == ("quint8", "qint8", True)


def test_plain_tensors_are_not_read_as_quantized_ones() -> None:
    ours, x = torch.ops.zeropoint, torch.ones(2, 3, requires_grad=True)
    for name in ("int_repr", "q_scale", "q_zero_point", "q_per_channel_axis", "qscheme", "qdtype"):
        with pytest.raises(TypeError, match=rf"{name} reads a quantized tensor .* got a torch.float32 .* \(2, 3\)"):
            getattr(ours, name)(x)
    assert not ours.is_quantized(x)
    ours.dequantize(x.half()).sum().backward()
    assert_same(x.grad, torch.ones(2, 3))


def test_values_are_float32_and_what_is_stored_has_a_dtype_of_its_own() -> None:
    for dtype, scheme in every_kind():
        q = make(dtype, scheme)
        assert (q.dtype, q.dequantize().dtype, q.qdtype) == (torch.float32, torch.float32, dtype)
        assert torch.ones(1).to(q).dtype == torch.float32  # nothing is rounded to integers behind your back
        assert not q.is_quantized  # not one of PyTorch's


def test_packed_types_are_the_ones_below_a_byte() -> None:
    assert [d for d in DTYPES if make(d).is_packed()] == list(PACKED)
