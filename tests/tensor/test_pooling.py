"""max_pool, avg_pool, adaptive_avg_pool and mean, against PyTorch's quantized tensors, bit for bit."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from places import assert_one_step, assert_same_lanes, assert_same_layout, images, is_channels_last, twins
from strategies import assert_same, examples, integers, seeds
from twins import BYTES, DTYPES, assert_twins, mine, theirs

import zeropoint
from zeropoint import qint8, qint32, quint2x4, quint4x2, quint8
from zeropoint.tensor import QTensor
from zeropoint.tensor.errors import QTensorError

MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}

by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
by_bytes = pytest.mark.parametrize("dtype", BYTES, ids=lambda d: d.name)
by_spatial = pytest.mark.parametrize("spatial", [1, 2, 3], ids=["1d", "2d", "3d"])


@st.composite
def windows(draw: st.DrawFn, sizes: tuple[int, ...], dilated: bool) -> dict[str, object]:
    """Parameters of a window that fits these sizes."""
    fitting = []
    for n in sizes:
        k = draw(st.integers(1, 5))
        p = draw(st.integers(0, k // 2))
        d = draw(st.integers(1, 3)) if dilated else 1
        fitting.append((k, p, d) if n + 2 * p >= d * (k - 1) + 1 else (1, 0, d))
    kernel, padding, dilation = zip(*fitting)
    arguments = {"kernel_size": kernel, "padding": padding, "ceil_mode": draw(st.booleans())}
    if draw(st.booleans()):
        arguments["stride"] = tuple(draw(st.integers(1, 4)) for _ in sizes)
    return arguments | ({"dilation": dilation} if dilated else {})


# --------------------------------------------------------------------------------------------- what PyTorch does


def taken_by_vectors(oracle: torch.Tensor, spatial: int) -> bool:
    """Whether PyTorch chooses its channels-last code; pooling in 1d is pooling in 2d with a height of 1."""
    return is_channels_last(oracle.unsqueeze(-2) if spatial == 1 else oracle)


def unmixed(pool: Any, oracle: torch.Tensor, spatial: int, **arguments: Any) -> torch.Tensor:
    """The oracle's answer, repaired: one place of many channels is in both layouts, and PyTorch then fills a contiguous
    result as if it were channels last."""
    result = pool(oracle, **arguments)
    if not (taken_by_vectors(oracle, spatial) and oracle.shape[-spatial:].numel() == 1 and result.is_contiguous()):
        return result
    sizes = result.shape[2:]
    values = result.int_repr().reshape(result.shape[0], *sizes, result.shape[1]).movedim(-1, 1)
    return torch._make_per_tensor_quantized_tensor(values.contiguous(), result.q_scale(), result.q_zero_point())


# -------------------------------------------------------------------------------------------------------- maximum


@by_spatial
@by_dtype
@examples(25)  # for each dtype, rank and instruction set
@given(data=st.data())
def test_max_pool(dtype, spatial, isa, data):
    q, oracle = data.draw(images(dtype, spatial))
    arguments = data.draw(windows(tuple(q.shape[-spatial:]), dilated=True))
    if spatial == 3 and oracle.dim() == 4:
        oracle = oracle.unsqueeze(0)  # PyTorch takes batches only
        expected = unmixed(MAX_POOL[spatial], oracle, spatial, **arguments).squeeze(0)
    else:
        expected = unmixed(MAX_POOL[spatial], oracle, spatial, **arguments)
    ours = MAX_POOL[spatial](q, **arguments)
    assert_twins(ours, expected)
    if q.shape[-spatial:].numel() > 1:  # one place is in both layouts
        assert_same_layout(ours, expected)
    with torch.inference_mode():
        assert_twins(MAX_POOL[spatial](q, **arguments), expected)


@by_bytes
def test_one_place_of_two_channels_keeps_its_channels(dtype, isa):
    """PyTorch 2.13 mixes them on every CPU: it takes the place for channels last and writes a contiguous result."""
    x = torch.tensor([3, 7], dtype=dtype.torch_storage).reshape(1, 2, 1)
    q, oracle = twins(x, 1.0, 0, dtype)
    assert F.max_pool1d(q, 2, 1, 1).int_repr().tolist() == [[[3, 3], [7, 7]]]
    assert F.max_pool1d(oracle, 2, 1, 1).int_repr().tolist() == [[[3, 7], [3, 7]]]


@by_bytes
def test_padding_never_wins(dtype, isa):
    lowest = torch.full((1, 2, 4, 4), dtype.qmin, dtype=dtype.torch_storage)
    q = mine(lowest, 0.5, dtype.qmax, dtype)
    assert (F.max_pool2d(q, 3, 2, 1).int_repr() == dtype.qmin).all()


def test_max_pool_of_windows_without_inputs(isa):
    # With ceil_mode a window of two inputs 5 apart can miss a row of three.
    x = torch.arange(3, dtype=torch.int8).reshape(1, 1, 3)
    q, oracle = twins(x, 1.0, 0, qint8)
    arguments = {"kernel_size": 2, "stride": 2, "padding": 1, "dilation": 5, "ceil_mode": True}
    assert_twins(F.max_pool1d(q, **arguments), F.max_pool1d(oracle, **arguments))


def test_max_pool_has_no_indices():
    q = mine(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), 1.0, 0, quint8)
    values, indices = F.max_pool2d(q, 2, return_indices=True)
    assert values.shape == (1, 1, 2, 2)
    for use in (lambda t: t.tolist(), lambda t: t + 1, lambda t: F.max_unpool2d(values.dequantize(), t, 2)):
        with pytest.raises(QTensorError, match=r"has no indices .* pool q\.dequantize\(\) with return_indices=True"):
            use(indices)


# ----------------------------------------------------------------------------------------------------------- mean


@by_spatial
@by_dtype
@examples(25)  # for each dtype, rank and instruction set
@given(data=st.data())
def test_avg_pool(dtype, spatial, isa, data):
    q, oracle = data.draw(images(dtype, spatial, batched=True if spatial == 3 else None))
    arguments = data.draw(windows(tuple(q.shape[-spatial:]), dilated=False))
    arguments["count_include_pad"] = data.draw(st.booleans())
    if spatial > 1:
        arguments["divisor_override"] = data.draw(st.sampled_from([None, None, 1, 3, 7, -2, 1000]))
    expected = unmixed(AVG_POOL[spatial], oracle, spatial, **arguments)
    ours = AVG_POOL[spatial](q, **arguments)
    assert_same_lanes(ours, expected, spatial, by_vector=spatial == 3 or taken_by_vectors(oracle, spatial))
    # One place is in both layouts; and PyTorch's avg_pool3d gives channels last always, where ours keeps the layout.
    if spatial < 3 and q.shape[-spatial:].numel() > 1:
        assert_same_layout(ours, expected)
    with torch.inference_mode():
        assert_same(AVG_POOL[spatial](q, **arguments).int_repr(), ours.int_repr())


@by_spatial
@by_dtype
@examples(25)  # for each dtype, rank and instruction set
@given(data=st.data())
def test_adaptive_avg_pool(dtype, spatial, isa, data):
    q, oracle = data.draw(images(dtype, spatial, batched=True if spatial == 3 else None))
    size = tuple(data.draw(st.sampled_from([1, 1, 2, 3, 5, 7])) for _ in range(spatial))
    expected = unmixed(ADAPTIVE[spatial], oracle, spatial, output_size=size)
    ours = ADAPTIVE[spatial](q, size)
    if spatial == 3 and size == (1, 1, 1):
        assert_twins(ours, expected)  # a mean, see below
    else:
        assert_same_lanes(ours, expected, spatial, by_vector=taken_by_vectors(oracle, spatial))
        if q.shape[-spatial:].numel() > 1:  # one place is in both layouts
            assert_same_layout(ours, expected)
    with torch.inference_mode():
        assert_same(ADAPTIVE[spatial](q, size).int_repr(), ours.int_repr())


def ties(seed: int, shape: tuple[int, ...], dtype: zeropoint.QuantizedDtype) -> torch.Tensor:
    """Integers whose sum over all but the first two axes is half of a multiple of how many there are."""
    x = integers(seed, shape, dtype.torch_storage).flatten(2).to(torch.int64)
    n = x.shape[-1]
    for i in range(n):
        missing = (n // 2 - x.sum(-1)) % n
        x[..., i] += torch.minimum(missing, dtype.qmax - x[..., i])
    return x.reshape(shape).to(dtype.torch_storage)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("channels", [1, 3, 32])
@by_bytes
@examples(25)
@given(data=st.data())
def test_ties(dtype, channels, layout, isa, data):
    sides = data.draw(st.tuples(st.sampled_from([2, 4, 6, 10, 14]), st.sampled_from([2, 3, 7, 41, 47, 55])))
    zero_point = data.draw(st.integers(dtype.qmin, dtype.qmax))
    x = ties(data.draw(seeds), (3, channels, *sides), dtype)
    q, oracle = twins(x, 0.1, zero_point, dtype, layout)
    for pool in (lambda q: F.avg_pool2d(q, sides), lambda q: F.adaptive_avg_pool2d(q, 1), lambda q: q.mean((2, 3))):
        assert_twins(pool(q), pool(oracle))
    q, oracle = twins(x.unsqueeze(2), 0.1, zero_point, dtype, layout)
    assert_twins(F.avg_pool3d(q, (1, *sides)), F.avg_pool3d(oracle, (1, *sides)))
    q, oracle = twins(torch.cat([x.unsqueeze(2)] * 2, 2), 0.1, zero_point, dtype, layout)
    assert_twins(F.adaptive_avg_pool3d(q, (2, 1, 1)), F.adaptive_avg_pool3d(oracle, (2, 1, 1)))


@pytest.mark.parametrize("channels", [8, 16, 24])
def test_layouts_round_differently(channels):
    """PyTorch's own disagreement, as described in ops/pooling.py. Ours is the same for every number of channels from 8;
    in channels last PyTorch's is that of whole vectors alone, whose width depends on the CPU."""
    x = torch.tensor([3, 3, 4, 4], dtype=torch.uint8).reshape(1, 1, 2, 2).expand(1, channels, 2, 2).contiguous()
    for layout, mean in (("contiguous", 4), ("channels_last", 3)):
        q, oracle = twins(x, 1.0, 1, quint8, layout)
        assert F.avg_pool2d(q, 2).int_repr().unique().tolist() == [mean]
        assert_same_lanes(F.avg_pool2d(q, 2), F.avg_pool2d(oracle, 2), 2, by_vector=layout == "channels_last")


