"""Histogram observers: PyTorch's against ours, and memory."""

from __future__ import annotations

import time
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from histogram_data import INF, NAN, ONE_BIN, assert_counts_of, cumulative, every_reader, growing
from hypothesis import given
from observer_pairs import (
    KINDS,
    RANGES,
    assert_equal,
    assert_same_qparams,
    assert_same_state,
    assert_twins,
    copies,
    feed,
    ids_of_buffers,
    pair,
    qparams,
    quietly,
)
from strategies import examples, generator, lay_out, layouts, seeds
from torch.utils._python_dispatch import TorchDispatchMode

import zeropoint
from zeropoint.numerics.histogram import (
    MOST_PIECES,
    add_to_histogram,
    spread,
)
from zeropoint.observers import (
    HistogramObserver,
)

# The old counts are spread in 16 pieces of each bin, added up in float32 as PyTorch does: where 2048 * 16 equal pieces
# meet in one bin, each addition may be wrong by half of 2**-24 of the sum, that is 2**-10 of a piece.
SPREAD = 2**-9


# ---------------------------------------------------------------------------------------------- against the oracle


@given(data=st.data())
def test_streams_are_counted_as_the_oracle_counts_them(isa, data):
    bins = data.draw(st.one_of(st.integers(3, 300), st.sampled_from([256, 512, 1024, 2048])))
    both = pair("HistogramObserver", bins=bins)
    for _ in range(data.draw(st.integers(1, 6))):
        x = data.draw(growing())
        if data.draw(st.integers(0, 5)) == 5:
            x[torch.rand(x.shape, generator=generator(1)) < 0.3] = data.draw(st.sampled_from([INF, -INF]))
        if data.draw(st.integers(0, 9)) == 9:
            x = x[:0]
        for answer in feed(both, x):
            assert answer is x
        assert_same_state(*both)


@examples(50)
@given(data=st.data())
def test_images_of_any_layout_are_counted_as_the_oracle_counts_them(data):
    both = pair("HistogramObserver", bins=data.draw(st.sampled_from([3, 64, 2048])))
    for _ in range(2):
        x = KINDS["normal"](generator(data.draw(seeds)), (2, 3, 5, 7)).to(torch.float32)
        x = lay_out(x * data.draw(st.floats(0.1, 10)), data.draw(layouts))
        feed(both, x)
        assert_same_state(*both)


@examples(10)  # PyTorch's search takes up to a second
@given(data=st.data())
def test_qparams_equal_the_oracle(data):
    dtype = data.draw(st.sampled_from([d for d in RANGES if not d.is_floating_point]))
    given: dict[str, Any] = {
        "dtype": dtype,
        "qscheme": data.draw(st.sampled_from([torch.per_tensor_affine, torch.per_tensor_symmetric])),
        "reduce_range": data.draw(st.booleans()),
        "bins": data.draw(st.sampled_from([3, 16, 100, 256, 512, 1024, 2048])),
    }
    if data.draw(st.booleans()):
        given["quant_min"], given["quant_max"] = data.draw(st.sampled_from(RANGES[dtype][:2]))
    both = pair("HistogramObserver", **given)
    for _ in range(data.draw(st.integers(1, 3))):
        feed(both, data.draw(growing()))
    assert_twins(*both)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "huge"])
def test_qparams_of_each_kind_of_data_equal_the_oracle(kind):
    both = pair("HistogramObserver", bins=512)
    for seed in range(2):
        feed(both, KINDS[kind](generator(seed), (1000,)).to(torch.float32))
    assert_twins(*both)


@pytest.mark.parametrize("n", [10, 1000])
@pytest.mark.parametrize("bins", [256, 2048])
def test_search_errors_equal_the_oracle_for_any_range_of_bins(n, bins):
    both = pair("HistogramObserver", bins=bins)
    for seed in range(10):
        feed(both, torch.randn(n, generator=generator(seed)))
        assert_same_state(*both)
    for start in range(0, bins, 200):
        for end in range(start + 5, bins, 200):
            mine, other = (observer._compute_quantization_error(start, end) for observer in both)
            assert mine == other
    assert_same_qparams(*both)


