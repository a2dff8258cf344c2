"""The operator ``torch.ops.zeropoint.lookup``: any function of 8-bit integers, as its 256 results."""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.blocks import dense
from zeropoint.ops import checks
from zeropoint.ops.library import operator


def _fake(input: Tensor, table: Tensor) -> Tensor:
    return torch.empty_like(input, dtype=table.dtype)


@operator(fake=_fake)
def lookup(input: Tensor, table: Tensor) -> Tensor:
    """The entry of `table` for each byte of `input`, by its bit pattern.

    Args:
        input: uint8 or int8 tensor of any shape.
        table: ``(256,)``, uint8 or int8, which is the dtype of the result.

    Example:
        >>> lookup(
        ...     torch.tensor([0, 2], dtype=torch.uint8), torch.arange(256, dtype=torch.int16).flip(0).to(torch.uint8)
        ... )
        tensor([255, 253], dtype=torch.uint8)
    """
    for name, value in (("input", input), ("table", table)):
        checks.require_dtype("lookup", name, value.dtype, (torch.uint8, torch.int8))
    if tuple(table.shape) != (256,):
        raise ValueError(f"lookup: table must have 256 entries, got shape {tuple(table.shape)}")
    q, table = dense(input), table.contiguous()
    if q.device.type != "cpu":
        return table[q.view(torch.uint8).to(torch.int64)]
    y = torch.empty_like(q, dtype=table.dtype)
    _native.lookup(q.data_ptr(), table.data_ptr(), y.data_ptr(), q.numel())
    return y
