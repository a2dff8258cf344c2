"""Tensors of GGUF files as matrices of groups, without going through floats where their format has groups of 32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zeropoint.generation.gguf import GgufTensor
from zeropoint.generation.group_weights import UNIT, GroupMatrix, quantized

_Parts = tuple[np.ndarray, np.ndarray, np.ndarray | None]  # integers, scales, minima


def form_of(form: str, bits: int) -> tuple[int, bool, bool]:
    """Of a format: the bits of its matrices, whether they have minima, and exactly the numbers of the file."""
    if form in _KEPT:
        kept_bits, _, minima = _KEPT[form]
        return kept_bits, minima, not form.endswith("K")
    return (8 if form == "Q6_K" else bits), False, False


def matrix_of(tensor: GgufTensor, bits: int, group: int) -> GroupMatrix:
    """A matrix of groups.

    Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 keep their integers and scales. Q4_K and Q5_K keep their integers, and their scales
    are rounded to float16. Q6_K, whose groups have 16 inputs, becomes 8 bits. Floats are rounded to `bits` bits.
    """
    rows = tensor.shape[0]
    if tensor.format in _KEPT:
        kept_bits, read, _ = _KEPT[tensor.format]
        q, scale, minimum = read(tensor.blocks())
        lowest = None if minimum is None else minimum.reshape(rows, -1)
        return GroupMatrix(kept_bits, q.reshape(tensor.shape), scale.reshape(rows, -1), lowest)
    if tensor.format == "Q6_K":
        bits, group = 8, UNIT
    return quantized(floats_of(tensor), bits, group)


def floats_of(tensor: GgufTensor) -> np.ndarray:
    """A tensor in float32."""
    if tensor.format == "F32":
        return tensor.data.view(np.float32).reshape(tensor.shape)
    if tensor.format == "F16":
        return tensor.data.view(np.float16).reshape(tensor.shape).astype(np.float32)
    if tensor.format == "BF16":
        return (tensor.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
    if tensor.format == "Q6_K":
        return _q6_k(tensor.blocks()).reshape(tensor.shape)
    flat = GgufTensor((1, int(np.prod(tensor.shape))), tensor.format, tensor.data)
    return matrix_of(flat, 8, UNIT).floats().reshape(tensor.shape)


def _halves(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at a byte of each block, as a column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16)


def _nibbles(bytes_: np.ndarray) -> np.ndarray:
    """Low nibbles of a block, then the high ones."""
    return np.concatenate([bytes_ & 15, bytes_ >> 4], -1)


def _fifth_bits(words: np.ndarray) -> np.ndarray:
    """Bit i of the 32-bit number in four bytes, as 16."""
    return np.unpackbits(np.ascontiguousarray(words), axis=-1, bitorder="little") << 4


def _q4_0(b: np.ndarray) -> _Parts:
    return _nibbles(b[:, 2:]), _halves(b, 0), None


def _q4_1(b: np.ndarray) -> _Parts:
    return _nibbles(b[:, 4:]), _halves(b, 0), _halves(b, 2)


def _q5_0(b: np.ndarray) -> _Parts:
    return (_nibbles(b[:, 6:]) | _fifth_bits(b[:, 2:6])) + np.uint8(112), _halves(b, 0), None


def _q5_1(b: np.ndarray) -> _Parts:
    return _nibbles(b[:, 8:]) | _fifth_bits(b[:, 4:8]), _halves(b, 0), _halves(b, 2)


def _q8_0(b: np.ndarray) -> _Parts:
    return b[:, 2:] ^ np.uint8(128), _halves(b, 0), None


def _scales_of_k(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and minima of the eight groups of a block of Q4_K or Q5_K: 6-bit integers in 12 bytes, times float16."""
    packed = b[:, 4:16]
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], -1)
    minimum = np.concatenate([middle & 63, high >> 4 | (middle >> 6) << 4], -1)
    d, m = _halves(b, 0).astype(np.float32), _halves(b, 2).astype(np.float32)
    return (d * scale).astype(np.float16), (-m * minimum).astype(np.float16)


def _q4_k(b: np.ndarray):  # type: ignore[no-untyped-def]
    q = b[:, 16:].reshape(-1, 4, 32)
    return np.stack([q & 15, q >> 4], 2), *_scales_of_k(b)


def _q5_k(b: np.ndarray):  # type: ignore[no-untyped-def]
    q = b[:, 48:].reshape(-1, 4, 32)
    bits = np.unpackbits(b[:, 16:48, None], axis=-1, bitorder="little")  # (blocks, 32, 8): bit g of byte i
    fifth = bits.transpose(0, 2, 1).reshape(-1, 4, 2, 32) << 4
    return np.stack([q & 15, q >> 4], 2) | fifth, *_scales_of_k(b)


def _q6_k(b: np.ndarray) -> np.ndarray:
    """Float32: 16 groups of 16, integers of 6 bits in two arrays."""
    low = b[:, :128].reshape(-1, 2, 2, 32)  # (blocks, half, row, 32)
    high = b[:, 128:192].reshape(-1, 2, 1, 32)
    nibbles = np.concatenate([low & 15, low >> 4], 2)  # (blocks, half, four rows, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    q = (nibbles | ((high >> shifts) & 3) << 4).astype(np.float32) - 32
    scale = b[:, 192:208].view(np.int8).astype(np.float32) * _halves(b, 208).astype(np.float32)
    return q.reshape(-1, 16, 16) * scale[..., None]


# Format -> bits, what reads its blocks, and whether there are minima.
_KEPT: dict[str, tuple[int, Callable[[np.ndarray], _Parts], bool]] = {
    "Q4_0": (4, _q4_0, False),
    "Q4_1": (4, _q4_1, True),
    "Q5_0": (8, _q5_0, False),
    "Q5_1": (8, _q5_1, True),
    "Q8_0": (8, _q8_0, False),
    "Q4_K": (4, _q4_k, True),
    "Q5_K": (8, _q5_k, True),
}
