"""The same observer, or fake-quantize module, as ours and as PyTorch's, which is the oracle; and streams to feed them.

PyTorch warns at every call that it goes away: `quietly` wraps everything that touches it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.ao.quantization
from strategies import generator, lay_out, layouts, seeds

import zeropoint.fake_quant
import zeropoint.observers
from zeropoint.numerics.schemes import QScheme

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

PER_TENSOR_SCHEMES = (torch.per_tensor_affine, torch.per_tensor_symmetric)
PER_CHANNEL_SCHEMES = (
    torch.per_channel_affine,
    torch.per_channel_symmetric,
    torch.per_channel_affine_float_qparams,
)

# Every dtype an observer takes, and ranges of integers inside it.
RANGES: dict[torch.dtype, list[tuple[int, int]]] = {
    torch.quint8: [(0, 127), (0, 255), (0, 15), (0, 1)],
    torch.qint8: [(-127, 127), (-128, 127), (-8, 7), (-1, 0), (0, 127)],
    torch.quint4x2: [(0, 15), (0, 7)],
    torch.qint32: [(-(2**31), 2**31 - 1), (-(2**23), 2**23), (-128, 127)],
    torch.uint8: [(0, 127), (0, 255)],
    torch.int8: [(-127, 127), (-8, 7)],
    torch.int16: [(-(2**15), 2**15 - 1), (-(2**11), 2**11 - 1)],
    torch.uint16: [(0, 2**16 - 1), (0, 4095)],
    torch.int32: [(-(2**31), 2**31 - 1), (-128, 127)],
    torch.float8_e5m2: [(0, 15), (0, 7)],
    torch.float8_e4m3fn: [(0, 15), (-8, 7)],
}


@contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def ours(name: str) -> Any:
    """Our class, constructor or function of that name."""
    return getattr(zeropoint.observers, name, None) or getattr(zeropoint.fake_quant, name)


def theirs(name: str) -> Any:
    """PyTorch's."""
    if name == "_LearnableFakeQuantize":
        from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize

        return _LearnableFakeQuantize
    return getattr(torch.ao.quantization, name, None) or getattr(torch.ao.quantization.fake_quantize, name)


def pair(name: str, **arguments: Any) -> tuple[Any, Any]:
    """Ours and PyTorch's; an `observer` given by its name becomes each side's own."""
    made = []
    with quietly():
        for side in (ours, theirs):
            own = dict(arguments)
            if isinstance(own.get("observer"), str):
                own["observer"] = side(own["observer"])
            made.append(side(name)(**own))
    return made[0], made[1]


def feed(modules: Sequence[Any], x: torch.Tensor) -> list[torch.Tensor]:
    with quietly():
        return [module(x) for module in modules]


