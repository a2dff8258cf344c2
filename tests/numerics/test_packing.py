"""Sub-byte packing: layout, round trips for every width, bad input."""

from __future__ import annotations

import pytest
import torch
from strategies import generator, lay_out

from zeropoint.numerics.packing import pack, packed_columns, unpack

bit_widths = pytest.mark.parametrize("bits", [2, 4])


def by_hand(values: torch.Tensor, bits: int) -> torch.Tensor:
    """One byte at a time, low bits first."""
    per_byte = 8 // bits
    rows = []
    for row in values.reshape(-1, values.shape[-1]).tolist():
        row = row + [0] * (-len(row) % per_byte)
        rows.append(
            [sum(v << (bits * k) for k, v in enumerate(row[i : i + per_byte])) for i in range(0, len(row), per_byte)]
        )
    return torch.tensor(rows, dtype=torch.uint8).reshape(*values.shape[:-1], packed_columns(values.shape[-1], bits))


def random(bits: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 1 << bits, shape, generator=generator(seed), dtype=torch.uint8)


@bit_widths
def test_every_row_length_round_trips_and_lies_low_bits_first(isa, bits):
    for columns in range(1, 301):
        values = random(bits, 3, columns, seed=columns)
        packed = pack(values, bits)
        assert packed.shape == (3, -(-columns * bits // 8))
        assert torch.equal(packed, by_hand(values, bits))
        assert torch.equal(unpack(packed, columns, bits), values)


@bit_widths
def test_large_matrices_round_trip(isa, bits):
    values = random(bits, 300, 997)
    assert torch.equal(unpack(pack(values, bits), 997, bits), values)
    values = random(bits, 3, 100_003)
    assert torch.equal(unpack(pack(values, bits), 100_003, bits), values)


@bit_widths
def test_every_byte_unpacks_to_its_own_values(isa, bits):
    every = torch.arange(256, dtype=torch.uint8)
    values = unpack(every, 256 * 8 // bits, bits).reshape(256, 8 // bits)
    for k in range(8 // bits):
        assert torch.equal(values[:, k], (every >> (bits * k)) & ((1 << bits) - 1))
    assert torch.equal(pack(values, bits).reshape(-1), every)


@bit_widths
def test_padding_bits_are_zero_when_packed_and_ignored_when_unpacked(isa, bits):
    columns = 8 // bits + 1
    full = (1 << bits) - 1
    packed = pack(torch.full((1, columns), full, dtype=torch.uint8), bits)
    assert packed.tolist() == [[255, full]]
    packed[0, 1] = 255
    assert unpack(packed, columns, bits).tolist() == [[full] * columns]


@bit_widths
@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (0, 5), (5, 0), (1, 1, 1, 9)], ids=str)
def test_any_rank_is_packed_along_its_last_axis(isa, bits, shape):
    values = random(bits, *shape)
    packed = pack(values, bits)
    assert packed.shape == (*shape[:-1], packed_columns(shape[-1], bits))
    assert torch.equal(unpack(packed, shape[-1], bits), values)


@bit_widths
@pytest.mark.parametrize("layout", ["permuted", "sliced", "expanded", "offset"])
def test_any_layout_packs_as_contiguous(isa, bits, layout):
    values = lay_out(random(bits, 6, 37), layout)
    packed = pack(values, bits)
    assert torch.equal(packed, pack(values.contiguous(), bits))
    assert torch.equal(unpack(lay_out(packed, "sliced"), 37, bits), values)


@bit_widths
def test_bytes_are_those_of_quantized_tensors(isa, bits):
    """quint4x2 and quint2x4 of PyTorch store values in the same order (but no row of them is padded)."""
    dtype = {4: torch.quint4x2, 2: torch.quint2x4}[bits]
    for columns in (4, 8, 12, 32, 64):
        values = random(bits, 4, columns, seed=columns)
        quantized = torch.quantize_per_channel(values.float(), torch.ones(4), torch.zeros(4), 0, dtype)
        assert torch.equal(pack(values, bits), quantized.int_repr().reshape(4, -1))


@pytest.mark.parametrize("bits", [0, 1, 3, 8])
def test_other_widths_are_refused(bits):
    with pytest.raises(ValueError, match=f"bits must be 2 or 4, got {bits}"):
        pack(torch.zeros(4, dtype=torch.uint8), bits)
    with pytest.raises(ValueError, match=f"bits must be 2 or 4, got {bits}"):
        unpack(torch.zeros(4, dtype=torch.uint8), 4, bits)


@bit_widths
def test_values_that_do_not_fit_are_refused(bits):
    values = torch.tensor([0, 1 << bits], dtype=torch.uint8)
    with pytest.raises(ValueError, match=f"below {1 << bits} to fit in {bits} bits, got {1 << bits}"):
        pack(values, bits)


def test_wrong_types_shapes_and_lengths_are_refused():
    with pytest.raises(TypeError, match=r"uint8 tensor, got torch\.int32"):
        pack(torch.zeros(4, dtype=torch.int32), 4)
    with pytest.raises(TypeError, match=r"uint8 tensor, got torch\.int8"):
        unpack(torch.zeros(4, dtype=torch.int8), 8, 4)
    with pytest.raises(ValueError, match="0-dim"):
        pack(torch.tensor(1, dtype=torch.uint8), 4)
    with pytest.raises(ValueError, match="9 values of 4 bits need 5 bytes a row, got 4"):
        unpack(torch.zeros(4, dtype=torch.uint8), 9, 4)
