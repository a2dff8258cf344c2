"""Activation functions on quantized tensors. Those with a `scale` and `zero_point` quantize their result with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from zeropoint import qfunctions
from zeropoint.nn.quantized.storage import (
    CalibratedOutput,
    as_qtensor,
    found_qparams,
    integers_of,
    output_qparams,
    quantized,
)
from zeropoint.numerics.dtypes import qint8, quantized_dtype, quint8
from zeropoint.observers import MinMaxObserver
from zeropoint.qfunctions.operands import require_quantized
from zeropoint.tensor.create import quantize_per_tensor
from zeropoint.tensor.qtensor import QTensor, rebuild
from zeropoint.tensor.recording import is_recorded


class ReLU6(nn.ReLU):
    """Values between 0 and 6; scale and zero point are those of the input.

    Example:
        >>> import zeropoint
        >>> ReLU6()(zeropoint.quantize_per_tensor(torch.tensor([-1.0, 8.0]), 0.5, 10, zeropoint.quint8)).dequantize()
        tensor([0., 6.])
    """

    def forward(self, input: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            return self._graph(input)
        else:
            return self._graph(input) if is_recorded() else qfunctions.relu6(input, self.inplace)

    def _graph(self, x: Tensor) -> Tensor:
        values, scale, zero_point = integers_of(x)
        return quantized(torch.ops.zeropoint.relu6(values, scale, zero_point), scale, zero_point)

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> ReLU6:
        """The same for quantized tensors."""
        return ReLU6(mod.inplace)


class ELU(CalibratedOutput, nn.ELU):
    """``x`` for positive values, ``alpha * (exp(x) - 1)`` for others.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([-8.0, 2.0]), 0.1, 100, zeropoint.quint8)
        >>> ELU(0.1, 10)(q).dequantize()
        tensor([-1.,  2.])
    """

    _NAME, _IN_TORCH_STATE = "QuantizedELU", False

    def __init__(self, scale: float, zero_point: int, alpha: float = 1.0) -> None:
        nn.ELU.__init__(self, float(alpha))
        self._set(scale, zero_point)

    def _graph(self, x: Tensor) -> Tensor:
        y = torch.ops.zeropoint.elu(*integers_of(x), self.alpha, 1.0, 1.0, self.scale, self.zero_point)
        return quantized(y, self.scale, self.zero_point)

    def _eager(self, x: QTensor) -> QTensor:
        return qfunctions.elu(x, self.scale, self.zero_point, self.alpha)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> ELU:
        return cls(scale, zero_point, mod.alpha)


class LeakyReLU(CalibratedOutput, nn.LeakyReLU):
    """Negative values times `negative_slope`.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([-8.0, 2.0]), 0.1, 100, zeropoint.quint8)
        >>> LeakyReLU(0.1, 100, 0.5)(q).dequantize()
        tensor([-4.,  2.])
    """

    _NAME = "QuantizedLeakyReLU"

    def __init__(
        self, scale: float, zero_point: int, negative_slope: float = 0.01, inplace: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        nn.LeakyReLU.__init__(self, float(negative_slope), inplace)
        self._set(scale, zero_point)

    def _graph(self, x: Tensor) -> Tensor:
        y = torch.ops.zeropoint.leaky_relu(*integers_of(x), self.negative_slope, self.scale, self.zero_point)
        return quantized(y, self.scale, self.zero_point)

    def _eager(self, x: QTensor) -> QTensor:
        return qfunctions.leaky_relu(x, self.negative_slope, self.inplace, self.scale, self.zero_point)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> LeakyReLU:
        return cls(scale, zero_point, mod.negative_slope, mod.inplace)


def function_graph(op: Any) -> Any:
    """The method `_graph` of a function without arguments that the operator `op` computes."""

    def _graph(self: Any, x: Tensor) -> Tensor:
        y = op(*integers_of(x), self.scale, self.zero_point)
        return quantized(y, self.scale, self.zero_point)

    return _graph


class Hardswish(CalibratedOutput, nn.Hardswish):
    """``x * relu6(x + 3) / 6``.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([-4.0, 4.0]), 0.1, 100, zeropoint.quint8)
        >>> Hardswish(0.1, 0)(q).dequantize()
        tensor([0., 4.])
    """

    _NAME = "QuantizedHardswish"
    _graph = function_graph(torch.ops.zeropoint.hardswish)

    def __init__(self, scale: float, zero_point: int, device: Any = None, dtype: Any = None) -> None:
        nn.Hardswish.__init__(self)
        self._set(scale, zero_point)

    def _eager(self, x: QTensor) -> QTensor:
        return qfunctions.hardswish(x, self.scale, self.zero_point)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Hardswish:
        return cls(scale, zero_point)


class Sigmoid(CalibratedOutput, nn.Sigmoid):
    """``1 / (1 + exp(-x))``.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([0.0]), 0.1, 100, zeropoint.quint8)
        >>> Sigmoid(1 / 256, 0)(q).dequantize()
        tensor([0.5000])
    """

    _NAME, _IN_TORCH_STATE = "Sigmoid", False
    __jit_unused_properties__ = ("output_scale", "output_zero_point")
    _graph = function_graph(torch.ops.zeropoint.sigmoid)

    def __init__(self, output_scale: float, output_zero_point: int) -> None:
        nn.Sigmoid.__init__(self)
        self._set(output_scale, output_zero_point)

    @property
    def output_scale(self) -> float:
        """The scale of the result, under the name it has in torch.ao."""
        return self.scale

    @property
    def output_zero_point(self) -> int:
        """The zero point of the result, under the name it has in torch.ao."""
        return self.zero_point

    def _eager(self, x: QTensor) -> QTensor:
        return qfunctions.sigmoid(x, self.scale, self.zero_point)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Sigmoid:
        return cls(scale, zero_point)


class Softmax(CalibratedOutput, nn.Softmax):
    """``exp(x) / sum(exp(x))`` along `dim`; without one, along axis 0 of 0, 1 or 3 dimensions, else axis 1.

    Example:
        >>> import zeropoint
        >>> Softmax(-1, 1 / 256)(
        ...     zeropoint.quantize_per_tensor(torch.ones(1, 4), 0.5, 10, zeropoint.quint8)
        ... ).dequantize()
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    _NAME, _IN_TORCH_STATE = "QuantizedSoftmax", False

    def __init__(self, dim: int | None = None, scale: float = 1.0, zero_point: int = 0) -> None:
        nn.Softmax.__init__(self, dim)
        self._set(scale, zero_point)

    def _axis(self, x: Tensor) -> int:
        dim = self.dim
        if dim is not None:
            return dim
        return 0 if x.dim() in [0, 1, 3] else 1

    def _graph(self, x: Tensor) -> Tensor:
        y = torch.ops.zeropoint.softmax(*integers_of(x), self._axis(x), self.scale, self.zero_point)
        return quantized(y, self.scale, self.zero_point)

    def _eager(self, x: QTensor) -> QTensor:
        return qfunctions.softmax(x, self._axis(x), self.scale, self.zero_point)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Softmax:
        return cls(mod.dim, scale, zero_point)


