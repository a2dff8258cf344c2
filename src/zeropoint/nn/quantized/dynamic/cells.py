"""Single steps of recurrent layers on floats, with int8 or float16 weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from zeropoint import _native
from zeropoint.nn.quantized.dynamic.recurrent_weights import (
    Matrix,
    NamedWeights,
    PackedOnce,
    blank_weight,
    observed_weight,
    replace_weight,
    require_float,
    unpacked,
    weight_kind,
    weight_observer,
)
from zeropoint.nn.quantized.storage import as_qtensor
from zeropoint.numerics.dtypes import qint8
from zeropoint.ops import recurrent as ops, rounding
from zeropoint.qfunctions import recurrent
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.recording import is_recorded


class RNNCellBase(NamedWeights, PackedOnce):
    """What the cells share; see `LSTMCell`."""

    _version = 1
    _FLOAT_MODULE: ClassVar[type[nn.Module]]
    _GATES: ClassVar[int]

    __jit_unused_properties__ = ("_packed_weight_ih", "_packed_weight_hh", "bias_ih", "bias_hh")

    if TYPE_CHECKING:  # torch.jit.script would read annotations
        _ih: Matrix
        _hh: Matrix
        nonlinearity: str

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = qint8) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_dtype = weight_kind(dtype)
        self._made = None
        rows = self._GATES * hidden_size
        for name, columns in (("ih", input_size), ("hh", hidden_size)):
            weight = blank_weight(rows, columns, self.weight_dtype)
            setattr(self, f"_{name}", Matrix(weight, torch.zeros(rows) if bias else None))

    def _get_name(self) -> str:
        return f"DynamicQuantized{self._FLOAT_MODULE.__name__}"

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    # --------------------------------------------------------------------------------------------------- running

    def _op(self) -> tuple[str, ops.Kind]:
        """The name of the operator of one step, and the kind of cell."""
        raise NotImplementedError

    def _eager(self, input: Tensor, states: list[Tensor]) -> tuple[Tensor, ...]:
        isa, (op, kind) = _native.isa(), self._op()
        if self._made is None or self._made[0] != isa:
            seven = rounding.takes_7_bits(True, self._ih._rounding)
            self._made = isa, ops.make_recurrent_layer(op, kind, self._ih.matrix(), self._hh.matrix(), seven)
        return ops.run_cell(op, self._made[1], input, states)

    def _weights(self) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor], bool]:
        """The weights, their scales and zero points, and the biases, as operators take them; and `reduce_range`."""
        weights: list[Tensor] = []
        scales: list[Tensor] = []
        zero_points: list[Tensor] = []
        biases: list[Tensor] = []
        for m in (self._ih, self._hh):
            weights.append(m._weight_values)
            if m._weight_dtype != "float16":
                scales.append(m._weight_scales)
                zero_points.append(m._weight_zero_points)
            bias = m._bias
            if bias is not None:
                biases.append(bias)
        return weights, scales, zero_points, biases, rounding.takes_7_bits(True, self._ih._rounding)

    # --------------------------------------------------------------------------------------------------- weights

    @property
    def _packed_weight_ih(self) -> recurrent.Packed:
        """What `zeropoint.qfunctions.quantized_lstm_cell_dynamic` and relatives take; a copy."""
        return self._ih.packed()

    @property
    def _packed_weight_hh(self) -> recurrent.Packed:
        """What `zeropoint.qfunctions.quantized_lstm_cell_dynamic` and relatives take; a copy."""
        return self._hh.packed()

    @property
    def bias_ih(self) -> Tensor | None:
        """The bias that is added to the product with the input."""
        return self._ih._bias

    @property
    def bias_hh(self) -> Tensor | None:
        """The bias that is added to the product with the hidden state."""
        return self._hh._bias

    def _matrices(self) -> dict[str, Matrix]:
        return {"ih": self._ih, "hh": self._hh}

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Keep copies of `weight_ih`, `weight_hh`, and, of a cell with biases, `bias_ih` and `bias_hh`."""
        for name, matrix in self._matrices().items():
            bias = weight_bias_dict.get(f"bias_{name}") if self.bias else None
            replace_weight(self, f"weight_{name}", matrix, weight_bias_dict[f"weight_{name}"], bias, self.weight_dtype)
        self._made = None

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "_packed_weight_ih"] = self._packed_weight_ih
        destination[prefix + "_packed_weight_hh"] = self._packed_weight_hh

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        _, strict, missing_keys, _, errors = args
        for name in ("ih", "hh"):
            key = f"{prefix}_packed_weight_{name}"
            stored = state_dict.pop(key, None)
            if stored is not None:
                weight, bias = unpacked(stored)
                if getattr(self, f"_{name}").fits(key, weight, errors):
                    setattr(self, f"_{name}", Matrix(weight, bias))
            elif strict:
                missing_keys.append(key)
        self.weight_dtype = torch.float16 if self._ih._weight_dtype == "float16" else qint8
        self.bias = self._ih._bias is not None
        self._made = None
        super()._load_from_state_dict(state_dict, prefix, *args)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The dynamically quantized cell of a float cell; without a qconfig, int8 and per tensor."""
        require_float(cls, mod)
        made = cls._like(mod, weight_kind(weight_observer(mod)().dtype))
        given = {name: observed_weight(mod, name) for name in ("weight_ih", "weight_hh")}
        made.set_weight_bias({**given, "bias_ih": mod.bias_ih, "bias_hh": mod.bias_hh})
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any) -> Any:
        """The dynamically quantized cell of a reference cell (`zeropoint.nn.quantized.reference`)."""
        weights = (as_qtensor(ref_mod.get_quantized_weight_ih()), as_qtensor(ref_mod.get_quantized_weight_hh()))
        made = cls._like(ref_mod, qint8 if isinstance(weights[0], QTensor) else torch.float16)
        given = dict(zip(("weight_ih", "weight_hh"), weights))
        made.set_weight_bias({**given, "bias_ih": ref_mod.bias_ih, "bias_hh": ref_mod.bias_hh})
        return made

    @classmethod
    def _like(cls: Any, mod: Any, dtype: Any) -> Any:
        more = {"nonlinearity": mod.nonlinearity} if hasattr(mod, "nonlinearity") else {}
        return cls(mod.input_size, mod.hidden_size, bias=mod.bias, dtype=dtype, **more)


class LSTMCell(RNNCellBase):
    """`torch.nn.LSTMCell` with int8 or float16 weights; arguments, shapes and results are its.

    Example:
        >>> cell = LSTMCell.from_float(nn.LSTMCell(3, 4))
        >>> h, c = cell(torch.zeros(2, 3))
        >>> h.shape
        torch.Size([2, 4])
    """

    _FLOAT_MODULE = nn.LSTMCell
    _GATES = ops.LSTM.gates

    def _op(self) -> tuple[str, ops.Kind]:
        return "quantized_lstm_cell_dynamic", ops.LSTM

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if hx is None:
            zeros = torch.zeros(input.size(0), self.hidden_size, dtype=torch.float32, device=input.device)
            hx = (zeros, zeros)
        if torch.jit.is_scripting():
            return self._graph(input, hx[0], hx[1])
        else:
            if is_recorded():
                return self._graph(input, hx[0], hx[1])
            h, c = self._eager(input, list(hx))
            return h, c

    def _graph(self, input: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        weights, scales, zero_points, biases, seven = self._weights()
        _, h, c = torch.ops.zeropoint.quantized_lstm(
            input.unsqueeze(0), [hidden.unsqueeze(0), cell.unsqueeze(0)], weights, scales, zero_points, biases, 1, 0.0,
            False, False, False, seven,
        )  # fmt: skip
        return h.squeeze(0), c.squeeze(0)


class _OneState(RNNCellBase):
    """Cells whose state is one tensor, which is their result."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if hx is None:
            hx = torch.zeros(input.size(0), self.hidden_size, dtype=torch.float32, device=input.device)
        if torch.jit.is_scripting():
            return self._graph(input, hx)
        else:
            return self._graph(input, hx) if is_recorded() else self._eager(input, [hx])[0]


