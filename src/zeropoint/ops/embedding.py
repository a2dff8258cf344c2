"""Embedding tables quantized row by row, and the bags of rows that are added up from them.

A table is a uint8 tensor. Each row holds its values, low bits first, and then its own scale and bias: float32 behind
values of 8 bits, float16 behind values of 4 and 2 bits. A value `q` means ``scale * q + bias``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.ops.checks import INPUT_DTYPES, require_dtype, require_no_trace
from zeropoint.ops.library import named, operator

NAMES = {8: "byte", 4: "4bit", 2: "2bit"}
MODES = {0: "sum", 1: "mean", 2: "max"}
INDEX_DTYPES = (torch.int64, torch.int32)


def value_bytes(columns: int, bits: int) -> int:
    """Bytes of the values in a row."""
    return -(-columns * bits // 8)


def parameter_bytes(bits: int) -> int:
    """Bytes of scale and bias behind them."""
    return 8 if bits == 8 else 4


def _columns(op: str, table: Tensor, bits: int) -> int:
    """Values in each row of a table."""
    require_dtype(op, "weight", table.dtype, (torch.uint8,))
    width = table.shape[-1] if table.dim() else 0
    if width < parameter_bytes(bits):
        raise ValueError(
            f"{op}: a row of {bits}-bit values ends with {parameter_bytes(bits)} bytes of scale and bias, got a "
            f"table of shape {tuple(table.shape)}; embedding_bag_{NAMES[bits]}_prepack creates one"
        )
    return (width - parameter_bytes(bits)) * 8 // bits


def _require_cpu(op: str, *tensors: Tensor | None) -> None:
    for t in tensors:
        if t is not None and not t.is_cpu:
            raise NotImplementedError(f"{op}: runs on the CPU, got a tensor on {t.device}; call .cpu() first")


# ----------------------------------------------------------------------------------------------------------- packing


def _packed_shape(op: str, weight: Tensor, bits: int) -> tuple[int, ...]:
    require_dtype(op, "weight", weight.dtype, INPUT_DTYPES)
    if weight.dim() == 0:
        raise ValueError(f"{op}: weight must have at least one dimension, its last is a row; got a single number")
    columns = weight.shape[-1]
    if columns * bits % 8:
        raise ValueError(f"{op}: a row must have a multiple of {8 // bits} columns, whole bytes, got {columns}: pad it")
    return (*weight.shape[:-1], value_bytes(columns, bits) + parameter_bytes(bits))


def _pack(
    op: str,
    weight: Tensor,
    bits: int,
    ranges: Tensor | None = None,
    optimized_qparams: bool = False,
    nbins: int = 200,
    ratio: float = 0.16,
) -> Tensor:
    shape = _packed_shape(op, weight, bits)
    _require_cpu(op, weight, ranges)
    rows, columns = math.prod(shape[:-1]), weight.shape[-1]
    if ranges is not None:
        require_dtype(op, "rowwise_min_max", ranges.dtype, INPUT_DTYPES)
        if tuple(ranges.shape) != (rows, 2):
            raise ValueError(f"{op}: rowwise_min_max must have shape ({rows}, 2), got {tuple(ranges.shape)}")
        ranges = ranges.detach().to(torch.float32).contiguous()
    if optimized_qparams and not (1 <= nbins < 2**31 and 0.0 <= ratio <= 1.0):
        raise ValueError(f"{op}: nbins must be at least 1 and ratio between 0 and 1, got {nbins} and {ratio}")
    x = weight.detach().to(torch.float32).contiguous()
    table = torch.empty(shape, dtype=torch.uint8)
    bad = _native.embedding_pack(
        (table.data_ptr(), rows, columns, bits, x.data_ptr()),
        0 if ranges is None else ranges.data_ptr(),
        optimized_qparams,
        nbins if optimized_qparams else 1,
        ratio,
    )
    if bad >= 0:
        low, high = torch.aminmax(x.reshape(rows, columns)[bad]) if ranges is None else ranges[bad]
        kind = "float32" if bits == 8 else "float16"
        raise ValueError(
            f"{op}: row {bad} ranges from {float(low)} to {float(high)}, which has no finite scale and bias in {kind}"
        )
    return table


def _define_packing(bits: int) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    name = f"embedding_bag_{NAMES[bits]}_prepack"
    name_with_ranges = f"{name}_with_rowwise_min_max"

    def fake(weight: Tensor) -> Tensor:
        return weight.new_empty(_packed_shape(name, weight, bits), dtype=torch.uint8)

    if bits == 8:

        def pack(weight: Tensor) -> Tensor:
            return _pack(name, weight, bits)

        def pack_ranges(weight: Tensor, rowwise_min_max: Tensor) -> Tensor:
            return _pack(name_with_ranges, weight, bits, rowwise_min_max)

        what = """A table of bytes: ``q = rne((x - min) * 255 / (max - min + 1e-8))``.

        Its scale is ``(max - min) / 255``, its bias `min`. A row that holds NaN or infinity is an error."""
    else:

        def pack(  # type: ignore[misc]
            weight: Tensor, optimized_qparams: bool = False, nbins: int = 200, ratio: float = 0.16
        ) -> Tensor:
            return _pack(name, weight, bits, None, optimized_qparams, nbins, ratio)

        def pack_ranges(  # type: ignore[misc]
            weight: Tensor,
            rowwise_min_max: Tensor,
            optimized_qparams: bool = False,
            nbins: int = 200,
            ratio: float = 0.16,
        ) -> Tensor:
            return _pack(name_with_ranges, weight, bits, rowwise_min_max, optimized_qparams, nbins, ratio)

        what = f"""A table of {bits}-bit values: ``q = clamp(rne((x - bias) / scale), 0, {2**bits - 1})``.

        The bias is the minimum of the row, the scale ``(max - bias) / {2**bits - 1}``, both rounded to float16 before
        they are used. With `optimized_qparams` they are those of the range that loses least, which
        `choose_qparams_optimized` finds with `nbins` and `ratio`. Rows must be whole bytes."""
    ranged = f"As `{name}`, with the range of each row given, ``(rows, 2)``; values beyond it move to its ends."
    for key, function, text in ((name, pack, what), (name_with_ranges, pack_ranges, ranged)):
        operator(fake=fake, name=key)(named(key, function, text))
    return pack, pack_ranges


embedding_bag_byte_prepack, embedding_bag_byte_prepack_with_rowwise_min_max = _define_packing(8)
embedding_bag_4bit_prepack, embedding_bag_4bit_prepack_with_rowwise_min_max = _define_packing(4)
embedding_bag_2bit_prepack, embedding_bag_2bit_prepack_with_rowwise_min_max = _define_packing(2)


# --------------------------------------------------------------------------------------------------------- unpacking


def _unpacked_shape(op: str, weight: Tensor, bits: int) -> tuple[int, ...]:
    columns = _columns(op, weight, bits)
    return (*weight.shape[:-1], columns)


def _unpack(op: str, weight: Tensor, bits: int) -> Tensor:
    shape = _unpacked_shape(op, weight, bits)
    _require_cpu(op, weight)
    table = weight.contiguous()
    y = torch.empty(shape, dtype=torch.float32)
    _native.embedding_unpack((table.data_ptr(), math.prod(shape[:-1]), shape[-1], bits, y.data_ptr()))
    return y


def _define_unpacking(bits: int) -> Callable[[Tensor], Tensor]:
    name = f"embedding_bag_{NAMES[bits]}_unpack"

    def fake(weight: Tensor) -> Tensor:
        return weight.new_empty(_unpacked_shape(name, weight, bits), dtype=torch.float32)

    @operator(fake=fake, name=name)
    def unpack(weight: Tensor) -> Tensor:
        return _unpack(name, weight, bits)

    return named(name, unpack, f"The floats that a table of {bits}-bit values means, ``fma(q, scale, bias)``.")


embedding_bag_byte_unpack = _define_unpacking(8)
embedding_bag_4bit_unpack = _define_unpacking(4)
embedding_bag_2bit_unpack = _define_unpacking(2)


# ----------------------------------------------------------------------------------------------------------- lookups


def _table_columns(op: str, weight: Tensor, bits: int) -> int:
    columns = _columns(op, weight, bits)
    if weight.dim() != 2:
        raise ValueError(f"{op}: weight must be a table of rows, two dimensions, got shape {tuple(weight.shape)}")
    return columns


def _require_indices(op: str, name: str, t: Tensor) -> None:
    require_dtype(op, name, t.dtype, INDEX_DTYPES)


def _number_of_bags(
    op: str, indices: Tensor, offsets: Tensor | None, mode: int, weights: Tensor | None, include_last_offset: bool
) -> int:
    """How many bags there are, if the arguments can describe some."""
    _require_indices(op, "indices", indices)
    if mode not in MODES:
        raise ValueError(f"{op}: mode must be 0 (sum), 1 (mean) or 2 (max), got {mode}")
    if weights is not None:
        require_dtype(op, "per_sample_weights", weights.dtype, INPUT_DTYPES)
        if mode != 0:
            raise ValueError(f"{op}: per_sample_weights are for mode 0 (sum), got mode {mode} ({MODES[mode]})")
        if weights.shape != indices.shape:
            raise ValueError(
                f"{op}: per_sample_weights must have the shape of indices, {tuple(indices.shape)}, got"
                f" {tuple(weights.shape)}"
            )
    if indices.dim() == 2:
        if offsets is not None or include_last_offset:
            what = "include_last_offset" if offsets is None else "offsets"
            raise ValueError(f"{op}: each row of 2-D indices is a bag, so {what} cannot be passed; flatten the indices")
        return indices.shape[0]
    if indices.dim() != 1:
        raise ValueError(f"{op}: indices must have 1 or 2 dimensions, got shape {tuple(indices.shape)}")
    if offsets is None:
        raise ValueError(f"{op}: 1-D indices need offsets, where each bag begins")
    _require_indices(op, "offsets", offsets)
    if offsets.dim() != 1:
        raise ValueError(f"{op}: offsets must have 1 dimension, got shape {tuple(offsets.shape)}")
    if include_last_offset and offsets.shape[0] == 0:
        raise ValueError(f"{op}: with include_last_offset there is at least one offset, got none")
    return offsets.shape[0] - (1 if include_last_offset else 0)


def _array(t: Tensor | None) -> tuple[int, bool, int]:
    return (0, True, 0) if t is None else (t.data_ptr(), t.dtype == torch.int64, t.numel())


def _mapping(op: str, pruned_weights: bool, mapping: Tensor | None) -> Tensor | None:
    """The mapping of a pruned table; None where nothing was pruned, which a mapping of a single 0 says, too."""
    if not pruned_weights:
        return None
    if mapping is None:
        raise ValueError(f"{op}: pruned_weights needs compressed_indices_mapping, the row of each index or -1")
    require_dtype(op, "compressed_indices_mapping", mapping.dtype, (torch.int32,))
    if mapping.dim() != 1 or mapping.numel() == 0:
        raise ValueError(
            f"{op}: compressed_indices_mapping must have 1 dimension and an entry for each index, got shape"
            f" {tuple(mapping.shape)}"
        )
    _require_cpu(op, mapping)
    return None if mapping.numel() == 1 and int(mapping[0]) == 0 else mapping.contiguous()


def run_bags(
    op: str,
    table: Tensor,
    columns: int,
    bits: int,
    indices: Tensor,
    offsets: Tensor | None,
    mode: int,
    pruned_weights: bool,
    per_sample_weights: Tensor | None,
    compressed_indices_mapping: Tensor | None,
    include_last_offset: bool,
) -> Tensor:
    """The bags of a contiguous table whose rows have `columns` values."""
    require_no_trace(op)
    bags = _number_of_bags(op, indices, offsets, mode, per_sample_weights, include_last_offset)
    _require_cpu(op, table, indices, offsets, per_sample_weights)
    mapping = _mapping(op, pruned_weights, compressed_indices_mapping)
    indices = indices.contiguous()
    offsets = None if offsets is None else offsets.contiguous()
    weights = None if per_sample_weights is None else per_sample_weights.detach().to(torch.float32).contiguous()
    length = indices.shape[1] if indices.dim() == 2 else 0
    if offsets is None and length == 0:
        return torch.zeros(bags, columns)
    y = torch.empty(bags, columns)
    _native.embedding_bags(
        op,
        (table.data_ptr(), table.shape[0], columns, bits, y.data_ptr()),
        _array(indices),
        _array(offsets),
        offsets is not None,
        length,
        include_last_offset,
        _array(mapping),
        0 if weights is None else weights.data_ptr(),
        mode,
    )
    return y


_BAGS = """Bags of rows of a table, added up: ``y = fma(q, w * scale, y + w * bias)`` for each index in turn.

