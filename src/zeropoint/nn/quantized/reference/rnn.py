"""Recurrent layers and cells whose weights are rounded to what quantization will make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zeropoint.nn.quantized.reference.weight import ReferenceModule, get_qparam_dict, rounded
from zeropoint.numerics.schemes import per_tensor_affine


class _Weights(ReferenceModule):
    """A module with several weights; `weight_qparams_dict` has an entry for each, and `is_decomposed`."""

    _FLOAT: ClassVar[tuple[type, ...]]

    def _init_weight_qparams_dict(self, weight_qparams_dict: Mapping[str, Any] | None, device: Any = None) -> None:
        if weight_qparams_dict is None:
            usual = {"qscheme": per_tensor_affine, "dtype": "quint8", "scale": 1.0, "zero_point": 0}
            weight_qparams_dict = {**dict.fromkeys(self._names, usual), "is_decomposed": False}
        missing = [name for name in self._names if name not in weight_qparams_dict]
        if missing:
            raise ValueError(f"{type(self).__name__}: weight_qparams_dict has no entry for {', '.join(missing)}")
        self.is_decomposed = bool(weight_qparams_dict.get("is_decomposed", False))
        for name in self._names:
            self._set_qparams(name, weight_qparams_dict[name], device)

    def _get_name(self) -> str:
        kind = self._FLOAT[0].__name__
        return f"Quantized{kind}(Reference)"

    @classmethod
    def _found(cls, mod: Any, names: tuple[str, ...]) -> dict[str, Any]:
        """What the qconfig of `mod` finds for its weights."""
        qconfig = getattr(mod, "qconfig", None)
        if qconfig is None:
            raise ValueError(f"{cls.__name__}.from_float: pass weight_qparams_dict, or a module with a qconfig")
        found: dict[str, Any] = {"is_decomposed": False}
        for name in names:
            observer = qconfig.weight()
            observer(getattr(mod, name))
            found[name] = get_qparam_dict(observer)
        return found

    @classmethod
    def _require(cls, mod: nn.Module) -> None:
        if type(mod) not in cls._FLOAT:
            raise TypeError(f"{cls.__name__}.from_float takes a {cls._FLOAT[0].__name__}, got a {type(mod).__name__}")

    def _take(self, mod: nn.Module) -> Any:
        """Let this module have copies of the parameters of `mod`."""
        for name, parameter in mod.named_parameters():
            setattr(self, name, nn.Parameter(parameter.detach().clone()))
        return self.train(mod.training)


# ------------------------------------------------------------------------------------------------------------ cells


class _Cell(_Weights):
    """What the cells share; see `LSTMCell`."""

    _names = ("weight_ih", "weight_hh")

    def get_quantized_weight_ih(self) -> Tensor:
        """The weight for the input as a quantized tensor, or, for float16, in float16."""
        return self._quantized("weight_ih")

    def get_quantized_weight_hh(self) -> Tensor:
        """The weight for the hidden state as a quantized tensor, or, for float16, in float16."""
        return self._quantized("weight_hh")

    def get_weight_ih(self) -> Tensor:
        """The weight for the input, quantized and dequantized."""
        return rounded(
            self.weight_ih, self.weight_ih_scale, self.weight_ih_zero_point, self.weight_ih_axis_int,
            self._weight_ih_scale, self._weight_ih_zero_point, self._weight_ih_per_channel, self.is_decomposed,
            self._weight_ih_low, self._weight_ih_high, self._weight_ih_storage,
        )  # fmt: skip

    def get_weight_hh(self) -> Tensor:
        """The weight for the hidden state, quantized and dequantized."""
        return rounded(
            self.weight_hh, self.weight_hh_scale, self.weight_hh_zero_point, self.weight_hh_axis_int,
            self._weight_hh_scale, self._weight_hh_zero_point, self._weight_hh_per_channel, self.is_decomposed,
            self._weight_hh_low, self._weight_hh_high, self._weight_hh_storage,
        )  # fmt: skip

    @classmethod
    def from_float(
        cls: Any,
        mod: Any,
        weight_qparams_dict: Mapping[str, Any] | None = None,
        use_precomputed_fake_quant: bool = False,
    ) -> Any:
        """The reference cell of a float cell; without `weight_qparams_dict`, what its qconfig finds for the weights."""
        cls._require(mod)
        if weight_qparams_dict is None:
            weight_qparams_dict = cls._found(mod, cls._names)
        more = {"nonlinearity": mod.nonlinearity} if hasattr(mod, "nonlinearity") else {}
        options = {"bias": mod.bias, "device": mod.weight_ih.device, "weight_qparams_dict": weight_qparams_dict}
        return cls(mod.input_size, mod.hidden_size, **options, **more)._take(mod)


def _batched(input: Tensor, hx: Tensor | None, hidden_size: int) -> Tensor:
    """The hidden state for `input`, ``(batch, inputs)``: `hx`, or zeros."""
    if hx is None:
        return torch.zeros(input.size(0), hidden_size, dtype=input.dtype, device=input.device)
    return hx


class RNNCell(_Cell, nn.RNNCell):
    """A cell with ``dequantize(quantize(weight))``; arguments as for torch.nn.RNNCell, and `weight_qparams_dict`.

    Args:
        weight_qparams_dict: for `weight_ih` and `weight_hh`, each as for `reference.Linear`, and `is_decomposed`.
    """

    _FLOAT = (nn.RNNCell,)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
        weight_qparams_dict: Mapping[str, Any] | None = None,
    ) -> None:
        nn.RNNCell.__init__(self, input_size, hidden_size, bias, nonlinearity, device=device, dtype=dtype)
        self._init_weight_qparams_dict(weight_qparams_dict, device)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x = input if input.dim() == 2 else input.unsqueeze(0)
        h = _batched(x, hx if hx is None or hx.dim() == 2 else hx.unsqueeze(0), self.hidden_size)
        if self.nonlinearity == "relu":
            y = torch.rnn_relu_cell(x, h, self.get_weight_ih(), self.get_weight_hh(), self.bias_ih, self.bias_hh)
        else:
            y = torch.rnn_tanh_cell(x, h, self.get_weight_ih(), self.get_weight_hh(), self.bias_ih, self.bias_hh)
        return y if input.dim() == 2 else y.squeeze(0)


class _GatedCell(_Cell):
    """What LSTMCell and GRUCell share: they have no other functions to choose from."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        weight_qparams_dict: Mapping[str, Any] | None = None,
    ) -> None:
        kind: Any = self._FLOAT[0]
        kind.__init__(self, input_size, hidden_size, bias, device=device, dtype=dtype)
        self._init_weight_qparams_dict(weight_qparams_dict, device)


