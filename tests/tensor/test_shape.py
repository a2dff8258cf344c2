"""Shape and layout of QTensors: the integers move, their meaning does not.

Every operator is applied to a QTensor, to PyTorch's quantized tensor (the oracle) and to the dequantized values. The
last one is the law: whatever we answer must dequantize to it. Where PyTorch answers, we answer the same.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from pairs import BYTES, DTYPES, PACKED, Pair, assert_equal_qtensors, assert_pair, every_kind, make, pairs, strides
from strategies import assert_same, examples

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, quint4x2, quint8
from zeropoint.tensor import QTensor
from zeropoint.tensor.errors import QTensorError

Tensor = torch.Tensor
Operator = Callable[[Tensor], Any]


# ------------------------------------------------------------------------------------------------------- all operators


def dims(draw: st.DrawFn, x: Tensor) -> int:
    return draw(st.integers(-x.dim(), x.dim() - 1)) if x.dim() else 0


def view(draw: st.DrawFn, x: Tensor) -> Operator:
    """The same order of elements under another shape: merge two neighbours, or add ones."""
    shape = list(x.shape)
    if len(shape) > 1 and draw(st.booleans()):
        at = draw(st.integers(0, len(shape) - 2))
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    elif draw(st.booleans()):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    if x.numel() and shape and draw(st.booleans()):
        shape[draw(st.integers(0, len(shape) - 1))] = -1
    name = draw(st.sampled_from(["view", "reshape"]))
    return lambda t: getattr(t, name)(shape)


def permute(draw: st.DrawFn, x: Tensor) -> Operator:
    order = draw(st.permutations(range(x.dim())))
    return lambda t: t.permute(order)


def transpose(draw: st.DrawFn, x: Tensor) -> Operator:
    a, b = dims(draw, x), dims(draw, x)
    name = draw(st.sampled_from(["transpose", "swapaxes", "swapdims", "movedim"]))
    return lambda t: getattr(t, name)(a, b) if t.dim() else t


def unsqueeze(draw: st.DrawFn, x: Tensor) -> Operator:
    dim = draw(st.integers(-x.dim() - 1, x.dim()))
    return lambda t: t.unsqueeze(dim)


def squeeze(draw: st.DrawFn, x: Tensor) -> Operator:
    if not x.dim() or draw(st.booleans()):
        return lambda t: t.squeeze()
    if draw(st.booleans()):
        dim = dims(draw, x)
        return lambda t: t.squeeze(dim)
    several = draw(st.lists(st.integers(0, x.dim() - 1), unique=True, max_size=3))
    return lambda t: t.squeeze(several)


def expand(draw: st.DrawFn, x: Tensor) -> Operator:
    shape = [3 if n == 1 and draw(st.booleans()) else n for n in x.shape]
    shape = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2)))] + shape
    return lambda t: t.expand(shape)


def flatten(draw: st.DrawFn, x: Tensor) -> Operator:
    start = draw(st.integers(0, max(x.dim() - 1, 0)))
    end = draw(st.integers(start, max(x.dim() - 1, 0)))
    return lambda t: t.flatten(start, end)


def unflatten(draw: st.DrawFn, x: Tensor) -> Operator:
    if not x.dim():
        return lambda t: t
    dim = dims(draw, x)
    return lambda t: t.unflatten(dim, (1, x.shape[dim]))


def narrow(draw: st.DrawFn, x: Tensor) -> Operator:
    if not x.dim():
        return lambda t: t
    dim = dims(draw, x)
    start = draw(st.integers(0, x.shape[dim]))
    length = draw(st.integers(0, x.shape[dim] - start))
    return lambda t: t.narrow(dim, start, length)


def select(draw: st.DrawFn, x: Tensor) -> Operator:
    dim = dims(draw, x)
    if not x.dim() or not x.shape[dim]:
        return lambda t: t.clone()
    index = draw(st.integers(-x.shape[dim], x.shape[dim] - 1))
    return lambda t: t.select(dim, index)


def index(draw: st.DrawFn, x: Tensor) -> Operator:
    """Integers, slices, ellipsis and None."""
    items: list[Any] = []
    for n in x.shape[: draw(st.integers(0, x.dim()))]:
        if n and draw(st.booleans()):
            items.append(draw(st.integers(-n, n - 1)))
        else:
            bound = st.none() | st.integers(-n - 1, n + 1)
            items.append(slice(draw(bound), draw(bound), draw(st.integers(1, 3))))
    for extra in (None, ...):
        if draw(st.booleans()):
            items.insert(draw(st.integers(0, len(items))) if extra is None else len(items), extra)
    key = items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)
    return lambda t: t[key]


def chunk(draw: st.DrawFn, x: Tensor) -> Operator:
    if not x.dim():
        return lambda t: t
    dim, pieces = dims(draw, x), draw(st.integers(1, 4))
    name = draw(st.sampled_from(["chunk", "split", "tensor_split"]))
    return lambda t: getattr(t, name)(pieces, dim)


def split_with_sizes(draw: st.DrawFn, x: Tensor) -> Operator:
    if not x.dim():
        return lambda t: t
    dim = dims(draw, x)
    cut = draw(st.integers(0, x.shape[dim]))
    return lambda t: t.split([cut, x.shape[dim] - cut], dim)


def unbind(draw: st.DrawFn, x: Tensor) -> Operator:
    dim = dims(draw, x)
    return lambda t: t.unbind(dim) if t.dim() else t


def repeat(draw: st.DrawFn, x: Tensor) -> Operator:
    times = [draw(st.integers(0, 2)) for _ in range(x.dim() + draw(st.integers(0, 1)))]
    return lambda t: t.repeat(times)


def indices(draw: st.DrawFn, n: int) -> Tensor:
    return torch.tensor(draw(st.lists(st.integers(0, n - 1), max_size=4)) if n else [], dtype=torch.int64)


def index_select(draw: st.DrawFn, x: Tensor) -> Operator:
    if not x.dim():
        return lambda t: t
    dim = dims(draw, x)
    chosen = indices(draw, x.shape[dim])
    return lambda t: t.index_select(dim, chosen)


def index_tensor(draw: st.DrawFn, x: Tensor) -> Operator:
    if not x.dim():
        return lambda t: t
    dim = draw(st.integers(0, x.dim() - 1))
    chosen = indices(draw, x.shape[dim])
    key = (*[slice(None)] * dim, chosen)
    return lambda t: t[key]


def mask(draw: st.DrawFn, x: Tensor) -> Operator:
    rows = x.dim() and draw(st.booleans())
    shape = x.shape[:1] if rows else x.shape
    chosen = torch.rand(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) < 0.5
    return lambda t: t[chosen]


def flip(draw: st.DrawFn, x: Tensor) -> Operator:
    several = draw(st.lists(st.integers(0, x.dim() - 1), unique=True)) if x.dim() else []
    return lambda t: t.flip(several)


def roll(draw: st.DrawFn, x: Tensor) -> Operator:
    shift = draw(st.integers(-3, 3))
    if not x.dim() or draw(st.booleans()):
        return lambda t: t.roll(shift)
    dim = dims(draw, x)
    return lambda t: t.roll(shift, dim)


def gather(draw: st.DrawFn, x: Tensor) -> Operator:
    if not x.dim() or not x.numel():
        return lambda t: t
    dim = dims(draw, x)
    chosen = torch.randint(x.shape[dim], x.shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    return lambda t: t.gather(dim, chosen)


def layout(draw: st.DrawFn, x: Tensor) -> Operator:
    memory_format = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim(), torch.contiguous_format)
    return draw(
        st.sampled_from(
            [
                lambda t: t.contiguous(),
                lambda t: t.contiguous(memory_format=memory_format),
                lambda t: t.to(memory_format=memory_format),
                lambda t: t.clone(),
                lambda t: t.clone(memory_format=memory_format),
                lambda t: t.to("cpu"),
                lambda t: t.cpu(),
                lambda t: t.detach(),
                lambda t: t.data,
                lambda t: t.view_as(x),
                lambda t: t.reshape_as(x),
                lambda t: t.expand_as(x),
                copy.deepcopy,
                copy.copy,
            ]
        )
    )


def matrix(draw: st.DrawFn, x: Tensor) -> Operator:
    if x.dim() == 2:
        return draw(
            st.sampled_from(
                [lambda t: t.t(), lambda t: t.T, lambda t: t.mT, lambda t: t.diagonal(), lambda t: t.unfold(0, 1, 1)]
            )
        )
    return lambda t: t.clone()


OPERATORS = (
    view,
    permute,
    transpose,
    unsqueeze,
    squeeze,
    expand,
    flatten,
    unflatten,
    narrow,
    select,
    index,
    chunk,
    split_with_sizes,
    unbind,
    repeat,
    index_select,
    index_tensor,
    mask,
    flip,
    roll,
    gather,
    layout,
    matrix,
)


def attempt(operator: Operator, t: Tensor) -> list[Tensor] | Exception:
    try:
        result = operator(t)
    except (RuntimeError, NotImplementedError, IndexError) as error:
        return error
    return list(result) if isinstance(result, (list, tuple)) else [result]


def check(operator: Operator, ours: QTensor, oracle: Tensor | None) -> None:
    mine, law = attempt(operator, ours), attempt(operator, ours.dequantize())
    if isinstance(mine, Exception):
        # Refusing is right for what has no meaning, and for what PyTorch refuses; never silent, never without words.
        reasons = isinstance(law, Exception) or ours.qscheme().per_channel
        assert reasons, f"refused without need: {mine!r}"
        assert str(mine)
        return
    assert not isinstance(law, Exception), f"answered what has no answer: {mine}"
    assert len(mine) == len(law)
    for a, b in zip(mine, law):
        assert isinstance(a, QTensor)
        assert a.qdtype is ours.qdtype
        assert_same(a.dequantize(), b)
        assert a.is_packed() or strides(a) == strides(b)
    theirs = law if oracle is None or ours.qscheme().per_channel else attempt(operator, oracle)
    if oracle is not None and not ours.qscheme().per_channel and not isinstance(theirs, Exception):
        for a, b in zip(mine, theirs):
            assert_pair(a, b, layout=False)  # PyTorch's clones forget about channels last


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.__name__)
@examples(30)
@given(data=st.data(), pair=pairs(max_dims=5))
def test_operator(operator: Callable[..., Operator], data: st.DataObject, pair: Pair) -> None:
    ours, oracle = pair
    check(operator(data.draw, ours.dequantize()), ours, oracle)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.__name__)
@examples(15)
@given(data=st.data(), kind=st.sampled_from([k for k in every_kind() if k[0] in PACKED]))
def test_operator_on_packed(
    operator: Callable[..., Operator], data: st.DataObject, kind: tuple[QuantizedDtype, str]
) -> None:
    """PyTorch reads wrong elements from parts of packed tensors, so it is no oracle here."""
    shape = data.draw(st.lists(st.integers(0, 5), min_size=kind[1] != "per_tensor", max_size=4).map(tuple))
    q = make(*kind, shape)
    for _ in range(data.draw(st.integers(0, 1))):  # and views of views
        first = attempt(operator(data.draw, q.dequantize()), q)
        if not isinstance(first, Exception) and first:
            q = first[0]  # type: ignore[assignment]
    check(operator(data.draw, q.dequantize()), q, None)


def test_torch_functions_are_the_methods() -> None:
    q = make(quint8, shape=(2, 3, 4))
    for name, arguments in {
        "transpose": (0, 1),
        "squeeze": (),
        "unsqueeze": (0,),
        "flatten": (),
        "narrow": (1, 0, 2),
        "movedim": (0, 2),
        "moveaxis": (0, 2),
        "hsplit": (3,),
        "vsplit": (2,),
        "dsplit": (2,),
        "atleast_3d": (),
        "tile": ((2, 1, 1),),
        "ravel": (),
        "rot90": (),
        "fliplr": (),
        "flipud": (),
        "take_along_dim": (torch.zeros(2, 3, 1, dtype=torch.int64), 2),
        "adjoint": (),
        "broadcast_to": ((5, 2, 3, 4),),
    }.items():
        check(functools.partial(_called, name, arguments), q, None)


def _called(name: str, arguments: tuple[Any, ...], t: Tensor) -> Any:
    return getattr(torch, name)(t, *arguments)


# ---------------------------------------------------------------------------------------------------- the channel axis


def test_the_channel_axis_moves_along() -> None:
    q = make(qint8, "per_channel", (1, 3, 4), axis=1)
    assert q.unsqueeze(0).q_per_channel_axis() == 2
    assert q.unsqueeze(-1).q_per_channel_axis() == 1
    assert q.squeeze(0).q_per_channel_axis() == 0
    assert q.squeeze().q_per_channel_axis() == 0
    assert q[0].q_per_channel_axis() == 0
    assert q[None, :, 1:].q_per_channel_axis() == 2
    assert q.expand(2, 5, 3, 4).q_per_channel_axis() == 2
    assert q.view(3, 2, 2).q_per_channel_axis() == 0
    assert q[:, 1].qscheme() is zeropoint.per_tensor_affine
    assert q[:, 1].q_scale() == q.q_per_channel_scales()[1]
    assert_same(q[:, [2, 0]].q_per_channel_scales(), q.q_per_channel_scales()[[2, 0]])
    assert_same(q[:, ::2].q_per_channel_scales(), q.q_per_channel_scales()[::2])
    assert_same(q.flip(1).q_per_channel_zero_points(), q.q_per_channel_zero_points().flip(0))
    assert_same(q.roll(1, 1).q_per_channel_zero_points(), q.q_per_channel_zero_points().roll(1))
    assert_same(q.repeat(1, 2, 1).q_per_channel_scales(), q.q_per_channel_scales().repeat(2))


def test_the_channel_axis_cannot_be_squeezed() -> None:
    q = make(quint8, "per_channel", (1, 1, 3, 4), axis=1)
    for squeeze_it in (lambda: q.squeeze(1), lambda: q.squeeze(), lambda: q.squeeze((0, 1))):
        with pytest.raises(QTensorError, match="Squeeze is only possible on non-axis dimension for Per-Channel"):
            squeeze_it()


@pytest.mark.parametrize(
    "refused",
    [
        lambda q: q.transpose(0, 1),
        lambda q: q.permute(1, 0, 2),
        lambda q: q.movedim(1, 0),
        lambda q: q.view(-1),
        lambda q: q.view(6, 4),
        lambda q: q.flatten(),
        lambda q: q.view(2, 12),
        lambda q: q.roll(1),
        lambda q: q.gather(0, torch.zeros(2, 3, 4, dtype=torch.int64)),
        lambda q: q.diagonal(),
        lambda q: q.as_strided((2,), (1,)),
        lambda q: q[q.dequantize() > 0],
        lambda q: torch.cat([q, q]),
    ],
)
def test_channels_are_not_mixed(refused: Operator) -> None:
    with pytest.raises(QTensorError, match=r"call \.dequantize\(\) first"):
        refused(make(qint8, "per_channel", (2, 3, 4), axis=1))


def test_channels_last_keeps_per_channel() -> None:
    q = make(qint8, "per_channel", (2, 3, 2, 2), axis=1)
    last = q.contiguous(memory_format=torch.channels_last)
    assert list(q.stride()) == sorted(q.stride(), reverse=True)
    assert list(last.stride()) != sorted(last.stride(), reverse=True)
    assert_same(last.int_repr().contiguous(), q.int_repr())
    assert last._quantizer.same(q._quantizer)


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_to_memory_format_degenerate_strides(dtype: QuantizedDtype, scheme: str) -> None:
    """Where both layouts are the same memory, `to` changes the strides and `contiguous` leaves them, as for floats."""
    for shape in ((3, 2, 5, 4), (10, 2, 1, 1), (10, 1, 2, 2)):
        q, x = make(dtype, scheme, shape), torch.rand(shape)
        for convert in (
            lambda t: t.to(memory_format=torch.channels_last),
            lambda t: t.contiguous(memory_format=torch.channels_last),
        ):
            assert convert(q).stride() == convert(x).stride()
            assert_same(convert(q).dequantize(), q.dequantize())


# ------------------------------------------------------------------------------------------------------- named examples


@pytest.mark.parametrize("dtype", BYTES, ids=repr)
def test_permuting_is_a_view(dtype: QuantizedDtype) -> None:
    q = make(dtype, shape=(10, 30, 2, 2))
    swapped, permuted = q.transpose(0, 1), q.permute([1, 0, 2, 3])
    assert_equal_qtensors(swapped, permuted)
    assert_same(swapped.contiguous().int_repr(), swapped.int_repr())
    assert swapped.data_ptr() == q.data_ptr()
    assert_same(swapped.dequantize(), q.dequantize().transpose(0, 1))


def test_a_view_needs_matching_strides() -> None:
    q = make(quint8, shape=(1, 2, 3, 4))
    assert_equal_qtensors(q.view(1, 3, 2, 4).view(1, -1, 3, 4), q)
    swapped, seen = q.transpose(1, 2), q.view(1, 3, 2, 4)
    assert (swapped.size(), swapped.q_scale()) == (seen.size(), seen.q_scale())
    assert swapped.stride() != seen.stride()
    assert not torch.equal(swapped.int_repr(), seen.int_repr())
    with pytest.raises(RuntimeError, match="view size is not compatible with input tensor's size and stride"):
        swapped.view(1, 4, 2, 3)
    swapped.contiguous().view(1, 4, 2, 3)
    assert_same(swapped.reshape(1, 4, 2, 3).dequantize(), swapped.dequantize().reshape(1, 4, 2, 3))


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_resize_keeps_every_element(dtype: QuantizedDtype) -> None:
    q = make(dtype, shape=(1, 2, 3, 4))
    for shape in ((2, 12), (1, 6, 4), (24,), (1, 2, 1, 3, 1, 4)):
        assert_same(q.resize(*shape).dequantize(), q.dequantize().reshape(shape))
        assert_same(q.resize(shape).dequantize(), q.dequantize().reshape(shape))
    swapped = q.transpose(1, 2)
    assert_same(swapped.resize(1, 2, 3, 4).dequantize(), swapped.dequantize().reshape(1, 2, 3, 4))
    with pytest.raises(QTensorError, match=r"requested resize to 1x2x3 \(6 elements\), but the tensor has 24"):
        q.resize(1, 2, 3)
    assert q.resize_(1, 2, 3, 4) is q
    with pytest.raises(QTensorError, match="use resize, view or reshape"):
        q.resize_(24)


# -------------------------------------------------------------------------------------------------------- cat and stack


@pytest.mark.filterwarnings("ignore:All inputs of this cat operator must share")
@examples(60)
@given(st.data(), st.sampled_from([qint8, quint8]))
def test_joining_requantizes_to_the_first(data: st.DataObject, dtype: QuantizedDtype) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    ours, oracle = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        scale, zero_point = data.draw(st.sampled_from([0.1, 0.25, 0.5])), data.draw(st.integers(0, 9))
        values = torch.randint(dtype.qmin, dtype.qmax + 1, shape, dtype=dtype.torch_storage)
        ours.append(zeropoint.make_per_tensor_quantized_tensor(values, scale, zero_point))
        oracle.append(torch._make_per_tensor_quantized_tensor(values, scale, zero_point))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    assert_pair(torch.cat(ours, dim), torch.cat(oracle, dim))
    assert_pair(torch.stack(ours, dim), torch.stack(oracle, dim))


@pytest.mark.parametrize("dtype", PACKED, ids=repr)
def test_joining_packed(dtype: QuantizedDtype) -> None:
    q = make(dtype, shape=(3, 3))
    both = torch.cat([q, q[1:], q.t()])
    assert_same(both.dequantize(), torch.cat([q.dequantize(), q.dequantize()[1:], q.dequantize().t()]))
    assert both.nbytes == -(-both.numel() * dtype.bits // 8)


def test_joining_needs_one_dtype_and_quantized_tensors() -> None:
    with pytest.raises(QTensorError, match="cat needs one dtype, got quint8 and qint8"):
        torch.cat([make(quint8), make(qint8)])
    for tensors in ([make(quint8), torch.ones(3, 4)], [torch.ones(3, 4), make(quint8)]):
        with pytest.raises(QTensorError, match=r"got a torch\.float32 tensor among them: quantize it first"):
            torch.stack(tensors)
    with pytest.raises(QTensorError, match="Only per-tensor quantization is supported in 'stack'"):
        torch.stack([make(qint8, "per_channel")] * 2)


def join_shapes(tensors: Sequence[Tensor]) -> Tensor:
    return torch.vstack([torch.hstack(list(tensors)), torch.column_stack(list(tensors))])


def test_joining_by_other_names() -> None:
    q = make(quint4x2)
    assert_same(join_shapes([q, q]).dequantize(), join_shapes([q.dequantize(), q.dequantize()]))
