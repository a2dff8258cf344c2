"""Packed weights and their operators in scripted code.

TorchScript compiles these functions where code says `torch.ops.quantized.linear` and the like. A packed weight is a
class there, of plain tensors and numbers, so that it can be saved; one of Python's is turned into it by the names of
its attributes.
"""

# ruff: noqa: RUF005, UP006, UP035, UP045 (what TorchScript reads)

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from zeropoint.compat.changes import Changes
from zeropoint.compat.script import weight_parts, written
from zeropoint.nn.quantized.storage import integers_of, quantized
from zeropoint.ops.rounding import OURS
from zeropoint.qfunctions import embedding, packed, recurrent


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what torch.jit says about its end: scripted code is what this is for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def compiled(thing: Any) -> Any:
    """`thing`, a class or function of this module, scripted."""
    with quietly():
        return torch.jit.script(thing)


# --------------------------------------------------------------------------------------------------- linear layers


@compiled
class LinearPackedParams:
    """The weight of a linear layer, in 8 bits or float16, and its bias."""

    def __init__(self, weight: Tensor, bias: Optional[Tensor]):
        values, scales, zero_points, axis, dtype = torch.ops.zeropoint_compat.weight_parts(weight)
        self.values: Tensor = values
        self.scales: Tensor = scales
        self.zero_points: Tensor = zero_points
        self.axis: int = axis
        self.dtype: str = dtype
        self.bias_values: Optional[Tensor] = bias
        self.rounding: str = torch.ops.zeropoint_compat.rounding(zero_points, 0, [])

    def unpack(self) -> Tuple[Tensor, Optional[Tensor]]:
        weight = torch.ops.zeropoint_compat.weight(self.values, self.scales, self.zero_points, self.axis, self.dtype)
        return weight, self.bias_values

    def written(self) -> Tuple[Tensor, Optional[Tensor]]:
        weight = torch.ops.zeropoint_compat.written_weight(
            self.values, self.scales, self.zero_points, self.axis, self.dtype
        )
        return weight, self.bias_values

    def __getstate__(self) -> Tuple[Tensor, Optional[Tensor]]:
        return self.written()

    def __setstate__(self, state: Tuple[Tensor, Optional[Tensor]]) -> None:
        values, scales, zero_points, axis, dtype = torch.ops.zeropoint_compat.weight_parts(state[0])
        self.values = values
        self.scales = scales
        self.zero_points = zero_points
        self.axis = axis
        self.dtype = dtype
        self.bias_values = state[1]
        self.rounding = torch.ops.zeropoint_compat.rounding(zero_points, 0, [])


def linear_prepack(W: Tensor, B: Optional[Tensor] = None) -> LinearPackedParams:
    return LinearPackedParams(W, B)


def linear_unpack(W_prepack: LinearPackedParams) -> Tuple[Tensor, Optional[Tensor]]:
    return W_prepack.unpack()


def _linear(op: Any) -> Any:
    def linear(X: Tensor, W_prepack: LinearPackedParams, Y_scale_i: float, Y_zero_point_i: int) -> Tensor:
        w = W_prepack
        x, scale, zero_point = integers_of(X)
        y = op(
            x, scale, zero_point, w.values, w.scales, w.zero_points, w.bias_values, Y_scale_i,
            Y_zero_point_i, w.rounding,
        )  # fmt: skip
        return quantized(y, Y_scale_i, Y_zero_point_i)

    return linear


def linear_tanh(X: Tensor, W_prepack: LinearPackedParams, Y_scale_i: float, Y_zero_point_i: int) -> Tensor:
    w = W_prepack
    x, scale, zero_point = integers_of(X)
    y = torch.ops.zeropoint.linear_tanh(
        x, scale, zero_point, w.values, w.scales, w.zero_points, w.bias_values, Y_scale_i, Y_zero_point_i
    )
    return quantized(y, Y_scale_i, Y_zero_point_i)


def linear_leaky_relu(
    X: Tensor, W_prepack: LinearPackedParams, Y_scale_i: float, Y_zero_point_i: int, negative_slope: float
) -> Tensor:
    w = W_prepack
    x, scale, zero_point = integers_of(X)
    y = torch.ops.zeropoint.linear_leaky_relu(
        x, scale, zero_point, w.values, w.scales, w.zero_points, w.bias_values, Y_scale_i,
        Y_zero_point_i, negative_slope, w.rounding,
    )  # fmt: skip
    return quantized(y, Y_scale_i, Y_zero_point_i)


