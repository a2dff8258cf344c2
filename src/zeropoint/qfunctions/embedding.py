"""Packed embedding tables, and the lookups that run on them.

The tables that `embedding_bag_byte_prepack` and its kin make of floats are plain tensors; a quantized weight becomes an
`EmbeddingPackedParams`, with the same rows in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics import packing
from zeropoint.numerics.dtypes import QuantizedDtype
from zeropoint.ops import embedding as ops
from zeropoint.ops.embedding import (
    embedding_bag_2bit_prepack,
    embedding_bag_2bit_prepack_with_rowwise_min_max,
    embedding_bag_2bit_rowwise_offsets,
    embedding_bag_2bit_unpack,
    embedding_bag_4bit_prepack,
    embedding_bag_4bit_prepack_with_rowwise_min_max,
    embedding_bag_4bit_rowwise_offsets,
    embedding_bag_4bit_unpack,
    embedding_bag_byte_prepack,
    embedding_bag_byte_prepack_with_rowwise_min_max,
    embedding_bag_byte_rowwise_offsets,
    embedding_bag_byte_unpack,
)
from zeropoint.ops.library import named
from zeropoint.qfunctions.operands import require_quantized
from zeropoint.tensor.qtensor import QTensor, from_values
from zeropoint.tensor.quantizer import PerChannelQuantizer

__all__ = [
    "EmbeddingPackedParams",
    "embedding_2bit",
    "embedding_4bit",
    "embedding_bag_2bit",
    "embedding_bag_2bit_prepack",
    "embedding_bag_2bit_prepack_with_rowwise_min_max",
    "embedding_bag_2bit_rowwise_offsets",
    "embedding_bag_2bit_unpack",
    "embedding_bag_4bit",
    "embedding_bag_4bit_prepack",
    "embedding_bag_4bit_prepack_with_rowwise_min_max",
    "embedding_bag_4bit_rowwise_offsets",
    "embedding_bag_4bit_unpack",
    "embedding_bag_byte",
    "embedding_bag_byte_prepack",
    "embedding_bag_byte_prepack_with_rowwise_min_max",
    "embedding_bag_byte_rowwise_offsets",
    "embedding_bag_byte_unpack",
    "embedding_bag_prepack",
    "embedding_bag_unpack",
    "embedding_byte",
]

DTYPES = ("quint2x4", "quint4x2", "quint8")


def unpacked(table: Tensor, columns: int, dtype: QuantizedDtype, scales: Tensor, zero_points: Tensor) -> QTensor:
    """The quantized weight whose rows, of `columns` values each, are packed in `table`."""
    stored = table[:, : ops.value_bytes(columns, dtype.bits)]
    values = stored.clone() if dtype.bits == 8 else packing.unpack(stored, columns, dtype.bits)
    return from_values(values, PerChannelQuantizer.of(scales, zero_points, 0), dtype)


class EmbeddingPackedParams:
    """A quantized embedding table, packed row by row: values, then scale and bias, ``-zero_point * scale``.

    Args:
        weight: ``(rows, columns)``, quint8, quint4x2 or quint2x4, with float zero points along axis 0.

    Example:
        >>> import zeropoint
        >>> weight = torch.tensor([[0.0, 1.5], [1.0, 2.0]])
        >>> scales, zero_points = torch.tensor([0.5, 0.5]), torch.tensor([0.0, 0.0])
        >>> EmbeddingPackedParams(zeropoint.quantize_per_channel(weight, scales, zero_points, 0, zeropoint.quint4x2))
        EmbeddingPackedParams(rows=2, columns=2, zeropoint.quint4x2)
    """

    def __init__(self, weight: QTensor) -> None:
        require_quantized("embedding_bag_prepack", "weight", weight, DTYPES)
        quantizer = weight._qparams.quantizer
        if not isinstance(quantizer, PerChannelQuantizer) or not quantizer.zero_points.is_floating_point():
            raise ValueError(
                f"embedding_bag_prepack: weight must have float zero points for each row, got {quantizer.scheme}:"
                " quantize_per_channel with float zero_points, as float_qparams_weight_only_qconfig does"
            )
        if weight.dim() != 2 or quantizer.axis != 0:
            raise ValueError(
                "embedding_bag_prepack: weight must be (rows, columns), quantized along axis 0, got shape"
                f" {tuple(weight.shape)} along axis {quantizer.axis}"
            )
        self._dtype, self._columns = weight._qdtype, weight.shape[1]
        self._scales, self._zero_points = quantizer.scales.clone(), quantizer.zero_points.clone()
        self._table = self._packed(weight)

    def _packed(self, weight: QTensor) -> Tensor:
        bits, width = self._dtype.bits, ops.value_bytes(self._columns, self._dtype.bits)
        values = weight.detach().values()
        kind = torch.float32 if bits == 8 else torch.float16
        parameters = torch.stack([self._scales, self._zero_points * self._scales * -1], 1).to(kind)
        lost = (~parameters.isfinite()).any(1).nonzero()
        if len(lost):
            raise ValueError(
                f"embedding_bag_prepack: row {int(lost[0])} has scale {float(self._scales[lost[0]])} and zero point"
                f" {float(self._zero_points[lost[0]])}, which have no finite scale and bias in {kind}"
            )
        table = torch.empty(len(values), width + ops.parameter_bytes(bits), dtype=torch.uint8)
        table[:, :width] = values if bits == 8 else packing.pack(values, bits)
        table[:, width:] = parameters.view(torch.uint8)
        return table

    def unpack(self) -> QTensor:
        """The quantized weight."""
        return unpacked(self._table, self._columns, self._dtype, self._scales, self._zero_points)

    def table(self) -> Tensor:
        """The rows as the operators of a graph take them, ``torch.ops.zeropoint.embedding_bag_*_rowwise_offsets``."""
        if self._columns * self._dtype.bits % 8:
            raise ValueError(f"{self._columns} columns of {self._dtype.bits} bits are not whole bytes: pad the weight")
        return self._table

    def bit_rate(self) -> int:
        """Bits of a value: 8, 4 or 2."""
        return self._dtype.bits

    def version(self) -> int:
        """The version of the format, which PyTorch's has, too."""
        return 1

    def __reduce__(self) -> Any:
        return EmbeddingPackedParams, (self.unpack(),)

    def __repr__(self) -> str:
        return f"EmbeddingPackedParams(rows={len(self._table)}, columns={self._columns}, {self._dtype})"


