"""Histogram observers: PyTorch's against ours, memory, merging, and what our own ones mean."""

from __future__ import annotations

import copy
import itertools
import time
import warnings
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from observer_pairs import (
    KINDS,
    RANGES,
    assert_equal,
    assert_same_qparams,
    assert_same_settings,
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
    least_error_range,
    merge_histograms,
    percentile_range,
    spread,
)
from zeropoint.observers import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    MSEObserver,
    PercentileObserver,
    StreamingHistogramObserver,
)

oracle = pytest.mark.oracle
INF, NAN = float("inf"), float("nan")
OWN: list[Any] = [HistogramObserver, PercentileObserver, MSEObserver, EntropyObserver]
every_reader = pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)

# A value in a histogram stands within its bin, so it may move by one bin's width each time the bins are redrawn. Above
# that, float32 may round a value on a border to either side of it.
ONE_BIN = 1.0 + 1e-3


# PyTorch's formulas overflow with ranges wider than float32; ours do not.
NOT_HUGE = tuple(kind for kind in KINDS if kind != "huge")
# The old counts are spread in 16 pieces of each bin, added up in float32 as PyTorch does: where 2048 * 16 equal pieces
# meet in one bin, each addition may be wrong by half of 2**-24 of the sum, that is 2**-10 of a piece.
SPREAD = 2**-9


@st.composite
def growing(draw: st.DrawFn, kinds: tuple[str, ...] = NOT_HUGE) -> torch.Tensor:
    """A float32 batch whose range may be beyond all before."""
    kind = draw(st.sampled_from(kinds))
    n = draw(st.sampled_from([1, 2, 7, 100, 500]))
    x = KINDS[kind](generator(draw(seeds)), (n,)) * draw(st.sampled_from([1.0, 1.0, 0.3, 7.0, -2.0, 1e-3]))
    return x.clamp(-3.4e38, 3.4e38).to(torch.float32)


# ---------------------------------------------------------------------------------------------- against the oracle


@oracle
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


@oracle
@examples(50)
@given(data=st.data())
def test_images_of_any_layout_are_counted_as_the_oracle_counts_them(data):
    both = pair("HistogramObserver", bins=data.draw(st.sampled_from([3, 64, 2048])))
    for _ in range(2):
        x = KINDS["normal"](generator(data.draw(seeds)), (2, 3, 5, 7)).to(torch.float32)
        x = lay_out(x * data.draw(st.floats(0.1, 10)), data.draw(layouts))
        feed(both, x)
        assert_same_state(*both)


@oracle
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


@oracle
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "huge"])
def test_qparams_of_each_kind_of_data_equal_the_oracle(kind):
    both = pair("HistogramObserver", bins=512)
    for seed in range(2):
        feed(both, KINDS[kind](generator(seed), (1000,)).to(torch.float32))
    assert_twins(*both)


@oracle
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


@oracle
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


@oracle
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


@oracle
def test_one_sided_data_has_its_zero_point_at_the_bottom():
    both = pair("HistogramObserver", bins=8, reduce_range=True)
    feed(both, torch.tensor([0.0, 0.3, 1.2, 1.7]))
    feed(both, torch.tensor([0.1, 1.3, 2.0, 2.7]))
    assert both[0].min_val.item() == 0.0
    assert qparams(both[0])[1].item() == 0
    assert_twins(*both)


@oracle
@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-40, 1e30, -1e30, 16777216.0, 2.0**25 + 4])
def test_constant_data_and_what_follows_equal_the_oracle(value):
    both = pair("HistogramObserver", bins=7)
    for x in (torch.full((4,), value), torch.full((3,), value), torch.tensor([2.0, 3.0]), torch.zeros(2)):
        feed(both, x)
        assert both[0].histogram.sum() >= 4  # nothing counted is lost
        if value != 1e30 and value != -1e30 and value < 2**24:
            assert_same_state(*both)


@oracle
def test_ones_zeros_and_a_wider_range_afterwards():
    both = pair("HistogramObserver", bins=3, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
    for x in (torch.ones(4), torch.zeros(4), torch.zeros(4), torch.arange(2.0, 6.0), torch.arange(5.0, 9.0)):
        feed(both, x)
        assert_twins(*both)
    assert both[0].histogram.sum() == 20


@oracle
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


@oracle
def test_subnormal_data_equals_the_oracle():
    both = pair("HistogramObserver")
    x = torch.tensor([0.0, 0.0, 4.58e-41, 4.58e-41])
    for _ in range(2):
        feed(both, x)
        assert_same_state(*both)
    assert_same_qparams(*both)


@oracle
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


@oracle
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
    with quietly(), pytest.raises(ValueError, match=r"2 NaN.*nothing of it was recorded"):
        observer(x)
    assert ids_of_buffers(observer) == ids
    for key, value in before.items():
        assert_equal(observer.state_dict()[key], value)
    observer(torch.tensor([1.0, 2.0]))  # and goes on
    assert observer.histogram.sum() == before["histogram"].sum() + 2


@oracle
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_counted_as_its_float32_values(dtype):
    """PyTorch has no histc for these."""
    x = torch.randn(1000, generator=generator(0)).to(dtype)
    both = pair("HistogramObserver")
    both[0](x)
    feed(both[1:], x.to(torch.float32))
    assert_same_state(*both)


def cumulative(histogram: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.float64), histogram.to(torch.float64).cumsum(0)])