def _linear_dynamic(op: Any, op_fp16: Any) -> Any:
    def linear_dynamic(X: Tensor, W_prepack: LinearPackedParams, reduce_range: bool = False) -> Tensor:
        w = W_prepack
        if w.dtype == "float16":
            return op_fp16(X, w.values, w.bias_values)
        seven = reduce_range and w.rounding != "qnnpack"
        return op(X, w.values, w.scales, w.zero_points, w.bias_values, seven, False, w.rounding)

    return linear_dynamic


def _cell(op: Any) -> Any:
    def cell(
        input: Tensor, hx: Tensor, w_ih: LinearPackedParams, w_hh: LinearPackedParams, b_ih: Tensor, b_hh: Tensor
    ) -> Tensor:
        return op(
            input, hx, w_ih.values, w_ih.scales, w_ih.zero_points, w_hh.values, w_hh.scales, w_hh.zero_points,
            w_ih.bias_values, w_hh.bias_values, w_ih.rounding != "qnnpack",
        )  # fmt: skip

    return cell


def quantized_lstm_cell_dynamic(
    input: Tensor, hx: List[Tensor], w_ih: LinearPackedParams, w_hh: LinearPackedParams, bias_ih: Tensor,
    bias_hh: Tensor,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    return torch.ops.zeropoint.quantized_lstm_cell_dynamic(
        input, hx, w_ih.values, w_ih.scales, w_ih.zero_points, w_hh.values, w_hh.scales, w_hh.zero_points,
        w_ih.bias_values, w_hh.bias_values, w_ih.rounding != "qnnpack",
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- convolutions


@compiled
class ConvPackedParams:
    """The weight of a convolution, its bias and its geometry."""

    def __init__(
        self,
        weight: Tensor,
        bias: Optional[Tensor],
        stride: List[int],
        padding: List[int],
        output_padding: List[int],
        dilation: List[int],
        groups: int,
        transpose: bool,
    ):
        values, scales, zero_points, axis, dtype = torch.ops.zeropoint_compat.weight_parts(weight)
        self.values: Tensor = values
        self.scales: Tensor = scales
        self.zero_points: Tensor = zero_points
        self.axis: int = axis
        self.dtype: str = dtype
        self.bias_values: Optional[Tensor] = bias
        self.strides: List[int] = stride
        self.paddings: List[int] = padding
        self.output_paddings: List[int] = output_padding
        self.dilations: List[int] = dilation
        self.group_count: int = groups
        self.transposed: bool = transpose
        self.rounding: str = torch.ops.zeropoint_compat.rounding(zero_points, groups, output_padding)

    def unpack(self) -> Tuple[Tensor, Optional[Tensor]]:
        weight = torch.ops.zeropoint_compat.weight(self.values, self.scales, self.zero_points, self.axis, self.dtype)
        return weight, self.bias_values

    def written(self) -> Tuple[Tensor, Optional[Tensor]]:
        weight = torch.ops.zeropoint_compat.written_weight(
            self.values, self.scales, self.zero_points, self.axis, self.dtype
        )
        return weight, self.bias_values

    def __getstate__(self) -> Tuple[str, List[Tensor], List[Optional[Tensor]]]:
        weight, bias = self.written()
        numbers = [len(self.strides)] + self.strides + self.paddings + self.dilations + self.output_paddings
        numbers = numbers + [self.group_count, int(self.transposed)]
        optional: List[Optional[Tensor]] = [bias]
        return "2", [torch.tensor(numbers, dtype=torch.int16), weight], optional

    def __setstate__(self, state: Tuple[str, List[Tensor], List[Optional[Tensor]]]) -> None:
        values, scales, zero_points, axis, dtype = torch.ops.zeropoint_compat.weight_parts(state[1][1])
        self.values = values
        self.scales = scales
        self.zero_points = zero_points
        self.axis = axis
        self.dtype = dtype
        self.bias_values = state[2][0]
        numbers: List[int] = state[1][0].to(torch.int64).tolist()
        dims = numbers[0]
        self.strides = numbers[1 : dims + 1]
        self.paddings = numbers[dims + 1 : 2 * dims + 1]
        self.dilations = numbers[2 * dims + 1 : 3 * dims + 1]
        self.output_paddings = numbers[3 * dims + 1 : 4 * dims + 1]
        self.group_count = numbers[4 * dims + 1]
        self.transposed = numbers[4 * dims + 2] != 0
        self.rounding = torch.ops.zeropoint_compat.rounding(zero_points, self.group_count, self.output_paddings)


def conv_prepack(
    weight: Tensor, bias: Optional[Tensor], stride: List[int], padding: List[int], dilation: List[int], groups: int
) -> ConvPackedParams:
    return ConvPackedParams(weight, bias, stride, padding, [0] * len(stride), dilation, groups, False)


def conv_transpose_prepack(
    weight: Tensor,
    bias: Optional[Tensor],
    stride: List[int],
    padding: List[int],
    output_padding: List[int],
    dilation: List[int],
    groups: int,
) -> ConvPackedParams:
    return ConvPackedParams(weight, bias, stride, padding, output_padding, dilation, groups, True)


def conv_unpack(packed_weights: ConvPackedParams) -> Tuple[Tensor, Optional[Tensor]]:
    return packed_weights.unpack()


def conv_stride(packed_weights: ConvPackedParams) -> List[int]:
    return packed_weights.strides


def conv_padding(packed_weights: ConvPackedParams) -> List[int]:
    return packed_weights.paddings


def conv_output_padding(packed_weights: ConvPackedParams) -> List[int]:
    return packed_weights.output_paddings


def conv_dilation(packed_weights: ConvPackedParams) -> List[int]:
    return packed_weights.dilations


def conv_groups(packed_weights: ConvPackedParams) -> int:
    return packed_weights.group_count


def conv_transpose(packed_weights: ConvPackedParams) -> int:
    return int(packed_weights.transposed)


# PyTorch packs a convolution of 1 dimension as one of 2, the first of size 1: hence the last of each list below.


def _values(w: ConvPackedParams, x: Tensor) -> Tensor:
    return w.values if w.values.dim() == x.dim() else w.values.squeeze(2)


def _conv(op: Any) -> Any:
    def conv(qx: Tensor, packed_weight: ConvPackedParams, output_scale: float, output_zero_point: int) -> Tensor:
        w, n = packed_weight, 2 - qx.dim()
        x, scale, zero_point = integers_of(qx)
        y = op(
            x, scale, zero_point, _values(w, qx), w.scales, w.zero_points, w.bias_values,
            w.strides[n:], w.paddings[n:], w.dilations[n:], w.group_count, output_scale, output_zero_point,
            w.rounding,
        )  # fmt: skip
        return quantized(y, output_scale, output_zero_point)

    return conv


def _conv_transposed(op: Any) -> Any:
    def conv(qx: Tensor, packed_weight: ConvPackedParams, output_scale: float, output_zero_point: int) -> Tensor:
        w, n = packed_weight, 2 - qx.dim()
        x, scale, zero_point = integers_of(qx)
        y = op(
            x, scale, zero_point, _values(w, qx), w.scales, w.zero_points, w.bias_values,
            w.strides[n:], w.paddings[n:], w.output_paddings[n:], w.dilations[n:], w.group_count, output_scale,
            output_zero_point, w.rounding,
        )  # fmt: skip
        return quantized(y, output_scale, output_zero_point)

    return conv


def _conv_add(op: Any) -> Any:
    def conv(
        qx: Tensor, qaccum: Tensor, packed_weight: ConvPackedParams, output_scale: float, output_zero_point: int
    ) -> Tensor:
        w = packed_weight
        x, scale, zero_point = integers_of(qx)
        sum, sum_scale, sum_zero_point = integers_of(qaccum)
        y = op(
            x, scale, zero_point, w.values, w.scales, w.zero_points, w.bias_values, w.strides,
            w.paddings, w.dilations, w.group_count, sum, sum_scale, sum_zero_point,
            output_scale, output_zero_point, w.rounding,
        )  # fmt: skip
        return quantized(y, output_scale, output_zero_point)

    return conv


def _conv_dynamic(op: Any) -> Any:
    def conv(qx: Tensor, packed_weight: ConvPackedParams, reduce_range: bool = False) -> Tensor:
        w, n = packed_weight, 2 - qx.dim()
        return op(
            qx, _values(w, qx), w.scales, w.zero_points, w.bias_values, w.strides[n:], w.paddings[n:], w.dilations[n:],
            w.group_count, reduce_range and w.rounding != "qnnpack",
        )  # fmt: skip

    return conv


def _conv_transposed_dynamic(op: Any) -> Any:
    def conv(qx: Tensor, packed_weight: ConvPackedParams, reduce_range: bool = False) -> Tensor:
        w, n = packed_weight, 2 - qx.dim()
        return op(
            qx, _values(w, qx), w.scales, w.zero_points, w.bias_values, w.strides[n:], w.paddings[n:],
            w.output_paddings[n:], w.dilations[n:], w.group_count, reduce_range and w.rounding != "qnnpack",
        )  # fmt: skip

    return conv


# ------------------------------------------------------------------------------------------------ recurrent layers


@compiled
class CellParams:
    """The two weights of one direction of a recurrent layer."""

    def __init__(self, w_ih: LinearPackedParams, w_hh: LinearPackedParams, reduce_range: bool):
        self.w_ih: LinearPackedParams = w_ih
        self.w_hh: LinearPackedParams = w_hh
        self.reduce_range: bool = reduce_range

    def __getstate__(self) -> Tuple[str, List[Tensor], List[float], List[int], List[LinearPackedParams]]:
        tensors: List[Tensor] = []
        numbers: List[float] = []
        return "quantized_dynamic", tensors, numbers, [int(self.reduce_range)], [self.w_ih, self.w_hh]

    def __setstate__(
        self, state: Tuple[str, List[Tensor], List[float], List[int], List[LinearPackedParams]]
    ) -> None:  # fmt: skip
        self.w_ih = state[4][0]
        self.w_hh = state[4][1]
        self.reduce_range = len(state[3]) > 0 and state[3][0] != 0


def make_quantized_cell_params_dynamic(
    w_ih: LinearPackedParams, w_hh: LinearPackedParams, bias_ih: Tensor, bias_hh: Tensor, reduce_range: bool = False
) -> CellParams:
    return CellParams(w_ih, w_hh, reduce_range)


def make_quantized_cell_params_fp16(w_ih: LinearPackedParams, w_hh: LinearPackedParams) -> CellParams:
    return CellParams(w_ih, w_hh, False)


def _weights(params: List[CellParams]) -> Tuple[List[Tensor], List[Tensor], List[Tensor], List[Tensor], bool]:
    values: List[Tensor] = []
    scales: List[Tensor] = []
    zero_points: List[Tensor] = []
    biases: List[Tensor] = []
    for cell in params:
        for w in [cell.w_ih, cell.w_hh]:
            values.append(w.values)
            if w.dtype != "float16":
                scales.append(w.scales)
                zero_points.append(w.zero_points)
            bias = w.bias_values
            if bias is not None:
                biases.append(bias)
    seven = params[0].reduce_range and params[0].w_ih.rounding != "qnnpack"
    return values, scales, zero_points, biases, seven


def quantized_lstm(
    input: Tensor, hx: List[Tensor], params: List[CellParams], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool, dtype: Optional[int] = None, use_dynamic: bool = False,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    w, s, z, b, seven = _weights(params)
    return torch.ops.zeropoint.quantized_lstm(
        input, hx, w, s, z, b, num_layers, 0.0, False, bidirectional, batch_first, seven
    )


def quantized_lstm_packed(
    data: Tensor, batch_sizes: Tensor, hx: List[Tensor], params: List[CellParams], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, dtype: Optional[int] = None, use_dynamic: bool = False,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    w, s, z, b, seven = _weights(params)
    return torch.ops.zeropoint.quantized_lstm(
        data, batch_sizes, hx, w, s, z, b, num_layers, 0.0, False, bidirectional, seven
    )


def quantized_gru(
    input: Tensor, hx: Tensor, params: List[CellParams], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    w, s, z, b, seven = _weights(params)
    return torch.ops.zeropoint.quantized_gru(
        input, hx, w, s, z, b, num_layers, 0.0, False, bidirectional, batch_first, seven
    )


def quantized_gru_packed(
    data: Tensor, batch_sizes: Tensor, hx: Tensor, params: List[CellParams], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    w, s, z, b, seven = _weights(params)
    return torch.ops.zeropoint.quantized_gru(
        data, batch_sizes, hx, w, s, z, b, num_layers, 0.0, False, bidirectional, seven
    )


# --------------------------------------------------------------------------------------------------- embedding tables


@compiled
class EmbeddingPackedParams:
    """A quantized table; `stored` is it in bytes for a file, `rows` as kernels read it."""

    def __init__(self, weight: Tensor):
        stored, rows, bits = torch.ops.zeropoint_compat.table_parts(weight)
        self.stored: Tensor = stored
        self.rows: Tensor = rows
        self.bits: int = bits

    def __getstate__(self) -> Tuple[int, List[Tensor], List[float], List[int]]:
        numbers: List[float] = []
        return 1, [self.stored], numbers, [self.bits]

    def __setstate__(self, state: Tuple[int, List[Tensor], List[float], List[int]]) -> None:
        stored, rows, bits = torch.ops.zeropoint_compat.table_parts(state[1][0])
        self.stored = stored
        self.rows = rows
        self.bits = bits


def embedding_bag_prepack(weight: Tensor) -> EmbeddingPackedParams:
    return EmbeddingPackedParams(weight)


def embedding_bag_unpack(weight: EmbeddingPackedParams) -> Tensor:
    return torch.ops.zeropoint_compat.table_weight(weight.stored)


def _embedding(op: Any) -> Any:
    def embedding(weight: EmbeddingPackedParams, indices: Tensor, pruned_weights: bool = False) -> Tensor:
        return op(weight.rows, indices)

    return embedding


def _embedding_bag(op: Any) -> Any:
    def embedding_bag(
        weight: EmbeddingPackedParams, indices: Tensor, offsets: Optional[Tensor] = None,
        scale_grad_by_freq: bool = False, mode: int = 0, pruned_weights: bool = False,
        per_sample_weights: Optional[Tensor] = None, compressed_indices_mapping: Optional[Tensor] = None,
        include_last_offset: bool = False,
    ) -> Tensor:  # fmt: skip
        return op(
            weight.rows, indices, offsets, scale_grad_by_freq, mode, pruned_weights, per_sample_weights,
            compressed_indices_mapping, include_last_offset,
        )  # fmt: skip

    return embedding_bag


# ----------------------------------------------------------------------------------------------------- the table


def _functions() -> dict[str, Any]:
    ops = torch.ops.zeropoint
    dynamic = _linear_dynamic(ops.linear_dynamic, ops.linear_dynamic_fp16)
    dynamic_relu = _linear_dynamic(ops.linear_relu_dynamic, ops.linear_relu_dynamic_fp16)
    made = {
        "linear_prepack": linear_prepack,
        "linear_prepack_fp16": linear_prepack,
        "linear_unpack": linear_unpack,
        "linear_unpack_fp16": linear_unpack,
        "linear": _linear(ops.linear),
        "linear_relu": _linear(ops.linear_relu),
        "linear_tanh": linear_tanh,
        "linear_leaky_relu": linear_leaky_relu,
        "linear_dynamic": dynamic,
        "linear_dynamic_fp16": dynamic,
        "linear_relu_dynamic": dynamic_relu,
        "linear_relu_dynamic_fp16": dynamic_relu,
        "quantized_gru_cell_dynamic": _cell(ops.quantized_gru_cell_dynamic),
        "quantized_rnn_relu_cell_dynamic": _cell(ops.quantized_rnn_relu_cell_dynamic),
        "quantized_rnn_tanh_cell_dynamic": _cell(ops.quantized_rnn_tanh_cell_dynamic),
        "quantized_lstm_cell_dynamic": quantized_lstm_cell_dynamic,
        "conv2d_add": _conv_add(ops.conv2d_add),
        "conv2d_add_relu": _conv_add(ops.conv2d_add_relu),
        "conv_prepack": conv_prepack,
        "conv_unpack": conv_unpack,
        "make_quantized_cell_params_dynamic": make_quantized_cell_params_dynamic,
        "make_quantized_cell_params_fp16": make_quantized_cell_params_fp16,
        "embedding_bag_prepack": embedding_bag_prepack,
        "embedding_bag_unpack": embedding_bag_unpack,
        "embedding_byte": _embedding(ops.embedding_byte),
        "embedding_4bit": _embedding(ops.embedding_4bit),
        "embedding_bag_byte": _embedding_bag(ops.embedding_bag_byte_rowwise_offsets),
        "embedding_bag_4bit": _embedding_bag(ops.embedding_bag_4bit_rowwise_offsets),
    }
    for dims in ("1d", "2d", "3d"):
        made |= {
            f"conv{dims}": _conv(getattr(ops, f"conv{dims}")),
            f"conv{dims}_relu": _conv(getattr(ops, f"conv{dims}_relu")),
            f"conv{dims}_dynamic": _conv_dynamic(getattr(ops, f"conv{dims}_dynamic")),
            f"conv{dims}_prepack": conv_prepack,
            f"conv_transpose{dims}": _conv_transposed(getattr(ops, f"conv_transpose{dims}")),
            f"conv_transpose{dims}_dynamic": _conv_transposed_dynamic(getattr(ops, f"conv_transpose{dims}_dynamic")),
            f"conv_transpose{dims}_prepack": conv_transpose_prepack,
        }
        made |= {f"conv{dims}_unpack": conv_unpack, f"conv_transpose{dims}_unpack": conv_unpack}
    for dims in ("2d", "3d"):
        for kind in ("conv", "conv_transpose"):
            made |= {
                f"{kind}{dims}_stride": conv_stride,
                f"{kind}{dims}_padding": conv_padding,
                f"{kind}{dims}_output_padding": conv_output_padding,
                f"{kind}{dims}_dilation": conv_dilation,
                f"{kind}{dims}_groups": conv_groups,
                f"{kind}{dims}_transpose": conv_transpose,
            }
    return made


FUNCTIONS = _functions()
# Functions of `torch` on packed weights, with lists of tensors and with packed sequences.
SEQUENCES = {
    "quantized_lstm": quantized_lstm,
    "quantized_lstm_packed": quantized_lstm_packed,
    "quantized_gru": quantized_gru,
    "quantized_gru_packed": quantized_gru_packed,
}


def _part(index: int) -> Any:
    return property(lambda packed_weight: weight_parts(packed_weight._weight)[index])


_WEIGHT = {
    "values": _part(0),
    "scales": _part(1),
    "zero_points": _part(2),
    "axis": _part(3),
    "dtype": _part(4),
    "bias_values": property(lambda packed_weight: packed_weight._bias),
    "rounding": property(lambda packed_weight: getattr(packed_weight, "_rounding", OURS)),  # float16 has none
}
_GEOMETRY = {
    "strides": property(lambda packed_weight: packed_weight.stride()),
    "paddings": property(lambda packed_weight: packed_weight.padding()),
    "output_paddings": property(lambda packed_weight: packed_weight.output_padding()),
    "dilations": property(lambda packed_weight: packed_weight.dilation()),
    "group_count": property(lambda packed_weight: packed_weight.groups()),
    "transposed": property(lambda packed_weight: packed_weight.transpose()),
}


_TABLE = {
    "stored": property(lambda packed_weight: written(packed_weight.unpack())),
    "rows": property(lambda packed_weight: packed_weight.table()),
    "bits": property(lambda packed_weight: packed_weight._dtype.bits),
}


def teach_packed_weights(changes: Changes) -> None:
    """Let TorchScript take packed weights of Python's, as arguments and as attributes of modules."""
    for cls, compiled, attributes in (
        (packed.LinearPackedParams, LinearPackedParams, _WEIGHT),
        (packed.LinearPackedParamsFp16, LinearPackedParams, _WEIGHT),
        (packed.ConvPackedParams, ConvPackedParams, _WEIGHT | _GEOMETRY),
        (recurrent.CellParams, CellParams, {}),
        (embedding.EmbeddingPackedParams, EmbeddingPackedParams, _TABLE),
    ):
        name = f"__torch__.{compiled.__module__}.{compiled.__name__}"
        changes.attribute(cls, "_jit_override_qualname", name)
        for attribute, value in attributes.items():
            changes.attribute(cls, attribute, value)
