"""LSTM out of linear layers, sigmoid, tanh and sums, each of which can be observed and quantized."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from zeropoint import qfunctions
from zeropoint.context import CONTEXT
from zeropoint.nn.quantized.functional_modules import FloatFunctional
from zeropoint.nn.simulated_tensor import joint, moved, plain
from zeropoint.numerics.dtypes import quint8
from zeropoint.tensor.create import quantize_per_tensor
from zeropoint.tensor.qtensor import QTensor

_GATES = ("input", "forget", "cell", "output")


class LSTMCell(nn.Module):
    """One step of an LSTM, as torch.nn.LSTMCell computes it::

        i, f, g, o = chunks of (weight_ih @ x + bias_ih) + (weight_hh @ h + bias_hh)
        c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h' = sigmoid(o) * tanh(c')

    Args:
        input_dim, hidden_dim: features of the input and of the state.
        bias: whether the two linear layers have one.
        split_gates: four pairs of small linear layers instead of one pair, each with a range of its own.

    Attributes:
        initial_hidden_state_qparams, initial_cell_state_qparams: scale and zero point of the zeros that a quantized
            cell begins with.
        hidden_state_dtype, cell_state_dtype: their type.

    Example:
        >>> cell = LSTMCell(3, 4)
        >>> h, c = cell(torch.randn(2, 3))
        >>> h.shape, c.shape
        (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    _FLOAT_MODULE = nn.LSTMCell
    __constants__ = ("split_gates",)

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_dim, hidden_dim
        self.bias, self.split_gates = bias, split_gates

        def linear(inputs: int, outputs: int) -> nn.Module:
            return nn.Linear(inputs, outputs, bias, device, dtype)

        if split_gates:
            self.igates: Any = nn.ModuleDict({gate: linear(input_dim, hidden_dim) for gate in _GATES})
            self.hgates: Any = nn.ModuleDict({gate: linear(hidden_dim, hidden_dim) for gate in _GATES})
            self.gates: Any = nn.ModuleDict({gate: FloatFunctional() for gate in _GATES})
        else:
            self.igates = linear(input_dim, 4 * hidden_dim)
            self.hgates = linear(hidden_dim, 4 * hidden_dim)
            self.gates = FloatFunctional()
        self.input_gate, self.forget_gate = nn.Sigmoid(), nn.Sigmoid()
        self.cell_gate, self.output_gate = nn.Tanh(), nn.Sigmoid()
        self.fgate_cx, self.igate_cgate = FloatFunctional(), FloatFunctional()
        self.fgate_cx_igate_cgate, self.ogate_cy = FloatFunctional(), FloatFunctional()
        self.initial_hidden_state_qparams = (1.0, 0)
        self.initial_cell_state_qparams = (1.0, 0)
        self.hidden_state_dtype: Any = quint8
        self.cell_state_dtype: Any = quint8

    def forward(self, x: Tensor, hidden: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Hidden and cell state after `x`, ``(batch, input_dim)``."""
        if hidden is None:
            hidden = self._begin(x)
        return self.step(self.of_input(x), hidden[0], hidden[1])

    def of_input(self, x: Tensor) -> list[Tensor]:
        """What `x` gives to the gates: one tensor, or one for each of the four."""
        if self.split_gates:
            given: list[Tensor] = []
            for layer in self.igates.values():
                given.append(layer(x))
            return given
        else:
            return [self.igates(x)]

    def step(self, given: list[Tensor], h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """The states after `h` and `c`, when the input gives `given` to the gates."""
        if self.split_gates:
            sums: list[Tensor] = []
            for i, (layer, gate) in enumerate(zip(self.hgates.values(), self.gates.values())):
                sums.append(gate.add(given[i], layer(h)))
        else:
            sums = self.gates.add(given[0], self.hgates(h)).chunk(4, 1)
        kept = self.fgate_cx.mul(self.forget_gate(sums[1]), c)
        new = self.igate_cgate.mul(self.input_gate(sums[0]), self.cell_gate(sums[2]))
        c = self.fgate_cx_igate_cgate.add(kept, new)
        return self.ogate_cy.mul(self.output_gate(sums[3]), torch.tanh(c)), c

    def _begin(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shape = [x.shape[0], self.hidden_size]
        if torch.jit.is_scripting():
            zeros = torch.zeros(shape, dtype=x.dtype, device=x.device)
            return zeros, zeros
        else:
            if isinstance(x, QTensor):
                return self.initialize_hidden(shape[0], True)
            zeros = moved(torch.zeros(shape, dtype=x.dtype, device=x.device), x)
            return zeros, zeros

    @torch.jit.unused
    def initialize_hidden(self, batch_size: int, is_quantized: bool = False) -> tuple[Tensor, Tensor]:
        """Zeros for both states."""
        h, c = torch.zeros(batch_size, self.hidden_size), torch.zeros(batch_size, self.hidden_size)
        if not is_quantized:
            return h, c
        return (
            quantize_per_tensor(h, *self.initial_hidden_state_qparams, self.hidden_state_dtype),
            quantize_per_tensor(c, *self.initial_cell_state_qparams, self.cell_state_dtype),
        )

    def _get_name(self) -> str:
        return "QuantizableLSTMCell"

    @classmethod
    def from_params(
        cls, wi: Tensor, wh: Tensor, bi: Tensor | None = None, bh: Tensor | None = None, split_gates: bool = False
    ) -> LSTMCell:
        """A cell of these weights ``(4 * hidden, features)`` and biases; it shares their memory."""
        if (bi is None) != (bh is None):
            raise ValueError("LSTMCell.from_params: pass both biases or none")
        cell = cls(wi.shape[1], wh.shape[1], bi is not None, wi.device, wi.dtype, split_gates=split_gates)
        for layers, weight, bias in ((cell.igates, wi, bi), (cell.hgates, wh, bh)):
            if not split_gates:
                _set(layers, weight, bias)
                continue
            biases = [None] * 4 if bias is None else bias.chunk(4)
            for layer, w, b in zip(layers.values(), weight.chunk(4), biases, strict=True):
                _set(layer, w, b)
        return cell

    @classmethod
    def from_float(cls, other: Any, use_precomputed_fake_quant: bool = False, split_gates: bool = False) -> LSTMCell:
        """The cell of an nn.LSTMCell, not yet observed."""
        _require_type(cls, other, exact=True)
        qconfig = _qconfig(cls, other, None)
        made = cls.from_params(other.weight_ih, other.weight_hh, other.bias_ih, other.bias_hh, split_gates)
        for module in (made, *made.igates.modules(), *made.hgates.modules()):
            module.qconfig = qconfig
        return made.train(other.training)


class _Direction(nn.Module):
    """A cell over a sequence ``(time, batch, features)``."""

    def __init__(self, cell: LSTMCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        results: list[Tensor] = []
        for i in range(x.shape[0]):
            h, c = self.cell(x[i], (h, c))
            results.append(h)
        return torch.stack(results), h, c


class _Layer(nn.Module):
    """One direction, or two; states are ``(directions, batch, features)``."""

    __constants__ = ("bidirectional",)

    def __init__(self, forward_cell: LSTMCell, backward_cell: LSTMCell | None) -> None:
        super().__init__()
        self.layer_fw = _Direction(forward_cell)
        self.bidirectional = backward_cell is not None
        if backward_cell is not None:
            self.layer_bw = _Direction(backward_cell)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        result, last_h, last_c = self.layer_fw(x, h[0], c[0])
        if self.bidirectional:
            back, back_h, back_c = self.layer_bw(x.flip(0), h[1], c[1])
            y = self._joined([result, back.flip(0)], 2)
            return y, self._joined([last_h[None], back_h[None]], 0), self._joined([last_c[None], back_c[None]], 0)
        else:
            return result, last_h[None], last_c[None]

    def _joined(self, parts: list[Tensor], dim: int) -> Tensor:
        return joined(parts, dim)


class LSTM(nn.Module):
    """torch.nn.LSTM out of parts that can be observed and quantized.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as for torch.nn.LSTM.
        split_gates: see `LSTMCell`.

    Example:
        >>> y, (h, c) = LSTM(3, 4, num_layers=2)(torch.randn(5, 1, 3))
        >>> y.shape, h.shape
        (torch.Size([5, 1, 4]), torch.Size([2, 1, 4]))
    """

    _FLOAT_MODULE: Any = nn.LSTM
    __constants__ = ("bidirectional", "batch_first")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"LSTM: dropout must be a number from 0 to 1, got {dropout!r}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional = bidirectional

        def cell(index: int) -> LSTMCell:
            inputs = input_size if index == 0 else hidden_size * (2 if bidirectional else 1)
            return LSTMCell(inputs, hidden_size, bias, device, dtype, split_gates=split_gates)

        self.layers = nn.ModuleList(_Layer(cell(i), cell(i) if bidirectional else None) for i in range(num_layers))

    def forward(self, x: Tensor, hidden: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Results and last states, with the shapes of torch.nn.LSTM."""
        if not torch.jit.is_scripting():
            _require_tensor(x)
        batched = x.dim() == 3
        if not batched:
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        directions = 2 if self.bidirectional else 1
        shape = [self.num_layers, directions, x.shape[1], self.hidden_size]
        if hidden is None:
            h = self._zeros(shape, x)
            c = h
        else:
            h, c = hidden[0].reshape(shape), hidden[1].reshape(shape)
        last_h: list[Tensor] = []
        last_c: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            if i > 0 and self.training and self.dropout > 0.0:
                x = nn.functional.dropout(x, self.dropout)
            x, layer_h, layer_c = layer(x, h[i], c[i])
            last_h.append(layer_h)
            last_c.append(layer_c)
        h, c = self._joined(last_h, 0), self._joined(last_c, 0)
        if not batched:
            return x.squeeze(1), (h.squeeze(1), c.squeeze(1))
        return x.transpose(0, 1) if self.batch_first else x, (h, c)

    def _zeros(self, shape: list[int], x: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            return torch.zeros(shape, dtype=x.dtype, device=x.device)
        else:
            if isinstance(x, QTensor):
                return quantize_per_tensor(torch.zeros(shape, device=x.device), 1.0, 0, x.qdtype)
            return moved(torch.zeros(shape, dtype=x.dtype, device=x.device), x)

    def _joined(self, parts: list[Tensor], dim: int) -> Tensor:
        return joined(parts, dim)

    def _get_name(self) -> str:
        return "QuantizableLSTM"

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> LSTM:
        """The LSTM of an nn.LSTM, observed; in training, with fake quantization inside."""
        _require_type(cls, other)
        made = cls.with_weights_of(other, qconfig, split_gates)
        return (CONTEXT.prepare_qat if other.training else CONTEXT.prepare)(made, inplace=True)

    @classmethod
    def with_weights_of(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> LSTM:
        """The LSTM of an nn.LSTM with a qconfig, not yet observed."""
        if other.proj_size:
            raise NotImplementedError(
                f"{cls.__name__}.from_float: an LSTM with proj_size={other.proj_size} has no quantized version; "
                "set its qconfig to None"
            )
        made = cls(
            other.input_size, other.hidden_size, other.num_layers, other.bias, other.batch_first, other.dropout,
            other.bidirectional, split_gates=split_gates,
        )  # fmt: skip
        made.qconfig = _qconfig(cls, other, qconfig)
        for i in range(other.num_layers):
            cells = []
            for suffix in ("", "_reverse")[: 2 if other.bidirectional else 1]:
                names = [f"{name}_l{i}{suffix}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
                wi, wh, bi, bh = (getattr(other, name, None) for name in names)
                cells.append(LSTMCell.from_params(wi, wh, bi, bh, split_gates))
            made.layers[i] = _Layer(cells[0], cells[1] if other.bidirectional else None)
        return made.train(other.training)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """There is none: `zeropoint.nn.quantized.LSTM.from_observed` makes the quantized module."""
        raise NotImplementedError(
            "zeropoint.nn.quantizable.LSTM is the observed module; the quantized one is"
            " zeropoint.nn.quantized.LSTM.from_observed(lstm), which zeropoint.convert calls"
        )


def joined(parts: list[Tensor], dim: int) -> Tensor:
    """Parts along `dim`; quantized ones with a range that holds them all, where torch.ao keeps that of the first."""
    if torch.jit.is_scripting():
        return torch.cat(parts, dim)
    else:
        return _joined(parts, dim)


def _joined(parts: list[Any], dim: int) -> Tensor:
    if not isinstance(parts[0], QTensor):
        return joint(torch.cat(plain(parts), dim), parts, joint_qparams)
    scales, zero_points = [p.q_scale() for p in parts], [p.q_zero_point() for p in parts]
    if len({*zip(scales, zero_points)}) == 1:
        return torch.cat(parts, dim)
    return qfunctions.cat(parts, dim, *joint_qparams(scales, zero_points, parts[0]._qdtype.qmin, parts[0]._qdtype.qmax))


def joint_qparams(scales: list[float], zero_points: list[int], qmin: int, qmax: int) -> tuple[float, int]:
    """Scale and zero point that cover all that tensors with these parameters can hold.

    Example:
        >>> joint_qparams([1.0, 0.5], [0, 128], 0, 255)
        (1.2509803921568627, 51)
    """
    low = 0.0
    high = 0.0
    for scale, zero_point in zip(scales, zero_points):
        low = min(low, (qmin - zero_point) * scale)
        high = max(high, (qmax - zero_point) * scale)
    scale = (high - low) / (qmax - qmin)
    return scale, max(qmin, min(qmax, qmin + int(-low / scale + 0.5)))


def _set(layer: Any, weight: Tensor, bias: Tensor | None) -> None:
    layer.weight = nn.Parameter(weight.detach(), weight.requires_grad)
    layer.bias = None if bias is None else nn.Parameter(bias.detach(), bias.requires_grad)


def _qconfig(cls: type, other: Any, qconfig: Any) -> Any:
    found = getattr(other, "qconfig", None) or qconfig
    if found is None:
        raise ValueError(f"{cls.__name__}.from_float: the module has no qconfig: call zeropoint.prepare, which sets it")
    return found


def _require_type(cls: Any, other: Any, exact: bool = False) -> None:
    wanted = cls._FLOAT_MODULE
    if not (type(other) is wanted if exact else isinstance(other, wanted)):
        raise TypeError(
            f"{cls.__module__}.{cls.__name__}.from_float takes a {wanted.__name__}, got a {type(other).__name__}"
        )


def _require_tensor(x: Any) -> None:
    if isinstance(x, PackedSequence):
        raise TypeError(
            "a statically quantized LSTM takes padded tensors; for packed sequences, use zeropoint.quantize_dynamic"
        )
    if x.dim() not in (2, 3):
        raise ValueError(f"LSTM: the input must have 2 or 3 dimensions, got shape {tuple(x.shape)}")
