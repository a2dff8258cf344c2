"""Hypothesis strategies for tensors, and the comparison that every oracle test uses.

A tensor comes from a drawn seed, shape, layout and dtype, so that examples are cheap to make and to shrink.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32)
FLOAT8 = (torch.float8_e5m2, torch.float8_e4m3fn)
quantized_dtypes = pytest.mark.parametrize("dtype", [*INTEGERS, *FLOAT8], ids=str)
HALVES = (torch.float16, torch.bfloat16)
INPUTS = (torch.float32, *HALVES)

LAYOUTS = ("contiguous", "channels_last", "permuted", "sliced", "expanded", "offset")

# More than the 32768 elements from which kernels share work between threads, and no multiple of a vector.
LARGE = 41_003


def examples(count: int) -> hypothesis.settings:
    """`count` examples where the profile has a hundred, and in proportion; of them ten at least, in the quick suite."""
    share = count * hypothesis.settings.default.max_examples // 100
    return hypothesis.settings(max_examples=max(share, min(count, 10)))


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def assert_same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal dtype, shape and bits; any NaN equals any other."""
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    a, b = ours.detach().contiguous(), theirs.detach().contiguous()
    bits = _BITS[a.element_size()]
    differ = a.view(bits) != b.view(bits)
    if a.dtype.is_floating_point:
        differ &= ~(a.to(torch.float64).isnan() & b.to(torch.float64).isnan())
    if differ.any():
        where = differ.nonzero()
        index = tuple(where[0].tolist())
        first = f"ours {a[index].item()!r}, theirs {b[index].item()!r}"
        raise AssertionError(f"{len(where)} of {a.numel()} differ, first at {index}: {first}")


def assert_laid_out_like(y: torch.Tensor, x: torch.Tensor) -> None:
    """The strides that ``torch.empty_like(x)`` has; those of axes with one element mean nothing."""
    like = torch.empty_like(x)
    assert y.shape == x.shape
    if x.numel():
        assert [s for s, n in zip(y.stride(), y.shape) if n > 1] == [s for s, n in zip(like.stride(), x.shape) if n > 1]


# -------------------------------------------------------------------------------------------------------- shapes


def shapes(min_dims: int = 0, max_dims: int = 5, min_side: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    """Small shapes of each rank (now and then empty), rows around multiples of the vector width, and large ones."""
    ranks = range(max(min_dims, 1), max_dims + 1)
    small = st.sampled_from(ranks).flatmap(
        lambda rank: st.tuples(*[st.integers(max(min_side, 1), 9 if rank < 4 else 5)] * rank)
    )
    kinds = [small, small]
    if min_side == 0:
        kinds.append(
            st.sampled_from(ranks).flatmap(lambda rank: st.tuples(*[st.integers(0, 4)] * rank)),
        )
    if min_dims == 0:
        kinds.append(st.just(()))
    if min_dims <= 1:
        kinds.append(st.tuples(st.integers(1, 130)))
    if min_dims <= 2 <= max_dims:
        kinds.append(st.tuples(st.integers(1, 5), st.integers(1, 130)))
        kinds.append(st.tuples(st.integers(1, 130), st.integers(1, 5)))
    if min_dims <= 3 <= max_dims:
        kinds.append(st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(15, 34)))
    usual = st.one_of(kinds)
    return st.integers(0, 15).flatmap(lambda die: large_shapes(min_dims, max_dims) if die == 15 else usual)