@by_bytes
def test_divisor_saturates(dtype, isa):
    q, oracle = twins(torch.full((1, 8, 4, 4), dtype.qmax, dtype=dtype.torch_storage), 0.5, 3, dtype)
    for divisor in (1, -1):
        ours = F.avg_pool2d(q, 4, divisor_override=divisor)
        assert_twins(ours, F.avg_pool2d(oracle, 4, divisor_override=divisor))
        assert ours.int_repr().unique().tolist() == [dtype.qmax if divisor > 0 else dtype.qmin]


@by_dtype
@examples(25)
@given(data=st.data())
def test_mean(dtype, isa, data):
    q, oracle = data.draw(images(dtype, data.draw(st.sampled_from([1, 2, 3]))))
    assume(q.numel())
    rank = q.dim()
    dims = data.draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=rank))
    dims = [d - rank if data.draw(st.booleans()) else d for d in dims]
    keepdim = data.draw(st.booleans())
    assert_nearest_mean(q, q.mean(dims, keepdim), oracle.mean(dims, keepdim), dims, keepdim)
    assert_nearest_mean(q, q.mean(), oracle.mean(), list(range(rank)), False)


def assert_nearest_mean(q, ours, oracle, dims, keepdim):
    """The integer nearest to the exact mean. Not along the innermost axes of a contiguous tensor, PyTorch adds float32
    numbers in an order of the layout and of the CPU's vectors; so ties, and they alone, may fall to either side."""
    x = q.int_repr().double()
    exact = x.mean(dims or list(range(q.dim())), keepdim)
    room = 2.0**-20 * float((x - q.q_zero_point()).abs().max() + abs(q.q_zero_point()))
    assert ((ours.int_repr() - exact).abs() <= 0.5 + room).all()
    assert_one_step(ours, oracle)
    tie = ((exact - exact.floor()) - 0.5).abs() <= room
    assert_same(ours.int_repr().masked_fill(tie, 0), oracle.int_repr().masked_fill(tie, 0))


