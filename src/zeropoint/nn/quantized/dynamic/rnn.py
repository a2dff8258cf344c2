"""LSTM, GRU and single cells on floats, with int8 or float16 weights."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from zeropoint import _native
from zeropoint.nn.quantized.storage import StoredWeight, as_qtensor, quantize_weight
from zeropoint.numerics.dtypes import qint8, quantized_dtype
from zeropoint.ops import layers
from zeropoint.ops import recurrent as ops
from zeropoint.qconfig import default_dynamic_qconfig
from zeropoint.quantized import packed, recurrent
from zeropoint.tensor.create import empty_affine_quantized
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.watchers import is_recorded

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "PackedParameter", "RNNCell", "pack_weight_bias"]


# ---------------------------------------------------------------------------------------------------------- weights


def pack_weight_bias(qweight: Any, bias: Tensor | None, dtype: Any = qint8) -> recurrent.Packed:
    """A weight and its bias as `zeropoint.quantized.quantized_lstm_cell_dynamic` and relatives take them.

    Example:
        >>> pack_weight_bias(torch.ones(4, 1), None, torch.float16).unpack()[0].shape
        torch.Size([4, 1])
    """
    if _kind(dtype) == torch.float16:
        return packed.LinearPackedParamsFp16(qweight, bias)
    return packed.LinearPackedParams(qweight, bias)


def _kind(dtype: Any) -> Any:
    """qint8 or torch.float16; others are refused."""
    if dtype == torch.float16 or str(dtype) == "float16":
        return torch.float16
    if quantized_dtype(dtype) is not qint8:
        raise ValueError(f"the weights of recurrent layers are qint8 or float16, got {dtype}")
    return qint8


class _Matrix(StoredWeight):
    """One weight of a cell, with its bias."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.set_weight_bias(weight, bias)

    def set_weight_bias(self, weight: Tensor, bias: Tensor | None) -> None:
        """Keep copies; a float weight is kept in float16."""
        self._store(weight if isinstance(weight, QTensor) else layers.to_fp16_weight(weight), bias)

    def fits(self, key: str, weight: Tensor, errors: list[str]) -> bool:
        """Whether a weight from a state_dict has the shape of this one; if not, `errors` say so."""
        if weight.shape == self._weight_values.shape:
            return True
        shapes = f"{tuple(weight.shape)} in the state_dict, {tuple(self._weight_values.shape)} in the module"
        errors.append(f"size mismatch for a weight in {key}: {shapes}.")
        return False

    def matrix(self) -> ops.Matrix:
        """The parts, as the native core takes them."""
        if self._weight_dtype == "float16":
            return ops.Matrix(self._weight_values, None, None, self._bias)
        return ops.Matrix(self._weight_values, self._weight_scales, self._weight_zero_points, self._bias)

    def packed(self) -> recurrent.Packed:
        """A copy, as the functions of `zeropoint.quantized` take it."""
        weight, bias = self._stored()
        return pack_weight_bias(weight, bias, qint8 if isinstance(weight, QTensor) else torch.float16)


def _blank(rows: int, columns: int, dtype: Any) -> Tensor:
    """A weight of zeros."""
    if dtype == torch.float16:
        return torch.zeros(rows, columns)
    weight = empty_affine_quantized([rows, columns], scale=1.0, zero_point=0, dtype=dtype)
    weight._data.zero_()
    return weight


def _replace(module: nn.Module, name: str, matrix: _Matrix, weight: Tensor, bias: Tensor | None, dtype: Any) -> None:
    """Let `matrix` keep `weight` and `bias`, if they are what it holds."""
    if isinstance(weight, QTensor) == (dtype == torch.float16):
        wanted = "a float tensor" if dtype == torch.float16 else "a quantized tensor"
        raise TypeError(f"{type(module).__name__}: {name} must be {wanted}, got {type(weight).__name__}")
    if weight.shape != matrix._weight_values.shape:
        shapes = f"{tuple(matrix._weight_values.shape)}, got {tuple(weight.shape)}"
        raise ValueError(f"{type(module).__name__}: {name} must have shape {shapes}")
    matrix.set_weight_bias(weight, bias)