@given(data=st.data())
def test_search_errors_equal_the_oracle_for_any_histogram(data):
    dtype = data.draw(st.sampled_from([torch.quint8, torch.qint32, torch.int16, torch.quint4x2]))
    bins = data.draw(st.integers(3, 200))
    both = pair("HistogramObserver", bins=bins, dtype=dtype)
    feed(both, data.draw(growing()))
    start = data.draw(st.integers(0, bins - 1))
    end = data.draw(st.integers(start, bins - 1))
    mine, other = (torch.tensor(observer._compute_quantization_error(start, end)) for observer in both)
    assert_equal(mine, other)


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8], ids=str)
@pytest.mark.parametrize("scheme", [torch.per_tensor_affine, torch.per_tensor_symmetric], ids=str)
@pytest.mark.parametrize("reduce_range", [False, True])
def test_three_bins_by_hand(dtype, scheme, reduce_range):
    both = pair("HistogramObserver", bins=3, dtype=dtype, qscheme=scheme, reduce_range=reduce_range)
    assert_twins(*both)
    x = torch.tensor([2.0, 3.0, 4.0, 5.0], requires_grad=True)
    assert both[0](x) is x
    feed(both[1:], x)
    feed(both, torch.tensor([5.0, 6.0, 7.0, 8.0]))
    mine = both[0]
    assert (mine.min_val.item(), mine.max_val.item(), mine.histogram.tolist()) == (2.0, 8.0, [2.0, 3.0, 3.0])
    # The kept range is [2, 8]; with 0 in it, 8 over 255 or 127 steps, or half of them.
    steps = (127 if reduce_range else 255) / (2 if scheme == torch.per_tensor_symmetric else 1)
    scale, _zero_point = qparams(mine)
    assert scale.item() == pytest.approx(6.0 / steps, rel=1e-6) or scale.item() == pytest.approx(8.0 / steps, rel=1e-6)
    assert_twins(*both)


def test_one_sided_data_has_its_zero_point_at_the_bottom():
    both = pair("HistogramObserver", bins=8, reduce_range=True)
    feed(both, torch.tensor([0.0, 0.3, 1.2, 1.7]))
    feed(both, torch.tensor([0.1, 1.3, 2.0, 2.7]))
    assert both[0].min_val.item() == 0.0
    assert qparams(both[0])[1].item() == 0
    assert_twins(*both)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-40, 1e30, -1e30, 16777216.0, 2.0**25 + 4])
def test_constant_data_and_what_follows_equal_the_oracle(value):
    both = pair("HistogramObserver", bins=7)
    for x in (torch.full((4,), value), torch.full((3,), value), torch.tensor([2.0, 3.0]), torch.zeros(2)):
        feed(both, x)
        assert both[0].histogram.sum() >= 4  # nothing counted is lost
        if value != 1e30 and value != -1e30 and value < 2**24:
            assert_same_state(*both)


