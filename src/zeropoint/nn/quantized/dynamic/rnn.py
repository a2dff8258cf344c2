"""LSTM and GRU on floats, with int8 or float16 weights."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from zeropoint.nn.quantized.dynamic.recurrent_weights import (
    NamedWeights,
    PackedParameter,
    blank_weight,
    observed_weight,
    pack_weight_bias,
    replace_weight,
    require_float,
    weight_kind,
    weight_observer,
)
from zeropoint.nn.quantized.storage import as_qtensor
from zeropoint.numerics.dtypes import qint8
from zeropoint.ops import recurrent as ops, rounding
from zeropoint.qfunctions import recurrent
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.recording import is_recorded


class RNNBase(NamedWeights):
    """What LSTM and GRU share; see `LSTM`."""

    _version = 2
    __jit_unused_properties__ = ("dtype",)
    _FLOAT_MODULE: ClassVar[type[nn.Module]]
    _KIND: ClassVar[ops.Kind]
    _OP: ClassVar[str]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = qint8,
    ) -> None:
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"{type(self).__name__}: dropout must be a number between 0 and 1, got {dropout!r}")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"{type(self).__name__}: dropout={dropout} has no effect: dropout is applied between layers, and "
                "there is only one",
                stacklevel=3,
            )
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        kind = weight_kind(dtype)
        self.version = self._version
        directions = 2 if bidirectional else 1
        rows = self._KIND.gates * hidden_size
        cells = []
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else hidden_size * directions
            for _ in range(directions):
                weights = (blank_weight(rows, columns, kind) for columns in (inputs, hidden_size))
                w_ih, w_hh = (pack_weight_bias(w, torch.zeros(rows) if bias else None, kind) for w in weights)
                cells.append(PackedParameter(recurrent.CellParams(w_ih, w_hh, reduce_range=kind is qint8)))
        self._all_weight_values = nn.ModuleList(cells)

    @property
    def dtype(self) -> Any:
        """Of the weights: qint8 or torch.float16."""
        first: Any = self._all_weight_values[0]
        return torch.float16 if first.ih._weight_dtype == "float16" else qint8

    def _get_name(self) -> str:
        return f"DynamicQuantized{self._FLOAT_MODULE.__name__}"

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        for name, usual in (
            ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0), ("bidirectional", False),
        ):  # fmt: skip
            value = getattr(self, name)
            if value != usual:
                parts.append(f"{name}={value}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    # --------------------------------------------------------------------------------------------------- running

    def _options(self) -> ops.Options:
        return ops.Options(self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first)

    def _eager(self, input: Tensor, states: list[Tensor], batch_sizes: Tensor | None) -> tuple[Tensor, ...]:
        cells = [c.layer(self._OP, self._KIND) for c in self._all_weight_values]
        return ops.run_recurrent(self._OP, cells, input, batch_sizes, states, self._options())

    def _weights(self) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor], bool]:
        """The weights, their scales and zero points, and the biases, as operators take them; and `reduce_range`."""
        weights: list[Tensor] = []
        scales: list[Tensor] = []
        zero_points: list[Tensor] = []
        biases: list[Tensor] = []
        reduce_range = False
        for cell in self._all_weight_values:
            reduce_range = rounding.takes_7_bits(cell.reduce_range, cell.ih._rounding)
            for m in (cell.ih, cell.hh):
                weights.append(m._weight_values)
                if m._weight_dtype != "float16":
                    scales.append(m._weight_scales)
                    zero_points.append(m._weight_zero_points)
                bias = m._bias
                if bias is not None:
                    biases.append(bias)
        return weights, scales, zero_points, biases, reduce_range

    def _zeros(self, input: Tensor, batch_sizes: Tensor | None) -> Tensor:
        """A first state of zeros."""
        if batch_sizes is not None:
            rows = int(batch_sizes[0])
        else:
            rows = input.size(0) if self.batch_first else input.size(1)
        layers = self.num_layers * (2 if self.bidirectional else 1)
        return torch.zeros(layers, rows, self.hidden_size, dtype=torch.float32, device=input.device)

    # --------------------------------------------------------------------------------------------------- weights

    def _names(self) -> list[str]:
        """How torch.nn ends the names of weights and biases, in the order of the cells."""
        ends = ("", "_reverse") if self.bidirectional else ("",)
        return [f"{m}_l{i}{end}" for i in range(self.num_layers) for end in ends for m in ("ih", "hh")]

    def _matrices(self) -> dict[str, Any]:
        found: Any = [m for cell in self._all_weight_values for m in (cell.ih, cell.hh)]
        return dict(zip(self._names(), found))

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Keep copies of these weights and biases; the names are those of `get_weight` and `get_bias`."""
        for name, matrix in self._matrices().items():
            bias = weight_bias_dict.get(f"bias_{name}") if self.bias else None
            replace_weight(self, f"weight_{name}", matrix, weight_bias_dict[f"weight_{name}"], bias, self.dtype)
        for cell in self._all_weight_values:
            cell._made = None

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The dynamically quantized layers of a float module; without a qconfig, int8 and per tensor."""
        require_float(cls, mod)
        if getattr(mod, "proj_size", 0):
            raise NotImplementedError(f"{cls.__name__}.from_float: projections (proj_size) are not supported")
        made = cls._like(mod, weight_kind(weight_observer(mod)().dtype))
        given = {f"weight_{name}": observed_weight(mod, f"weight_{name}") for name in made._names()}
        if mod.bias:
            given |= {f"bias_{name}": getattr(mod, f"bias_{name}") for name in made._names()}
        made.set_weight_bias(given)
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any) -> Any:
        """The dynamically quantized layers of a reference module (`zeropoint.nn.quantized.reference`)."""
        given = {name: as_qtensor(t) for name, t in ref_mod.get_quantized_weight_bias_dict().items()}
        weight = next(t for name, t in given.items() if name.startswith("weight"))
        made = cls._like(ref_mod, qint8 if isinstance(weight, QTensor) else torch.float16)
        made.set_weight_bias(given)
        return made

    @classmethod
    def _like(cls: Any, mod: Any, dtype: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say about dropout was said when `mod` was made
            made = cls(
                mod.input_size, mod.hidden_size, mod.num_layers, mod.bias, mod.batch_first, mod.dropout,
                mod.bidirectional, dtype=dtype,
            )  # fmt: skip
        return made.train(mod.training)


def _permuted(state: Tensor, order: Tensor | None) -> Tensor:
    """The columns of a state in another order."""
    if order is None:
        return state
    return state.index_select(1, order)


class LSTM(RNNBase):
    """`torch.nn.LSTM` with int8 or float16 weights; arguments, shapes and results are its.

    Args:
        dtype: of the weights, qint8 or torch.float16. With qint8, the input is quantized by the range of the whole
            sequence, and the hidden state by its range at each step, to 7 bits as in torch.ao.

    Example:
        >>> layer = LSTM.from_float(nn.LSTM(3, 4, num_layers=2))
        >>> y, (h, c) = layer(torch.zeros(5, 1, 3))
        >>> y.shape, h.shape
        (torch.Size([5, 1, 4]), torch.Size([2, 1, 4]))
    """

    _FLOAT_MODULE = nn.LSTM
    _KIND = ops.LSTM
    _OP = "quantized_lstm"
    # torch.jit.script compiles both and chooses by the type of what the module is called with.
    __overloads__: ClassVar[dict[str, list[str]]] = {"forward": ["forward_packed", "forward_tensor"]}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward_impl(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None, batch_sizes: Tensor | None, sorted_indices: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The output and the last states, in the order of `sorted_indices`."""
        if hx is None:
            zeros = self._zeros(input, batch_sizes)
            hidden, cell = zeros, zeros
        else:
            hidden, cell = _permuted(hx[0], sorted_indices), _permuted(hx[1], sorted_indices)
        if torch.jit.is_scripting():
            return self._graph(input, hidden, cell, batch_sizes)
        else:
            if is_recorded():
                return self._graph(input, hidden, cell, batch_sizes)
            y, h, c = self._eager(input, [hidden, cell], batch_sizes)
            return y, (h, c)

    def _graph(
        self, input: Tensor, hidden: Tensor, cell: Tensor, batch_sizes: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        weights, scales, zero_points, biases, reduce_range = self._weights()
        if batch_sizes is None:
            y, h, c = torch.ops.zeropoint.quantized_lstm(
                input, [hidden, cell], weights, scales, zero_points, biases, self.num_layers, self.dropout,
                self.training, self.bidirectional, self.batch_first, reduce_range,
            )  # fmt: skip
        else:
            y, h, c = torch.ops.zeropoint.quantized_lstm(
                input, batch_sizes, [hidden, cell], weights, scales, zero_points, biases, self.num_layers, self.dropout,
                self.training, self.bidirectional, reduce_range,
            )  # fmt: skip
        return y, (h, c)

    @torch.jit.export
    def forward_tensor(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """`forward` of a tensor."""
        return self.forward_impl(input, hx, None, None)

    @torch.jit.export
    def forward_packed(
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]:
        """`forward` of a packed sequence."""
        data, batch_sizes, sorted_indices, unsorted_indices = input
        y, states = self.forward_impl(data, hx, batch_sizes, sorted_indices)
        hidden, cell = _permuted(states[0], unsorted_indices), _permuted(states[1], unsorted_indices)
        return PackedSequence(y, batch_sizes, sorted_indices, unsorted_indices), (hidden, cell)

    @torch.jit.ignore
    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return self.forward_packed(input, hx)
        return self.forward_tensor(input, hx)


class GRU(RNNBase):
    """`torch.nn.GRU` with int8 or float16 weights; see `LSTM`.

    Example:
        >>> layer = GRU.from_float(nn.GRU(3, 4, bidirectional=True))
        >>> y, h = layer(torch.zeros(5, 1, 3))
        >>> y.shape, h.shape
        (torch.Size([5, 1, 8]), torch.Size([2, 1, 4]))
    """

    _FLOAT_MODULE = nn.GRU
    _KIND = ops.GRU
    _OP = "quantized_gru"
    __overloads__: ClassVar[dict[str, list[str]]] = {"forward": ["forward_packed", "forward_tensor"]}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)

    def forward_impl(
        self, input: Tensor, hx: Tensor | None, batch_sizes: Tensor | None, sorted_indices: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The output and the last state, in the order of `sorted_indices`."""
        if hx is None:
            hidden = self._zeros(input, batch_sizes)
        else:
            hidden = _permuted(hx, sorted_indices)
        if torch.jit.is_scripting():
            return self._graph(input, hidden, batch_sizes)
        else:
            if is_recorded():
                return self._graph(input, hidden, batch_sizes)
            y, h = self._eager(input, [hidden], batch_sizes)
            return y, h

    def _graph(self, input: Tensor, hidden: Tensor, batch_sizes: Tensor | None) -> tuple[Tensor, Tensor]:
        weights, scales, zero_points, biases, reduce_range = self._weights()
        if batch_sizes is None:
            return torch.ops.zeropoint.quantized_gru(
                input, hidden, weights, scales, zero_points, biases, self.num_layers, self.dropout, self.training,
                self.bidirectional, self.batch_first, reduce_range,
            )  # fmt: skip
        return torch.ops.zeropoint.quantized_gru(
            input, batch_sizes, hidden, weights, scales, zero_points, biases, self.num_layers, self.dropout,
            self.training, self.bidirectional, reduce_range,
        )  # fmt: skip

    @torch.jit.export
    def forward_tensor(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`forward` of a tensor."""
        return self.forward_impl(input, hx, None, None)

    @torch.jit.export
    def forward_packed(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]:
        """`forward` of a packed sequence."""
        data, batch_sizes, sorted_indices, unsorted_indices = input
        y, state = self.forward_impl(data, hx, batch_sizes, sorted_indices)
        hidden = _permuted(state, unsorted_indices)
        return PackedSequence(y, batch_sizes, sorted_indices, unsorted_indices), hidden

    @torch.jit.ignore
    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return self.forward_packed(input, hx)
        return self.forward_tensor(input, hx)