Args:
    weight: the table, from {prepack}.
    indices: int32 or int64; ``(n,)`` with `offsets`, or ``(bags, length)``.
    offsets: ``(bags,)``, int32 or int64: where each bag begins; from 0, not decreasing.
    scale_grad_by_freq: about a gradient, which there is none of.
    mode: 0 sum, 1 mean, 2 maximum. An empty bag gives 0.
    pruned_weights: whether `compressed_indices_mapping` is to be used: the row of each index, int32, -1 for one that
        was pruned, which is then a row of zeros. A mapping of a single 0 means that nothing was pruned.
    per_sample_weights: a weight for each index, for sums only.
    include_last_offset: whether the number of indices stands at the end of `offsets`.

Returns:
    ``(bags, columns)``, float32.

Raises:
    IndexError: if an index has no row.
    ValueError: if the offsets do not cut the indices into bags.
"""


def define_bags(name: str, prepack: str, table: Callable[[str, Any], tuple[Tensor, int, int]]) -> Callable[..., Tensor]:
    """The function of that name on what `table` reads: the rows, their columns, and the bits of a value."""

    def bags(
        weight: Tensor,
        indices: Tensor,
        offsets: Tensor | None = None,
        scale_grad_by_freq: bool = False,
        mode: int = 0,
        pruned_weights: bool = False,
        per_sample_weights: Tensor | None = None,
        compressed_indices_mapping: Tensor | None = None,
        include_last_offset: bool = False,
    ) -> Tensor:
        rows, columns, bits = table(name, weight)
        rest = pruned_weights, per_sample_weights, compressed_indices_mapping, include_last_offset
        return run_bags(name, rows, columns, bits, indices, offsets, mode, *rest)

    return named(name, bags, _BAGS.format(prepack=f"`{prepack}`"))


def _define_lookups(bits: int) -> tuple[Callable[..., Tensor], Callable[[Tensor, Tensor], Tensor]]:
    """Bags of rows of a plain table, and its rows."""
    rows_name, bags_name = f"embedding_{NAMES[bits]}", f"embedding_bag_{NAMES[bits]}_rowwise_offsets"

    def table(op: str, weight: Tensor) -> tuple[Tensor, int, int]:
        return weight.contiguous(), _table_columns(op, weight, bits), bits

    def fake_bags(
        weight: Tensor,
        indices: Tensor,
        offsets: Tensor | None,
        mode: int,
        per_sample_weights: Tensor | None,
        include_last_offset: bool,
    ) -> Tensor:
        columns = _table_columns(bags_name, weight, bits)
        bags = _number_of_bags(bags_name, indices, offsets, mode, per_sample_weights, include_last_offset)
        return weight.new_empty((bags, columns), dtype=torch.float32)

    def fake_rows(weight: Tensor, indices: Tensor) -> Tensor:
        columns = _table_columns(rows_name, weight, bits)
        _require_indices(rows_name, "indices", indices)
        return weight.new_empty((*indices.shape, columns), dtype=torch.float32)

    @operator(fake=fake_rows, name=rows_name)
    def rows(weight: Tensor, indices: Tensor) -> Tensor:
        return run_embedding(rows_name, *table(rows_name, weight), indices)

    prepack = f"embedding_bag_{NAMES[bits]}_prepack"
    bags = operator(fake=fake_bags, name=bags_name)(define_bags(bags_name, prepack, table))
    what = f"The rows of a table from `{prepack}`, as float32, at indices of any shape, int32 or int64."
    return bags, named(rows_name, rows, what)


def run_embedding(op: str, table: Tensor, columns: int, bits: int, indices: Tensor) -> Tensor:
    """The rows of a contiguous table, each with `columns` values, at indices of any shape."""
    _require_indices(op, "indices", indices)
    flat = indices.reshape(-1, 1)
    return run_bags(op, table, columns, bits, flat, None, 0, False, None, None, False).reshape(*indices.shape, columns)


embedding_bag_byte_rowwise_offsets, embedding_byte = _define_lookups(8)
embedding_bag_4bit_rowwise_offsets, embedding_4bit = _define_lookups(4)
embedding_bag_2bit_rowwise_offsets, embedding_2bit = _define_lookups(2)
