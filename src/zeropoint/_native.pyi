# The native core. Tensors cross as addresses; see native/bindings/module.cpp.

from collections.abc import Callable, Sequence
from typing import Any

import numpy

Grid = tuple[int, int, int, int, int]  # rows, segments, length, row_stride, address of row_base or 0
Parameters = tuple[int, int, int]  # address, scalar type, count
Three = tuple[int, int, int]  # depth, height, width
Pooled = tuple[int, int, int, int, int, Three, Three]  # x, y, integer type, images, channels, in, out

def cpu_features() -> dict[str, Any]: ...
def machine() -> dict[str, Any]: ...
def read_machine(root: str, allowed: Sequence[int]) -> dict[str, Any]: ...
def peaks() -> dict[str, Any]: ...
def levels() -> list[tuple[str, list[str]]]: ...
def best_isa(features: Sequence[str]) -> str: ...
def isa() -> str: ...
def set_isa(name: str) -> None: ...
def kernel_list() -> list[tuple[str, str]]: ...
def selected_isa(operation: str, level: str) -> str: ...
def num_threads() -> int: ...
def adopt_openmp() -> bool: ...
def set_num_threads(n: int) -> None: ...
def quantize(
    x: int,
    y: int,
    dst: int,
    grid: Grid,
    scale: Parameters,
    zero_point: Parameters,
    variant: int,
    qmin: float,
    qmax: float,
    /,
) -> None: ...
def quantize_tensor(
    x: int, y: int, dst: int, n: int, scale: float, zero_point: float, variant: int, qmin: float, qmax: float, /
) -> None: ...
def dequantize(
    q: int, src: int, y: int, grid: Grid, scale: Parameters, zero_point: Parameters, exact: bool, wide: bool, /
) -> None: ...
def dequantize_tensor(q: int, src: int, y: int, n: int, scale: float, zero_point: float, exact: bool, /) -> None: ...
def fake_quantize(
    x: int,
    y: int,
    mask: int,
    grid: Grid,
    scale: Parameters,
    zero_point: Parameters,
    beyond: int,
    way_back: int,
    qmin: float,
    qmax: float,
    /,
) -> None: ...
def mask_gradient(dy: int, mask: int, dx: int, n: int, /) -> None: ...
def lookup(x: int, table: int, y: int, n: int, /) -> None: ...
def lookup_rows(x: int, table: int, tables: int, y: int, rows: int, length: int, /) -> None: ...
def minmax(x: int, grid: Grid, parts: int, min: int, max: int, /) -> None: ...
def least_loss_range(x: int, n: int, bins: int, ratio: float, bits: int, /) -> tuple[float, float]: ...
def histogram(x: int, n: int, low: float, high: float, bins: int, counts: int, /) -> tuple[float, float, int, int]: ...
def narrowing_ranges(
    cumulative: int, total: float, at: tuple[float, float, int, int], most: int, starts: int, ends: int, /
) -> tuple[int, tuple[float, float, int, int]]: ...  # at: mass below, mass above, start, end
def bin_errors(
    histogram: int,
    bins: int,
    bin_width: float,
    levels: float,
    starts: int,
    ends: int,
    count: int,
    errors: int,
    /,
) -> None: ...
def qparams_of_range(
    low: float, high: float, qmin: int, qmax: int, symmetric: bool, rounded: bool, /
) -> tuple[float, int]: ...
def observe_range(x: int, grid: Grid, parts: int, min: int, max: int, average: bool, rate: float, /) -> None: ...
def observe_and_fake_quantize(
    x: int,
    grid: Grid,
    per_channel: bool,
    observe: bool,
    parts: int,
    state: tuple[int, int, int, int],  # min, max, scale (float32), zero_point (int32)
    rate: float,
    y: int,
    mask: int,
    qmin: int,
    qmax: int,
    symmetric: bool,
    /,
) -> bool: ...
def pack(values: int, bytes: int, rows: int, columns: int, bits: int, /) -> None: ...
def unpack(bytes: int, values: int, rows: int, columns: int, bits: int, /) -> None: ...
def max_pool(tensor: Pooled, kernel: Three, stride: Three, padding: Three, dilation: Three, /) -> None: ...
def average_pool(
    tensor: Pooled,
    kernel: Three,
    stride: Three,
    padding: Three,
    averaging: int,
    count_include_pad: bool,
    divisor: int,
    zero_point: int,
    qmin: float,
    qmax: float,
    scale: float,
    /,
) -> None: ...
def adaptive_average_pool(
    tensor: Pooled, averaging: int, zero_point: int, qmin: float, qmax: float, scale: float, /
) -> None: ...
def nearest(tensor: Pooled, scale: tuple[float, float, float], exact: bool, /) -> None: ...
def interleave(
    x: int, y: int, bytes: int, counts: Three, strides: Three, groups: int, group_stride: int, length: int, /
) -> None: ...
def bilinear(
    tensor: Pooled,
    align_corners: bool,
    scale_height: float,
    scale_width: float,
    fused: bool,
    fuse_first: bool,
    zero_point: int,
    qmin: float,
    qmax: float,
    /,
) -> None: ...