def assert_counts_of(observer: Any, values: torch.Tensor, bins: float) -> None:
    """The mass below each border is that of values below it, some values standing up to `bins` bins away."""
    values = values.to(torch.float64).sort().values
    low, high = observer.min_val.item(), observer.max_val.item()
    borders = torch.linspace(low, high, len(observer.histogram) + 1, dtype=torch.float64)
    slack = bins * (high - low) / len(observer.histogram)
    below = cumulative(observer.histogram)
    least = torch.searchsorted(values, borders - slack)
    most = torch.searchsorted(values, borders + slack, right=True)
    rounding = 1e-5 * len(values)
    assert (below >= least - rounding).all()
    assert (below <= most + rounding).all()


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


# --------------------------------------------------------------------------------------------------------- merging

# Two histograms on one pair of bins differ from one over all by what a value moves in two redrawings.
MERGED = 2 * ONE_BIN
# Of the scale. The divergence is flat around its minimum, so a few values more or less in a bin move that far.
CLOSE = {EntropyObserver: 0.15}

DATA = {
    "normal": lambda g: torch.randn(20000, generator=g),
    "relu": lambda g: torch.randn(20000, generator=g).relu(),
    "outliers": lambda g: torch.where(torch.rand(20000, generator=g) < 1e-3, 30.0, torch.randn(20000, generator=g)),
    "even": lambda g: torch.rand(20000, generator=g) * 5 - 1,
    "heavy": lambda g: torch.randn(20000, generator=g) / torch.randn(20000, generator=g).abs().clamp(0.05),
}


@every_reader
@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
@pytest.mark.parametrize("parts", [2, 4])
def test_parts_merge_to_what_one_observer_of_all_finds(kind, data, parts):
    x = data(generator(3))
    # Of 20000 values 99.99 percent are all but one at each end: a range that one value decides is no matter here.
    options = {"percentile": 99.5} if kind is PercentileObserver else {}
    every = kind(**options)
    every(x)
    observers = []
    for part in x.chunk(parts):
        observers.append(kind(**options))
        for batch in part.chunk(2):
            observers[-1](batch)
    merged = observers[0]
    ids = ids_of_buffers(merged)
    others = copy.deepcopy(observers[1:])
    for other in observers[1:]:
        merged.merge(other)
    assert ids_of_buffers(merged) == ids
    for other, unchanged in zip(observers[1:], others):
        assert_same_state(other, unchanged)
    assert_equal(merged.min_val, every.min_val)
    assert_equal(merged.max_val, every.max_val)
    assert merged.histogram.sum().item() == pytest.approx(20000, rel=1e-6)
    assert_counts_of(merged, x, MERGED)
    (scale, zero_point), (expected, expected_zero_point) = qparams(merged), qparams(every)
    assert scale.item() == pytest.approx(expected.item(), rel=CLOSE.get(kind, 0.01))
    assert abs(zero_point.item() - expected_zero_point.item()) <= (2 if kind not in CLOSE else 15)


def test_merging_into_or_from_nothing_takes_over_or_changes_nothing():
    seen, nothing = HistogramObserver(bins=16), HistogramObserver(bins=16)
    seen(torch.randn(100, generator=generator(0)))
    before = copy.deepcopy(seen)
    seen.merge(nothing)
    assert_same_state(seen, before)
    nothing.merge(seen)
    assert_same_state(nothing, before)
    empty = HistogramObserver(bins=16)
    empty.merge(HistogramObserver(bins=16))
    assert empty.histogram.sum() == 0
    assert empty.min_val == INF


def test_constants_merge_with_anything():
    for first, second in itertools.permutations(([2.0, 2.0, 2.0], [2.0], [-1.0, 5.0], [3.0]), 2):
        one, two = HistogramObserver(bins=10), HistogramObserver(bins=10)
        one(torch.tensor(first)), two(torch.tensor(second))
        one.merge(two)
        every = [*first, *second]
        assert (one.min_val.item(), one.max_val.item()) == (min(every), max(every))
        assert one.histogram.sum() == len(every)