def large_shapes(min_dims: int, max_dims: int) -> st.SearchStrategy[tuple[int, ...]]:
    candidates = [
        (LARGE,),
        (3, LARGE // 3),
        (LARGE // 5, 5),
        (131, 313),
        (3, 7, 1999),
        (2, 16, 36, 37),
        (2, 3, 5, 37, 38),
    ]
    return st.sampled_from([s for s in candidates if min_dims <= len(s) <= max_dims])


layouts = st.sampled_from(LAYOUTS)
seeds = st.integers(0, 2**32 - 1)


def lay_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """A tensor of the same shape in another layout; the same values too, except for `expanded`."""
    if layout == "channels_last" and x.dim() in (4, 5):
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        return x.contiguous(memory_format=formats[x.dim()])
    if layout == "permuted" and x.dim() > 1:
        order = [*range(1, x.dim()), 0] if x.dim() % 2 else [*reversed(range(x.dim()))]
        inverse = [order.index(d) for d in range(x.dim())]
        return x.permute(order).contiguous().permute(inverse)
    if layout == "sliced" and x.dim() > 0:
        room = x.new_zeros([2 * n + 1 for n in x.shape])
        view = room[tuple(slice(1, None, 2) for _ in x.shape)]
        return view.copy_(x)
    if layout == "expanded" and x.dim() > 0 and x.shape[0] > 0:
        return x.narrow(0, 0, 1).expand(x.shape)
    if layout == "offset":
        return x.new_zeros(x.numel() + 1)[1:].view(x.shape).copy_(x)
    return x


# -------------------------------------------------------------------------------------------------------- values


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(
    seed: int, shape: Sequence[int], step: float | torch.Tensor = 1.0, *, special: bool = True, far: bool = True
) -> torch.Tensor:
    """float32: normal values, ties ``(k + 0.5) * step``, zeros of both signs, subnormal, `far` and `special` ones.

    Args:
        step: the scale that the values will be quantized with; broadcasts against `shape`.
        special: NaN and infinities too.
        far: values beyond every integer type too.
    """
    g = generator(seed)
    shape = tuple(shape)
    step = torch.as_tensor(step, dtype=torch.float64).abs()
    normal = torch.randn(shape, generator=g, dtype=torch.float64) * step * 60
    ties = (torch.randint(-300, 300, shape, generator=g).to(torch.float64) + 0.5) * step
    rare = torch.tensor(
        [0.0, -0.0, 1e-45, -1e-40, *([3e4, -3e9, 2.2e9, 1e19, -1e19, 3.3e38, -3.3e38] if far else [])],
        dtype=torch.float64,
    )
    # In steps, so that the ends of int16 and int32 and the places where float32 runs out of integers are met.
    edges = torch.tensor([127.5, -128.5, 255.5, 32767.5, -32768.5, 2.0**24 + 2, 2.0**31, -(2.0**31), 2.0**31 - 128])
    odd = torch.tensor([math.nan, math.inf, -math.inf], dtype=torch.float64)
    kind = torch.rand(shape, generator=g)
    x = torch.where(kind < 0.45, normal, ties)
    x = torch.where(kind > 0.85, rare[torch.randint(len(rare), shape, generator=g)], x)
    if far:
        x = torch.where(kind > 0.9, edges[torch.randint(len(edges), shape, generator=g)].to(torch.float64) * step, x)
    if special:
        x = torch.where(kind > 0.97, odd[torch.randint(len(odd), shape, generator=g)], x)
    return x.to(torch.float32).reshape(shape)


def integers(seed: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Every value of `dtype` may occur, its ends often; for float8 every bit pattern."""
    g = generator(seed)
    shape = tuple(shape)
    if dtype in FLOAT8:
        return torch.randint(0, 256, shape, generator=g, dtype=torch.uint8).view(dtype)
    info = torch.iinfo(dtype)
    x = torch.randint(info.min, info.max + 1, shape, generator=g, dtype=torch.int64)
    small = torch.randint(max(info.min, -300), min(info.max, 300) + 1, shape, generator=g, dtype=torch.int64)
    kind = torch.rand(shape, generator=g)
    x = torch.where(kind < 0.4, small, x)
    x = torch.where(kind > 0.9, info.max, x)
    x = torch.where(kind > 0.95, info.min, x)
    return x.to(dtype)


@st.composite
def scales(draw: st.DrawFn, *, negative: bool = False) -> float:
    """Scales of every size that a user may meet; powers of two make exact ties."""
    kind = draw(st.integers(0, 5))
    if kind <= 1:
        scale = 2.0 ** draw(st.integers(-12, 6))
    elif kind <= 4:
        scale = draw(st.floats(1e-4, 10.0))
    else:
        scale = draw(st.sampled_from([1e-30, 1e-10, 1.1754943508222875e-38, 6.1e-5, 1e10, 1e30]))
    return -scale if negative and draw(st.integers(0, 7)) == 7 else scale


@st.composite
def scale_lists(draw: st.DrawFn, count: int, dtype: torch.dtype = torch.float32, wild: bool = True) -> torch.Tensor:
    """``(count,)`` scales of one kind, float32 or float64 (then not representable in float32)."""
    g = generator(draw(seeds))
    if draw(st.booleans()):
        s = 2.0 ** torch.randint(-8, 5, (count,), generator=g).to(torch.float64)
    else:
        s = torch.rand(count, generator=g, dtype=torch.float64) + 1e-3
    if wild and count and draw(st.integers(0, 9)) == 9:
        s[0] = draw(st.sampled_from([1e-30, 1e30, 1.1754943508222875e-38]))
    return s.to(dtype)


def zero_point_list(seed: int, count: int, dtype: torch.dtype, low: int = -300, high: int = 300) -> torch.Tensor:
    """``(count,)`` zero points in ``[low, high]`` (as far as `dtype` holds them); float ones have a fraction."""
    g = generator(seed)
    if dtype.is_floating_point:
        return (torch.rand(count, generator=g, dtype=torch.float64) * (high - low) + low).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(max(low, info.min), min(high, info.max) + 1, (count,), generator=g).to(dtype)


@st.composite
def quant_ranges(draw: st.DrawFn, dtype: torch.dtype) -> tuple[int, int]:
    """(quant_min, quant_max) inside `dtype`: the whole of it, or less."""
    if dtype.is_floating_point:
        low, high = int(torch.finfo(dtype).min), int(torch.finfo(dtype).max)
    else:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    if draw(st.booleans()):
        return low, high
    a = draw(st.integers(low, high - 1))
    return a, draw(st.integers(a + 1, high))


# ------------------------------------------------------------------------------------------------- operands of a call


@st.composite
def inputs(draw: st.DrawFn, shape: Sequence[int], step: float | torch.Tensor, dtypes=INPUTS, **values) -> torch.Tensor:
    """`numbers`, in one of the dtypes and layouts."""
    x = numbers(draw(seeds), shape, step, **values)
    return lay_out(x.to(draw(st.sampled_from(dtypes))), draw(layouts))


@st.composite
def stored(draw: st.DrawFn, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """`integers`, in one of the layouts."""
    return lay_out(integers(draw(seeds), shape, dtype), draw(layouts))


@st.composite
def qparams(
    draw: st.DrawFn,
    shape: Sequence[int],
    zero_point_dtypes: Sequence[torch.dtype | None],
    scale_dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64),
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Scales and zero points of `shape`, each in one of its dtypes; no zero points where None is drawn for them."""
    count, dtype = math.prod(shape), draw(st.sampled_from(scale_dtypes))
    scales = draw(scale_lists(count, dtype, wild=dtype not in HALVES)).view(shape)
    kind = draw(st.sampled_from(zero_point_dtypes))
    return scales, None if kind is None else zero_point_list(draw(seeds), count, kind).view(shape)
