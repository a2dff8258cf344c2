"""What quantized modules keep: plain tensors and numbers, so that every way to save, copy or script a module works.

A quantized weight is three buffers (integers, scales, zero points) and becomes a QTensor when somebody asks for it, or
for a state_dict, whose keys are those of torch.ao.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.context import CONTEXT
from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.numerics.dtypes import DTYPES, quantized_dtype
from zeropoint.numerics.functions import single
from zeropoint.ops import rounding
from zeropoint.tensor.create import quantize_per_channel, quantize_per_tensor
from zeropoint.tensor.qtensor import QTensor, rebuild
from zeropoint.tensor.recording import is_recorded


def quantized(y: Tensor, scale: float, zero_point: int) -> Tensor:
    """Integers, as an operator gave them, as a quantized tensor; in code that is compiled or recorded."""
    name = "quint8" if y.dtype == torch.uint8 else "qint8" if y.dtype == torch.int8 else "qint32"
    return torch.ops.zeropoint.qtensor(y, scale, zero_point, name)


def integers_of(x: Tensor) -> tuple[Tensor, float, int]:
    """Integers, scale and zero point of a quantized tensor; in code that is compiled or recorded."""
    if torch.jit.is_scripting():
        read = torch.ops.zeropoint.int_repr(x), torch.ops.zeropoint.q_scale(x), torch.ops.zeropoint.q_zero_point(x)
        return read
    else:
        return _recorded_integers(x)


def _recorded_integers(x: Any) -> tuple[Tensor, float, int]:
    values = torch.ops.zeropoint.int_repr(x)
    if torch.compiler.is_dynamo_compiling():
        return values, torch.ops.zeropoint.q_scale(x), int(torch.ops.zeropoint.q_zero_point_number(x))
    return values, x.q_scale(), x.q_zero_point()


# ------------------------------------------------------------------------------------------------- state_dict entries


def number_tensor(x: float | int) -> Tensor:
    """A number for a state_dict: int64, float32, or float64 where that would lose digits."""
    if isinstance(x, int):
        return torch.tensor(x)
    return torch.tensor(x, dtype=torch.float32 if single(x) == x else torch.float64)


def as_qtensor(t: Any) -> Any:
    """`t` if it is zeropoint's; else, from a file of torch.ao, the QTensor of the same integers and parameters."""
    if isinstance(t, QTensor) or not isinstance(t, Tensor) or not t.is_quantized:
        return t
    name = str(t.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"a quantized tensor of {t.dtype} has no counterpart in zeropoint")
    packed = DTYPES[name].bits < 8
    geometry = (tuple(t.shape), t.stride(), 0) if packed else None
    data = t.int_repr().reshape(-1) if packed else t.int_repr()
    if "per_channel" in str(t.qscheme()):
        zero_points = t.q_per_channel_zero_points()
        return rebuild(data, name, (t.q_per_channel_scales(), zero_points, t.q_per_channel_axis()), geometry)
    return rebuild(data, name, (t.q_scale(), t.q_zero_point()), geometry)