@given(data=st.data())
def test_merging_keeps_mass_and_range_of_any_data(data):
    sides = []
    for _ in range(2):
        state = torch.zeros(50), torch.tensor(INF), torch.tensor(-INF)
        x = data.draw(growing(tuple(KINDS)))
        add_to_histogram(x, *state)
        sides.append((x, state))
    (x, one), (y, two) = sides
    merge_histograms(*one, two)
    every = torch.cat([x, y])
    assert one[0].sum().item() == pytest.approx(every.numel(), rel=1e-5)
    assert (one[1], one[2]) == (every.min(), every.max())


def test_only_equals_merge():
    with pytest.raises(TypeError, match="HistogramObserver merges with its own kind only, got MinMaxObserver"):
        HistogramObserver().merge(MinMaxObserver())
    with pytest.raises(ValueError, match="a histogram of 8 bins into one of 16"):
        HistogramObserver(bins=16).merge(HistogramObserver(bins=8))


# ------------------------------------------------------------------------------------------- what our own ones mean


def squared_error(x: torch.Tensor, observer: Any) -> float:
    scale, zero_point = qparams(observer)
    low, high = observer.quant_min, observer.quant_max
    y = zeropoint.fake_quantize_per_tensor_affine(x, scale.item(), int(zero_point), low, high)
    return (y - x).square().mean().item()


def bell_with_outliers(seed: int = 0, outlier: float = 40.0) -> torch.Tensor:
    x = torch.randn(100_000, generator=generator(seed))
    x[::10_000] = outlier
    return x


BITS = {4: {"dtype": "quint4x2"}, 8: {"dtype": "quint8"}}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("scheme", ["per_tensor_affine", "per_tensor_symmetric"])
def test_mse_range_loses_less_than_the_whole_range(bits, scheme):
    x = bell_with_outliers(outlier=12.0)
    options = {
        "qscheme": scheme,
        "dtype": "qint8",
        "quant_min": -(2 ** (bits - 1)),
        "quant_max": 2 ** (bits - 1) - 1,
    }
    mse, minmax = MSEObserver(**options), MinMaxObserver(**options)
    mse(x), minmax(x)
    assert squared_error(x, mse) <= squared_error(x, minmax)
    if bits == 4:
        assert squared_error(x, mse) < 0.6 * squared_error(x, minmax)


@pytest.mark.parametrize("bits", BITS)
def test_mse_range_loses_no_more_than_any_other_observer(bits):
    x = torch.randn(100_000, generator=generator(1))
    errors = {}
    for kind in (MSEObserver, HistogramObserver, PercentileObserver, EntropyObserver, MinMaxObserver):
        observer = kind(**BITS[bits])
        observer(x)
        errors[kind.__name__] = squared_error(x, observer)
    # Bins have a width, so the least error of the histogram is not quite that of the data.
    assert errors["MSEObserver"] <= 1.02 * min(errors.values()), errors


def test_mse_of_a_grid_of_candidates_is_least_by_brute_force():
    """The search goes along the diagonal, then each end alone: here it finds the best of all pairs."""
    counts = torch.zeros(64)
    counts[8:40] = torch.rand(32, generator=generator(0)) * 100
    counts[63] = 1
    low, high = torch.tensor(-1.0), torch.tensor(3.0)
    eps = torch.tensor([1e-9])
    found = least_error_range(counts, low, high, 0, 15, eps=eps)
    middles = low + (high - low) * (torch.arange(64) + 0.5) / 64

    def error(a: torch.Tensor, b: torch.Tensor) -> float:
        scale = (b.clamp(min=0) - a.clamp(max=0)) / 15
        zero_point = (-torch.round(a.clamp(max=0) / scale)).clamp(0, 15)
        q = (torch.round(middles / scale) + zero_point).clamp(0, 15)
        return (((q - zero_point) * scale - middles).square() * counts).sum().item()

    best = min(error(low * i / 20, high * j / 20) for i in range(1, 21) for j in range(1, 21))
    assert error(*found) <= 1.1 * best


@pytest.mark.parametrize("percentile", [50.0, 90.0, 99.0, 99.99, 100.0])
@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
def test_percentile_range_holds_its_share_of_the_values(percentile, data):
    x = data(generator(5))
    observer = PercentileObserver(percentile=percentile)
    observer(x)
    low, high = observer._kept_range()
    assert observer.min_val <= low <= high <= observer.max_val
    width = (observer.max_val - observer.min_val).item() / observer.bins
    inside = ((x >= low - width) & (x <= high + width)).sum().item()
    assert inside >= percentile / 100 * len(x) - 1
    if percentile < 100:
        strictly = ((x > low + width) & (x < high - width)).sum().item()
        assert strictly <= percentile / 100 * len(x) + 1
    else:
        torch.testing.assert_close(torch.stack([low, high]), torch.stack([x.min(), x.max()]))


