"""Embedding tables: packing, unpacking and bags equal torch.ops.quantized's, bit for bit, and nothing out of bounds."""

from __future__ import annotations

import itertools
import math
import warnings

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import assert_same, generator

import zeropoint
import zeropoint.ops
from zeropoint.ops import embedding

ours, theirs = torch.ops.zeropoint, torch.ops.quantized
BITS = {"byte": 8, "4bit": 4, "2bit": 2}
kinds = pytest.mark.parametrize("kind", BITS)
sub_byte = pytest.mark.parametrize("kind", ["4bit", "2bit"])
seeds = st.integers(0, 2**31)


@pytest.fixture(autouse=True)
def _quiet():
    warnings.filterwarnings("ignore")


def op(library, kind: str, what: str):
    return getattr(library, f"embedding_bag_{kind}_{what}")


def numbers(seed: int, rows: int, columns: int) -> torch.Tensor:
    """Rows of very different widths, some of one value, some with ties; no -0, whose sign as a minimum is open."""
    g = generator(seed)
    x = torch.randn(rows, columns, generator=g) * torch.exp2(torch.randint(-20, 10, (rows, 1), generator=g))
    ties = torch.randint(-8, 8, (rows, columns), generator=g).float() / 4
    kind = torch.randint(0, 8, (rows, 1), generator=g)
    x = torch.where(kind < 5, x, torch.where(kind < 7, ties, x[:, :1]))
    return x + 0.0


