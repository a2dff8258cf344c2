"""Views share memory and meaning with their base: shown by data pointers, and by writing through them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pairs import BYTES, PACKED, every_kind, make
from strategies import assert_same

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, quint4x2, quint8
from zeropoint.tensor import QTensor

View = Callable[[torch.Tensor], torch.Tensor]

VIEWS: dict[str, View] = {
    "view": lambda t: t.view(6, 4),
    "reshape": lambda t: t.reshape(2, 12),
    "flatten": lambda t: t.flatten(),
    "transpose": lambda t: t.transpose(0, 2),
    "permute": lambda t: t.permute(2, 0, 1),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "expand": lambda t: t[:1].expand(1, 3, 4),
    "slice": lambda t: t[:, 1:],
    "steps": lambda t: t[:, ::2, 1::2],
    "select": lambda t: t[1],
    "column": lambda t: t[:, :, 2],
    "element": lambda t: t[1, 2, 3],
    "narrow": lambda t: t.narrow(1, 1, 2),
    "chunk": lambda t: t.chunk(2)[1],
    "split": lambda t: t.split([1, 2], 1)[1],
    "unbind": lambda t: t.unbind(2)[3],
    "iteration": lambda t: list(t)[1],
    "diagonal": lambda t: t.diagonal(0, 1, 2),
    "unfold": lambda t: t.unfold(2, 2, 2),
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "view_as": lambda t: t.view_as(t),
    "movedim": lambda t: t.movedim(0, 2),
    "ellipsis": lambda t: t[..., 1:, None],
    "views of views": lambda t: t[1].t()[1:, ::2].unsqueeze(0)[0],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", BYTES, ids=repr)
def test_a_view_copies_nothing(dtype: QuantizedDtype, view: View) -> None:
    q = make(dtype, shape=(2, 3, 4))
    part, expected = view(q), view(q.int_repr())
    assert isinstance(part, QTensor)
    assert part.data_ptr() == expected.data_ptr()
    assert part._data.untyped_storage().data_ptr() == q._data.untyped_storage().data_ptr()
    assert (part.stride(), part.storage_offset()) == (expected.stride(), expected.storage_offset())
    assert part.int_repr().data_ptr() == expected.data_ptr()


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", [*BYTES, *PACKED], ids=repr)
def test_writing_through_a_view_reaches_the_base(dtype: QuantizedDtype, view: View) -> None:
    q = make(dtype, shape=(2, 3, 4))
    x, part = q.dequantize(), view(q)
    view(x).fill_(0.25)
    part.fill_(0.25)
    assert_same(q.dequantize(), x)
    assert_same(part.dequantize(), view(x))
    q.copy_(torch.zeros(2, 3, 4))
    assert part.dequantize().eq(0).all()
    assert q._data.untyped_storage().data_ptr() == part._data.untyped_storage().data_ptr()


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_int_repr_and_values_copy_nothing(dtype: QuantizedDtype, scheme: str) -> None:
    q = make(dtype, scheme, (4, 4))
    assert q.int_repr().data_ptr() == q.data_ptr()
    q.int_repr().zero_()
    assert q.values().eq(0).all()
    assert q[1:].int_repr().data_ptr() == q[1:].data_ptr() or dtype in PACKED


@pytest.mark.parametrize("dtype", PACKED, ids=repr)
def test_whole_bytes_of_a_packed_tensor_are_not_copied(dtype: QuantizedDtype) -> None:
    q = make(dtype, shape=(4, 8))
    part = q[1:3]
    assert part._data.untyped_storage().data_ptr() == q.data_ptr()
    assert part.int_repr().data_ptr() == q.data_ptr() + 8 // dtype.per_byte
    assert_same(part.int_repr(), part.clone().int_repr())


def test_copies_are_copies() -> None:
    for q in (make(quint8), make(quint4x2), make(qint8, "per_channel")):
        for other in (q.clone(), q[[0, 1, 2]], q.repeat(1, 1), q.flip(1), q.to("cpu", copy=True)):
            assert other._data.untyped_storage().data_ptr() != q._data.untyped_storage().data_ptr()
        assert q.contiguous() is q
        assert q.to("cpu") is q


def test_views_take_new_qparams_along() -> None:
    """Views taken before copy_ keep meaning what the memory holds (PyTorch's keep the old qparams)."""
    q = make(quint8)
    row, flat, alias = q[1], q.view(-1), q.detach()
    other = zeropoint.quantize_per_tensor(torch.rand(3, 4), 0.01, 7, quint8)
    q.copy_(other)
    assert row.q_scale() == flat.q_scale() == alias.q_scale() == 0.01
    assert_same(row.dequantize(), other.dequantize()[1])
    flat.copy_(make(quint8).view(-1))  # a view of all elements may change what they mean
    assert q.q_scale() == row.q_scale() == 0.25
    row.copy_(other[1])  # a part may not: it is requantized
    assert q.q_scale() == row.q_scale() == 0.25


def test_views_with_qparams_of_their_own_keep_them() -> None:
    q = make(qint8, "per_channel")
    row = q[1]
    scale = row.q_scale()
    row.copy_(zeropoint.quantize_per_tensor(torch.full((4,), 0.5), 0.5, 0, qint8))
    assert row.q_scale() == scale
    assert_same(q.dequantize()[1], row.dequantize())
    aligned = q[:, :2]
    q.copy_(make(qint8, "per_channel", (3, 4)).clone())
    assert aligned._quantizer.same(q._quantizer)
    q.copy_(make(qint8))  # another scheme
    assert q.qscheme() is zeropoint.per_tensor_affine
