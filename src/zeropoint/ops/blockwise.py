"""Block-wise quantization: one scale for each block of any shape that tiles the tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from zeropoint.numerics import affine
from zeropoint.numerics.blocks import Block, blocks_along
from zeropoint.ops import checks
from zeropoint.ops.library import operator


def _block(op: str, x: Tensor, block_size: Sequence[int]) -> Block:
    """`block_size` with -1 replaced by the whole axis; it must tile `x`."""
    if len(block_size) != x.dim():
        raise ValueError(
            f"{op}: block_size {list(block_size)} needs one size for each of the {x.dim()} dimensions of the input"
        )
    block = tuple(n if b == -1 else b for n, b in zip(x.shape, block_size))
    for axis, (n, b) in enumerate(zip(x.shape, block)):
        if n != b and (b < 1 or n % b != 0):
            raise ValueError(f"{op}: block_size {b} does not divide the {n} elements along axis {axis}")
    return block


def _check_parameters(op: str, x: Tensor, block: Block, scales: Tensor, zero_points: Tensor | None) -> None:
    counts = blocks_along(x.shape, block)
    why = f"one for each of {' x '.join(map(str, counts)) or '1'} blocks of {block} in {tuple(x.shape)}"
    checks.require_length(op, "scales", scales, math.prod(counts), why)
    if zero_points is not None:
        checks.require_length(op, "zero_points", zero_points, math.prod(counts), why)


def _fake_quantize_per_block(
    input: Tensor, block_size: Sequence[int], quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    op = "quantize_per_block"
    checks.require_dtype(op, "input", input.dtype, checks.INPUT_DTYPES)
    checks.require_range(op, quant_min, quant_max, dtype)
    _block(op, input, block_size)
    return torch.empty_like(input, dtype=dtype)


@operator(fake=_fake_quantize_per_block)
def quantize_per_block(
    input: Tensor,
    block_size: Sequence[int],
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """``clamp(rne(input * (1 / scales)) + zero_points, quant_min, quant_max)`` with one scale for each block.

    Args:
        input: float32, float16 or bfloat16, any shape.
        block_size: the shape of a block, one size for each axis; -1 is the whole axis.
        scales, zero_points: ``input.shape / block_size``, or flat in that order.

    Returns:
        tensor of type `dtype`, shape and layout of `input`.

    Example:
        >>> x = torch.ones(2, 4)
        >>> qparams = torch.tensor([[1.0, 0.5]]), torch.tensor([[0, 0]])
        >>> quantize_per_block(x, [2, 2], *qparams, -128, 127, torch.int8)
        tensor([[1, 1, 2, 2],
                [1, 1, 2, 2]], dtype=torch.int8)
    """
    op = "quantize_per_block"
    checks.require_dtype(op, "input", input.dtype, checks.INPUT_DTYPES)
    checks.require_range(op, quant_min, quant_max, dtype)
    block = _block(op, input, block_size)
    _check_parameters(op, input, block, scales, zero_points)
    return affine.quantize(
        input, scales.reshape(-1), zero_points.reshape(-1), block, qmin=quant_min, qmax=quant_max, dtype=dtype
    )


def _fake_dequantize_per_block(
    input: Tensor, block_size: Sequence[int], dtype: torch.dtype, out_dtype: torch.dtype | None
) -> Tensor:
    op = "dequantize_per_block"
    checks.require_stored(op, input, dtype)
    _block(op, input, block_size)
    return torch.empty_like(input, dtype=out_dtype or torch.float32)


@operator(fake=_fake_dequantize_per_block)
def dequantize_per_block(
    input: Tensor,
    block_size: Sequence[int],
    scales: Tensor,
    zero_points: Tensor | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``(input - zero_points) * scales`` with one of each for every block, then `out_dtype` (float32 if None).

    Example:
        >>> q = torch.tensor([[1, 1, 2, 2]], dtype=torch.int8)
        >>> dequantize_per_block(q, [1, 2], torch.tensor([1.0, 0.5]), None, -128, 127, torch.int8)
        tensor([[1., 1., 1., 1.]])
    """
    op = "dequantize_per_block"
    checks.require_stored(op, input, dtype)
    checks.require_range(op, quant_min, quant_max, dtype)
    block = _block(op, input, block_size)
    _check_parameters(op, input, block, scales, zero_points)
    zero_points = None if zero_points is None else zero_points.reshape(-1)
    return affine.dequantize(input, scales.reshape(-1), zero_points, block, out_dtype=out_dtype or torch.float32)