def whole_bytes(columns: int, kind: str) -> int:
    per_byte = 8 // BITS[kind]
    return -(-columns // per_byte) * per_byte


# ----------------------------------------------------------------------------------------------------------- packing


@kinds
@given(seed=seeds, rows=st.integers(0, 9), columns=st.integers(1, 150), half=st.booleans())
def test_packed_bytes_are_those_of_torch(kind, seed, rows, columns, half):
    x = numbers(seed, rows, whole_bytes(columns, kind))
    x = x.half() + 0.0 if half else x  # small negative values become -0
    table = op(ours, kind, "prepack")(x)
    assert_same(table, op(theirs, kind, "prepack")(x))
    assert_same(op(ours, kind, "unpack")(table), op(theirs, kind, "unpack")(table))


@kinds
@given(seed=seeds, rows=st.integers(1, 9), columns=st.integers(1, 150))
def test_packed_bytes_with_given_ranges_are_those_of_torch(kind, seed, rows, columns):
    x = numbers(seed, rows, whole_bytes(columns, kind))
    low, high = torch.aminmax(x, dim=1)
    ranges = torch.stack([low - 0.25, high + 0.5], 1)
    prepack = "prepack_with_rowwise_min_max"
    assert_same(op(ours, kind, prepack)(x, ranges), op(theirs, kind, prepack)(x, ranges))
    assert_same(op(ours, kind, prepack)(x, torch.stack([low, high], 1)), op(ours, kind, "prepack")(x))


@sub_byte
@given(seed=seeds, columns=st.integers(4, 100), nbins=st.sampled_from([200, 50, 7]), ratio=st.sampled_from([0.16, 0.5]))
def test_searched_ranges_are_those_of_torch(kind, seed, columns, nbins, ratio):
    x = torch.randn(3, whole_bytes(columns, kind), generator=generator(seed))
    table = op(ours, kind, "prepack")(x, True, nbins, ratio)
    assert_same(table, op(theirs, kind, "prepack")(x, True, nbins, ratio))
    ranges = torch.tensor([[0.0, 1.0]] * 3)
    assert_same(op(ours, kind, "prepack_with_rowwise_min_max")(x, ranges, True, nbins, ratio), table)


@sub_byte
def test_narrow_given_ranges_clip_as_torch_clips(kind):
    x, ranges = torch.randn(20, 16, generator=generator(0)), torch.tensor([[-0.5, 0.25]] * 20)
    prepack = "prepack_with_rowwise_min_max"
    assert_same(op(ours, kind, prepack)(x, ranges), op(theirs, kind, prepack)(x, ranges))


def test_bytes_beyond_a_given_range_stand_at_its_ends_where_torch_wraps_around():
    x, ranges = torch.tensor([[-9.0, 0.0, 1.0, 9.0]]), torch.tensor([[0.0, 1.0]])
    table = ours.embedding_bag_byte_prepack_with_rowwise_min_max(x, ranges)
    assert table[0, :4].tolist() == [0, 0, 255, 255]


@kinds
def test_rows_of_any_number_of_dimensions_and_layout_are_packed(kind):
    x = numbers(3, 24, 8)
    table = op(ours, kind, "prepack")(x)
    width = table.shape[1]
    for layout in (x.reshape(2, 3, 4, 8), x.t().contiguous().t(), torch.cat([x, x], 1)[:, :8]):
        assert_same(op(ours, kind, "prepack")(layout).reshape(24, width), table)
    assert_same(op(ours, kind, "prepack")(x[0]), table[0])
    assert_same(op(ours, kind, "prepack")(x[:1].expand(5, 8)), table[:1].expand(5, width))
    assert_same(op(ours, kind, "prepack")(x.bfloat16()), op(ours, kind, "prepack")(x.bfloat16().float()))
    plain = op(ours, kind, "unpack")(table)
    for layout in (table.reshape(2, 3, 4, width), table.t().contiguous().t(), torch.cat([table, table], 1)[:, :width]):
        assert_same(op(ours, kind, "unpack")(layout).reshape(24, 8), plain)


@kinds
def test_empty_tables_are_packed(kind):
    assert_same(op(ours, kind, "prepack")(torch.empty(0, 8)), op(theirs, kind, "prepack")(torch.empty(0, 8)))
    table = op(ours, kind, "prepack")(torch.empty(3, 0))
    assert table.shape == (3, embedding.parameter_bytes(BITS[kind]))
    assert op(ours, kind, "unpack")(table).shape == (3, 0)


@kinds
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_is_refused_by_number(kind, number):
    x = torch.randn(100, 64, generator=generator(0))
    x[70, 13] = number
    with pytest.raises(ValueError, match=rf"embedding_bag_{kind}_prepack: row 70 .*no finite scale"):
        op(ours, kind, "prepack")(x)


@sub_byte
def test_a_range_beyond_float16_is_refused(kind):
    with pytest.raises(ValueError, match=r"row 0 ranges from -100000.0 to 100000.0.*float16"):
        op(ours, kind, "prepack")(torch.tensor([[-1e5, 1e5, 0.0, 1.0]]))


@sub_byte
def test_rows_that_are_not_whole_bytes_are_refused(kind):
    with pytest.raises(ValueError, match=f"multiple of {8 // BITS[kind]} columns.*got 7: pad it"):
        op(ours, kind, "prepack")(torch.randn(2, 7))
    with pytest.raises(ValueError, match="nbins must be at least 1 and ratio"):
        op(ours, kind, "prepack")(torch.randn(2, 8), True, 0)
    with pytest.raises(ValueError, match="nbins must be at least 1 and ratio"):
        op(ours, kind, "prepack")(torch.randn(2, 8), True, 200, 1.5)


@kinds
def test_what_cannot_be_packed_or_unpacked_is_refused(kind):
    with pytest.raises(TypeError, match="weight must be one of float32, float16, bfloat16, got float64"):
        op(ours, kind, "prepack")(torch.randn(2, 8).double())
    with pytest.raises(ValueError, match="at least one dimension"):
        op(ours, kind, "prepack")(torch.tensor(1.0))
    prepack = op(ours, kind, "prepack_with_rowwise_min_max")
    with pytest.raises(ValueError, match=r"rowwise_min_max must have shape \(2, 2\), got \(3, 2\)"):
        prepack(torch.randn(2, 8), torch.zeros(3, 2))
    with pytest.raises(TypeError, match="rowwise_min_max must be one of"):
        prepack(torch.randn(2, 8), torch.zeros(2, 2, dtype=torch.int32))
    with pytest.raises(TypeError, match="weight must be one of uint8, got float32"):
        op(ours, kind, "unpack")(torch.randn(2, 20))
    for shape in ((2, 3), ()):
        with pytest.raises(ValueError, match="bytes of scale and bias"):
            op(ours, kind, "unpack")(torch.zeros(shape, dtype=torch.uint8))


# -------------------------------------------------------------------------------------------------------------- bags


def cut(seed: int, count: int, bags: int) -> torch.Tensor:
    """Where bags begin, with empty ones among them."""
    inner = torch.randint(0, count + 1, (bags - 1,), generator=generator(seed)).sort().values
    return torch.cat([torch.zeros(1, dtype=torch.int64), inner])


@kinds
@given(
    seed=seeds,
    columns=st.integers(1, 200),
    count=st.integers(0, 90),
    bags=st.integers(1, 12),
    wide=st.tuples(st.booleans(), st.booleans()),
    weighted=st.booleans(),
    pruned=st.booleans(),
    last=st.booleans(),
)
def test_sums_are_those_of_torch(kind, seed, columns, count, bags, wide, weighted, pruned, last):
    g = generator(seed)
    table = op(ours, kind, "prepack")(numbers(seed, 30, whole_bytes(columns, kind)))
    indices = torch.randint(0, 30, (count,), generator=g).to(torch.int64 if wide[0] else torch.int32)
    offsets = cut(seed, count, bags)
    offsets = torch.cat([offsets, torch.tensor([count])]) if last else offsets
    offsets = offsets.to(torch.int64 if wide[1] else torch.int32)
    weights = torch.randn(count, generator=g) if weighted else None
    mapping = torch.randint(-1, 30, (30,), generator=g, dtype=torch.int32) if pruned else None
    arguments = table, indices, offsets, False, 0, pruned, weights, mapping, last
    assert_same(op(ours, kind, "rowwise_offsets")(*arguments), op(theirs, kind, "rowwise_offsets")(*arguments))


@kinds
def test_sums_are_those_of_torch_with_several_threads(kind):
    g = generator(1)
    table = op(ours, kind, "prepack")(torch.randn(500, 68, generator=g))
    indices, offsets = torch.randint(0, 500, (20_000,), generator=g), cut(2, 20_000, 300)
    offsets[-5:] = 20_000  # empty bags at the end
    weights = torch.randn(20_000, generator=g)
    threads = zeropoint.get_num_threads()
    arguments = table, indices, offsets, False, 0, False, weights
    expected = op(theirs, kind, "rowwise_offsets")(*arguments)
    try:
        for n in (1, 2, 5):
            zeropoint.set_num_threads(n)
            assert_same(op(ours, kind, "rowwise_offsets")(*arguments), expected)
    finally:
        zeropoint.set_num_threads(threads)


@kinds
def test_rows_of_indices_are_bags(kind):
    table = op(ours, kind, "prepack")(numbers(0, 30, 20))
    indices = torch.randint(0, 30, (6, 5), generator=generator(0))
    expected = op(theirs, kind, "rowwise_offsets")(table, indices)
    bags = op(ours, kind, "rowwise_offsets")
    assert_same(bags(table, indices), expected)
    assert_same(bags(table, indices.t().contiguous().t()), expected)
    assert_same(bags(table.t().contiguous().t(), indices), expected)
    assert_same(bags(table, indices.flatten(), torch.arange(0, 30, 5)), expected)
    weights = torch.rand(6, 5)
    assert_same(
        bags(table, indices, None, False, 0, False, weights),
        bags(table, indices.flatten(), torch.arange(0, 30, 5), False, 0, False, weights.flatten()),
    )
    assert_same(bags(table, indices[:, :0]), torch.zeros(6, 20))
    assert bags(table, indices[:0]).shape == (0, 20)


@sub_byte
def test_half_weights_count_as_torch_counts_them(kind):
    table = op(ours, kind, "prepack")(numbers(0, 30, 20))
    weights = torch.randn(10, generator=generator(0)).half()
    arguments = table, torch.arange(10), torch.tensor([0, 3]), False, 0, False, weights
    assert_same(op(ours, kind, "rowwise_offsets")(*arguments), op(theirs, kind, "rowwise_offsets")(*arguments))


@kinds
@given(seed=seeds, columns=st.integers(1, 80), count=st.integers(0, 40), bags=st.integers(1, 6), pruned=st.booleans())
def test_mean_and_maximum_are_those_of_the_dequantized_rows(kind, seed, columns, count, bags, pruned):
    g = generator(seed)
    table = op(ours, kind, "prepack")(torch.randn(30, whole_bytes(columns, kind), generator=g))
    plain = torch.cat([op(ours, kind, "unpack")(table), torch.zeros(1, whole_bytes(columns, kind))])
    indices, offsets = torch.randint(0, 30, (count,), generator=g), cut(seed, count, bags)
    mapping = torch.randint(-1, 30, (30,), generator=g, dtype=torch.int32) if pruned else None
    rows = plain[mapping[indices].long() if pruned else indices]
    arguments = False, pruned, None, mapping
    sums = op(ours, kind, "rowwise_offsets")(table, indices, offsets, False, 0, *arguments[1:])
    means = op(ours, kind, "rowwise_offsets")(table, indices, offsets, False, 1, *arguments[1:])
    largest = op(ours, kind, "rowwise_offsets")(table, indices, offsets, False, 2, *arguments[1:])
    ends = [*offsets.tolist(), count]
    for bag, (begin, end) in enumerate(itertools.pairwise(ends)):
        some = rows[begin:end]
        if begin == end:
            some = torch.zeros(1, rows.shape[1])
        assert_same(means[bag], sums[bag] / max(end - begin, 1))
        torch.testing.assert_close(means[bag].double(), some.double().mean(0), rtol=1e-5, atol=1e-5)
        assert torch.equal(largest[bag], some.amax(0))


@kinds
def test_a_mapping_of_a_single_zero_prunes_nothing(kind):
    table, indices, offsets = op(ours, kind, "prepack")(numbers(0, 9, 8)), torch.arange(9), torch.tensor([0])
    bags = op(ours, kind, "rowwise_offsets")
    none = torch.zeros(1, dtype=torch.int32)
    assert_same(bags(table, indices, offsets, False, 0, True, None, none), bags(table, indices, offsets))
    mapping = torch.full((9,), -1, dtype=torch.int32)
    assert_same(bags(table, indices, offsets, False, 0, False, None, mapping), bags(table, indices, offsets))
    assert_same(bags(table, indices, offsets, False, 0, True, None, mapping), torch.zeros(1, 8))


@kinds
@given(seed=seeds, columns=st.integers(1, 200), shape=st.sampled_from([(0,), (7,), (3, 4), (2, 3, 2), ()]))
def test_lookups_are_rows_of_the_unpacked_table(kind, seed, columns, shape):
    table = op(ours, kind, "prepack")(numbers(seed, 30, whole_bytes(columns, kind)))
    indices = torch.randint(0, 30, shape, generator=generator(seed))
    expected = op(ours, kind, "unpack")(table)[indices]
    for dtype in (torch.int64, torch.int32):
        assert torch.equal(getattr(ours, f"embedding_{kind}")(table, indices.to(dtype)), expected)


# --------------------------------------------------------------------------------------------------------- refusals

TABLES = {kind: op(ours, kind, "prepack")(torch.randn(10, 8, generator=generator(0))) for kind in BITS}


@kinds
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("index", [-1, 10, -(2**31), 2**31 - 1])
def test_an_index_without_a_row_is_refused_with_its_bag(kind, dtype, index):
    indices, offsets = torch.tensor([1, 2, 3, index, 4], dtype=dtype), torch.tensor([0, 0, 2])
    with pytest.raises(
        IndexError, match=rf"index {index} is out of range for a table of 10 rows \(position 3, bag 2\)"
    ):
        op(ours, kind, "rowwise_offsets")(TABLES[kind], indices, offsets)
    with pytest.raises(
        IndexError, match=rf"index {index} is out of range for a table of 10 rows \(position 3, bag 0\)"
    ):
        op(ours, kind, "rowwise_offsets")(TABLES[kind], indices[None])
    with pytest.raises(IndexError, match=rf"embedding_{kind}: index {index} .* 10 rows"):
        getattr(ours, f"embedding_{kind}")(TABLES[kind], indices)


@kinds
def test_the_first_of_many_bad_indices_is_named_whatever_the_threads(kind):
    indices = torch.zeros(20_000, dtype=torch.int64)
    indices[[7_000, 12_000, 19_999]] = torch.tensor([2**62, -5, 10])
    with pytest.raises(IndexError, match=rf"index {2**62} .*position 7000, bag 70\)"):
        op(ours, kind, "rowwise_offsets")(TABLES[kind], indices, torch.arange(0, 20_000, 100))
    with pytest.raises(IndexError, match=rf"index {2**62} .*position 7000, bag 700\)"):
        op(ours, kind, "rowwise_offsets")(TABLES[kind], indices.reshape(2000, 10))


@kinds
def test_an_empty_table_has_no_row(kind):
    table = TABLES[kind][:0]
    with pytest.raises(IndexError, match="index 0 is out of range for a table of 0 rows"):
        op(ours, kind, "rowwise_offsets")(table, torch.tensor([0]), torch.tensor([0]))
    assert_same(op(ours, kind, "rowwise_offsets")(table, torch.tensor([0])[:0], torch.tensor([0])), torch.zeros(1, 8))


@kinds
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize(
    ("offsets", "last", "message"),
    [
        ([1, 2], False, r"offsets\[0\] is 1; the first bag must begin at 0"),
        ([-1, 2], False, r"offsets\[0\] is -1; the first bag must begin at 0"),
        ([0, 3, 2], False, r"offsets\[2\] is 2, before 3, where bag 1 begins; they must not decrease"),
        ([0, -2], False, r"offsets\[1\] is -2, before 0"),
        ([0, 6], False, r"offsets\[1\] is 6, but there are only 5 indices"),
        ([0, 6], True, r"offsets\[1\] is 6, but there are only 5 indices"),
        ([0, 4], True, "the last offset must be the number of indices, 5, got 4"),
        ([], False, "there are no bags, but 5 indices"),
        ([], True, "with include_last_offset there is at least one offset"),
    ],
)
def test_offsets_that_do_not_cut_the_indices_are_refused(kind, dtype, offsets, last, message):
    offsets = torch.tensor(offsets, dtype=dtype)
    with pytest.raises(ValueError, match=f"embedding_bag_{kind}_rowwise_offsets: .*{message}"):
        op(ours, kind, "rowwise_offsets")(TABLES[kind], torch.arange(5), offsets, False, 0, False, None, None, last)


@kinds
def test_mappings_that_lead_nowhere_are_refused(kind):
    def run(index, mapping, dtype=torch.int32):
        mapping = None if mapping is None else torch.tensor(mapping, dtype=dtype)
        indices = torch.tensor([0, index])
        return op(ours, kind, "rowwise_offsets")(
            TABLES[kind], indices, torch.tensor([0]), False, 0, True, None, mapping
        )

    with pytest.raises(IndexError, match="index 2 is out of range for a compressed_indices_mapping of 2 entries"):
        run(2, [0, 1])
    with pytest.raises(IndexError, match="index -1 is out of range for a compressed_indices_mapping of 2 entries"):
        run(-1, [0, 1])
    with pytest.raises(
        IndexError, match=r"compressed_indices_mapping\[1\] = 10 is out of range for a table of 10 rows"
    ):
        run(1, [0, 10])
    with pytest.raises(IndexError, match=r"compressed_indices_mapping\[1\] = -2 is out of range"):
        run(1, [0, -2])
    with pytest.raises(ValueError, match=r"an entry for each index, got shape \(0,\)"):
        run(1, [])
    with pytest.raises(ValueError, match="pruned_weights needs compressed_indices_mapping"):
        run(1, None)
    with pytest.raises(TypeError, match="compressed_indices_mapping must be one of int32, got int64"):
        run(1, [0, 1], torch.int64)
    with pytest.raises(ValueError, match="compressed_indices_mapping must have 1 dimension"):
        run(1, [[0, 1]])


@kinds
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"weight": torch.zeros(3, 20)}, TypeError, "weight must be one of uint8, got float32"),
        ({"weight": torch.zeros(2, 3, 20, dtype=torch.uint8)}, ValueError, "two dimensions, got shape"),
        ({"weight": torch.zeros(2, 3, dtype=torch.uint8)}, ValueError, "bytes of scale and bias"),
        ({"indices": torch.zeros(4)}, TypeError, "indices must be one of int64, int32, got float32"),
        ({"indices": torch.zeros(4, dtype=torch.int16)}, TypeError, "got int16"),
        ({"indices": torch.zeros((), dtype=torch.int64)}, ValueError, "1 or 2 dimensions"),
        ({"indices": torch.zeros(2, 2, 1, dtype=torch.int64)}, ValueError, "1 or 2 dimensions"),
        ({"indices": torch.zeros(2, 2, dtype=torch.int64)}, ValueError, "so offsets cannot be passed"),
        (
            {"indices": torch.zeros(2, 2, dtype=torch.int64), "offsets": None, "include_last_offset": True},
            ValueError,
            "so include_last_offset cannot be passed",
        ),
        ({"offsets": None}, ValueError, "1-D indices need offsets"),
        ({"offsets": torch.zeros(1)}, TypeError, "offsets must be one of int64, int32"),
        ({"offsets": torch.zeros(1, 1, dtype=torch.int64)}, ValueError, "offsets must have 1 dimension"),
        ({"mode": 3}, ValueError, r"mode must be 0 \(sum\), 1 \(mean\) or 2 \(max\), got 3"),
        ({"mode": 1, "per_sample_weights": torch.ones(4)}, ValueError, r"for mode 0 \(sum\), got mode 1 \(mean\)"),
        ({"per_sample_weights": torch.ones(3)}, ValueError, r"shape of indices, \(4,\), got \(3,\)"),
        ({"per_sample_weights": torch.ones(4).double()}, TypeError, "per_sample_weights must be one of"),
    ],
)
def test_arguments_that_describe_no_bags_are_refused(kind, changes, error, message):
    arguments = {"weight": TABLES[kind], "indices": torch.arange(4), "offsets": torch.tensor([0])}
    with pytest.raises(error, match=f"embedding_bag_{kind}_rowwise_offsets: .*{message}"):
        op(ours, kind, "rowwise_offsets")(**{**arguments, **changes})
    if "indices" in changes and error is TypeError:
        with pytest.raises(TypeError, match=message):
            getattr(ours, f"embedding_{kind}")(TABLES[kind], changes["indices"])
