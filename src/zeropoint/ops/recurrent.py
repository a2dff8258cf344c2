"""LSTM, GRU and RNN layers with quantized weights on float32 sequences, and one step of them.

Weights are 8-bit integers with their scales and zero points beside them, or float16; or, where a model is left
unquantized, float32. With 8-bit weights, a product is
taken of integers: the input is quantized to uint8 by the range of the whole sequence, the hidden state by its range at
each step, over all rows; with `per_token`, every row of both by its own range. Everything else is float32::

    lstm      i, f, g, o = sigmoid(.), sigmoid(.), tanh(.), sigmoid(.)   of  x W_ih' + b_ih + h W_hh' + b_hh
              c = f * c + i * g,   h = o * tanh(c)
    gru       r, z = sigmoid(.), sigmoid(.),   n = tanh(x W_in' + b_in + r * (h W_hn' + b_hn)),   h = (h - n) * z + n
    rnn_tanh  h = tanh(.)
    rnn_relu  h = max(., 0)

A layer runs a whole sequence, both directions of it, in one native call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.affine import INTEGER_CODES
from zeropoint.ops import checks
from zeropoint.ops.layers import BYTES, kept, layer_parameters
from zeropoint.ops.library import operator
from zeropoint.ops.sequences import packed_rows

FLOAT_CODES = {torch.float16: -1, torch.float32: -2}


@dataclass(frozen=True)
class Kind:
    """A kind of cell: its number in the native core, its gates, and whether it has a cell state beside the hidden."""

    name: str
    code: int
    gates: int
    has_cell_state: bool = False


LSTM = Kind("lstm", 0, 4, has_cell_state=True)
GRU = Kind("gru", 1, 3)
RNN_TANH = Kind("rnn_tanh", 2, 1)
RNN_RELU = Kind("rnn_relu", 3, 1)
KINDS = (LSTM, GRU, RNN_TANH, RNN_RELU)


@dataclass(frozen=True)
class Matrix:
    """One of the two matrices of a cell, with its bias.

    Args:
        weight: ``(gates * hidden, inputs)``; int8 or uint8, or float16, or float32.
        scale, zero_point: of 8-bit weights: one element, or ``(gates * hidden,)``.
        bias: ``(gates * hidden,)`` or None.
    """

    weight: Tensor
    scale: Tensor | None
    zero_point: Tensor | None
    bias: Tensor | None


# -------------------------------------------------------------------------------------------------- packed weights


def make_recurrent_layer(
    op: str, kind: Kind, input: Matrix, hidden: Matrix, reduce_range: bool, per_token: bool = False
) -> _native.RecurrentLayer:
    """One direction of a layer, packed for this CPU.

    Args:
        reduce_range: quantize what 8-bit weights are multiplied with to 7 bits. Our results need it no more than those
            of other layers, but PyTorch's modules ask for it, and with AVX2 alone it is twice as fast.
        per_token: give every row of the input and of the hidden state a range of its own. More accurate, and a sequence
            gives the same numbers alone and in a batch.

    Example:
        >>> weight = torch.zeros(4, 1, dtype=torch.float16)
        >>> matrix = Matrix(weight, None, None, None)
        >>> make_recurrent_layer("quantized_lstm", LSTM, matrix, matrix, False).hidden
        1
    """
    for name, matrix in (("w_ih", input), ("w_hh", hidden)):
        checks.require_dtype(op, name, matrix.weight.dtype, (*BYTES, *FLOAT_CODES))
        if matrix.weight.dim() != 2:
            raise ValueError(f"{op}: {name} must have two dimensions, got shape {tuple(matrix.weight.shape)}")
    units = hidden.weight.shape[1]
    if units == 0 or hidden.weight.shape[0] != kind.gates * units:
        hint = "; projections (proj_size) are not supported" if hidden.weight.shape[0] == input.weight.shape[0] else ""
        raise ValueError(
            f"{op}: w_hh must be ({kind.gates} * hidden, hidden) for {kind.name}, got shape"
            f" {tuple(hidden.weight.shape)}{hint}"
        )
    if input.weight.shape[0] != kind.gates * units:
        raise ValueError(
            f"{op}: w_ih has shape {tuple(input.weight.shape)}, but w_hh of shape {tuple(hidden.weight.shape)} needs"
            f" {kind.gates * units} rows in it"
        )
    if FLOAT_CODES.get(input.weight.dtype) != FLOAT_CODES.get(hidden.weight.dtype):
        raise TypeError(
            f"{op}: w_ih is {checks.names([input.weight.dtype])} and w_hh {checks.names([hidden.weight.dtype])}: both"
            " must be 8-bit integers, or both float16, or both float32"
        )
    arguments, alive = [], []  # the core copies what it is given: tensors must live until then
    for matrix in (input, hidden):
        tensors, numbers = _described(op, matrix)
        alive.append(tensors)
        arguments.append(numbers)
    return _native.RecurrentLayer(kind.code, units, input.weight.shape[1], reduce_range, per_token, *arguments)


def _described(op: str, matrix: Matrix) -> tuple[list[Tensor | None], tuple[int, int, int, int, int, int, int]]:
    """The tensors of a matrix as the native core wants them, and what it is told of them."""
    outputs = matrix.weight.shape[0]
    weight = matrix.weight.detach().contiguous()
    if weight.dtype in FLOAT_CODES:
        if matrix.scale is not None or matrix.zero_point is not None:
            raise ValueError(
                f"{op}: {checks.names([weight.dtype])} weights have no scale and no zero point: pass neither"
            )
        one = torch.ones(1)
        _, _, bias = layer_parameters(op, weight.view(torch.int8), one, one, matrix.bias, outputs)
        return [weight, bias], (weight.data_ptr(), FLOAT_CODES[weight.dtype], 0, 0, 0, 0, _address(bias))
    if matrix.scale is None or matrix.zero_point is None:
        raise ValueError(f"{op}: 8-bit weights need a scale and a zero point")
    scale, zero_point, bias = layer_parameters(op, weight, matrix.scale, matrix.zero_point, matrix.bias, outputs)
    numbers = (
        weight.data_ptr(),
        INTEGER_CODES[weight.dtype],
        zero_point.data_ptr(),
        zero_point.numel(),
        scale.data_ptr(),
        scale.numel(),
        _address(bias),
    )
    return [weight, scale, zero_point, bias], numbers


def _address(t: Tensor | None) -> int:
    return 0 if t is None else t.data_ptr()


def recurrent_layer(
    op: str, kind: Kind, input: Matrix, hidden: Matrix, reduce_range: bool, per_token: bool = False
) -> _native.RecurrentLayer:
    """As `make_recurrent_layer`; what is packed is kept with the weight of `input`."""
    others = (
        "recurrent",
        kind.name,
        reduce_range,
        per_token,
        input.scale,
        input.zero_point,
        input.bias,
        hidden.weight,
        hidden.scale,
        hidden.zero_point,
        hidden.bias,
    )
    return kept(input.weight, others, lambda: make_recurrent_layer(op, kind, input, hidden, reduce_range, per_token))


# --------------------------------------------------------------------------------------------------------- running


@dataclass(frozen=True)
class Options:
    """How the layers of a network stand to each other.

    Args:
        dropout: the share of outputs between two layers that become 0, if `train`.
        batch_first: sequences are ``(batch, steps, ...)`` instead of ``(steps, batch, ...)``.
    """

    num_layers: int = 1
    dropout: float = 0.0
    train: bool = False
    bidirectional: bool = False
    batch_first: bool = False

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1


def run_recurrent(
    op: str,
    layers: Sequence[_native.RecurrentLayer],
    x: Tensor,
    batch_sizes: Tensor | None,
    states: Sequence[Tensor],
    options: Options,
) -> tuple[Tensor, ...]:
    """All layers on a sequence, packed if `batch_sizes` are given: the output, and the last of each of the `states`.

    Args:
        layers: one for each direction of each layer.
        x: ``(steps, batch, inputs)``, or, packed, ``(rows, inputs)``.
        states: the first hidden state, and for an LSTM the first cell state: ``(layers, batch, hidden)``.
    """
    checks.require_no_trace(op)
    checks.require_dtype(op, "input", x.dtype, (torch.float32,))
    if options.num_layers < 1 or len(layers) != options.num_layers * options.directions:
        raise ValueError(
            f"{op}: {options.num_layers} layer(s) in {options.directions} direction(s) need"
            f" {options.num_layers * options.directions} cells, got {len(layers)}"
        )
    if not 0.0 <= options.dropout <= 1.0:
        raise ValueError(f"{op}: dropout must be between 0 and 1, got {options.dropout}")
    x = x.detach()
    if batch_sizes is None:
        if x.dim() != 3:
            raise ValueError(
                f"{op}: input must have three dimensions, (steps, batch, inputs) or, with batch_first, (batch, steps,"
                f" inputs), got shape {tuple(x.shape)}"
            )
        x = x.transpose(0, 1) if options.batch_first else x
        sizes = torch.full((x.shape[0],), x.shape[1], dtype=torch.int64)
        shape: tuple[int, ...] = x.shape[:2]
    else:
        sizes = _require_batch_sizes(op, batch_sizes, x)
        shape = x.shape[:1]
    if sizes.numel() == 0:
        raise ValueError(f"{op}: input has no steps, its shape is {tuple(x.shape)}; there must be at least one")
    batch, hidden = int(sizes[0]), layers[0].hidden
    states = [_require_state(op, s, (len(layers), batch, hidden)) for s in states]
    last = [torch.empty_like(s) for s in states]
    d = options.directions
    for i in range(options.num_layers):
        both = list(layers[i * d : (i + 1) * d])
        for layer in both:
            if x.shape[-1] != layer.inputs or layer.hidden != hidden:
                raise ValueError(
                    f"{op}: layer {i} has {layer.inputs} inputs and {layer.hidden} hidden units, but its input has"
                    f" {x.shape[-1]} features, and the first layer {hidden} hidden units"
                )
        if i > 0 and options.dropout > 0 and options.train:
            x = torch.nn.functional.dropout(x, options.dropout, training=True)
        x = x.contiguous()
        y = torch.empty((*shape, d * hidden))
        _native.run_recurrent(
            both,
            x.data_ptr(),
            sizes.data_ptr(),
            sizes.numel(),
            y.data_ptr(),
            _addresses(states, i * d),
            _addresses(last, i * d),
        )
        x = y
    if batch_sizes is None and options.batch_first:
        x = x.transpose(0, 1)
    return (x, *last)


def _addresses(states: Sequence[Tensor], layer: int) -> tuple[int, int]:
    """Where the hidden and the cell state of a layer begin; 0 for what is not there."""
    at = [s.data_ptr() + layer * s.stride(0) * s.element_size() for s in states]
    return at[0], at[1] if len(at) == 2 else 0


def _require_state(op: str, state: Tensor, shape: tuple[int, ...]) -> Tensor:
    checks.require_dtype(op, "hx", state.dtype, (torch.float32,))
    if state.shape != shape:
        raise ValueError(
            f"{op}: a state in hx has shape {tuple(state.shape)}, expected {shape}: (layers * directions, batch,"
            " hidden)"
        )
    return state.detach().contiguous()


def _require_batch_sizes(op: str, batch_sizes: Tensor, data: Tensor) -> Tensor:
    if data.dim() != 2:
        raise ValueError(f"{op}: data of a packed sequence must be (rows, inputs), got shape {tuple(data.shape)}")
    if batch_sizes.dim() != 1 or batch_sizes.dtype != torch.int64:
        raise ValueError(
            f"{op}: batch_sizes must have one dimension and be int64, got shape {tuple(batch_sizes.shape)} and "
            f"{checks.names([batch_sizes.dtype])}; torch.nn.utils.rnn.pack_padded_sequence computes it"
        )
    sizes = batch_sizes.detach().contiguous()
    if bool((sizes < 1).any()) or bool((sizes[1:] > sizes[:-1]).any()) or int(sizes.sum()) != data.shape[0]:
        raise ValueError(
            f"{op}: batch_sizes must be positive, must not grow, and must add up to the {data.shape[0]} rows of data,"
            f" got {sizes.tolist() if sizes.numel() <= 16 else f'{sizes.numel()} sizes, {int(sizes.sum())} rows'}"
        )
    return sizes


def run_cell(op: str, layer: _native.RecurrentLayer, x: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """One step: ``(batch, inputs)`` and states ``(batch, hidden)`` to the next states."""
    checks.require_no_trace(op)
    if x.dim() != 2 or x.shape[1] != layer.inputs:
        raise ValueError(f"{op}: input must be (batch, {layer.inputs}), got shape {tuple(x.shape)}")
    for state in states:
        if state.shape != (x.shape[0], layer.hidden):
            raise ValueError(
                f"{op}: hx has shape {tuple(state.shape)}, expected {(x.shape[0], layer.hidden)}: (batch, hidden)"
            )
    first = [s.unsqueeze(0) for s in states]
    _, *last = run_recurrent(op, [layer], x.unsqueeze(0), None, first, Options())
    return tuple(s.squeeze(0) for s in last)


# ------------------------------------------------------------------------------------------------ graph operators


_TYPES = {
    False: {"hx": "Tensor", "return": "(Tensor, Tensor)"},
    True: {"hx": "Tensor[]", "return": "(Tensor, Tensor, Tensor)"},  # with a cell state
}


def _cells(
    op: str,
    kind: Kind,
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    zero_points: Sequence[Tensor],
    biases: Sequence[Tensor],
    reduce_range: bool,
    per_token: bool = False,
) -> list[_native.RecurrentLayer]:
    """The layers of a network whose matrices stand in the order w_ih, w_hh of the first cell, of the second, ..."""
    if len(weights) % 2 != 0 or not weights:
        raise ValueError(f"{op}: weights must be w_ih and w_hh for each direction of each layer, got {len(weights)}")
    for name, given in (("weight_scales", scales), ("weight_zero_points", zero_points), ("biases", biases)):
        if len(given) not in (0, len(weights)):
            raise ValueError(f"{op}: there are {len(weights)} weights, but {len(given)} {name}: one each, or none")

    def matrix(i: int) -> Matrix:
        return Matrix(
            weights[i],
            scales[i] if scales else None,
            zero_points[i] if zero_points else None,
            biases[i] if biases else None,
        )

    pairs = ((matrix(i), matrix(i + 1)) for i in range(0, len(weights), 2))
    return [recurrent_layer(op, kind, *pair, reduce_range, per_token) for pair in pairs]


def _states(op: str, kind: Kind, hx: Any) -> list[Tensor]:
    """The first states as a list: hidden and cell state of an LSTM, the hidden state of the others."""
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    if len(states) != (2 if kind.has_cell_state else 1):
        raise ValueError(f"{op}: hx must be the hidden and the cell state, got {len(states)} tensor(s)")
    return states


def _run_padded(
    op: str,
    layers: Sequence[_native.RecurrentLayer],
    x: Tensor,
    batch_sizes: Tensor,
    states: Sequence[Tensor],
    options: Options,
) -> tuple[Tensor, ...]:
    """A padded sequence, ``(steps, batch, inputs)``, as the packed one it stands for; zeros behind the ends."""
    if x.dim() != 3 or options.batch_first:
        raise ValueError(f"{op}: with batch_sizes, input must be (steps, batch, inputs), got shape {tuple(x.shape)}")
    rows, sizes, mask = packed_rows(x, batch_sizes)
    y, *last = run_recurrent(op, layers, rows, sizes, states, options)
    made = y.new_zeros((*x.shape[:2], y.shape[-1]))
    made[mask] = y
    return (made, *last)


def _fake_states(kind: Kind, hx: Any) -> list[Tensor]:
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    return [s.new_empty(s.shape) for s in states]


def _define_sequence(name: str, kind: Kind) -> tuple[Callable[..., Any], Callable[..., Any]]:
    types = _TYPES[kind.has_cell_state]

    def fake_input(
        input: Tensor, hx: Any, weights: Sequence[Tensor], bidirectional: bool, batch_first: bool
    ) -> tuple[Tensor, ...]:
        units = weights[1].shape[1] * (2 if bidirectional else 1)
        first, second = input.shape[:2]
        y = input.new_empty((second, first, units) if batch_first else (first, second, units))
        return (y.transpose(0, 1) if batch_first else y, *_fake_states(kind, hx))

    @operator(fake=fake_input, name=f"{name}.input", types=types)
    def of_input(
        input: Tensor,
        hx: Any,
        weights: Sequence[Tensor],
        weight_scales: Sequence[Tensor],
        weight_zero_points: Sequence[Tensor],
        biases: Sequence[Tensor],
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        reduce_range: bool = False,
        batch_sizes: Tensor | None = None,
        per_token: bool = False,
    ) -> tuple[Tensor, ...]:
        layers = _cells(name, kind, weights, weight_scales, weight_zero_points, biases, reduce_range, per_token)
        options = Options(num_layers, dropout, train, bidirectional, batch_first)
        if batch_sizes is not None:
            return _run_padded(name, layers, input, batch_sizes, _states(name, kind, hx), options)
        return run_recurrent(name, layers, input, None, _states(name, kind, hx), options)

    def fake_data(data: Tensor, hx: Any, weights: Sequence[Tensor], bidirectional: bool) -> tuple[Tensor, ...]:
        units = weights[1].shape[1] * (2 if bidirectional else 1)
        return (data.new_empty((data.shape[0], units)), *_fake_states(kind, hx))

    @operator(fake=fake_data, name=f"{name}.data", types=types)
    def of_data(
        data: Tensor,
        batch_sizes: Tensor,
        hx: Any,
        weights: Sequence[Tensor],
        weight_scales: Sequence[Tensor],
        weight_zero_points: Sequence[Tensor],
        biases: Sequence[Tensor],
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        reduce_range: bool = False,
    ) -> tuple[Tensor, ...]:
        layers = _cells(name, kind, weights, weight_scales, weight_zero_points, biases, reduce_range)
        options = Options(num_layers, dropout, train, bidirectional)
        return run_recurrent(name, layers, data, batch_sizes, _states(name, kind, hx), options)

    of_input.__name__ = of_input.__qualname__ = name
    of_input.__doc__ = f"""{kind.name} layers on a sequence; see `run_recurrent`.

    Weights, scales, zero points and biases stand in the order ih, hh for each direction of each layer; float weights
    come without scales and zero points, and biases may be left away (empty lists). With `batch_sizes` the input is
    a padded sequence, see `zeropoint.ops.sequences`."""
    of_data.__name__ = of_data.__qualname__ = f"{name}_data"
    of_data.__doc__ = f"As `{name}`, on a packed sequence (torch.nn.utils.rnn.PackedSequence)."
    return of_input, of_data


quantized_lstm, quantized_lstm_data = _define_sequence("quantized_lstm", LSTM)
quantized_gru, quantized_gru_data = _define_sequence("quantized_gru", GRU)
quantized_rnn_tanh, quantized_rnn_tanh_data = _define_sequence("quantized_rnn_tanh", RNN_TANH)
quantized_rnn_relu, quantized_rnn_relu_data = _define_sequence("quantized_rnn_relu", RNN_RELU)


def _define_cell(name: str, kind: Kind) -> Callable[..., Any]:
    types = (
        {"hx": "Tensor[]", "return": "(Tensor, Tensor)"}
        if kind.has_cell_state
        else {"hx": "Tensor", "return": "Tensor"}
    )

    def fake(hx: Any) -> Any:
        states = _fake_states(kind, hx)
        return tuple(states) if kind.has_cell_state else states[0]

    @operator(fake=fake, name=name, types=types)
    def cell(
        input: Tensor,
        hx: Any,
        w_ih: Tensor,
        w_ih_scale: Tensor | None,
        w_ih_zero_point: Tensor | None,
        w_hh: Tensor,
        w_hh_scale: Tensor | None,
        w_hh_zero_point: Tensor | None,
        b_ih: Tensor | None,
        b_hh: Tensor | None,
        reduce_range: bool = False,
        per_token: bool = False,
    ) -> Any:
        layer = recurrent_layer(
            name,
            kind,
            Matrix(w_ih, w_ih_scale, w_ih_zero_point, b_ih),
            Matrix(w_hh, w_hh_scale, w_hh_zero_point, b_hh),
            reduce_range,
            per_token,
        )
        states = run_cell(name, layer, input, _states(name, kind, hx))
        return states if kind.has_cell_state else states[0]

    cell.__name__ = cell.__qualname__ = name
    cell.__doc__ = f"One step of {kind.name}, with 8-bit or float weights; see `run_cell`."
    return cell


quantized_lstm_cell_dynamic = _define_cell("quantized_lstm_cell_dynamic", LSTM)
quantized_gru_cell_dynamic = _define_cell("quantized_gru_cell_dynamic", GRU)
quantized_rnn_tanh_cell_dynamic = _define_cell("quantized_rnn_tanh_cell_dynamic", RNN_TANH)
quantized_rnn_relu_cell_dynamic = _define_cell("quantized_rnn_relu_cell_dynamic", RNN_RELU)