@pytest.mark.parametrize("dims", [(-1, -2), (-2, -1), (2, 3), (3, 2)])
def test_means_over_the_places_are_means_and_pools_are_pools(dims):
    """To torch, adaptive_avg_pool2d to one place is the mean over (-1, -2). PyTorch rounds their ties apart."""
    x = torch.randint(0, 256, (64, 16, 2, 2), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    q, oracle = mine(x, 0.037, 7, quint8), theirs(x, 0.037, 7)
    means, pools = q.mean(dims, True), F.adaptive_avg_pool2d(q, 1)
    assert_nearest_mean(q, means, oracle.mean(dims, True), list(dims), True)
    assert_twins(pools, F.adaptive_avg_pool2d(oracle, 1))
    assert not torch.equal(means, pools)
    assert_same(q.mean(dim=dims, keepdim=True).int_repr(), torch.mean(q, (2, 3), True).int_repr())


@by_dtype
def test_mean_of_one_and_of_none(dtype):
    q = mine(torch.tensor(5).to(dtype.torch_storage), 0.5, 1, dtype)
    assert q.mean().int_repr().item() == 5
    empty = mine(torch.zeros(2, 0, 3, dtype=dtype.torch_storage), 0.5, 1, dtype)
    assert empty.mean(0).shape == (0, 3)
    with pytest.raises(QTensorError, match=r"axes \[1\] of shape \(2, 0, 3\) has no values"):
        empty.mean(1)
    with pytest.raises(QTensorError, match="has no values"):
        empty.mean()
    with pytest.raises(IndexError):
        q.mean(3)
    with pytest.raises(QTensorError, match="dequantize"):
        q.mean(dtype=torch.float64)


def test_a_window_too_large_for_int32_sums():
    # 2**23 inputs of 255 still fit; the formula with int64 sums takes over there.
    x = torch.full((1, 1, 1, 2**23), 255, dtype=torch.uint8)
    q = mine(x, 1.0, 0, quint8)
    assert F.adaptive_avg_pool2d(q, 1).int_repr().item() == 255
    assert q.mean().int_repr().item() == 255


# ------------------------------------------------------------------------------------------- formulas in operators


@by_bytes
@examples(40)
@given(data=st.data())
def test_formulas_without_kernels(dtype, data, monkeypatch):
    """What other devices and 32 bits use agrees with the kernels."""
    from zeropoint.ops import pooling
    from zeropoint.ops.spatial import windows as windows_of

    spatial = data.draw(st.sampled_from([1, 2, 3]))
    q, _ = data.draw(images(dtype, spatial, layouts=("contiguous", "channels_last")))
    sizes = tuple(q.shape[-spatial:])
    w = data.draw(windows(sizes, dilated=True))
    maximum = torch.ops.zeropoint.stored_max_pool(
        q.values(), w["kernel_size"], w.get("stride", ()), w["padding"], w["dilation"], w["ceil_mode"], spatial
    )
    found = windows_of("", sizes, w["kernel_size"], w.get("stride", ()), w["padding"], w["dilation"], w["ceil_mode"])
    assert_same(pooling._max_of_windows(q.values(), found), maximum)

    w = data.draw(windows(sizes, dilated=False))
    limits = (q.q_zero_point(), dtype.qmin, dtype.qmax)
    average = (w["kernel_size"], w.get("stride", ()), w["padding"], w["ceil_mode"], True, None, *limits, spatial)
    count = [data.draw(st.integers(1, 4)) for _ in sizes]
    kernels = [
        torch.ops.zeropoint.stored_average_pool(q.values(), *average),
        torch.ops.zeropoint.stored_adaptive_average_pool(q.values(), count, *limits),
        torch.ops.zeropoint.stored_mean(q.values(), spatial, *limits[1:]),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(pooling, "_INT32_WINDOW", 0)
        formulas = [
            torch.ops.zeropoint.stored_average_pool(q.values(), *average),
            torch.ops.zeropoint.stored_adaptive_average_pool(q.values(), count, *limits),
            torch.ops.zeropoint.stored_mean(q.values(), spatial, *limits[1:]),
        ]
    for formula, kernel in zip(formulas, kernels):
        assert_same(formula, kernel)
        assert formula.stride() == kernel.stride()


def test_fake_kernels():
    ops = torch.ops.zeropoint
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randint(0, 255, (2, 9, 10, 11), dtype=torch.uint8).contiguous(memory_format=layout)
        for call in (
            lambda x: ops.stored_max_pool(x, [3, 2], [2], [1, 0], [1], True, 2),
            lambda x: ops.stored_average_pool(x, [3], [2], [1], False, True, None, 3, 0, 255, 2),
            lambda x: ops.stored_adaptive_average_pool(x, [3, 4], 3, 0, 255),
            lambda x: ops.stored_mean(x, 2, 0, 255),
        ):
            real, fake = call(x), call(x.to("meta"))
            assert (real.shape, real.stride(), real.dtype) == (fake.shape, fake.stride(), fake.dtype)


@pytest.mark.parametrize(
    "call",
    [
        lambda q: F.max_pool2d(q, 3, 2, 1),
        lambda q: F.avg_pool2d(q, 2),
        lambda q: F.adaptive_avg_pool2d(q, 2),
        lambda q: F.adaptive_avg_pool2d(q, 1),
        lambda q: q.mean((2, 3)),
    ],
    ids=["max", "avg", "adaptive", "global", "mean"],
)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_compiled(call, layout):
    q, _ = twins(integers(3, (2, 8, 6, 6), torch.uint8), 0.1, 7, quint8, layout)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)(q)
    assert isinstance(compiled, QTensor)
    assert_same(compiled.int_repr(), call(q).int_repr())


# ------------------------------------------------------------------------------------- other dtypes and refusals


@pytest.mark.parametrize("dtype", [quint4x2, quint2x4], ids=lambda d: d.name)
def test_sub_byte(dtype, isa):
    x = torch.randint(0, dtype.qmax + 1, (2, 3, 5, 5), dtype=torch.uint8)
    packed = zeropoint.quantize_per_tensor(x.to(torch.float32), 1.0, 0, dtype)
    wide = mine(x, 1.0, 0, quint8)
    for pool in (lambda q: F.max_pool2d(q, 3, 2, 1), lambda q: F.avg_pool2d(q, 2), lambda q: q.mean((2, 3))):
        assert pool(packed).qdtype == dtype
        assert_same(pool(packed).dequantize(), pool(wide).dequantize())
    assert F.avg_pool2d(packed, 2, divisor_override=1).values().max() <= dtype.qmax


PER_CHANNEL_CALLS = {
    "max_pool2d": lambda q: F.max_pool2d(q, 2),
    "max_pool3d": lambda q: F.max_pool3d(q.unsqueeze(2), 1),
    "avg_pool2d": lambda q: F.avg_pool2d(q, 2),
    "avg_pool3d": lambda q: F.avg_pool3d(q.unsqueeze(2), 1),
    "adaptive_avg_pool2d": lambda q: F.adaptive_avg_pool2d(q, 2),
    "adaptive_avg_pool3d": lambda q: F.adaptive_avg_pool3d(q.unsqueeze(2), 2),
    "mean": lambda q: q.mean(),
}


@pytest.mark.parametrize("name", PER_CHANNEL_CALLS)
def test_per_channel_is_refused(name):
    x = torch.randn(2, 3, 4, 4)
    q = zeropoint.quantize_per_channel(x, torch.ones(3), torch.zeros(3, dtype=torch.int64), 1, qint8)
    with pytest.raises(QTensorError, match=rf"{name} .*per_channel_affine along axis 1.*call \.dequantize\(\) first"):
        PER_CHANNEL_CALLS[name](q)


BAD_CALLS = {
    "kernel_size must be positive, got (0, 0)": lambda q: torch.ops.aten.max_pool2d_with_indices(q, [0]),
    "stride must be positive, got (0, 0)": lambda q: torch.ops.aten.avg_pool2d(q, [2], [0]),
    "dilation must be positive, got (0, 0)": lambda q: torch.ops.aten.max_pool2d_with_indices(q, [2], [2], [0], [0]),
    "padding must be between 0 and half of the kernel, got 2 for a kernel of 3": lambda q: F.max_pool2d(q, 3, 1, 2),
    "got -1 for a kernel of 3": lambda q: F.avg_pool2d(q, 3, 1, -1),
    "too small for a kernel of (9, 9)": lambda q: F.avg_pool2d(q, 9),
    "kernel_size must be one int or 2, got [1, 2, 3]": lambda q: torch.ops.aten.avg_pool2d(q, [1, 2, 3]),
    "divisor_override must not be zero": lambda q: torch.ops.aten.avg_pool2d(q, [2], divisor_override=0),
    "3 or 4 dimensions (2 spatial ones after the channels), got shape (4, 4)": lambda q: F.max_pool2d(q[0, 0], 2),
    "output_size must be 2 positive ints, got [0, 2]": lambda q: torch.ops.aten._adaptive_avg_pool2d(q, [0, 2]),
    "has no values to average": lambda q: torch.ops.aten._adaptive_avg_pool2d(q[..., :0], [1, 2]),
}


@pytest.mark.parametrize("words", BAD_CALLS)
def test_bad_arguments(words):
    q = mine(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), 1.0, 0, quint8)
    with pytest.raises(ValueError, match=re.escape(words)):
        BAD_CALLS[words](q)


def test_one_step_is_not_two():
    q, oracle = twins(torch.tensor([5], dtype=torch.uint8), 1.0, 0, quint8)
    with pytest.raises(AssertionError):
        assert_one_step(q, theirs_plus(oracle, 2))


def theirs_plus(oracle: torch.Tensor, steps: int) -> torch.Tensor:
    return torch._make_per_tensor_quantized_tensor(oracle.int_repr() + steps, oracle.q_scale(), oracle.q_zero_point())


def test_qint32_far_from_zero(isa):
    x = torch.tensor([2**31 - 1, -(2**31), 7, 8], dtype=torch.int32).reshape(1, 1, 4)
    q = mine(x, 1.0, 0, qint32)
    assert F.max_pool1d(q, 2).int_repr().flatten().tolist() == [2**31 - 1, 8]