class GRUCell(_OneState):
    """`torch.nn.GRUCell` with int8 or float16 weights; see `LSTMCell`.

    Example:
        >>> GRUCell.from_float(nn.GRUCell(3, 4))(torch.zeros(2, 3)).shape
        torch.Size([2, 4])
    """

    _FLOAT_MODULE = nn.GRUCell
    _GATES = ops.GRU.gates

    def _op(self) -> tuple[str, ops.Kind]:
        return "quantized_gru_cell_dynamic", ops.GRU

    def _graph(self, input: Tensor, hidden: Tensor) -> Tensor:
        weights, scales, zero_points, biases, seven = self._weights()
        _, h = torch.ops.zeropoint.quantized_gru(
            input.unsqueeze(0), hidden.unsqueeze(0), weights, scales, zero_points, biases, 1, 0.0, False, False, False,
            seven,
        )  # fmt: skip
        return h.squeeze(0)


class RNNCell(_OneState):
    """`torch.nn.RNNCell` with int8 or float16 weights; see `LSTMCell`.

    Args:
        nonlinearity: "tanh" or "relu".

    Example:
        >>> RNNCell.from_float(nn.RNNCell(3, 4, nonlinearity="relu"))
        DynamicQuantizedRNNCell(3, 4, nonlinearity=relu)
    """

    _FLOAT_MODULE = nn.RNNCell
    _GATES = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", dtype: Any = qint8
    ) -> None:
        super().__init__(input_size, hidden_size, bias, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity

    def _op(self) -> tuple[str, ops.Kind]:
        kind = ops.RNN_RELU if self.nonlinearity == "relu" else ops.RNN_TANH
        return f"quantized_{kind.name}_cell_dynamic", kind

    def _graph(self, input: Tensor, hidden: Tensor) -> Tensor:
        weights, scales, zero_points, biases, seven = self._weights()
        if self.nonlinearity == "relu":
            _, h = torch.ops.zeropoint.quantized_rnn_relu(
                input.unsqueeze(0), hidden.unsqueeze(0), weights, scales, zero_points, biases, 1, 0.0, False, False,
                False, seven,
            )  # fmt: skip
        else:
            _, h = torch.ops.zeropoint.quantized_rnn_tanh(
                input.unsqueeze(0), hidden.unsqueeze(0), weights, scales, zero_points, biases, 1, 0.0, False, False,
                False, seven,
            )  # fmt: skip
        return h.squeeze(0)