def _unpacked(stored: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a packed linear layer: ours, or one of torch.ao's, from its state_dict."""
    if isinstance(stored, (packed.LinearPackedParams, packed.LinearPackedParamsFp16)):
        return stored.unpack()
    weight, bias = stored.__getstate__()[0]
    return as_qtensor(weight), bias


class PackedParameter(nn.Module):
    """The two weights of one direction of a layer. In a state_dict it is one entry, `param`, as in torch.ao."""

    if TYPE_CHECKING:  # torch.jit.script would read annotations
        _made: Any  # what is packed for this CPU: (instruction set, native layer)

    __jit_unused_properties__ = ("param",)

    def __init__(self, param: recurrent.CellParams) -> None:
        super().__init__()
        self._set(_unpacked(param.w_ih), _unpacked(param.w_hh), param.reduce_range)

    def _set(self, ih: tuple[Tensor, Tensor | None], hh: tuple[Tensor, Tensor | None], reduce_range: bool) -> None:
        self.ih, self.hh, self.reduce_range = _Matrix(*ih), _Matrix(*hh), reduce_range
        self._made = None

    @property
    def param(self) -> recurrent.CellParams:
        """What `zeropoint.quantized.quantized_lstm` and relatives take; a copy."""
        return recurrent.CellParams(self.ih.packed(), self.hh.packed(), reduce_range=self.reduce_range)

    def layer(self, op: str, kind: ops.Kind) -> _native.RecurrentLayer:
        """The native layer for the instruction set in use."""
        isa = _native.isa()
        if self._made is None or self._made[0] != isa:
            made = ops.make_recurrent_layer(op, kind, self.ih.matrix(), self.hh.matrix(), self.reduce_range)
            self._made = isa, made
        return self._made[1]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._made = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without what is packed for this CPU."""
        return {**self.__dict__, "_made": None}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "param"] = self.param

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        _, strict, missing_keys, _, errors = args
        param = state_dict.pop(prefix + "param", None)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if param is None:
            if strict:
                missing_keys.append(prefix + "param")
            return
        if isinstance(param, recurrent.CellParams):
            reduce_range, weights = param.reduce_range, (param.w_ih, param.w_hh)
        else:  # torch.ao's
            _, _, _, numbers, weights = param.__getstate__()[0]
            reduce_range = bool(numbers and numbers[0])
        ih, hh = (_unpacked(w) for w in weights)
        if self.ih.fits(prefix + "param", ih[0], errors) and self.hh.fits(prefix + "param", hh[0], errors):
            self._set(ih, hh, reduce_range)


def _observed(mod: Any, name: str) -> Any:
    """The weight `name` of a float module as its qconfig wants it: a QTensor, or float to keep in float16."""
    weight = getattr(mod, name).detach().float()
    observer = _weight_observer(mod)()
    if _kind(observer.dtype) == torch.float16:
        return weight
    observer(weight)
    return quantize_weight(weight, observer)


def _weight_observer(mod: Any) -> Any:
    qconfig = getattr(mod, "qconfig", None)
    return (default_dynamic_qconfig if qconfig is None or qconfig.weight is None else qconfig).weight


def _require(cls: Any, mod: nn.Module) -> None:
    if type(mod) is not cls._FLOAT_MODULE:
        raise TypeError(f"{cls.__name__}.from_float takes a {cls._FLOAT_MODULE.__name__}, got a {type(mod).__name__}")


# ----------------------------------------------------------------------------------------------- layers on sequences


class RNNBase(nn.Module):
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
                f"{type(self).__name__}: dropout={dropout} does nothing: it acts between layers, and there is one",
                stacklevel=3,
            )
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        kind = _kind(dtype)
        self.version = self._version
        directions = 2 if bidirectional else 1
        rows = self._KIND.gates * hidden_size
        cells = []
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else hidden_size * directions
            for _ in range(directions):
                weights = (_blank(rows, columns, kind) for columns in (inputs, hidden_size))
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
            reduce_range = cell.reduce_range
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

    def _weight_bias(self) -> dict[str, dict[str, Any]]:
        stored = {name: m._stored() for name, m in self._matrices().items()}
        return {
            "weight": {f"weight_{name}": w for name, (w, _) in stored.items()},
            "bias": {f"bias_{name}": b for name, (_, b) in stored.items()} if self.bias else {},
        }

    def get_weight(self) -> dict[str, Any]:
        """Copies of the weights, by the names that torch.nn has for them."""
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Any]:
        """Copies of the biases, by the names that torch.nn has for them."""
        return self._weight_bias()["bias"]

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Keep copies of these weights and biases; the names are those of `get_weight` and `get_bias`."""
        for name, matrix in self._matrices().items():
            bias = weight_bias_dict.get(f"bias_{name}") if self.bias else None
            _replace(self, f"weight_{name}", matrix, weight_bias_dict[f"weight_{name}"], bias, self.dtype)
        for cell in self._all_weight_values:
            cell._made = None

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The dynamically quantized layers of a float module; without a qconfig, int8 and per tensor."""
        _require(cls, mod)
        if getattr(mod, "proj_size", 0):
            raise NotImplementedError(f"{cls.__name__}.from_float: projections (proj_size) are not supported")
        made = cls._like(mod, _kind(_weight_observer(mod)().dtype))
        given = {f"weight_{name}": _observed(mod, f"weight_{name}") for name in made._names()}
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


# ------------------------------------------------------------------------------------------------------------ cells


class RNNCellBase(nn.Module):
    """What the cells share; see `LSTMCell`."""

    _version = 1
    _FLOAT_MODULE: ClassVar[type[nn.Module]]
    _GATES: ClassVar[int]

    __jit_unused_properties__ = ("_packed_weight_ih", "_packed_weight_hh", "bias_ih", "bias_hh")

    if TYPE_CHECKING:  # torch.jit.script would read annotations
        _made: Any  # what is packed for this CPU: (instruction set, native layer)
        _ih: _Matrix
        _hh: _Matrix
        nonlinearity: str

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = qint8) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_dtype = _kind(dtype)
        self._made = None
        rows = self._GATES * hidden_size
        for name, columns in (("ih", input_size), ("hh", hidden_size)):
            weight = _blank(rows, columns, self.weight_dtype)
            setattr(self, f"_{name}", _Matrix(weight, torch.zeros(rows) if bias else None))

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
            made = ops.make_recurrent_layer(op, kind, self._ih.matrix(), self._hh.matrix(), True)
            self._made = isa, made
        return ops.run_cell(op, self._made[1], input, states)

    def _weights(self) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """The weights, their scales and zero points, and the biases, as operators take them."""
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
        return weights, scales, zero_points, biases

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._made = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without what is packed for this CPU."""
        return {**self.__dict__, "_made": None}

    # --------------------------------------------------------------------------------------------------- weights

    @property
    def _packed_weight_ih(self) -> recurrent.Packed:
        """What `zeropoint.quantized.quantized_lstm_cell_dynamic` and relatives take; a copy."""
        return self._ih.packed()

    @property
    def _packed_weight_hh(self) -> recurrent.Packed:
        """What `zeropoint.quantized.quantized_lstm_cell_dynamic` and relatives take; a copy."""
        return self._hh.packed()

    @property
    def bias_ih(self) -> Tensor | None:
        """The bias that is added to the product with the input."""
        return self._ih._bias

    @property
    def bias_hh(self) -> Tensor | None:
        """The bias that is added to the product with the hidden state."""
        return self._hh._bias

    def _weight_bias(self) -> dict[str, dict[str, Any]]:
        stored = {"ih": self._ih._stored(), "hh": self._hh._stored()}
        return {
            "weight": {f"weight_{name}": w for name, (w, _) in stored.items()},
            "bias": {f"bias_{name}": b for name, (_, b) in stored.items()} if self.bias else {},
        }

    def get_weight(self) -> dict[str, Any]:
        """Copies of the weights, by the names that torch.nn has for them."""
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Any]:
        """Copies of the biases, by the names that torch.nn has for them."""
        return self._weight_bias()["bias"]

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Keep copies of `weight_ih`, `weight_hh`, and, of a cell with biases, `bias_ih` and `bias_hh`."""
        for name, matrix in (("ih", self._ih), ("hh", self._hh)):
            bias = weight_bias_dict.get(f"bias_{name}") if self.bias else None
            _replace(self, f"weight_{name}", matrix, weight_bias_dict[f"weight_{name}"], bias, self.weight_dtype)
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
                weight, bias = _unpacked(stored)
                if getattr(self, f"_{name}").fits(key, weight, errors):
                    setattr(self, f"_{name}", _Matrix(weight, bias))
            elif strict:
                missing_keys.append(key)
        self.weight_dtype = torch.float16 if self._ih._weight_dtype == "float16" else qint8
        self.bias = self._ih._bias is not None
        self._made = None
        super()._load_from_state_dict(state_dict, prefix, *args)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The dynamically quantized cell of a float cell; without a qconfig, int8 and per tensor."""
        _require(cls, mod)
        made = cls._like(mod, _kind(_weight_observer(mod)().dtype))
        given = {name: _observed(mod, name) for name in ("weight_ih", "weight_hh")}
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
        weights, scales, zero_points, biases = self._weights()
        _, h, c = torch.ops.zeropoint.quantized_lstm(
            input.unsqueeze(0), [hidden.unsqueeze(0), cell.unsqueeze(0)], weights, scales, zero_points, biases, 1, 0.0,
            False, False, False, True,
        )  # fmt: skip
        return h.squeeze(0), c.squeeze(0)


