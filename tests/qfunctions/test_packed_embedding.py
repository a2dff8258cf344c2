"""Packed embedding tables against torch's, as objects, and with the 2-bit values that torch has not."""

from __future__ import annotations

import warnings

import hypothesis.strategies as st
import pytest
import torch
from forked import run_forked
from hypothesis import given
from saving import WAYS
from strategies import assert_same, generator

import zeropoint
from zeropoint import qfunctions

theirs = torch.ops.quantized
DTYPES = {"byte": "quint8", "4bit": "quint4x2", "2bit": "quint2x4"}
BITS = {"byte": 8, "4bit": 4, "2bit": 2}
kinds = pytest.mark.parametrize("kind", DTYPES)
torch_kinds = pytest.mark.parametrize("kind", ["byte", "4bit"])


@pytest.fixture(autouse=True)
def _quiet():
    warnings.filterwarnings("ignore")


def parameters(weight: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = torch.aminmax(weight, dim=1)
    scales = (high - low).clamp(min=1e-3) / (2 ** BITS[kind] - 1)
    return scales, -low / scales


def ours_of(weight: torch.Tensor, kind: str):
    dtype = getattr(zeropoint, DTYPES[kind])
    return zeropoint.quantize_per_channel(weight, *parameters(weight, kind), 0, dtype)


def theirs_of(weight: torch.Tensor, kind: str):
    return torch.quantize_per_channel(weight, *parameters(weight, kind), 0, getattr(torch, DTYPES[kind]))


def weight(seed: int = 0, rows: int = 20, columns: int = 12) -> torch.Tensor:
    return torch.randn(rows, columns, generator=generator(seed))


def packed(kind: str, columns: int = 12) -> qfunctions.EmbeddingPackedParams:
    return qfunctions.embedding_bag_prepack(ours_of(weight(columns=columns), kind))


@torch_kinds
@given(seed=st.integers(0, 2**31), columns=st.integers(1, 100), weighted=st.booleans(), pruned=st.booleans())
def test_lookups_and_bags_are_those_of_torch(kind, seed, columns, weighted, pruned):
    columns *= 2 if kind == "4bit" else 1
    w, g = weight(seed, 20, columns), generator(seed)
    mine, other = qfunctions.embedding_bag_prepack(ours_of(w, kind)), theirs.embedding_bag_prepack(theirs_of(w, kind))
    indices = torch.randint(0, 20, (24,), generator=g)
    name = f"embedding_{kind}"
    assert_same(getattr(qfunctions, name)(mine, indices), getattr(theirs, name)(other, indices))
    grid = indices.reshape(4, 6)
    assert_same(getattr(qfunctions, name)(mine, grid), getattr(theirs, name)(other, grid))
    mapping = torch.randint(-1, 20, (20,), generator=g, dtype=torch.int32) if pruned else None
    weights = torch.randn(24, generator=g) if weighted else None
    arguments = indices, torch.tensor([0, 5, 5, 20]), False, 0, pruned, weights, mapping, False
    name = f"embedding_bag_{kind}"
    assert_same(getattr(qfunctions, name)(mine, *arguments), getattr(theirs, name)(other, *arguments))


@kinds
@pytest.mark.parametrize("columns", [1, 3, 7, 12, 65])
def test_a_row_is_what_it_dequantizes_to_whatever_the_columns(kind, columns):
    w = ours_of(weight(columns=columns), kind)
    table = qfunctions.embedding_bag_prepack(w)
    indices = torch.tensor([[3, 0], [19, 3]])
    lookup, bag = getattr(qfunctions, f"embedding_{kind}"), getattr(qfunctions, f"embedding_bag_{kind}")
    plain = w.dequantize()
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if kind == "byte" else {"rtol": 2e-3, "atol": 2e-3}  # float16 parameters
    torch.testing.assert_close(lookup(table, indices), plain[indices], **tolerance)
    for mode, name in enumerate(("sum", "mean", "max")):
        expected = torch.nn.functional.embedding_bag(indices, plain, mode=name)
        torch.testing.assert_close(bag(table, indices, mode=mode), expected, **tolerance)


@kinds
def test_the_plain_table_gives_what_the_packed_object_gives(kind):
    table, indices = packed(kind), torch.arange(20).reshape(4, 5)
    graph = torch.ops.zeropoint
    expected = getattr(qfunctions, f"embedding_bag_{kind}")(table, indices)
    assert_same(getattr(graph, f"embedding_bag_{kind}_rowwise_offsets")(table.table(), indices), expected)
    expected = getattr(qfunctions, f"embedding_{kind}")(table, indices)
    assert_same(getattr(graph, f"embedding_{kind}")(table.table(), indices), expected)


def test_a_plain_table_has_whole_bytes():
    with pytest.raises(ValueError, match="7 columns of 4 bits are not whole bytes: pad the weight"):
        packed("4bit", columns=7).table()


# ----------------------------------------------------------------------------------------------------------- objects


def assert_same_quantized(a, b) -> None:
    assert (a.dtype, a.shape, a.qscheme()) == (b.dtype, b.shape, b.qscheme())
    assert_same(a.int_repr(), b.int_repr())
    assert_same(a.q_per_channel_scales(), b.q_per_channel_scales())
    assert_same(a.q_per_channel_zero_points(), b.q_per_channel_zero_points())


@kinds
@pytest.mark.parametrize("columns", [12, 7])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_copy_unpacks_to_the_weight_that_was_packed(kind, columns, way):
    w = ours_of(weight(columns=columns), kind)
    again = way(qfunctions.embedding_bag_prepack(w))
    assert_same_quantized(qfunctions.embedding_bag_unpack(again), w)
    assert (again.bit_rate(), again.version()) == (BITS[kind], 1)
    indices = torch.arange(20)
    lookup = getattr(qfunctions, f"embedding_{kind}")
    assert_same(lookup(again, indices), lookup(qfunctions.embedding_bag_prepack(w), indices))


def test_a_packed_table_is_loaded_where_only_zeropoint_was_imported(tmp_path):
    torch.save(packed("4bit"), tmp_path / "table.pt")
    code = f"import torch, zeropoint; print(torch.load({str(tmp_path / 'table.pt')!r}, weights_only=True))"
    done = run_forked(code)
    assert done.stdout.strip() == "EmbeddingPackedParams(rows=20, columns=12, zeropoint.quint4x2)"


def test_the_packed_table_is_a_copy():
    w = ours_of(weight(), "byte")
    table = qfunctions.embedding_bag_prepack(w)
    before = qfunctions.embedding_byte(table, torch.arange(20))
    w.int_repr().zero_()
    table.unpack().int_repr().zero_()
    assert_same(qfunctions.embedding_byte(table, torch.arange(20)), before)


@kinds
def test_a_weight_in_another_layout_is_packed_alike(kind):
    w = ours_of(weight(), kind)
    other = ours_of(weight().t().contiguous().t(), kind)
    assert_same(qfunctions.embedding_bag_prepack(other).table(), qfunctions.embedding_bag_prepack(w).table())


# --------------------------------------------------------------------------------------------------------- refusals


def test_weights_that_are_no_embedding_tables_are_refused():
    w, quint8 = weight(), zeropoint.quint8
    prepack = qfunctions.embedding_bag_prepack
    with pytest.raises(TypeError, match="must be a quantized tensor, got Tensor"):
        prepack(w)
    with pytest.raises(TypeError, match="must be quint8 or quint4x2 or quint2x4, got qint8"):
        prepack(zeropoint.quantize_per_channel(w, torch.ones(20), torch.zeros(20), 0, zeropoint.qint8))
    with pytest.raises(ValueError, match="float zero points for each row"):
        prepack(zeropoint.quantize_per_tensor(w, 0.1, 0, quint8))
    with pytest.raises(ValueError, match="float zero points for each row"):
        prepack(zeropoint.quantize_per_channel(w, torch.ones(20), torch.zeros(20, dtype=torch.int64), 0, quint8))
    with pytest.raises(ValueError, match="along axis 1"):
        prepack(zeropoint.quantize_per_channel(w, torch.ones(12), torch.zeros(12), 1, quint8))
    with pytest.raises(ValueError, match=r"must be \(rows, columns\)"):
        prepack(zeropoint.quantize_per_channel(w.reshape(2, 10, 12), torch.ones(2), torch.zeros(2), 0, quint8))
    with pytest.raises(ValueError, match=r"row 0 has scale 100000.0 .*float16"):
        prepack(zeropoint.quantize_per_channel(w, torch.full((20,), 1e5), torch.zeros(20), 0, zeropoint.quint4x2))


@kinds
def test_tables_of_another_width_and_plain_tensors_are_refused(kind):
    other = packed("4bit" if kind != "4bit" else "byte")
    indices = torch.tensor([0])
    for name, rest in ((f"embedding_{kind}", ()), (f"embedding_bag_{kind}", (indices,))):
        with pytest.raises(
            ValueError, match=f"{name}: weight has {other.bit_rate()}-bit values, expected {BITS[kind]}"
        ):
            getattr(qfunctions, name)(other, indices, *rest)
        with pytest.raises(TypeError, match=f"{name}: weight must be an EmbeddingPackedParams, got Tensor"):
            getattr(qfunctions, name)(torch.zeros(2, 20, dtype=torch.uint8), indices, *rest)
    with pytest.raises(ValueError, match="pruned_weights needs a mapping"):
        getattr(qfunctions, f"embedding_{kind}")(packed(kind), indices, pruned_weights=True)
    with pytest.raises(IndexError, match=f"embedding_bag_{kind}: index 20 is out of range for a table of 20 rows"):
        getattr(qfunctions, f"embedding_bag_{kind}")(packed(kind), torch.tensor([20]), indices)