class LSTMCell(_GatedCell, nn.LSTMCell):
    """A cell with ``dequantize(quantize(weight))``; arguments as for torch.nn.LSTMCell, and see `RNNCell`."""

    _FLOAT = (nn.LSTMCell,)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        x = input if input.dim() == 2 else input.unsqueeze(0)
        if hx is None:
            zeros = _batched(x, None, self.hidden_size)
            h, c = zeros, zeros
        else:
            h, c = hx
            if h.dim() == 1:
                h, c = h.unsqueeze(0), c.unsqueeze(0)
        h, c = torch.lstm_cell(x, (h, c), self.get_weight_ih(), self.get_weight_hh(), self.bias_ih, self.bias_hh)
        if input.dim() == 1:
            h, c = h.squeeze(0), c.squeeze(0)
        return h, c


class GRUCell(_GatedCell, nn.GRUCell):
    """A cell with ``dequantize(quantize(weight))``; arguments as for torch.nn.GRUCell, and see `RNNCell`."""

    _FLOAT = (nn.GRUCell,)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x = input if input.dim() == 2 else input.unsqueeze(0)
        h = _batched(x, hx if hx is None or hx.dim() == 2 else hx.unsqueeze(0), self.hidden_size)
        y = torch.gru_cell(x, h, self.get_weight_ih(), self.get_weight_hh(), self.bias_ih, self.bias_hh)
        return y if input.dim() == 2 else y.squeeze(0)


