"""Images as QTensors and as PyTorch's quantized tensors, in the same layout, for tests of spatial operators."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import torch
from strategies import integers, scales, seeds
from twins import assert_twins, mine, theirs

from zeropoint.numerics.dtypes import QuantizedDtype, qint32
from zeropoint.tensor import QTensor

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
LAYOUTS = ("contiguous", "channels_last", "transposed", "sliced")

# Channels that PyTorch's channels-last code takes at once; it rounds the left-over ones differently: ops/pooling.py.
TORCH_LANES = {"AVX2": 8, "AVX512": 16}.get(torch.backends.cpu.get_cpu_capability(), 1 << 30)


def twins(
    values: torch.Tensor, scale: float, zero_point: int, dtype: QuantizedDtype, layout: str = "contiguous"
) -> tuple[QTensor, torch.Tensor]:
    """The same integers in the same layout, both ways; `transposed` and `sliced` change their shape."""
    q, oracle = mine(values, scale, zero_point, dtype), theirs(values, scale, zero_point)
    if layout == "channels_last" and values.dim() in CHANNELS_LAST:
        memory_format = CHANNELS_LAST[values.dim()]
        return q.contiguous(memory_format=memory_format), oracle.contiguous(memory_format=memory_format)
    if layout == "transposed":
        return q.transpose(-1, -2), oracle.transpose(-1, -2)
    if layout == "sliced":
        return q[..., : max(values.shape[-1] - 1, 1)], oracle[..., : max(values.shape[-1] - 1, 1)]
    return q, oracle


@st.composite
def images(
    draw: st.DrawFn,
    dtype: QuantizedDtype,
    spatial: int,
    layouts: Sequence[str] = LAYOUTS,
    batched: bool | None = None,
    largest: int = 12,
) -> tuple[QTensor, torch.Tensor]:
    """``(N, C, ...)`` or ``(C, ...)`` with `spatial` axes; now and then no image at all, or enough for two threads."""
    small = draw(st.integers(0, 9)) < 9
    channels = draw(st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 32, 40, 64]) if small else st.sampled_from([64, 80]))
    side = st.integers(1, largest if spatial < 3 else 6)
    sides = draw(st.tuples(*[side] * spatial)) if small else (20,) * min(spatial, 2) + (4,) * (spatial - 2)
    shape: tuple[int, ...] = (channels, *sides)
    if batched or (batched is None and draw(st.booleans())):
        shape = (draw(st.integers(0, 3)), *shape)
    if dtype == qint32:
        # Small enough for sums to be exact in float32: beyond, PyTorch's int32 sums overflow.
        zero_point = draw(st.integers(-300, 300))
        generator = torch.Generator().manual_seed(draw(seeds))
        values = torch.randint(-9000, 9000, shape, generator=generator, dtype=torch.int32)
    else:
        zero_point = draw(st.integers(dtype.qmin, dtype.qmax))
        values = integers(draw(seeds), shape, dtype.torch_storage)
    return twins(values, draw(scales()), zero_point, dtype, draw(st.sampled_from(layouts)))


def is_channels_last(x: torch.Tensor) -> bool:
    return x.dim() in CHANNELS_LAST and x.is_contiguous(memory_format=CHANNELS_LAST[x.dim()])


def assert_same_layout(ours: QTensor, oracle: torch.Tensor) -> None:
    """Equal strides; those of axes with one element mean nothing."""
    if ours.numel():
        pairs = zip(ours.stride(), oracle.stride(), ours.shape)
        assert all(a == b for a, b, n in pairs if n > 1), f"strides {ours.stride()}, oracle {oracle.stride()}"


def assert_one_step(ours: QTensor, oracle: torch.Tensor) -> None:
    """Equal but for one step here and there."""
    assert ours.shape == oracle.shape
    assert (ours.q_scale(), ours.q_zero_point()) == (oracle.q_scale(), oracle.q_zero_point())
    difference = (ours.int_repr().to(torch.int64) - oracle.int_repr().to(torch.int64)).abs()
    assert not difference.numel() or difference.max() <= 1


def assert_same_lanes(ours: QTensor, oracle: torch.Tensor, spatial: int, by_vector: bool) -> None:
    """Twins; if PyTorch took the channels by vectors (and there were enough), the left-over ones within one step."""
    channel = oracle.dim() - spatial - 1
    channels = oracle.shape[channel]
    if not by_vector or channels < 8 or ours.qdtype == qint32:
        return assert_twins(ours, oracle)
    assert_one_step(ours, oracle)
    whole = channels // TORCH_LANES * TORCH_LANES
    assert_twins(ours.narrow(channel, 0, whole), oracle.narrow(channel, 0, whole))
    return None
