"""Block observers against plain amin and amax over reshaped blocks, and PyTorch's block sizes."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from observer_pairs import FLOATS, assert_equal, ids_of_buffers
from strategies import generator, lay_out, layouts, seeds

from zeropoint.observers import (
    AffineQuantizedMinMaxObserver,
    AffineQuantizedMovingAverageMinMaxObserver,
    MappingType,
    PerAxis,
    PerBlock,
    PerGroup,
    PerRow,
    PerTensor,
    PerToken,
    ZeroPointDomain,
    get_block_size,
    is_observer,
)

EPS = torch.finfo(torch.float32).eps


def by_hand(x: torch.Tensor, block: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest and largest value of each block: cut every axis in two, reduce the inner halves."""
    split = [side for n, b in zip(x.shape, block) for side in (n // b, b)]
    inner = [2 * d + 1 for d in range(x.dim())]
    values = x.to(torch.float32).reshape(split)
    return values.amin(inner), values.amax(inner)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and a block that tiles it."""
    rank = draw(st.integers(1, 4))
    block = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    return tuple(b * draw(st.integers(1, 4)) for b in block), block


@given(data=st.data())
def test_ranges_of_blocks_are_amin_and_amax(isa, data):
    shape, block = data.draw(blocks())
    observer = AffineQuantizedMinMaxObserver(MappingType.ASYMMETRIC, torch.uint8, PerBlock(block))
    lows, highs = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        x = torch.randn(shape, generator=generator(data.draw(seeds))).to(data.draw(st.sampled_from(FLOATS)))
        x = lay_out(x, data.draw(layouts))
        assert observer(x) is x
        low, high = by_hand(x, block)
        lows.append(low)
        highs.append(high)
    assert_equal(observer.min_val, torch.stack(lows).amin(0))
    assert_equal(observer.max_val, torch.stack(highs).amax(0))
    assert observer.block_size == block


@given(data=st.data())
def test_averages_of_blocks_move_towards_each_range(data):
    shape, block = data.draw(blocks())
    c = data.draw(st.sampled_from([0.0, 0.01, 0.5, 1.0]))
    observer = AffineQuantizedMovingAverageMinMaxObserver(
        MappingType.SYMMETRIC, torch.int8, PerBlock(block), averaging_constant=c
    )
    expected = None
    for _ in range(3):
        x = torch.randn(shape, generator=generator(data.draw(seeds)))
        observer(x)
        now = torch.stack(by_hand(x, block))
        expected = now if expected is None else expected + c * (now - expected)
    assert_equal(observer.min_val, expected[0])
    assert_equal(observer.max_val, expected[1])


GRANULARITIES = {
    "tensor": (PerTensor(), (4, 6), (1, 1)),
    "axis": (PerAxis(1), (4, 1), (1, 6)),
    "last axis": (PerAxis(-1), (4, 1), (1, 6)),
    "token": (PerToken(), (1, 6), (4, 1)),
    "row": (PerRow(), (1, 6), (4, 1)),
    "group": (PerGroup(3), (1, 3), (4, 2)),
    "block": (PerBlock((2, 3)), (2, 3), (2, 2)),
}
each_granularity = pytest.mark.parametrize(
    ("granularity", "block", "grid"), GRANULARITIES.values(), ids=GRANULARITIES.keys()
)


@each_granularity
def test_granularities_are_block_sizes(granularity, block, grid):
    assert get_block_size((4, 6), granularity) == block
    observer = AffineQuantizedMinMaxObserver(MappingType.ASYMMETRIC, torch.uint8, granularity)
    observer(torch.randn(4, 6))
    assert tuple(observer.min_val.shape) == grid
    scale, zero_point = observer.calculate_qparams()
    assert tuple(scale.shape) == tuple(zero_point.shape) == grid


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4), (5,)], ids=str)
def test_block_sizes_are_the_oracles(shape):
    theirs = torch.ao.quantization.observer
    mine = [PerTensor(), PerAxis(0), PerAxis(-1), PerToken(), PerRow(), *([PerGroup(2)] if len(shape) == 2 else [])]
    for one in mine:
        arguments = [getattr(one, field) for field in one.__dataclass_fields__]
        other = getattr(theirs, type(one).__name__)(*arguments)
        assert get_block_size(shape, one) == theirs.get_block_size(shape, other)


TARGETS = [
    (torch.int8, None),
    (torch.int8, (-8, 7)),
    (torch.int8, (0, 15)),
    (torch.uint8, None),
    (torch.uint8, (0, 15)),
    (torch.int16, None),
]
# Without clipping, each side is divided by its own number of steps, so both must have some.
CASES = [
    (mapping, target, limits)
    for mapping, (target, limits) in itertools.product(MappingType, TARGETS)
    if mapping != MappingType.SYMMETRIC_NO_CLIPPING_ERR or (target != torch.uint8 and limits != (0, 15))
]


@pytest.mark.parametrize(("mapping", "target", "limits"), CASES, ids=str)
@each_granularity
def test_parameters_follow_their_formula(mapping, target, limits, granularity, block, grid):
    info = torch.iinfo(target)
    low_q, high_q = limits or (info.min, info.max)
    given = {} if limits is None else {"quant_min": low_q, "quant_max": high_q}
    observer = AffineQuantizedMinMaxObserver(mapping, target, granularity, **given)
    x = torch.randn(4, 6, generator=generator(0))
    observer(x)
    low, high = by_hand(x, block)
    low, high = low.clamp(max=0), high.clamp(min=0)
    if mapping == MappingType.ASYMMETRIC:
        scale = ((high - low) / (high_q - low_q)).clamp(min=EPS)
        zero_point = (low_q - torch.round(low / scale)).clamp(low_q, high_q)
    elif mapping == MappingType.SYMMETRIC:
        scale = (torch.maximum(-low, high) / ((high_q - low_q) / 2)).clamp(min=EPS)
        zero_point = torch.full_like(scale, (low_q + high_q + 1) // 2)
    else:
        scale = torch.maximum(low / low_q, high / high_q).clamp(min=EPS)
        zero_point = torch.zeros_like(scale)
    mine = observer.calculate_qparams()
    torch.testing.assert_close(mine[0], scale, rtol=1e-6, atol=0)
    assert_equal(mine[1], zero_point.to(torch.int32))


def test_no_clipping_means_no_value_is_clipped():
    x = torch.randn(8, 32, generator=generator(1))
    observer = AffineQuantizedMinMaxObserver(
        MappingType.SYMMETRIC_NO_CLIPPING_ERR, torch.int8, PerToken(), quant_min=-8, quant_max=7
    )
    observer(x)
    scale, _ = observer.calculate_qparams()
    q = x / scale
    assert q.min() >= -8 * (1 + 1e-6)
    assert q.max() <= 7 * (1 + 1e-6)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_answers_have_the_dtypes_asked_for_or_the_inputs(dtype):
    observer = AffineQuantizedMinMaxObserver(MappingType.ASYMMETRIC, torch.uint8, PerToken())
    observer(torch.randn(2, 3).to(dtype))
    assert observer.calculate_qparams()[0].dtype == dtype
    assert observer.calculate_qparams()[1].dtype == torch.int32
    observer = AffineQuantizedMinMaxObserver(
        MappingType.ASYMMETRIC, torch.uint8, PerToken(), scale_dtype=torch.float64, zero_point_dtype=torch.int8, eps=0.5
    )
    observer(torch.zeros(2, 3, dtype=dtype))
    scale, zero_point = observer.calculate_qparams()
    assert (scale.dtype, zero_point.dtype) == (torch.float64, torch.int8)
    assert (scale == 0.5).all()


def test_the_shape_may_vary_only_per_tensor():
    observer = AffineQuantizedMinMaxObserver(MappingType.SYMMETRIC, torch.int8, PerTensor())
    observer(torch.tensor([1.0, -2.0]))
    observer(torch.full((2, 3), 7.0))
    assert (observer.min_val.item(), observer.max_val.item()) == (-2.0, 7.0)
    observer = AffineQuantizedMinMaxObserver(MappingType.SYMMETRIC, torch.int8, PerToken())
    observer(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(2, 1\)"):
        observer(torch.ones(4, 3) * 9)
    assert observer.max_val.tolist() == [[1.0], [1.0]]
    assert observer.block_size == (1, 3)


def test_before_data_there_are_no_blocks_and_empty_tensors_are_no_data():
    observer = AffineQuantizedMinMaxObserver(MappingType.SYMMETRIC, torch.int8, PerToken())
    observer(torch.empty(0, 3))
    with pytest.raises(ValueError, match="the observer saw no data"):
        observer.calculate_qparams()


BAD = [
    (TypeError, "PerToken", lambda: get_block_size((4, 6), PerToken)),
    (TypeError, "PerToken", lambda: AffineQuantizedMinMaxObserver(MappingType.SYMMETRIC, torch.int8, PerToken)),
    (TypeError, "MappingType", lambda: AffineQuantizedMinMaxObserver("symmetric", torch.int8, PerToken())),
    (ValueError, "axis 2", lambda: get_block_size((4, 6), PerAxis(2))),
    (ValueError, r"\(1, 4\) do not tile.*\(4, 6\)", lambda: get_block_size((4, 6), PerGroup(4))),
    (ValueError, r"\(1, 0\) do not tile", lambda: get_block_size((4, 6), PerGroup(0))),
    (ValueError, r"matrices.*\(4, 6, 2\)", lambda: get_block_size((4, 6, 2), PerGroup(3))),
    (ValueError, "do not tile", lambda: get_block_size((4, 6), PerBlock((2,)))),
    (
        ValueError,
        "SYMMETRIC_NO_CLIPPING_ERR.*0.*255",
        lambda: AffineQuantizedMinMaxObserver(MappingType.SYMMETRIC_NO_CLIPPING_ERR, torch.uint8, PerToken()),
    ),
    (
        NotImplementedError,
        "PerChannelMinMaxObserver",
        lambda: AffineQuantizedMinMaxObserver(
            MappingType.ASYMMETRIC, torch.uint8, PerToken(), zero_point_domain=ZeroPointDomain.FLOAT
        ),
    ),
]


@pytest.mark.parametrize(("error", "words", "call"), BAD)
def test_what_cannot_be_is_refused_in_words(error, words, call):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    "kind", [AffineQuantizedMinMaxObserver, AffineQuantizedMovingAverageMinMaxObserver], ids=lambda k: k.__name__
)
def test_block_observers_are_modules_like_all_others(kind):
    observer = kind(MappingType.SYMMETRIC, torch.int8, PerGroup(2))
    assert is_observer(observer)
    ids = ids_of_buffers(observer)
    for seed in range(3):
        observer(torch.randn(4, 6, generator=generator(seed)))
    assert ids_of_buffers(observer) == ids
    again = kind(MappingType.SYMMETRIC, torch.int8, PerGroup(2))
    again.load_state_dict(observer.state_dict())
    for other in (again, copy.deepcopy(observer), pickle.loads(pickle.dumps(observer))):
        for a, b in itertools.zip_longest(other.calculate_qparams(), observer.calculate_qparams()):
            assert_equal(a, b)
    assert (
        kind.with_args(mapping_type=MappingType.SYMMETRIC, target_dtype=torch.int8)(granularity=PerToken()).granularity
        == PerToken()
    )
    x = torch.randn(4, 6, requires_grad=True)
    assert observer(x) is x
    assert math.prod(observer.min_val.shape) == 12


def test_a_range_of_one_block_does_not_take_a_tensor_of_several():
    observer = AffineQuantizedMinMaxObserver(MappingType.SYMMETRIC, torch.int8, PerToken())
    observer(torch.tensor([[1.0, 2.0]]))
    with pytest.raises(ValueError, match=r"\(3, 1\).*\(1, 1\)"):
        observer(torch.full((3, 2), 9.0))
    assert observer.max_val.tolist() == [[2.0]]


@pytest.mark.parametrize("elements", [0, 2])
@pytest.mark.parametrize("averaging_constant", [None, 0.5])
def test_the_operator_refuses_a_range_of_another_length(elements, averaging_constant):
    low, high = torch.full((elements,), 5.0), torch.full((elements,), 6.0)
    with pytest.raises(ValueError, match=f"{elements}.* elements.*1 blocks"):
        torch.ops.zeropoint.observe_range_(torch.ones(4), low, high, None, averaging_constant)
    assert low.tolist() == [5.0] * elements