class PReLU(CalibratedOutput):
    """Negative values times the slope of their channel: `weight`, quantized, ``(num_parameters,)``.

    Example:
        >>> import zeropoint
        >>> layer = PReLU(0.1, 100)
        >>> layer.set_weight(zeropoint.quantize_per_tensor(torch.tensor([0.5]), 0.5, 0, zeropoint.quint8))
        >>> layer(zeropoint.quantize_per_tensor(torch.tensor([[-8.0, 2.0]]), 0.1, 100, zeropoint.quint8)).dequantize()
        tensor([[-4.,  2.]])
    """

    if TYPE_CHECKING:  # torch.jit.script would read annotations
        _weight_values: Tensor

    _NAME, _IN_TORCH_STATE = "QuantizedPReLU", False
    __jit_unused_properties__ = ("weight",)

    def __init__(self, output_scale: float, output_zero_point: int, num_parameters: int = 1) -> None:
        super().__init__(output_scale, output_zero_point)
        self.num_parameters = num_parameters
        self.set_weight(cast(QTensor, quantize_per_tensor(torch.zeros(num_parameters), 1.0, 0, quint8)))

    def set_weight(self, w: QTensor) -> None:
        """Keep a copy of the quantized slopes."""
        require_quantized("PReLU", "weight", w)
        data, self._weight_dtype, parameters, _, _ = w.detach()._parts()
        if len(parameters) != 2:
            raise ValueError(f"PReLU: weight must be quantized per tensor, got {w.qscheme()}")
        self.register_buffer("_weight_values", data.clone(), persistent=False)
        self._weight_scale, self._weight_zero_point = float(parameters[0]), int(parameters[1])

    @property
    def weight(self) -> QTensor:
        """A copy of the quantized slopes."""
        parameters = self._weight_scale, self._weight_zero_point
        return rebuild(self._weight_values.clone(), self._weight_dtype, parameters, None)

    def _graph(self, x: Tensor) -> Tensor:
        y = torch.ops.zeropoint.prelu(
            *integers_of(x), self._weight_values, self._weight_scale,
            self._weight_zero_point, self.scale, self.zero_point,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    def _eager(self, x: QTensor) -> QTensor:
        return qfunctions.prelu(x, self.weight, self.scale, self.zero_point)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.weight

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        weight = state_dict.pop(prefix + "weight", None)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if weight is not None:
            self.set_weight(as_qtensor(weight))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> PReLU:
        """The quantized function of a float one that was calibrated; its slopes are observed now."""
        observer = mod.qconfig.weight()
        observer(mod.weight)
        made = cls(*output_qparams(mod), mod.num_parameters)
        made.set_weight(_slopes(mod.weight, observer, quantized_dtype(mod.activation_post_process.dtype)))
        return made

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> PReLU:
        made = cls(scale, zero_point, mod.num_parameters)
        observer = mod.qconfig.weight() if hasattr(mod, "qconfig") else None
        if observer is None:
            made.set_weight(as_qtensor(mod.get_quantized_weight()))
        else:
            observer(mod.weight)
            made.set_weight(_slopes(mod.weight, observer, quint8))
        return made


def _slopes(weight: Tensor, observer: Any, dtype: Any) -> QTensor:
    """Slopes with the steps that their observer found, in the dtype of the activations, as the operator wants them.

    Between quint8 and qint8 the same steps are 128 integers apart. But slopes without a negative one, observed for
    qint8, have their zero at 0 in quint8 too, as in torch.ao (where negative ones would be lost).
    """
    if "per_channel" in str(observer.qscheme):  # the operator has one scale for all
        observer = MinMaxObserver(dtype=dtype)
        observer(weight)
    scale, zero_point = (float(v) for v in found_qparams(observer))
    is_signed = quantized_dtype(observer.dtype) is qint8
    if dtype is qint8:
        zero_point -= 0 if is_signed else 128
    else:
        zero_point += 128 if is_signed and (zero_point != 0 or float(weight.detach().min()) < 0) else 0
    return cast(QTensor, quantize_per_tensor(weight.detach().float(), scale, int(zero_point), dtype))
