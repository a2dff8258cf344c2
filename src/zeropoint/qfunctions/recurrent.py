"""LSTM, GRU and RNN layers and cells that run on packed weights, with float32 sequences in and out.

See `zeropoint.ops.recurrent` for the formulas.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.dtypes import qint8, quantized_dtype
from zeropoint.ops.recurrent import (
    GRU,
    LSTM,
    RNN_RELU,
    RNN_TANH,
    Kind,
    Matrix,
    Options,
    make_recurrent_layer,
    run_cell,
    run_recurrent,
)
from zeropoint.ops.rounding import OURS, takes_7_bits
from zeropoint.qfunctions.packed import LinearPackedParams, LinearPackedParamsFp16

__all__ = [
    "CellParams",
    "make_quantized_cell_params_dynamic",
    "make_quantized_cell_params_fp16",
    "quantized_gru",
    "quantized_gru_cell_dynamic",
    "quantized_lstm",
    "quantized_lstm_cell_dynamic",
    "quantized_rnn_relu",
    "quantized_rnn_relu_cell_dynamic",
    "quantized_rnn_tanh",
    "quantized_rnn_tanh_cell_dynamic",
]

Packed = LinearPackedParams | LinearPackedParamsFp16


def _matrix(packed: Packed) -> Matrix:
    if isinstance(packed, LinearPackedParamsFp16):
        return Matrix(packed._weight, None, None, packed._bias)
    return Matrix(packed._weight._data, packed._scale, packed._zero_point, packed._bias)


def _require_packed(op: str, name: str, packed: Any, kind: type) -> None:
    if not isinstance(packed, kind):
        made = "linear_prepack" if kind is LinearPackedParams else "linear_prepack_fp16"
        raise TypeError(f"{op}: {name} must come from zeropoint.qfunctions.{made}, got {type(packed).__name__}")


def _require_same_bias(op: str, name: str, given: Tensor | None, packed: Packed) -> None:
    """The bias beside packed weights must be the one that was packed with them, which is the one that is used."""
    if given is None:
        return
    if packed._bias is None or not torch.equal(given.detach(), packed._bias):
        how = "no bias" if packed._bias is None else "another one"
        raise ValueError(f"{op}: {name} is given, but its weight was packed with {how}; pack it with linear_prepack")


class CellParams:
    """The packed weights and biases of one direction of a recurrent layer.

    Args:
        w_ih: the packed ``(gates * hidden, inputs)``, with its bias.
        w_hh: the packed ``(gates * hidden, hidden)``, with its bias.
        b_ih, b_hh: the same biases again, or None.
        reduce_range: quantize the input and the hidden state to 7 bits.
    """

    def __init__(
        self,
        w_ih: Packed,
        w_hh: Packed,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
        reduce_range: bool = False,
    ) -> None:
        self.w_ih, self.w_hh, self.reduce_range = w_ih, w_hh, bool(reduce_range)
        for name, given, packed in (("b_ih", b_ih, w_ih), ("b_hh", b_hh, w_hh)):
            _require_same_bias("make_quantized_cell_params", name, given, packed)
        self._layers: dict[tuple[str, str], _native.RecurrentLayer] = {}

    @property
    def has_biases(self) -> bool:
        """Whether one of the weights has a bias."""
        return self.w_ih._bias is not None or self.w_hh._bias is not None

    @property
    def is_fp16(self) -> bool:
        """Whether the weights are float16."""
        return isinstance(self.w_ih, LinearPackedParamsFp16)

    def layer(self, op: str, kind: Kind) -> _native.RecurrentLayer:
        """The native layer for the instruction set in use."""
        key = _native.isa(), kind.name
        if key not in self._layers:
            seven = takes_7_bits(self.reduce_range, getattr(self.w_ih, "_rounding", OURS))
            self._layers[key] = make_recurrent_layer(op, kind, _matrix(self.w_ih), _matrix(self.w_hh), seven)
        return self._layers[key]

    def __getstate__(self) -> tuple[tuple[Any, ...], str]:
        """What objects of torch.ao answer: kind, biases, numbers and weights, and a name; files have `__reduce__`."""
        biases = [] if self.is_fp16 else [b for b in (self.w_ih._bias, self.w_hh._bias) if b is not None]
        numbers = [] if self.is_fp16 else [int(self.reduce_range)]
        kind = "quantized_fp16" if self.is_fp16 else "quantized_dynamic"
        return (kind, biases, [], numbers, [self.w_ih, self.w_hh]), "CellParams"

    def __reduce__(self) -> Any:
        return CellParams, (self.w_ih, self.w_hh, None, None, self.reduce_range)

    def __repr__(self) -> str:
        shapes = f"w_ih={tuple(_matrix(self.w_ih).weight.shape)}, w_hh={tuple(_matrix(self.w_hh).weight.shape)}"
        return f"CellParams({shapes}, {'float16' if self.is_fp16 else f'reduce_range={self.reduce_range}'})"


def make_quantized_cell_params_dynamic(
    w_ih: LinearPackedParams,
    w_hh: LinearPackedParams,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    reduce_range: bool = False,
) -> CellParams:
    """The parameters of a cell with 8-bit weights.

    Example:
        >>> import zeropoint
        >>> weight = zeropoint.quantize_per_tensor(torch.ones(4, 1), 0.1, 0, zeropoint.qint8)
        >>> packed = zeropoint.qfunctions.linear_prepack(weight, torch.zeros(4))
        >>> make_quantized_cell_params_dynamic(packed, packed, None, None, True)
        CellParams(w_ih=(4, 1), w_hh=(4, 1), reduce_range=True)
    """
    op = "make_quantized_cell_params_dynamic"
    _require_packed(op, "w_ih", w_ih, LinearPackedParams)
    _require_packed(op, "w_hh", w_hh, LinearPackedParams)
    return CellParams(w_ih, w_hh, bias_ih, bias_hh, reduce_range)


def make_quantized_cell_params_fp16(w_ih: LinearPackedParamsFp16, w_hh: LinearPackedParamsFp16) -> CellParams:
    """The parameters of a cell with float16 weights.

    Example:
        >>> packed = LinearPackedParamsFp16(torch.ones(3, 1), torch.zeros(3))
        >>> make_quantized_cell_params_fp16(packed, packed)
        CellParams(w_ih=(3, 1), w_hh=(3, 1), float16)
    """
    op = "make_quantized_cell_params_fp16"
    _require_packed(op, "w_ih", w_ih, LinearPackedParamsFp16)
    _require_packed(op, "w_hh", w_hh, LinearPackedParamsFp16)
    return CellParams(w_ih, w_hh)


# -------------------------------------------------------------------------------------------------------- sequences


class RecurrentOperator:
    """Recurrent layers on a sequence: ``input`` for a tensor, ``data`` for a packed sequence.

    Called itself, it takes the arguments of either, as torch.quantized_lstm and torch.quantized_gru do.

    Example:
        >>> packed = LinearPackedParamsFp16(torch.ones(3, 1))
        >>> params = make_quantized_cell_params_fp16(packed, packed)
        >>> y, h = quantized_gru(
        ...     torch.zeros(5, 2, 1), torch.zeros(1, 2, 1), [params], False, 1, 0.0, False, False, False
        ... )
        >>> y.shape, h.shape
        (torch.Size([5, 2, 1]), torch.Size([1, 2, 1]))
    """

    def __init__(self, name: str, kind: Kind) -> None:
        self.__name__ = name
        self._kind = kind

    def __call__(self, input: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, ...]:
        """`input`, or `data` if the second argument is the batch sizes of a packed sequence."""
        second = arguments[0] if arguments else options.get("batch_sizes")
        packed = "batch_sizes" in options or (isinstance(second, Tensor) and not second.is_floating_point())
        return self.data(input, *arguments, **options) if packed else self.input(input, *arguments, **options)

    def input(
        self,
        input: Tensor,
        hx: Tensor | Sequence[Tensor],
        params: Sequence[CellParams],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        *,
        dtype: Any = None,
        use_dynamic: bool = True,
    ) -> tuple[Tensor, ...]:
        """The output and the last states.

        Args:
            input: ``(steps, batch, inputs)``, or with `batch_first` ``(batch, steps, inputs)``; float32.
            hx: the first hidden state, ``(layers * directions, batch, hidden)``; for an LSTM a list of it and of the
                first cell state.
            params: one for each direction of each layer.
            has_biases: whether the params have biases.
            dropout: the share of outputs between layers that become 0, if `train`.
            dtype: qint8 or float16; if given, the params must be of it.
            use_dynamic: must be true: these layers quantize their input as they run.
        """
        self._check(params, has_biases, dtype, use_dynamic)
        options = Options(num_layers, dropout, train, bidirectional, batch_first)
        return self._run(input, None, hx, params, options)

    def data(
        self,
        data: Tensor,
        batch_sizes: Tensor,
        hx: Tensor | Sequence[Tensor],
        params: Sequence[CellParams],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        *,
        dtype: Any = None,
        use_dynamic: bool = True,
    ) -> tuple[Tensor, ...]:
        """As `input`, on the data ``(rows, inputs)`` and the batch sizes of a packed sequence."""
        self._check(params, has_biases, dtype, use_dynamic)
        options = Options(num_layers, dropout, train, bidirectional)
        return self._run(data, batch_sizes, hx, params, options)

    def _run(
        self,
        x: Tensor,
        batch_sizes: Tensor | None,
        hx: Tensor | Sequence[Tensor],
        params: Sequence[CellParams],
        options: Options,
    ) -> tuple[Tensor, ...]:
        layers = [p.layer(self.__name__, self._kind) for p in params]
        return run_recurrent(self.__name__, layers, x, batch_sizes, _states(self.__name__, self._kind, hx), options)

    def _check(self, params: Sequence[CellParams], has_biases: bool, dtype: Any, use_dynamic: bool) -> None:
        op = self.__name__
        if not params or not all(isinstance(p, CellParams) for p in params):
            raise TypeError(
                f"{op}: params must be a list of results of make_quantized_cell_params_dynamic or "
                f"make_quantized_cell_params_fp16, got {[type(p).__name__ for p in params]}"
            )
        for other in params[1:]:
            if (other.is_fp16, other.reduce_range) != (params[0].is_fp16, params[0].reduce_range):
                raise ValueError(f"{op}: params must agree in dtype and reduce_range, got {list(params)}")
        if any(p.has_biases != has_biases for p in params):
            raise ValueError(
                f"{op}: has_biases is {has_biases}, but the weights were packed with{'out' if has_biases else ''}"
                " biases; pack them accordingly"
            )
        if dtype is not None:
            wanted = "float16" if dtype == torch.float16 else quantized_dtype(dtype).name
            got = "float16" if params[0].is_fp16 else qint8.name
            if wanted != got:
                warnings.warn(f"{op}: dtype is {wanted}, but the params are {got}, and decide", stacklevel=3)
        if not use_dynamic:
            raise NotImplementedError(f"{op}: use_dynamic=False is not supported; omit it")

    def __repr__(self) -> str:
        return f"zeropoint.qfunctions.{self.__name__}"


def _states(op: str, kind: Kind, hx: Tensor | Sequence[Tensor]) -> list[Tensor]:
    if kind.has_cell_state:
        if isinstance(hx, Tensor) or len(hx) != 2:
            raise ValueError(f"{op}: hx must be a list of the hidden and the cell state")
        return list(hx)
    if not isinstance(hx, Tensor):
        raise TypeError(f"{op}: hx must be a tensor, got {type(hx).__name__}")
    return [hx]


quantized_lstm = RecurrentOperator("quantized_lstm", LSTM)
quantized_gru = RecurrentOperator("quantized_gru", GRU)
quantized_rnn_tanh = RecurrentOperator("quantized_rnn_tanh", RNN_TANH)
quantized_rnn_relu = RecurrentOperator("quantized_rnn_relu", RNN_RELU)


# ------------------------------------------------------------------------------------------------------------ cells

# For a packed w_ih: the packed w_hh, the instruction set and the kind of cell, and what was made of them.
_CELLS: Any = weakref.WeakKeyDictionary()


def _run_cell(
    op: str,
    kind: Kind,
    input: Tensor,
    states: list[Tensor],
    w_ih: Packed,
    w_hh: Packed,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> tuple[Tensor, ...]:
    made, isa = _CELLS.get(w_ih), _native.isa()
    if made is None or made[0]() is not w_hh or made[1:3] != (isa, kind.name):
        for name, packed in (("w_ih", w_ih), ("w_hh", w_hh)):
            wanted = LinearPackedParamsFp16 if isinstance(packed, LinearPackedParamsFp16) else LinearPackedParams
            _require_packed(op, name, packed, wanted)
        seven = takes_7_bits(True, getattr(w_ih, "_rounding", OURS))
        layer = make_recurrent_layer(op, kind, _matrix(w_ih), _matrix(w_hh), seven)
        made = weakref.ref(w_hh), isa, kind.name, layer
        _CELLS[w_ih] = made
    _require_same_bias(op, "b_ih", b_ih, w_ih)
    _require_same_bias(op, "b_hh", b_hh, w_hh)
    return run_cell(op, made[3], input, states)


def quantized_lstm_cell_dynamic(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Packed,
    w_hh: Packed,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: the next hidden and the next cell state; quantizes to 7 bits, as PyTorch does.

    Args:
        input: ``(batch, inputs)``.
        hx: the hidden and the cell state, ``(batch, hidden)``.
        w_ih, w_hh: packed weights, 8 bit or float16.
        bias_ih, bias_hh: the biases they were packed with, or None.

    Example:
        >>> packed = LinearPackedParamsFp16(torch.zeros(4, 1), torch.zeros(4))
        >>> states = [torch.zeros(1, 1), torch.ones(1, 1)]
        >>> quantized_lstm_cell_dynamic(torch.ones(1, 1), states, packed, packed, None, None)
        (tensor([[0.2311]]), tensor([[0.5000]]))
    """
    op = "quantized_lstm_cell_dynamic"
    h, c = _run_cell(op, LSTM, input, _states(op, LSTM, hx), w_ih, w_hh, bias_ih, bias_hh)
    return h, c