def embedding_bag_prepack(weight: QTensor) -> EmbeddingPackedParams:
    """Pack a quantized embedding table.

    Example:
        >>> import zeropoint
        >>> weight = zeropoint.quantize_per_channel(
        ...     torch.ones(3, 4), torch.full((3,), 0.5), torch.zeros(3), 0, zeropoint.quint8
        ... )
        >>> embedding_bag_prepack(weight)
        EmbeddingPackedParams(rows=3, columns=4, zeropoint.quint8)
    """
    return EmbeddingPackedParams(weight)


def embedding_bag_unpack(W_prepack: EmbeddingPackedParams) -> QTensor:
    """The quantized weight of a packed table."""
    return W_prepack.unpack()


def _define_lookups(bits: int) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Bags of rows of a packed table, and its rows."""
    rows_name, bags_name = f"embedding_{ops.NAMES[bits]}", f"embedding_bag_{ops.NAMES[bits]}"

    def table(op: str, weight: Any) -> tuple[Tensor, int, int]:
        if not isinstance(weight, EmbeddingPackedParams):
            raise TypeError(
                f"{op}: weight must be an EmbeddingPackedParams, got {type(weight).__name__}; embedding_bag_prepack "
                f"creates one, and torch.ops.zeropoint.{op}{'_rowwise_offsets' * ('bag' in op)} takes plain tables"
            )
        if weight._dtype.bits != bits:
            raise ValueError(f"{op}: weight has {weight._dtype.bits}-bit values, expected {bits}")
        return weight._table, weight._columns, bits

    def rows(weight: EmbeddingPackedParams, indices: Tensor, pruned_weights: bool = False) -> Tensor:
        if pruned_weights:
            raise ValueError(
                f"{rows_name}: pruned_weights needs a mapping, but this operator has no argument for it: use"
                " embedding_bag with compressed_indices_mapping"
            )
        return ops.run_embedding(rows_name, *table(rows_name, weight), indices)

    what = f"The rows of a packed table of {bits}-bit values, as float32: ``(*indices.shape, columns)``."
    return ops.define_bags(bags_name, "embedding_bag_prepack", table), named(rows_name, rows, what)


embedding_bag_byte, embedding_byte = _define_lookups(8)
embedding_bag_4bit, embedding_4bit = _define_lookups(4)
embedding_bag_2bit, embedding_2bit = _define_lookups(2)

torch.serialization.add_safe_globals([EmbeddingPackedParams])