def test_ones_zeros_and_a_wider_range_afterwards():
    both = pair("HistogramObserver", bins=3, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
    for x in (torch.ones(4), torch.zeros(4), torch.zeros(4), torch.arange(2.0, 6.0), torch.arange(5.0, 9.0)):
        feed(both, x)
        assert_twins(*both)
    assert both[0].histogram.sum() == 20


def test_infinities_are_left_out_with_a_warning():
    observer, clean = HistogramObserver(), HistogramObserver()
    x = torch.randn(4, 4, 4, 4, generator=generator(0))
    with pytest.warns(UserWarning, match="256 infinite values"):
        observer(x * INF)
    observer(x), clean(x)
    assert_same_state(observer, clean)
    with pytest.warns(UserWarning, match="infinite"):
        observer(x * INF)
    mixed = x.clone()
    mixed[0, 0, 0] = INF
    with pytest.warns(UserWarning, match="4 infinite values"):
        observer(mixed)
    clean(mixed[mixed.isfinite()])
    assert_same_state(observer, clean)


def test_subnormal_data_equals_the_oracle():
    both = pair("HistogramObserver")
    x = torch.tensor([0.0, 0.0, 4.58e-41, 4.58e-41])
    for _ in range(2):
        feed(both, x)
        assert_same_state(*both)
    assert_same_qparams(*both)


@pytest.mark.parametrize("sign", [-1, 1])
def test_masks_near_infinity_keep_softmax_exact(sign):
    both = pair("HistogramObserver")
    mask = torch.tensor([-3.4028234663852886e30, 0, 0, 0]) * sign
    feed(both, mask)
    feed(both, mask - sign)
    assert_twins(*both)
    scale, zero_point = qparams(both[0])
    rounded = zeropoint.quantize_per_tensor(mask, scale.item(), int(zero_point), zeropoint.quint8).dequantize()
    x = torch.randn(1, 4, generator=generator(0))
    torch.testing.assert_close(torch.softmax(x + rounded, 1), torch.softmax(x + mask, 1))


def test_ranges_that_overflow_float32_keep_their_mass():
    observer = HistogramObserver()
    x = (torch.rand(1000, generator=generator(0)) * 2 - 1) * 3.4e38
    for part in (x[:10], x):
        observer(part)
    assert observer.histogram.sum().item() == pytest.approx(1010, rel=1e-6)
    middle = observer.histogram[512:1536].sum().item()
    assert middle == pytest.approx(505, abs=60)  # half of an even distribution


# ------------------------------------------------------------------------------------------------- memory and mass


class Allocations(TorchDispatchMode):
    """Counts the bytes of every tensor that operators answer. It does not see inside our own ones."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        answer = function(*args, **(kwargs or {}))
        self.bytes += sum(t.nbytes for t in torch.utils._pytree.tree_leaves(answer) if isinstance(t, torch.Tensor))
        return answer


def cost(observer: Any, *stream: list[float]) -> tuple[float, int]:
    """Seconds, and bytes of all tensors made on the way, which are more than were held at any time."""
    begin = time.perf_counter()
    with Allocations() as made:
        for values in stream:  # as the observer's operator does
            state = observer.histogram, observer.min_val, observer.max_val
            add_to_histogram(torch.tensor(values), *state, observer.upsample_rate)
    return time.perf_counter() - begin, made.bytes


SMALL = 32 << 20
SOON = 5.0


def test_the_cost_of_growing_is_seen():
    """A range that grows makes pieces: indices of 8 bytes among them."""
    assert cost(HistogramObserver(bins=2048, upsample_rate=256), [0.0, 1.0], [2.0])[1] > 8 * 2048 * 256


def test_a_huge_upsample_rate_takes_neither_memory_nor_time():
    observer = HistogramObserver(upsample_rate=8000**2, reduce_range=False)
    assert observer.upsample_rate == 8000**2
    seconds, allocated = cost(observer, [0, 1.0], [2, 2 + 1e-9])
    assert seconds < SOON
    assert allocated < SMALL
    assert observer.histogram.sum() == 4
    assert (observer.min_val.item(), observer.max_val.item()) == (0.0, 2.0)


@pytest.mark.parametrize("rate", [1, 16, 8000**2])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0, 1e-9], [2.0, 3.0]),
        ([2.0, 2.0 + 2.4e-7], [-1e6, 1e6]),
        ([1e-45, 1e-44], [3e38, -3e38]),
        ([1.0, 1.0], [1.0, 1.0 + 1.2e-7]),
        ([0.0, 0.0], [1e-45, 0.0]),
    ],
)
def test_nearly_equal_extremes_take_neither_memory_nor_mass(rate, first, second):
    observer = HistogramObserver(upsample_rate=rate)
    seconds, allocated = cost(observer, first, second, first)
    assert seconds < SOON
    assert allocated < SMALL
    assert observer.histogram.sum().item() == pytest.approx(6, rel=SPREAD)
    every = torch.tensor([*first, *second])
    assert (observer.min_val, observer.max_val) == (every.min(), every.max())
    scale, zero_point = qparams(observer)
    assert scale > 0
    assert 0 <= zero_point <= 255


@given(data=st.data())
def test_no_stream_loses_mass_or_range(data):
    observer = HistogramObserver(
        bins=data.draw(st.integers(1, 2048)), upsample_rate=data.draw(st.sampled_from([1, 3, 16, 10**7]))
    )
    stream = [data.draw(growing(tuple(KINDS))) for _ in range(data.draw(st.integers(1, 6)))]
    for x in stream:
        observer(x)
    every = torch.cat(stream)
    assert observer.histogram.sum().item() == pytest.approx(every.numel(), rel=SPREAD)
    assert (observer.histogram >= 0).all()
    assert (observer.min_val, observer.max_val) == (every.min(), every.max())


@pytest.mark.parametrize("side", range(1, 10))
def test_every_element_is_counted_once(side):
    observer = HistogramObserver()
    observer(torch.randn(side, side, generator=generator(side)))
    assert observer.histogram.sum().item() == side**2


def test_state_does_not_grow_with_the_data():
    observer = HistogramObserver()
    size = sum(b.numel() for b in observer.buffers())
    for seed in range(50):
        observer(torch.randn(1000, generator=generator(seed)) * (1 + seed))
    assert sum(b.numel() for b in observer.buffers()) == size


@pytest.mark.parametrize("first", [True, False], ids=["at first", "later"])
@pytest.mark.parametrize("wider", [True, False], ids=["wider range", "same range"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@every_reader
def test_nan_is_refused_and_nothing_is_lost(kind, first, wider, dtype):
    observer = kind(factory_kwargs={"dtype": dtype})
    if not first:
        observer(torch.randn(100, generator=generator(0)))
    before, ids = copies(observer), ids_of_buffers(observer)
    x = torch.tensor([100.0 if wider else 0.1, NAN, 0.0, NAN, INF])
    with quietly(), pytest.raises(ValueError, match=r"2 NaN.*was not recorded"):
        observer(x)
    assert ids_of_buffers(observer) == ids
    for key, value in before.items():
        assert_equal(observer.state_dict()[key], value)
    observer(torch.tensor([1.0, 2.0]))  # and goes on
    assert observer.histogram.sum() == before["histogram"].sum() + 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_counted_as_its_float32_values(dtype):
    """PyTorch has no histc for these."""
    x = torch.randn(1000, generator=generator(0)).to(dtype)
    both = pair("HistogramObserver")
    both[0](x)
    feed(both[1:], x.to(torch.float32))
    assert_same_state(*both)


@pytest.mark.parametrize("growths", [0, 1, 2])
def test_a_value_moves_by_at_most_one_bin_for_each_growth(growths):
    observer = HistogramObserver(bins=256)
    stream = [torch.randn(5000, generator=generator(seed)) * 2**seed for seed in range(growths + 1)]
    for x in stream:
        observer(x)
    assert_counts_of(observer, torch.cat(stream), ONE_BIN * (growths + 1))


def test_float64_histograms_use_torch_and_agree_within_a_bin():
    native, fallback = HistogramObserver(bins=512), HistogramObserver(bins=512, factory_kwargs={"dtype": torch.float64})
    stream = [torch.randn(5000, generator=generator(seed)) * (1 + seed) for seed in range(3)]
    for x in stream:
        native(x), fallback(x)
    assert fallback.histogram.dtype == torch.float64
    assert native.min_val == fallback.min_val
    assert native.max_val == fallback.max_val
    assert fallback.histogram.sum() == native.histogram.sum() == 15000
    for observer in (native, fallback):
        assert_counts_of(observer, torch.cat(stream), ONE_BIN * 3)
    assert (cumulative(native.histogram) - cumulative(fallback.histogram)).abs().max() < 15000 / 100
    assert qparams(fallback)[0].item() == pytest.approx(qparams(native)[0].item(), rel=0.02)


def test_float64_data_in_float32_buffers_is_counted_as_float32():
    observer, other = HistogramObserver(), HistogramObserver()
    x = torch.randn(1000, generator=generator(0), dtype=torch.float64)
    observer(x), other(x.to(torch.float32))
    assert_same_state(observer, other)


def test_spreading_through_pieces_and_exactly_agree_within_a_bin():
    counts = torch.rand(64, generator=generator(0)) * 100
    pieces = spread(counts, -1.0, 1.0, -3.0, 2.0, MOST_PIECES // 64)
    exact = spread(counts, -1.0, 1.0, -3.0, 2.0, MOST_PIECES // 64 + 1)
    assert pieces.sum().item() == pytest.approx(exact.sum().item(), rel=1e-3)
    torch.testing.assert_close(cumulative(pieces), cumulative(exact), rtol=1e-3, atol=0.5)
