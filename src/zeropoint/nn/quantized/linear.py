"""Linear layers on quantized tensors."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zeropoint import _native
from zeropoint.nn.quantized.storage import (
    QuantizedOutput,
    StoredWeight,
    as_qtensor,
    float_layer,
    integers_of,
    output_qparams,
    quantize_weight,
    quantized,
)
from zeropoint.numerics.dtypes import qint8, quantized_dtype
from zeropoint.numerics.named_constant import in_files
from zeropoint.ops import layers
from zeropoint.ops.weight_only import make_fp16_layer
from zeropoint.qfunctions import packed
from zeropoint.tensor.create import empty_affine_quantized
from zeropoint.tensor.qtensor import QTensor


class LinearPackedParams(StoredWeight):
    """The weight and bias of a linear layer: int8, or float16 with ``dtype=torch.float16``.

    In a state_dict it is two entries, `dtype` and `_packed_params`, a pair of weight and bias, as in torch.ao.
    """

    _version = 3

    def __init__(self, dtype: Any = qint8) -> None:
        super().__init__()
        self.dtype = dtype if dtype == torch.float16 else quantized_dtype(dtype)
        if self.dtype == torch.float16:
            self.set_weight_bias(torch.zeros(1, 1), None)
        else:
            self.set_weight_bias(empty_affine_quantized([1, 1], scale=1.0, zero_point=0, dtype=dtype), None)

    def set_weight_bias(self, weight: Tensor, bias: Tensor | None) -> None:
        """Keep copies of weight and bias."""
        if self.dtype != torch.float16:
            if not isinstance(weight, QTensor):
                raise TypeError(f"the weight must be a quantized tensor of {self.dtype}, got {type(weight).__name__}")
        elif isinstance(weight, QTensor):
            raise TypeError("the weight must be a float tensor, which is stored in float16; got a quantized tensor")
        else:
            weight = layers.to_fp16_weight(weight)
        if weight.dim() != 2:
            raise ValueError(f"the weight must be (outputs, inputs), got shape {tuple(weight.shape)}")
        self._store(weight, bias)

    def _weight_bias(self) -> tuple[Tensor, Tensor | None]:
        return self._stored()

    def layer(self) -> Any:
        """The native layer for the instruction set in use."""
        isa = _native.isa()
        if self._layer is not None and self._layer[0] == isa:
            return self._layer[1]
        if self.dtype == torch.float16:
            self._layer = isa, make_fp16_layer("linear_dynamic_fp16", self._weight_values, self._bias)
        else:
            parameters = (self._weight_values, self._weight_scales, self._weight_zero_points, self._bias)
            self._layer = isa, layers.make_linear_layer("linear", *parameters, self._rounding)
        return self._layer[1]

    @property
    def _packed_params(self) -> packed.LinearPackedParams | packed.LinearPackedParamsFp16:
        """What `zeropoint.qfunctions.linear` takes; a copy."""
        weight, bias = self._stored()
        if self.dtype == torch.float16:
            return packed.LinearPackedParamsFp16(weight, bias)
        return packed.LinearPackedParams(weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """`x` itself: the layer around this one computes."""
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = in_files(self._weight_dtype)
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any) -> None:
        strict, missing_keys, *_ = args
        version = local_metadata.get("version")
        dtype = state_dict.pop(prefix + "dtype", "qint8")
        if version is None or version < 3:  # weight and bias were entries of their own
            weight, bias = state_dict.pop(prefix + "weight", None), state_dict.pop(prefix + "bias", None)
        else:
            weight, bias = state_dict.pop(prefix + "_packed_params", (None, None))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
        if weight is None:
            if strict:
                missing_keys.append(prefix + "_packed_params")
            return
        name = str(dtype).removeprefix("torch.").removeprefix("zeropoint.")
        self.dtype = torch.float16 if name == "float16" else quantized_dtype(name)
        self.set_weight_bias(as_qtensor(weight), bias)

    def __repr__(self) -> str:
        return repr(self._weight_bias())


def linear_graph(op: Any) -> Any:
    """The method `_graph` of a layer that the operator `op` computes."""

    def _graph(self: Any, x: Tensor) -> Tensor:
        w = self._packed_params
        y = op(
            *integers_of(x), w._weight_values, w._weight_scales, w._weight_zero_points,
            w._bias, self.scale, self.zero_point, w._rounding,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    return _graph


class Linear(QuantizedOutput):
    """``y = quantize(x @ weight.T + bias)``, on integers.

    Args:
        in_features, out_features: as for torch.nn.Linear.
        bias_: whether there is a bias.
        dtype: of the weight.

    Attributes:
        scale, zero_point: of the output.

    Example:
        >>> import zeropoint
        >>> layer = Linear(2, 1)
        >>> weight = zeropoint.quantize_per_tensor(torch.ones(1, 2), 0.5, 0, zeropoint.qint8)
        >>> layer.set_weight_bias(weight, torch.zeros(1))
        >>> layer.scale, layer.zero_point = 0.1, 0
        >>> layer(zeropoint.quantize_per_tensor(torch.tensor([[1.0, 2.0]]), 0.1, 0, zeropoint.quint8)).dequantize()
        tensor([[3.]])
    """

    _version = 3
    _FLOAT: ClassVar[tuple[type, ...]] = (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
    _NAME = "QuantizedLinear"
    _RELU = False

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._packed_params = LinearPackedParams(dtype)
        bias = torch.zeros(out_features) if bias_ else None
        if dtype == torch.float16:
            self.set_weight_bias(torch.zeros(out_features, in_features), bias)
        else:
            weight = empty_affine_quantized([out_features, in_features], scale=1.0, zero_point=0, dtype=dtype)
            weight._data.zero_()
            self.set_weight_bias(weight, bias)

    def _get_name(self) -> str:
        return self._NAME

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self) -> str:
        weight = self._packed_params
        scheme = "per_tensor_affine" if weight._weight_axis < 0 else "per_channel_affine"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale},"
            f" zero_point={self.zero_point}, qscheme={scheme}"
        )

    _graph = linear_graph(torch.ops.zeropoint.linear)

    def _eager(self, x: QTensor) -> QTensor:
        return packed.run_linear("linear", x, self._packed_params.layer(), self.scale, self.zero_point, self._RELU)

    def set_weight_bias(self, w: QTensor, b: Tensor | None) -> None:
        """Keep copies of a quantized weight and a float bias."""
        self._packed_params.set_weight_bias(w, b)

    def _weight_bias(self) -> tuple[Tensor, Tensor | None]:
        return self._packed_params._weight_bias()

    def weight(self) -> QTensor:
        """A copy of the quantized weight."""
        return self._weight_bias()[0]

    def bias(self) -> Tensor | None:
        """A copy of the bias."""
        return self._weight_bias()[1]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any) -> None:
        version = local_metadata.get("version")
        if version is None or version == 1:  # the weight was kept here, beside the scale
            for name in ("weight", "bias"):
                if prefix + name in state_dict:
                    state_dict[f"{prefix}_packed_params.{name}"] = state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """The quantized layer of a float layer that was calibrated (`prepare`) or trained (`prepare_qat`)."""
        layer = float_layer(cls, mod, cls._FLOAT)
        return cls._of(quantize_weight(layer.weight, layer.observer), layer.bias, *output_qparams(mod))

    @classmethod
    def from_reference(cls, ref_qlinear: Any, output_scale: float, output_zero_point: int) -> Linear:
        """The quantized layer of a reference layer (`zeropoint.nn.quantized.reference`)."""
        layer = ref_qlinear[0] if isinstance(ref_qlinear, nn.Sequential) else ref_qlinear
        weight = as_qtensor(layer.get_quantized_weight())
        return cls._of(weight, layer.bias, float(output_scale), int(output_zero_point))

    @classmethod
    def _of(cls, weight: QTensor, bias: Tensor | None, scale: float, zero_point: int) -> Linear:
        outputs, inputs = weight.shape
        made = cls(inputs, outputs, bias is not None, dtype=weight._qdtype)
        made.set_weight_bias(weight, bias)
        made.scale, made.zero_point = scale, zero_point
        return made