# ----------------------------------------------------------------------------------------------- layers on sequences


class _Computing:
    """In front of a float module: it computes with the weights it is given, whatever its parameters are."""

    def _update_flat_weights(self) -> None:
        pass


class _ComputingLSTM(_Computing, nn.LSTM):
    pass


class _ComputingGRU(_Computing, nn.GRU):
    pass


class _RNN(_Weights):
    """What LSTM and GRU share; see `LSTM`. torch.jit.trace and torch.export take them, torch.jit.script does not."""

    _COMPUTING: ClassVar[type[nn.Module]]

    def __init__(self, *args: Any, weight_qparams_dict: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        kind: Any = self._FLOAT[0]
        kind.__init__(self, *args, **kwargs)
        self._init_weight_qparams_dict(weight_qparams_dict, kwargs.get("device"))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for name in self._flat_weights_names if name.startswith("weight"))

    def get_flat_weights(self) -> list[Tensor]:
        """The weights, quantized and dequantized, and the biases, in the order of torch.nn."""
        names = self._names
        return [self._rounded(name) if name in names else getattr(self, name) for name in self._flat_weights_names]

    def get_quantized_weight_bias_dict(self) -> dict[str, Any]:
        """The quantized weights and the biases, by their names."""
        names = self._names
        return {n: self._quantized(n) if n in names else getattr(self, n) for n in self._flat_weights_names}

    def forward(self, input: Any, hx: Any = None) -> Any:
        computing: Any = object.__new__(self._COMPUTING)
        computing.__dict__.update(self.__dict__, _flat_weights=self.get_flat_weights())
        return computing.forward(input, hx)

    @classmethod
    def from_float(
        cls: Any,
        mod: Any,
        weight_qparams_dict: Mapping[str, Any] | None = None,
        use_precomputed_fake_quant: bool = False,
    ) -> Any:
        """The reference layers of a float module; without `weight_qparams_dict`, what its qconfig finds."""
        cls._require(mod)
        if weight_qparams_dict is None:
            names = tuple(name for name in mod._flat_weights_names if name.startswith("weight"))
            weight_qparams_dict = cls._found(mod, names)
        more = {"proj_size": mod.proj_size} if getattr(mod, "proj_size", 0) else {}
        made = cls(
            mod.input_size, mod.hidden_size, num_layers=mod.num_layers, bias=mod.bias, batch_first=mod.batch_first,
            dropout=mod.dropout, bidirectional=mod.bidirectional, device=mod.weight_ih_l0.device,
            weight_qparams_dict=weight_qparams_dict, **more,
        )  # fmt: skip
        return made._take(mod)


class LSTM(_RNN, nn.LSTM):
    """`torch.nn.LSTM` with ``dequantize(quantize(weight))`` for each of its weights.

    Args:
        weight_qparams_dict: for each weight by its name (``weight_ih_l0``, ...) as for `reference.Linear`, and
            `is_decomposed`.

    Example:
        >>> qparams = {"qscheme": "per_tensor_affine", "dtype": "qint8", "scale": 0.1, "zero_point": 0}
        >>> layer = LSTM(3, 4, weight_qparams_dict={"weight_ih_l0": qparams, "weight_hh_l0": qparams})
        >>> layer(torch.zeros(5, 1, 3))[0].shape
        torch.Size([5, 1, 4])
    """

    _FLOAT = (nn.LSTM,)
    _COMPUTING = _ComputingLSTM


class GRU(_RNN, nn.GRU):
    """`torch.nn.GRU` with ``dequantize(quantize(weight))`` for each of its weights; see `LSTM`."""

    _FLOAT = (nn.GRU,)
    _COMPUTING = _ComputingGRU
