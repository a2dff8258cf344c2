"""Linear layers on floats, quantized on the way in."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zeropoint.context import CONTEXT
from zeropoint.nn import qat
from zeropoint.nn.quantized import linear as static
from zeropoint.nn.quantized.storage import as_qtensor, float_layer, quantize_weight
from zeropoint.numerics.dtypes import qint8, quantized_dtype
from zeropoint.ops import layers, rounding
from zeropoint.ops.weight_only import run_weight_only
from zeropoint.qconfig import default_dynamic_qconfig
from zeropoint.tensor.qtensor import QTensor


class Linear(static.Linear):
    """``y = x @ weight.T + bias`` on floats: `x` is quantized by its own range, or the weight is kept in float16.

    Args:
        dtype: of the weight, qint8 or torch.float16.

    Example:
        >>> import zeropoint
        >>> layer = Linear(2, 1)
        >>> layer.set_weight_bias(zeropoint.quantize_per_tensor(torch.ones(1, 2), 0.5, 0, zeropoint.qint8), None)
        >>> layer(torch.tensor([[1.0, 2.0]]))
        tensor([[2.9961]])
    """

    _version = 4
    _FLOAT: ClassVar[tuple[type, ...]] = (
        nn.Linear,
        nn.modules.linear.NonDynamicallyQuantizableLinear,
        qat.dynamic.Linear,
    )
    _NAME = "DynamicQuantizedLinear"

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = qint8) -> None:
        super().__init__(in_features, out_features, bias_, dtype)
        self.version = self._version
        self.reduce_range = CONTEXT.reduces_range

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}"
        if self._packed_params.dtype == torch.float16:
            return text
        scheme = "per_tensor_affine" if self._packed_params._weight_axis < 0 else "per_channel_affine"
        return f"{text}, qscheme={scheme}"

    def _graph(self, x: Tensor) -> Tensor:
        w = self._packed_params
        if w._weight_dtype == "float16":
            return torch.ops.zeropoint.linear_dynamic_fp16(x, w._weight_values, w._bias)
        reduce_range = rounding.takes_7_bits(self.reduce_range, w._rounding)
        return torch.ops.zeropoint.linear_dynamic(
            x, w._weight_values, w._weight_scales, w._weight_zero_points, w._bias, reduce_range, False, w._rounding
        )

    def _eager(self, x: Tensor) -> Tensor:
        w = self._packed_params
        if w._weight_dtype == "float16":
            return run_weight_only("linear_dynamic_fp16", x, w.layer(), self._RELU)
        reduce_range = rounding.takes_7_bits(self.reduce_range, w._rounding)
        return layers.run_linear_dynamic("linear_dynamic", x, w.layer(), reduce_range, False, self._RELU)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any) -> None:
        version = local_metadata.get("version")
        if version is None or version < 4:  # of a time when torch.ao took 8 bits
            self.version, self.reduce_range = version, False
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """The dynamically quantized layer of a float layer with a qconfig; None is `default_dynamic_qconfig`."""
        if not hasattr(mod, "qconfig"):
            raise ValueError(
                f"{cls.__name__}.from_float: the module has no qconfig: call quantize_dynamic, which sets it"
            )
        if mod.qconfig is None or mod.qconfig.weight is None:
            mod = copy.copy(mod)
            mod.qconfig = default_dynamic_qconfig
        kind = mod.qconfig.weight().dtype
        if kind == torch.float16:
            layer = mod[0] if isinstance(mod, nn.Sequential) else mod
            weight, bias, dtype = layer.weight.detach().float(), layer.bias, torch.float16
        elif quantized_dtype(kind) is qint8:
            source = float_layer(cls, mod, cls._FLOAT)
            weight, bias, dtype = quantize_weight(source.weight, source.observer), source.bias, qint8
        else:
            raise ValueError(f"{cls.__name__}.from_float: the weight's dtype must be qint8 or float16, got {kind}")
        outputs, inputs = weight.shape
        made = cls(inputs, outputs, bias is not None, dtype=dtype)
        made.set_weight_bias(weight, bias)
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any) -> Linear:  # type: ignore[override]
        """The dynamically quantized layer of a reference layer."""
        layer = ref_qlinear[0] if isinstance(ref_qlinear, nn.Sequential) else ref_qlinear
        weight = as_qtensor(layer.get_quantized_weight())
        dtype = weight._qdtype if isinstance(weight, QTensor) else torch.float16
        made = cls(layer.in_features, layer.out_features, layer.bias is not None, dtype)
        made.set_weight_bias(weight, layer.bias)
        return made