def with_same_dtype(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What `_apply` does to a tensor that is packed: `.half()` and relatives leave it alone, but its device changes."""

    def moved(stored: Tensor) -> Tensor:
        made = fn(stored)
        return made if made.dtype == stored.dtype else stored.to(made.device)

    return moved


class QuantizedOutput(nn.Module):
    """A module whose result is quantized with its `scale` and `zero_point`.

    It computes in `_eager`, or, in code that is scripted, traced, compiled or exported, in `_graph`, through operators.
    """

    _IN_TORCH_STATE = True  # whether torch.ao's state_dict has scale and zero_point; if not, they may be missing

    if TYPE_CHECKING:  # torch.jit.script would read annotations
        scale: float
        zero_point: int
        _graph: Any
        _eager: Any

    def __init__(self, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__()
        self.scale, self.zero_point = float(scale), int(zero_point)

    def forward(self, input: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            return self._graph(input)
        else:
            return self._graph(input) if is_recorded() else self._eager(input)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = number_tensor(float(self.scale))
        destination[prefix + "zero_point"] = number_tensor(int(self.zero_point))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        _, strict, missing_keys, *_ = args
        for name, kind in (("scale", float), ("zero_point", int)):
            if prefix + name in state_dict:
                setattr(self, name, kind(state_dict.pop(prefix + name)))
            elif strict and self._IN_TORCH_STATE:
                missing_keys.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, *args)


class CalibratedOutput(QuantizedOutput):
    """A quantized module that takes the place of torch's; goes before torch's class, whose attributes it has."""

    _NAME: ClassVar[str]

    def _set(self, scale: float, zero_point: int) -> None:
        self.scale, self.zero_point = float(scale), int(zero_point)

    def _get_name(self) -> str:
        return self._NAME

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The quantized module of a float one that was calibrated."""
        return cls.from_reference(mod, *output_qparams(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The quantized module of a float one, for a result with this scale and zero point."""
        raise NotImplementedError


# --------------------------------------------------------------------------------------------------------- weights


class StoredWeight(nn.Module):
    """Buffers for a quantized (or float16) weight and its bias; not part of the state_dict by themselves."""

    if TYPE_CHECKING:  # torch.jit.script would read annotations
        _weight_values: Tensor
        _weight_scales: Tensor
        _weight_zero_points: Tensor
        _bias: Tensor | None
        _weight_axis: int  # -1: per tensor
        _weight_dtype: str
        _rounding: str  # see zeropoint.ops.rounding
        _layer: Any  # what is packed for this CPU: (instruction set, native layer)

    __jit_unused_properties__ = ("_packed_params", "_geometry")

    def _store(self, weight: Tensor, bias: Tensor | None) -> None:
        """Keep copies of `weight`, a QTensor or a float16 tensor, and of `bias`."""
        self._layer = None
        if isinstance(weight, QTensor):
            data, self._weight_dtype, parameters, geometry, _ = weight.detach()._parts()
            if geometry is not None:
                raise ValueError(
                    f"the weight of a linear layer or convolution must have 8 bits, got {self._weight_dtype}"
                )
            self._weight_axis = parameters[2] if len(parameters) == 3 else -1
            scales, zero_points = parameters[:2]
            if self._weight_axis < 0:
                scales = torch.tensor([scales], dtype=torch.float64)
                zero_points = torch.tensor([zero_points], dtype=torch.int64)
        else:
            data, self._weight_dtype, self._weight_axis = weight.detach(), "float16", -1
            scales = torch.ones(1, dtype=torch.float64)
            zero_points = torch.zeros(1, dtype=torch.int64)
        self._rounding = self._chosen_rounding(zero_points)
        for name, t in (("values", data), ("scales", scales), ("zero_points", zero_points)):
            self.register_buffer(f"_weight_{name}", t.detach().clone(), persistent=False)
        if bias is not None and (isinstance(bias, QTensor) or not bias.is_floating_point()):
            raise TypeError("the bias of a quantized layer must be float32: it is added with full precision")
        self.register_buffer("_bias", None if bias is None else bias.detach().clone(), persistent=False)

    def _chosen_rounding(self, zero_points: Tensor) -> str:
        return rounding.chosen(zero_points)

    def _stored(self) -> tuple[Tensor, Tensor | None]:
        """Copies of the weight, as a QTensor or, kept in float16, in float32, and of the bias."""
        bias = None if self._bias is None else self._bias.clone()
        if self._weight_dtype == "float16":
            return self._weight_values.to(torch.float32), bias
        parameters: tuple[Any, ...]
        if self._weight_axis < 0:
            parameters = (float(self._weight_scales), int(self._weight_zero_points))
        else:
            parameters = (self._weight_scales.clone(), self._weight_zero_points.clone(), self._weight_axis)
        return rebuild(self._weight_values.clone(), self._weight_dtype, parameters, None), bias

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(with_same_dtype(fn), recurse)
        self._layer = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without what is packed for this CPU."""
        return {**self.__dict__, "_layer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What was saved before there was a choice rounds as it did."""
        super().__setstate__({"_rounding": rounding.OURS, **state})


# ----------------------------------------------------------------------------------------------------- from float


def quantize_weight(weight: Tensor, observer: Any) -> QTensor:
    """A float weight quantized by what its observer answers.

    Example:
        >>> import zeropoint
        >>> observer = zeropoint.default_weight_observer()
        >>> observer(torch.tensor([-1.0, 1.0]))
        tensor([-1.,  1.])
        >>> quantize_weight(torch.tensor([-1.0, 1.0]), observer).int_repr()
        tensor([-127,  127], dtype=torch.int8)
    """
    scale, zero_point = found_qparams(observer)
    dtype, scheme = quantized_dtype(observer.dtype), str(observer.qscheme)
    weight = weight.detach().float()
    if "per_tensor" in scheme:
        made = cast(QTensor, quantize_per_tensor(weight, float(scale), int(zero_point), dtype))
        return _within(made, dtype, observer, (made.q_scale(), made.q_zero_point()))
    if "float_qparams" in scheme:
        return quantize_per_channel(weight, scale.to(torch.float64), zero_point, observer.ch_axis, dtype)
    zero_point = zero_point.to(torch.int64)
    made = quantize_per_channel(weight, scale.to(torch.float64), zero_point, observer.ch_axis, dtype)
    parameters = made.q_per_channel_scales(), made.q_per_channel_zero_points(), made.q_per_channel_axis()
    return _within(made, dtype, observer, parameters)


def _within(weight: QTensor, dtype: Any, observer: Any, parameters: Any) -> QTensor:
    """`weight` with no integer outside the range of its observer.

    Values beyond what the observer saw, as those of a moving average, would leave a range that is narrower than the
    dtype.
    """
    qmin, qmax = getattr(observer, "quant_min", dtype.qmin), getattr(observer, "quant_max", dtype.qmax)
    if dtype.bits < 8 or (qmin <= dtype.qmin and qmax >= dtype.qmax):
        return weight
    return rebuild(weight.int_repr().clamp(qmin, qmax), dtype.name, parameters, None)


class FloatLayer(NamedTuple):
    """What becomes of a float layer when it is quantized: its weight, its bias, and what watched the weight."""

    weight: Tensor
    bias: Tensor | None
    observer: Any


def float_layer(cls: type[nn.Module], mod: nn.Module, float_types: tuple[type, ...]) -> FloatLayer:
    """The layer inside `mod`, for `cls.from_float`.

    `mod` is one of `float_types` (the layer itself, or a fused Sequential that begins with it), or a layer in training,
    which has a `weight_fake_quant`. What that one found stays, so that what was trained is what is deployed, unless
    `CONTEXT.asks_observers_again`; a layer with a batch norm answers `folded()`.
    """
    fake_quant = getattr(mod, "weight_fake_quant", None)
    if fake_quant is not None:
        weight, bias = mod.folded() if hasattr(mod, "folded") else (mod.weight, getattr(mod, "bias", None))
        if CONTEXT.asks_observers_again or not has_observed(fake_quant):
            fake_quant(weight)
        return FloatLayer(weight, bias, fake_quant)
    if type_before_parametrizations(mod) not in float_types:
        names = " or ".join(t.__name__ for t in float_types)
        raise TypeError(f"{cls.__module__}.{cls.__name__}.from_float takes a {names}, got a {type(mod).__name__}")
    qconfig = getattr(mod, "qconfig", None)
    if qconfig is None:
        raise ValueError(f"{cls.__name__}.from_float: the module has no qconfig: call zeropoint.prepare, which sets it")
    layer: Any = mod[0] if isinstance(mod, nn.Sequential) else mod
    observer = qconfig.weight()
    observer(layer.weight)
    return FloatLayer(layer.weight, getattr(layer, "bias", None), observer)


def plain_parts(q: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Integers, float32 scales and zero points of a quantized tensor, as the operators on plain integers take them."""
    if "per_channel" in str(q.qscheme()):
        return q.int_repr().clone(), q.q_per_channel_scales().float(), q.q_per_channel_zero_points()
    return q.int_repr().clone(), torch.tensor([q.q_scale()]), torch.tensor([q.q_zero_point()])


def has_observed(observer: Any) -> bool:
    """Whether an observer or a fake quantization has seen a value (those without a range need none)."""
    inner = getattr(observer, "activation_post_process", observer)
    low = getattr(inner, "min_val", None)
    return low is None or (low.numel() > 0 and not bool(torch.isinf(low).any()))


def output_qparams(module: nn.Module) -> tuple[float, int]:
    """Scale and zero point that calibration or training found for the output of `module`."""
    observer = getattr(module, "activation_post_process", None)
    if observer is None:
        raise ValueError(
            f"{type(module).__name__} has no activation_post_process: call zeropoint.prepare on the model and run it on"
            " some data before it is converted"
        )
    scale, zero_point = found_qparams(observer)
    return float(scale), int(zero_point)


def found_qparams(observer: Any) -> tuple[Tensor, Tensor]:
    """What an observer answers; of a fake quantization that has run, what it ran with.

    The two differ where a fake quantization observes and rounds in one operator, whose symmetric scale is
    ``max / 127`` and not ``max / 127.5``: torch.ao deploys the latter, though it trained with the former.
    """
    if isinstance(observer, FakeQuantizeBase) and has_observed(observer) and not CONTEXT.asks_observers_again:
        return observer.scale, observer.zero_point
    return observer.calculate_qparams()