@given(data=st.data())
def test_percentile_range_is_inside_and_grows_with_the_percentile(data):
    counts = torch.rand(data.draw(st.integers(1, 40)), generator=generator(data.draw(seeds)))
    counts[torch.rand(counts.shape, generator=generator(1)) < 0.5] = 0
    counts[data.draw(st.integers(0, len(counts) - 1))] += 1
    ends = torch.tensor(-2.0), torch.tensor(5.0)
    last = None
    for percentile in (1.0, 30.0, 80.0, 99.9, 100.0):
        low, high = percentile_range(counts, *ends, percentile)
        assert ends[0] <= low <= high <= ends[1]
        if last is not None:
            assert low <= last[0]
            assert high >= last[1]
        last = low, high


def test_entropy_range_cuts_outliers():
    x = bell_with_outliers(outlier=100.0)
    observer = EntropyObserver()
    observer(x)
    low, high = observer._kept_range()
    assert 2.5 < high < 20
    assert low >= observer.min_val
    whole = MinMaxObserver()
    whole(x)
    bulk = x[x < 10]
    assert squared_error(bulk, observer) < 0.2 * squared_error(bulk, whole)


def test_entropy_range_is_not_drawn_to_the_peak_at_zero_of_a_relu():
    bell = torch.randn(200_000, generator=generator(0))
    relu, bare = EntropyObserver(), EntropyObserver()
    relu(torch.cat([bell.relu(), torch.zeros(1_000_000)]))
    bare(bell.abs())
    (low, high), (_, expected) = relu._kept_range(), bare._kept_range()
    assert low == 0
    assert high > 2
    assert high.item() == pytest.approx(expected.item(), rel=0.15)


@pytest.mark.parametrize("sign", [1, -1])
def test_entropy_range_of_one_sided_data_is_cut_at_its_far_end_only(sign):
    x = torch.rand(50_000, generator=generator(0)) + 1
    x[0] = 60
    observer = EntropyObserver()
    observer(sign * x)
    low, high = observer._kept_range()
    near, far = (low, high) if sign > 0 else (-high, -low)
    assert near == (sign * x).abs().min()
    assert 1.9 < far < 30


@every_reader
@pytest.mark.parametrize("value", [0.0, 3.0, -2.0, 1e-41])
def test_constant_data_has_sensible_parameters(kind, value):
    observer = kind()
    observer(torch.full((10,), value))
    scale, zero_point = qparams(observer)
    assert scale.isfinite().all()
    assert (scale > 0).all()
    assert 0 <= zero_point.item() <= 255
    y = zeropoint.fake_quantize_per_tensor_affine(torch.tensor([value]), scale.item(), int(zero_point), 0, 255)
    assert y.item() == pytest.approx(value, abs=max(abs(value) * 0.01, 1e-6))


@every_reader
@examples(30)
@given(data=st.data())
def test_kept_ranges_are_inside_what_was_seen(kind, data):
    observer = kind(
        bins=data.draw(st.sampled_from([1, 2, 16, 300])), dtype=data.draw(st.sampled_from(["quint8", "qint8"]))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        observer(data.draw(growing()))
    low, high = observer._kept_range()
    if kind is MSEObserver:  # which looks for a range with 0 in it, as quantization has
        assert low <= 0 <= high
        low, high = torch.maximum(low, observer.min_val), torch.minimum(high, observer.max_val)
    slack = 1e-5 * (observer.max_val - observer.min_val + observer.max_val.abs() + observer.min_val.abs())
    assert observer.min_val - slack <= low <= high <= observer.max_val + slack
    scale, zero_point = qparams(observer)
    assert scale > 0
    assert observer.quant_min <= zero_point <= observer.quant_max


@every_reader
def test_readers_script_save_and_answer_alike(kind, tmp_path):
    eager, scripted = kind(), torch.jit.script(kind())
    for seed in range(2):
        x = torch.randn(1000, generator=generator(seed)) * (1 + seed)
        eager(x), scripted(x)
    torch.jit.save(scripted, tmp_path / "observer.pt")
    loaded = torch.jit.load(tmp_path / "observer.pt")
    for other in (scripted, loaded):
        assert_same_state(eager, other)
        assert_same_qparams(eager, other)


@every_reader
def test_readers_warn_and_answer_defaults_before_data(kind):
    with pytest.warns(UserWarning, match="before the observer saw any data"):
        scale, zero_point = kind().calculate_qparams()
    assert (scale.tolist(), zero_point.tolist()) == ([1.0], [0])


@oracle
def test_default_histogram_observer_equals_the_oracle():
    both = pair("default_histogram_observer")
    assert_same_settings(*both)
    feed(both, torch.randn(500, generator=generator(0)))
    assert_twins(*both)
    assert isinstance(both[0], StreamingHistogramObserver)


def test_readers_say_nothing_when_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in OWN:
            observer = kind()
            observer(torch.randn(100, generator=generator(0)))
            observer.calculate_qparams()