def qparams(observer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    with quietly():
        scale, zero_point = observer.calculate_qparams()
    return scale, zero_point


# -------------------------------------------------------------------------------------------------------- comparing


def assert_equal(mine: torch.Tensor, other: torch.Tensor, what: str = "") -> None:
    """Equal dtype, shape and numbers; NaN equals NaN, and the sign of a zero is no matter."""
    assert mine.dtype == other.dtype, what
    assert mine.shape == other.shape, what
    torch.testing.assert_close(mine, other, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{what}: {m}")


def assert_same_state(mine: Any, other: Any) -> None:
    a, b = mine.state_dict(), other.state_dict()
    assert set(a) == set(b)
    for key in a:
        assert_equal(a[key], b[key], key)


def upside_down(observer: Any) -> bool:
    """Whether a range that was observed has its ends the wrong way round."""
    low, high = getattr(observer, "min_val", torch.empty(0)), getattr(observer, "max_val", torch.empty(0))
    return bool((low > high).any() and not (low.isinf() & high.isinf()).all())


def assert_same_qparams(mine: Any, other: Any) -> None:
    """Equal answers. Where PyTorch would answer NaN, which infinities in a moving average come to, we refuse.

    Where it refuses an average whose ends passed each other by rounding, we answer; see `_in_order`.
    """
    if any(getattr(other, end, torch.empty(0)).isnan().any() for end in ("min_val", "max_val")):
        with pytest.raises(ValueError, match="NaN"):
            mine.calculate_qparams()
        return
    if upside_down(other):
        if other.min_val.isfinite().all() and other.max_val.isfinite().all():
            assert (qparams(mine)[0] > 0).all()
        else:
            with pytest.raises(ValueError, match="must not be above"):
                mine.calculate_qparams()
        return
    for what, a, b in zip(("scale", "zero_point"), qparams(mine), qparams(other)):
        assert_equal(a, b, what)


def assert_twins(mine: Any, other: Any) -> None:
    """Equal settings, buffers and answers."""
    assert_same_settings(mine, other)
    assert_same_state(mine, other)
    assert_same_qparams(mine, other)


SETTINGS = (
    "quant_min",
    "quant_max",
    "is_dynamic",
    "ch_axis",
    "reduce_range",
    "averaging_constant",
    "bins",
    "upsample_rate",
    "dst_nbins",
    "has_customized_qrange",
    "is_per_channel",
    "is_symmetric_quant",
    "custom_op",
    "bitwidth",
)


def assert_same_settings(mine: Any, other: Any) -> None:
    for name in SETTINGS:
        if hasattr(other, name):
            assert getattr(mine, name) == getattr(other, name), name
    assert str(mine.dtype).removeprefix("zeropoint.") == str(other.dtype).removeprefix("torch.") or (
        mine.dtype == other.dtype
    )
    if hasattr(other, "qscheme"):
        assert isinstance(mine.qscheme, QScheme)
        assert str(mine.qscheme).split(".")[-1] == str(other.qscheme).split(".")[-1]


def ids_of_buffers(module: torch.nn.Module) -> list[int]:
    return [id(buffer) for _, buffer in module.named_buffers()]


def copies(module: Any) -> dict[str, torch.Tensor]:
    return copy.deepcopy(dict(module.state_dict()))


# -------------------------------------------------------------------------------------------------------- streams


def _smooth(g: torch.Generator, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=g, dtype=torch.float64)


ONE_RANGE = ("MinMaxObserver", "MovingAverageMinMaxObserver")
MANY_RANGES = ("PerChannelMinMaxObserver", "MovingAveragePerChannelMinMaxObserver")
KINDS: dict[str, Callable[[torch.Generator, tuple[int, ...]], torch.Tensor]] = {
    "normal": _smooth,
    "far-from-zero": lambda g, shape: _smooth(g, shape) * 0.01 + 50,
    "positive": lambda g, shape: _smooth(g, shape).abs(),
    "negative": lambda g, shape: -_smooth(g, shape).abs() - 1,
    "wide": lambda g, shape: _smooth(g, shape) * 1e6,
    "narrow": lambda g, shape: _smooth(g, shape) * 1e-7,
    "zeros": lambda g, shape: torch.zeros(shape, dtype=torch.float64),
    "constant": lambda g, shape: torch.full(shape, float(_smooth(g, (1,))), dtype=torch.float64),
    "subnormal": lambda g, shape: _smooth(g, shape) * 1e-41,
    "huge": lambda g, shape: (torch.rand(shape, generator=g, dtype=torch.float64) * 2 - 1) * 3.4e38,
    "outlier": lambda g, shape: torch.where(torch.rand(shape, generator=g) < 0.05, 1e3, _smooth(g, shape)),
}


@st.composite
def batches(
    draw: st.DrawFn,
    shape: tuple[int, ...],
    kinds: Sequence[str] = tuple(KINDS),
    dtypes: Sequence[torch.dtype] = FLOATS,
) -> torch.Tensor:
    """One tensor of `shape`: a kind of data, a dtype and a layout. float16 makes infinities of what is huge."""
    x = KINDS[draw(st.sampled_from(kinds))](generator(draw(seeds)), shape)
    dtype = draw(st.sampled_from(dtypes))
    return lay_out(x.to(torch.float32).to(dtype), draw(layouts))


@st.composite
def any_shape(draw: st.DrawFn) -> tuple[int, ...]:
    """Small, sometimes empty or a scalar, now and then larger than the pieces that threads share out."""
    rank = draw(st.integers(0, 5))
    if draw(st.integers(0, 19)) == 19:
        return (3, 7, 1999)
    return tuple(draw(st.integers(0 if draw(st.integers(0, 9)) == 9 else 1, 6)) for _ in range(rank))
