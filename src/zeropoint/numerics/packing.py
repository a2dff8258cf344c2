"""Sub-byte storage: 2- and 4-bit values packed low bits first, each row padded to whole bytes."""

from __future__ import annotations

import math

import torch

from zeropoint import _native


def packed_columns(columns: int, bits: int) -> int:
    """Bytes that hold `columns` values of `bits` bits: ``ceil(columns * bits / 8)``.

    Example:
        >>> packed_columns(5, 4), packed_columns(5, 2)
        (3, 2)
    """
    return -(-columns * bits // 8)


def _require(name: str, t: torch.Tensor, bits: int) -> None:
    if bits not in (2, 4):
        raise ValueError(f"{name}: bits must be 2 or 4, got {bits}")
    if t.dtype != torch.uint8:
        raise TypeError(f"{name}: expected a uint8 tensor, got {t.dtype}")
    if t.dim() == 0:
        raise ValueError(f"{name}: expected at least one dimension, got a 0-dim tensor")


def pack(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack the last axis: ``byte = v[0] | v[1] << bits | ...``.

    Args:
        values: ``(..., columns)``, uint8, each below ``2**bits``.

    Returns:
        ``(..., ceil(columns * bits / 8))``, uint8.

    Raises:
        ValueError: if a value does not fit in `bits` bits.

    Example:
        >>> pack(torch.tensor([1, 2, 3], dtype=torch.uint8), 4)
        tensor([33,  3], dtype=torch.uint8)
    """
    _require("pack", values, bits)
    if values.numel() and int(values.max()) >= 1 << bits:
        raise ValueError(f"pack: every value must be below {1 << bits} to fit in {bits} bits, got {int(values.max())}")
    columns = values.shape[-1]
    if values.device.type != "cpu":
        return _pack_formula(values, bits)
    values = values.contiguous()
    packed = torch.empty((*values.shape[:-1], packed_columns(columns, bits)), dtype=torch.uint8)
    _native.pack(values.data_ptr(), packed.data_ptr(), math.prod(values.shape[:-1]), columns, bits)
    return packed


def unpack(packed: torch.Tensor, columns: int, bits: int) -> torch.Tensor:
    """Undo `pack`: the first `columns` values of each row.

    Args:
        packed: ``(..., ceil(columns * bits / 8))``, uint8.

    Returns:
        ``(..., columns)``, uint8.

    Raises:
        ValueError: if the last axis does not hold exactly `columns` values.

    Example:
        >>> unpack(torch.tensor([33, 3], dtype=torch.uint8), 3, 4)
        tensor([1, 2, 3], dtype=torch.uint8)
    """
    _require("unpack", packed, bits)
    if packed.shape[-1] != packed_columns(columns, bits):
        needed = packed_columns(columns, bits)
        raise ValueError(f"unpack: {columns} values of {bits} bits need {needed} bytes a row, got {packed.shape[-1]}")
    if packed.device.type != "cpu":
        shifts = torch.arange(0, 8, bits, device=packed.device, dtype=torch.uint8)
        return ((packed.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)).flatten(-2)[..., :columns]
    packed = packed.contiguous()
    values = torch.empty((*packed.shape[:-1], columns), dtype=torch.uint8)
    _native.unpack(packed.data_ptr(), values.data_ptr(), math.prod(packed.shape[:-1]), columns, bits)
    return values


def _pack_formula(values: torch.Tensor, bits: int) -> torch.Tensor:
    per_byte = 8 // bits
    padded = torch.nn.functional.pad(values, (0, -values.shape[-1] % per_byte))
    shifts = torch.arange(0, 8, bits, device=values.device, dtype=torch.uint8)
    return (padded.unflatten(-1, (-1, per_byte)) << shifts).sum(-1).to(torch.uint8)