Operand = tuple[int, float, int]  # address, scale, zero point
# sizes of the outer axes, strides of a, strides of b, elements of the last axis, whether b is one value along it
Places = tuple[list[int], list[int], list[int], int, bool]
Piece = tuple[int, int, int]  # address, address of a table or 0, bytes in a row

def binary(operation: int, type: int, a: Operand, b: Operand, y: Operand, relu: bool, places: Places, /) -> None: ...
def fits_fixed_add(a_scale: float, b_scale: float, scale: float, /) -> bool: ...
def join(pieces: list[Piece], rows: int, y: int, /) -> None: ...

Weights = tuple[int, int]  # address, integer type
Array = tuple[int, int]  # address, count
Tensor8 = tuple[int, int, float, int]  # address, integer type, scale, zero point
# address, output type (integer type, or 2: float32), scale, zero point, lowest and highest integer, lowest float, slope
Output = tuple[int, int, float, int, int, int, float, float]

class LinearLayer:
    def __init__(
        self, weights: Weights, zero_point: Array, outputs: int, inputs: int, scale: Array, bias: int, rounding: int, /
    ) -> None: ...
    @property
    def outputs(self) -> int: ...
    @property
    def inputs(self) -> int: ...
    def run(self, x: Tensor8, rows: int, y: Output, residual: Tensor8, /) -> None: ...
    def run_dynamic(self, x: int, rows: int, y: int, reduce_range: bool, per_row: bool, relu: bool, /) -> None: ...

class ConvLayer:
    def __init__(
        self,
        weights: Weights,
        zero_point: Array,
        channels: Three,  # in, out, groups
        kernel: Three,
        stride: Three,
        padding: Three,
        dilation: Three,
        transposed: bool,
        output_padding: Three,
        scale: Array,
        bias: int,
        rounding: int,
        /,
    ) -> None: ...
    def run(
        self, x: Tensor8, images: int, size: Three, channels_first: bool, y: Output, residual: Tensor8, /
    ) -> None: ...

def matmul(a: Tensor8, b: Tensor8, sizes: tuple[int, int, int, int], y: Output, /) -> None: ...
def matmul_dynamic(a: int, b: int, sizes: tuple[int, int, int, int], y: int, /) -> None: ...

Table = tuple[int, int, int, int, int]  # address, rows, columns, bits, address of the floats
Indices = tuple[int, bool, int]  # address, int64 or int32, count

def embedding_bags(
    op: str,
    table: Table,
    indices: Indices,
    offsets: Indices,
    cut: bool,
    length: int,
    last: bool,
    mapping: Indices,
    weights: int,
    mode: int,
    /,
) -> None: ...
def embedding_unpack(table: Table, /) -> None: ...
def embedding_pack(table: Table, ranges: int, least_loss: bool, bins: int, ratio: float, /) -> int: ...

# address, integer type or -1 for float16, zero points, how many, scales, how many, bias or 0
RecurrentWeight = tuple[int, int, int, int, int, int, int]

class RecurrentLayer:
    def __init__(
        self,
        cell: int,
        hidden: int,
        inputs: int,
        reduce_range: bool,
        per_row: bool,
        input: RecurrentWeight,
        recurrent: RecurrentWeight,
        /,
    ) -> None: ...
    @property
    def hidden(self) -> int: ...
    @property
    def inputs(self) -> int: ...
    @property
    def reduce_range(self) -> bool: ...

def run_recurrent(
    layers: list[RecurrentLayer],
    x: int,
    batch_sizes: int,
    steps: int,
    y: int,
    first: tuple[int, int],  # hidden state, cell state or 0
    last: tuple[int, int],
    /,
) -> None: ...

RecurrentState = tuple[int, float, int]  # address, scale, zero point

def integer_lstm(
    layer: LinearLayer,
    type: int,
    sizes: tuple[int, int, int],  # steps, batch, hidden
    given: RecurrentState,
    h: RecurrentState,
    c: RecurrentState,
    # of the linear layer, the sums, the four gates, both products, the cell state, its squashed form and the result
    parts: list[tuple[float, int]],
    tables: int,
    y: int,
    last_c: int,
    /,
) -> None: ...

# x, integer type, scale, zero point, y, its scale, its zero point, its lowest and highest integer
Normalized = tuple[int, int, float, int, int, float, int, int, int]
Channels = tuple[int, int, int, bool]  # images, channels, places, whether the channels are innermost in memory

def batch_norm(
    tensor: Normalized, shape: Channels, weight: int, bias: int, mean: int, var: int, eps: float, /
) -> None: ...
def layer_norm(tensor: Normalized, rows: int, length: int, weight: int, bias: int, eps: float, /) -> None: ...
def group_norm(tensor: Normalized, shape: Channels, groups: int, weight: int, bias: int, eps: float, /) -> None: ...
def softmax(tensor: Normalized, outer: int, length: int, inner: int, /) -> None: ...
def mean_of_rows(tensor: Normalized, rows: int, length: int, /) -> None: ...
def mean_of_columns(tensor: Normalized, images: int, rows: int, length: int, /) -> None: ...