def quantized_gru_cell_dynamic(
    input: Tensor, hx: Tensor, w_ih: Packed, w_hh: Packed, b_ih: Tensor | None, b_hh: Tensor | None
) -> Tensor:
    """One step of a GRU: the next hidden state; arguments as for `quantized_lstm_cell_dynamic`."""
    op = "quantized_gru_cell_dynamic"
    return _run_cell(op, GRU, input, _states(op, GRU, hx), w_ih, w_hh, b_ih, b_hh)[0]


def quantized_rnn_tanh_cell_dynamic(
    input: Tensor, hx: Tensor, w_ih: Packed, w_hh: Packed, b_ih: Tensor | None, b_hh: Tensor | None
) -> Tensor:
    """One step of an RNN with tanh: the next hidden state; arguments as for `quantized_lstm_cell_dynamic`."""
    op = "quantized_rnn_tanh_cell_dynamic"
    return _run_cell(op, RNN_TANH, input, _states(op, RNN_TANH, hx), w_ih, w_hh, b_ih, b_hh)[0]


def quantized_rnn_relu_cell_dynamic(
    input: Tensor, hx: Tensor, w_ih: Packed, w_hh: Packed, b_ih: Tensor | None, b_hh: Tensor | None
) -> Tensor:
    """One step of an RNN with ReLU: the next hidden state; arguments as for `quantized_lstm_cell_dynamic`."""
    op = "quantized_rnn_relu_cell_dynamic"
    return _run_cell(op, RNN_RELU, input, _states(op, RNN_RELU, hx), w_ih, w_hh, b_ih, b_hh)[0]


torch.serialization.add_safe_globals([CellParams])