class GRUCell(RNNCellBase):
    """`torch.nn.GRUCell` with int8 or float16 weights; see `LSTMCell`.

    Example:
        >>> GRUCell.from_float(nn.GRUCell(3, 4))(torch.zeros(2, 3)).shape
        torch.Size([2, 4])
    """

    _FLOAT_MODULE = nn.GRUCell
    _GATES = ops.GRU.gates

    def _op(self) -> tuple[str, ops.Kind]:
        return "quantized_gru_cell_dynamic", ops.GRU

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if hx is None:
            hx = torch.zeros(input.size(0), self.hidden_size, dtype=torch.float32, device=input.device)
        if torch.jit.is_scripting():
            return self._graph(input, hx)
        else:
            return self._graph(input, hx) if is_recorded() else self._eager(input, [hx])[0]

    def _graph(self, input: Tensor, hidden: Tensor) -> Tensor:
        weights, scales, zero_points, biases = self._weights()
        _, h = torch.ops.zeropoint.quantized_gru(
            input.unsqueeze(0), hidden.unsqueeze(0), weights, scales, zero_points, biases, 1, 0.0, False, False, False,
            True,
        )  # fmt: skip
        return h.squeeze(0)


class RNNCell(RNNCellBase):
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

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if hx is None:
            hx = torch.zeros(input.size(0), self.hidden_size, dtype=torch.float32, device=input.device)
        if torch.jit.is_scripting():
            return self._graph(input, hx)
        else:
            return self._graph(input, hx) if is_recorded() else self._eager(input, [hx])[0]

    def _graph(self, input: Tensor, hidden: Tensor) -> Tensor:
        weights, scales, zero_points, biases = self._weights()
        if self.nonlinearity == "relu":
            _, h = torch.ops.zeropoint.quantized_rnn_relu(
                input.unsqueeze(0), hidden.unsqueeze(0), weights, scales, zero_points, biases, 1, 0.0, False, False,
                False, True,
            )  # fmt: skip
        else:
            _, h = torch.ops.zeropoint.quantized_rnn_tanh(
                input.unsqueeze(0), hidden.unsqueeze(0), weights, scales, zero_points, biases, 1, 0.0, False, False,
                False, True,
            )  # fmt: skip
        return h.squeeze(0)