# 0: gelu, 1: gelu by tanh, 2: tanh, 3: sigmoid, 4: silu
def float_function(function: int, x: int, y: int, count: int, /) -> None: ...
def float_layer_norm(x: int, y: int, rows: int, length: int, weight: int, bias: int, eps: float, /) -> None: ...
def float_log_softmax(x: int, y: int, outer: int, length: int, inner: int, /) -> None: ...
def float_softmax(x: int, y: int, outer: int, length: int, inner: int, safe: bool, /) -> None: ...

# rows, depth, columns, steps: from row to row of a, from row to row of b, from column to column of b
Matrices = tuple[int, int, int, int, int, int]

def float_matmul(
    a: int, b: int, y: int, batch: list[int], a_batch: list[int], b_batch: list[int], matrices: Matrices, /
) -> None: ...

# x, y, images, channels, sizes of the input, of the output
FloatPooled = tuple[int, int, int, int, Three, Three]

def float_average_pool(
    tensor: FloatPooled, kernel: Three, stride: Three, padding: Three, count_padding: bool, divisor: int, /
) -> None: ...
def float_adaptive_average_pool(tensor: FloatPooled, /) -> None: ...
def float_bilinear(tensor: FloatPooled, align_corners: bool, scale_height: float, scale_width: float, /) -> None: ...
def float_mean(x: int, y: int, rows: int, length: int, /) -> None: ...
def float_sum(x: int, y: int, rows: int, length: int, /) -> None: ...
def matrix_traits(function: str, /) -> tuple[bool, bool]: ...
def matrices(function: str, a: int, b: int, y: int, batch: int, sizes: Sequence[int], /) -> None: ...
def float_norm(x: int, y: int, rows: int, length: int, /) -> None: ...
def float_product(x: int, y: int, rows: int, length: int, /) -> None: ...
def float_variance(x: int, y: int, rows: int, length: int, correction: float, /) -> None: ...
def float_map(name: str, a: int, b: int, y: int, count: int, /) -> None: ...

class FloatConvLayer:
    def __init__(
        self,
        weight: int,
        channels: Three,  # in, out, groups
        kernel: Three,
        stride: Three,
        padding: Three,
        dilation: Three,
        transposed: bool,
        output_padding: Three,
        bias: int,
        /,
    ) -> None: ...
    def run(self, x: int, images: int, sizes: Three, y: int, /) -> None: ...

Float = tuple[int, int]  # address, 0: float32, 1: bfloat16

class WeightOnlyLayer:
    def __init__(
        self,
        weights: tuple[int, int, int],  # address, storage (0: uint8, 1: int8, 2: 4 bits, 3: float16), group size
        outputs: int,
        inputs: int,
        scale: Array,
        zero_point: Array,
        shift: Array,
        bias: int,
        /,
    ) -> None: ...
    @property
    def outputs(self) -> int: ...
    @property
    def inputs(self) -> int: ...
    def run(self, x: Float, rows: int, y: Float, relu: bool, /) -> None: ...

class FormatError(ValueError): ...

def engine_steps() -> list[str]: ...

class State:
    def reset(self) -> None: ...
    def values(self) -> list[bytes]: ...
    def set_values(self, values: Sequence[bytes], /) -> None: ...
    def part(self, tensor: int, offset: int, bytes: int, /) -> bytes: ...
    def set_part(self, tensor: int, offset: int, bytes: bytes, /) -> None: ...

class Program:
    def __init__(self, data: bytes, memory_limit: int = ..., foreign: Sequence[object] = ...) -> None: ...
    @staticmethod
    def read(path: str, memory_limit: int = ..., in_place: bool = ...) -> Program: ...
    @property
    def inputs(self) -> list[tuple[str, str, list[str]]]: ...
    @property
    def result(self) -> str: ...
    @property
    def arguments(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def memory_limit(self) -> int: ...
    def outputs(self, shapes: Sequence[Sequence[int]], /) -> list[tuple[str, str, list[int]]]: ...
    def data(self) -> bytes: ...
    def run(
        self,
        inputs: Sequence[object],
        tensor: type | None = None,
        wrap: Callable[[numpy.ndarray], object] | None = None,
        state: State | None = None,
    ) -> list[Any]: ...
    @property
    def state(self) -> list[tuple[str, str, list[int]]]: ...
    def new_state(self) -> State: ...
    def memory(self, shapes: Sequence[Sequence[int]], /) -> tuple[int, int]: ...
    # For inputs of these shapes: steps (kernel, its instruction set, types of the first input and output, sizes of the
    # output, bytes of what is stored, of the other inputs, of the outputs), instructions (step or -1, multiplications)
    # and the arena (offset, bytes, first and last instruction that use it).
    def layout(
        self, shapes: Sequence[Sequence[int]], /
    ) -> tuple[
        list[tuple[str, str, str, str, list[int], int, int, int]],
        list[tuple[int, float]],
        list[tuple[int, int, int, int]],
    ]: ...
    def example_shapes(self) -> list[list[int]]: ...
    def profile(self, inputs: Sequence[object], /) -> list[tuple[str, str, int, float, float]]: ...
