"""Float weights with the numbers they are to be quantized with: what every reference module has.

A weight `w` stays float. Beside it stand buffers `w_scale`, `w_zero_point` and `w_axis`, and attributes `w_qscheme`,
`w_dtype`, `w_axis_int`, `w_quant_min` and `w_quant_max`; a module computes with the weight quantized and dequantized.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zeropoint.nn.quantized.storage import FloatLayer, float_layer, found_qparams
from zeropoint.numerics.dtypes import DTYPES, QuantizedDtype, quantized_dtype
from zeropoint.numerics.schemes import per_channel_affine, per_tensor_affine, qscheme as qscheme_of
from zeropoint.observers.base import any_dtype, integer_range
from zeropoint.ops import layers
from zeropoint.tensor.create import quantize_per_channel, quantize_per_tensor
from zeropoint.tensor.qtensor import QTensor


def get_qparam_dict(observer_or_fake_quant: Any) -> dict[str, Any]:
    """The parameters of an observer or fake quantization, as a dictionary for reference modules.

    Returns:
        `qscheme` and `dtype`; for a dtype of integers also `scale`, `zero_point`, `quant_min`, `quant_max` and, per
        channel, `axis`. Symmetric schemes become affine: their zero points say the rest.

    Example:
        >>> import zeropoint
        >>> observer = zeropoint.default_weight_observer()
        >>> _ = observer(torch.tensor([-1.0, 1.0]))
        >>> found = get_qparam_dict(observer)
        >>> found["qscheme"], found["dtype"], found["scale"], found["quant_min"]
        (zeropoint.per_tensor_affine, zeropoint.qint8, tensor([0.0078]), -128)
    """
    observer = observer_or_fake_quant
    scheme = getattr(observer, "qscheme", None)
    found: dict[str, Any] = {"qscheme": None, "dtype": observer.dtype}
    if scheme is None or observer.dtype == torch.float16:
        return found
    scheme = qscheme_of(scheme)
    if scheme.symmetric:
        scheme = per_channel_affine if scheme.per_channel else per_tensor_affine
    found["qscheme"] = scheme
    if scheme.per_channel:
        found["axis"] = observer.ch_axis
    found["scale"], found["zero_point"] = found_qparams(observer)
    for name in ("quant_min", "quant_max"):
        if hasattr(observer, name):
            found[name] = getattr(observer, name)
    return found


def _dtype(dtype: Any) -> Any:
    """A dtype by any of its names."""
    if isinstance(dtype, str) and dtype not in DTYPES:
        return getattr(torch, dtype)
    return any_dtype(dtype)


def rounded(
    w: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    scale: float,
    zero_point: int,
    per_channel: bool,
    decomposed: bool,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Tensor:
    """`w` quantized and dequantized: through the operators of graphs if `decomposed`, else as a QTensor is.

    Args:
        scales, zero_points: in tensors; one of each for every index of `axis` if `per_channel`.
        scale, zero_point: as numbers, if there is one of each.
        dtype: of the integers, from `low` to `high`; float16 for weights that are only rounded to it, float32 for those
            that stay.
    """
    if dtype == torch.float32:
        return w
    if dtype == torch.float16:
        return w.clamp(-65504.0, 65504.0).to(torch.float16).to(torch.float32)
    if decomposed and per_channel:
        q = torch.ops.zeropoint.quantize_per_channel(w, scales, zero_points, axis, low, high, dtype)
        return torch.ops.zeropoint.dequantize_per_channel(q, scales, zero_points, axis, low, high, dtype)
    if decomposed:
        q = torch.ops.zeropoint.quantize_per_tensor(w, scales, zero_points, low, high, dtype)
        return torch.ops.zeropoint.dequantize_per_tensor(q, scales, zero_points, low, high, dtype)
    if per_channel:
        scales = scales.to(torch.float32 if zero_points.is_floating_point() else torch.float64)
        q = torch.ops.zeropoint.stored_quantize_per_channel(w, scales, zero_points, axis, low, high, dtype)
        return torch.ops.zeropoint.stored_dequantize_per_channel(q, scales, zero_points, axis)
    q = torch.ops.zeropoint.stored_quantize(w, scale, zero_point, low, high, dtype)
    return torch.ops.zeropoint.stored_dequantize(q, scale, zero_point)


def as_float(x: Tensor) -> Tensor:
    """What a reference layer computes with: a quantized tensor, as a Quantize before it gives, is dequantized."""
    if torch.jit.is_scripting():
        return x
    else:
        return x.dequantize() if isinstance(x, QTensor) else x


class ReferenceModule(nn.Module):
    """A float module whose weights go through quantization before they are used."""

    if TYPE_CHECKING:  # torch.jit.script would read annotations
        is_decomposed: bool
        _names: Any  # of the weights

    _IS_REFERENCE = True

    def _set_qparams(self, name: str, qparams: Mapping[str, Any], device: Any = None) -> None:
        """Keep the numbers for the weight `name`."""
        scheme = qparams.get("qscheme")
        scheme = None if scheme is None else qscheme_of(scheme)
        dtype = _dtype(qparams["dtype"])
        axis = int(qparams.get("axis", 0)) if scheme is not None and scheme.per_channel else 0
        if scheme is not None:
            if dtype == torch.float16:
                raise ValueError(f"{type(self).__name__}: {name} in float16 has no qscheme, got {scheme}")
            low, high = integer_range(dtype)
        else:
            low, high = 0, 0
        quant_min, quant_max = qparams.get("quant_min"), qparams.get("quant_max")
        for what, value in (
            ("qscheme", scheme),
            ("dtype", dtype),
            ("axis_int", axis),
            ("quant_min", low if quant_min is None else int(quant_min)),
            ("quant_max", high if quant_max is None else int(quant_max)),
        ):
            setattr(self, f"{name}_{what}", value)
        floats = scheme is not None and scheme.float_zero_point
        for what, given, kind in (
            ("scale", qparams.get("scale", 1.0), torch.float64 if _is_double(qparams) else torch.float32),
            ("zero_point", qparams.get("zero_point", 0), torch.float32 if floats else torch.int64),
            ("axis", axis, torch.int32),
        ):
            buffer = torch.as_tensor(given, dtype=kind, device=device).detach().clone()
            self.register_buffer(f"{name}_{what}", buffer)
        self._refresh(name)

    def _refresh(self, name: str) -> None:
        """What follows from the buffers and attributes of a weight, in types that torch.jit.script can read."""
        scheme, dtype = getattr(self, f"{name}_qscheme"), getattr(self, f"{name}_dtype")
        per_channel = scheme is not None and scheme.per_channel
        one = scheme is not None and not per_channel
        bounds = (0, 0) if scheme is None else integer_range(dtype)
        if self.is_decomposed:
            bounds = getattr(self, f"{name}_quant_min"), getattr(self, f"{name}_quant_max")
        for what, value in (
            ("scale", float(getattr(self, f"{name}_scale")) if one else 1.0),
            ("zero_point", int(getattr(self, f"{name}_zero_point")) if one else 0),
            ("per_channel", per_channel),
            ("low", bounds[0]),
            ("high", bounds[1]),
            ("storage", dtype.torch_storage if isinstance(dtype, QuantizedDtype) else dtype),
        ):
            setattr(self, f"_{name}_{what}", value)

    def _rounded(self, name: str) -> Tensor:
        """The weight `name`, quantized and dequantized."""
        followed = {
            what: getattr(self, f"_{name}_{what}") for what in ("scale", "zero_point", "per_channel", "low", "high")
        }
        return rounded(
            getattr(self, name),
            getattr(self, f"{name}_scale"),
            getattr(self, f"{name}_zero_point"),
            getattr(self, f"{name}_axis_int"),
            decomposed=self.is_decomposed,
            dtype=getattr(self, f"_{name}_storage"),
            **followed,
        )

    def _quantized(self, name: str) -> Tensor:
        """The weight `name`: a QTensor, or in float16."""
        w = getattr(self, name).detach()
        scheme, dtype = getattr(self, f"{name}_qscheme"), getattr(self, f"{name}_dtype")
        if scheme is None:
            return layers.to_fp16_weight(w) if dtype == torch.float16 else w
        scale, zero_point = getattr(self, f"{name}_scale"), getattr(self, f"{name}_zero_point")
        kind = _quantized_kind(dtype)
        if not scheme.per_channel:
            return quantize_per_tensor(w, float(scale), int(zero_point), kind)
        return quantize_per_channel(w, scale.to(torch.float64), zero_point, getattr(self, f"{name}_axis_int"), kind)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in self._names:
            for what in ("scale", "zero_point"):  # one number, or one for each channel
                given = state_dict.get(f"{prefix}{name}_{what}")
                if given is not None:
                    setattr(self, f"{name}_{what}", torch.empty_like(given))
            for what, read in (("qscheme", qscheme_of), ("dtype", _dtype)):
                key = f"{prefix}{name}_{what}"
                if key in state_dict:
                    value = state_dict.pop(key)
                    setattr(self, f"{name}_{what}", None if value is None else read(value))
        super()._load_from_state_dict(state_dict, prefix, *args)
        for name in self._names:
            setattr(self, f"{name}_axis_int", int(getattr(self, f"{name}_axis")))
            self._refresh(name)


def _is_double(qparams: Mapping[str, Any]) -> bool:
    scale = qparams.get("scale")
    return isinstance(scale, Tensor) and scale.dtype == torch.float64


def _quantized_kind(dtype: Any) -> QuantizedDtype:
    """The quantized dtype for a plain one: what is int8 in a graph is qint8 in a tensor."""
    if isinstance(dtype, QuantizedDtype):
        return dtype
    names = {torch.int8: "qint8", torch.uint8: "quint8", torch.int32: "qint32"}
    if dtype not in names:
        raise TypeError(f"there are no quantized tensors of {dtype}")
    return quantized_dtype(names[dtype])


class OneWeight(ReferenceModule):
    """A reference module with one weight, called `weight`."""

    _names = ("weight",)

    def _init_weight_qparams(self, weight_qparams: Mapping[str, Any] | None, device: Any = None) -> None:
        if weight_qparams is None:
            weight_qparams = {"qscheme": per_tensor_affine, "dtype": "quint8", "scale": 1.0, "zero_point": 0}
        self.is_decomposed = bool(weight_qparams.get("is_decomposed", False))
        self._set_qparams("weight", weight_qparams, device)

    def get_weight(self) -> Tensor:
        """The weight, quantized and dequantized."""
        return rounded(
            self.weight, self.weight_scale, self.weight_zero_point, self.weight_axis_int, self._weight_scale,
            self._weight_zero_point, self._weight_per_channel, self.is_decomposed, self._weight_low, self._weight_high,
            self._weight_storage,
        )  # fmt: skip

    def get_quantized_weight(self) -> Tensor:
        """The weight as a quantized tensor, or, for float16, in float16."""
        return self._quantized("weight")

    def _get_name(self) -> str:
        kind = self._FLOAT[0].__name__
        return f"Quantized{kind}(Reference)"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        scheme, dtype = self.weight_qscheme, self.weight_dtype
        destination[prefix + "weight_qscheme"] = None if scheme is None else scheme.name
        destination[prefix + "weight_dtype"] = (
            dtype.name if isinstance(dtype, QuantizedDtype) else str(dtype).removeprefix("torch.")
        )

    @classmethod
    def _found(cls: Any, mod: Any, weight_qparams: Mapping[str, Any] | None) -> tuple[FloatLayer, Mapping[str, Any]]:
        """The layer in `mod`, and the numbers for its weight: those given, or what the qconfig of `mod` finds."""
        if weight_qparams is None:
            layer = float_layer(cls, mod, cls._FLOAT)
            return layer, get_qparam_dict(cls._observer(layer))
        if hasattr(mod, "folded"):
            weight, bias = mod.folded()
        else:
            weight, bias = mod.weight, getattr(mod, "bias", None)
        return FloatLayer(weight, bias, None), weight_qparams

    @classmethod
    def _observer(cls, layer: FloatLayer) -> Any:
        """What watched the weight."""
        return layer.observer

    def _take(self, layer: FloatLayer) -> Any:
        """Let this module have copies of the weight and the bias of `layer`."""
        self.weight = nn.Parameter(layer.weight.detach().clone())
        if layer.bias is not None:
            self.bias = nn.Parameter(layer.bias.detach().clone())
        return self
