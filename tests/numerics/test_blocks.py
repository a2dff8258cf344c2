"""Which elements share a scale: block shapes, expansion, and the grid that kernels walk."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import LAYOUTS, lay_out

from zeropoint.numerics import blocks
from zeropoint.numerics.affine import minmax

SHAPE = (2, 3, 4, 6)


@pytest.mark.parametrize(
    ("block", "counts"),
    [
        (blocks.per_tensor(SHAPE), (1, 1, 1, 1)),
        (blocks.per_channel(SHAPE, 1), (1, 3, 1, 1)),
        (blocks.per_token(SHAPE), (2, 3, 4, 1)),
        (blocks.per_group(SHAPE, 2), (2, 3, 4, 3)),
        ((1, 3, 2, 3), (2, 1, 2, 2)),
    ],
    ids=["tensor", "channel", "token", "group", "block"],
)
def test_every_scheme_is_a_block_shape(block, counts):
    assert blocks.blocks_along(SHAPE, block) == counts
    parameters = torch.arange(torch.Size(counts).numel())
    spread = blocks.expand(parameters, SHAPE, block).expand(SHAPE)
    by_hand = parameters.reshape(counts)
    for axis, size in enumerate(block):
        by_hand = by_hand.repeat_interleave(size, dim=axis)
    assert torch.equal(spread, by_hand)


@pytest.mark.parametrize("shape", [(1, 0), (0, 1), (3, 0), (0, 3)], ids=str)
def test_an_empty_tensor_still_has_its_channels_and_tokens(shape):
    """As many parameters as the axis has indices, though no element uses them."""
    for axis in (0, 1):
        assert torch.Size(blocks.blocks_along(shape, blocks.per_channel(shape, axis))).numel() == shape[axis]
    assert torch.Size(blocks.blocks_along(shape, blocks.per_token(shape))).numel() == shape[0]


@st.composite
def blocked(draw):
    rank = draw(st.integers(1, 4))
    counts = draw(st.tuples(*[st.integers(1, 4)] * rank))
    block = draw(st.tuples(*[st.integers(1, 5)] * rank))
    return tuple(c * b for c, b in zip(counts, block)), block, counts


@given(case=blocked(), layout=st.sampled_from(LAYOUTS))
def test_the_grid_finds_the_parameters_of_every_element(case, layout):
    """Walk memory as a kernel does; the parameter index must be the one of the element that lies there."""
    shape, block, counts = case
    indices = torch.arange(torch.Size(counts).numel())
    x = blocks.expand(indices, shape, block).expand(shape)
    x = blocks.dense(lay_out(x.contiguous(), layout if layout != "expanded" else "sliced"))
    found = blocks.grid(x, block)
    if found is None:
        x = x.contiguous()
        found = blocks.grid(x, block)
    assert found is not None
    rows, segments, length, row_stride, row_base = found.native
    assert rows * segments * length == x.numel()
    assert found.parts == indices.numel()
    base = torch.arange(rows) * row_stride if row_base == 0 else found.row_base
    walked = (base.view(rows, 1, 1) + torch.arange(segments).view(1, segments, 1)).expand(rows, segments, length)
    memory = torch.as_strided(x, (x.numel(),), (1,))
    assert torch.equal(walked.reshape(-1), memory)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_copies_only_what_has_gaps(layout):
    x = lay_out(torch.randn(2, 3, 4, 5), layout)
    y = blocks.dense(x)
    assert torch.equal(x, y)
    assert blocks.is_dense(y)
    assert (y is x) == (layout not in ("sliced", "expanded"))
    assert y.stride() == torch.empty_like(x).stride()


@given(case=blocked(), layout=st.sampled_from(LAYOUTS))
def test_minmax_of_blocks_is_amin_and_amax(isa, case, layout):
    shape, block, counts = case
    x = lay_out(torch.randn(shape), layout)
    low, high = minmax(x, block)
    sides = [side for c, b in zip(counts, block) for side in (c, b)]
    inside = list(range(1, len(sides), 2))
    assert torch.equal(low, x.reshape(sides).amin(inside).reshape(-1))
    assert torch.equal(high, x.reshape(sides).amax(inside).reshape(-1))
