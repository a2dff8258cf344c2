"""Floats that stand for a quantized tensor, in a model that is calibrated or trained.

What an observer or a fake quantization lets through becomes a `SimulatedTensor`, which remembers it. Functions that
pass values on (ReLU, max pooling, reshaping) keep the memory. Any other function is tried on real quantized tensors,
once: if they cannot take it, the deployed model would fail there, so that is said now, with the place. If they can,
the result stands for what they give, and in training it has the values that the integers will give.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.context import CONTEXT
from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.nn.call_site import call_site
from zeropoint.numerics.blocks import CHANNELS_LAST
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.tensor.create import quantize_per_tensor
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.recording import is_recorded

_VALUES = frozenset(("T", "mT", "data"))  # attributes of a tensor that give its values


class SimulatedTensor(torch.Tensor):
    """A float tensor that stands for a quantized one, and knows the observer or fake quantization it went through."""

    _source: Any
    _layout: Tensor | None = None  # a tensor on the meta device that lies in memory as the quantized one will

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        drops = kwargs.get("training") is True  # values at random; the deployed model drops none
        is_exact = drops or name in _VALUES or CONTEXT.moves_values(name)
        writes = not is_exact and _writes(name, args, kwargs)
        given, named = _map((args, kwargs), _copied) if writes else (args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*given, **named)
        is_attribute = getattr(func, "__name__", "") == "__get__"
        if not _has_float(result) or (is_attribute and name not in _VALUES):
            return result
        sources = list(dict.fromkeys(t._source for t in tensors_in((args, kwargs)) if isinstance(t, SimulatedTensor)))
        source: Any = sources[0] if sources else None
        layouts = _layouts(func, name, args, kwargs)
        keeps = is_attribute or _require_quantizable(func, name, args, kwargs)
        if keeps is False:
            source = Moved(source.dtype)
        elif keeps and len(sources) > 1:
            _warn_of_joining(name)
        values = result if is_exact or keeps is None else _as_integers(func, args, kwargs, result)
        if writes:
            with torch._C.DisableTorchFunctionSubclass():
                values = args[0].copy_(values)
        return values if keeps is None else _map(values, lambda t: standing(t, source, next(layouts, None)))


def _writes(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function writes its result into its first argument, which stands for a quantized tensor."""
    in_place = kwargs.get("inplace") is True or (name.endswith("_") and not name.endswith("__"))
    return in_place and bool(args) and isinstance(args[0], SimulatedTensor)


def _copied(t: Tensor) -> Tensor:
    """A tensor that can be written in the place of `t`; gradients go on to `t`."""
    return t.as_subclass(torch.Tensor).clone() if isinstance(t, SimulatedTensor) else t


def standing(x: Tensor, source: Any, layout: Tensor | None = None) -> Tensor:
    """`x`, which went through `source`, as a tensor that remembers it."""
    if source is None or not x.is_floating_point():
        return x
    made = x.as_subclass(SimulatedTensor)
    made._source, made._layout = source, layout
    return made


def channels_last(x: Tensor) -> Tensor:
    """`x`, from a convolution, remembering that the quantized one keeps its channels last in memory."""
    if isinstance(x, SimulatedTensor) and x.dim() in CHANNELS_LAST:
        x._layout = torch.empty(x.shape, device="meta", memory_format=CHANNELS_LAST[x.dim()])
    return x


class Moved:
    """Stands for an observer where values were shifted or scaled by a number: quantized, with other parameters."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype


def moved(x: Tensor, like: Any) -> Tensor:
    """`x`, made of `like` and a number; it stands for a quantized tensor if `like` does."""
    return standing(x, Moved(like._source.dtype)) if isinstance(like, SimulatedTensor) else x


def joint(x: Tensor, parts: list[Any], parameters: Callable[..., tuple[float, int]]) -> Tensor:
    """`x`, made of `parts` joined; it stands for them joined with a scale and zero point that hold them all.

    `parameters` finds these, from lists of scales and zero points and the bounds of the integers.
    """
    if not isinstance(parts[0], SimulatedTensor):
        return x
    sources = [p._source for p in parts if isinstance(p, SimulatedTensor)]
    if len(sources) == len(parts) and all(_rounds(s) for s in sources):
        dtype: Any = quantized_dtype(sources[0].dtype)
        scales, zero_points = [float(s.scale) for s in sources], [int(s.zero_point) for s in sources]
        if len({*zip(scales, zero_points)}) > 1:
            scale, zero_point = parameters(scales, zero_points, dtype.qmin, dtype.qmax)
            x = torch.ops.zeropoint.fake_quantize_per_tensor_affine(x, scale, zero_point, dtype.qmin, dtype.qmax)
    return standing(x, Moved(sources[0].dtype))


def plain(x: Any) -> Any:
    """`x` without its memory; also in tuples, lists and dictionaries."""
    return _map(x, lambda t: t.as_subclass(torch.Tensor) if isinstance(t, SimulatedTensor) else t)


def has_standing(x: Any) -> bool:
    """Whether `x`, a tensor or a structure of them, has one that stands for a quantized tensor."""
    return any(isinstance(t, SimulatedTensor) for t in tensors_in(x))


def observed(post_process: nn.Module, output: Any) -> Any:
    """What `post_process`, an observer or a fake quantization, makes of the output of a module.

    A fake quantization with a reduced range (7 of 8 bits) chooses its scale for that range, but the deployed layer has
    all 8 bits to store its result in. So results are rounded here to the whole range of the type.
    """
    if not isinstance(output, Tensor):
        return post_process(output)
    if is_recorded() or not _stands_for_bytes(post_process):
        return post_process(plain(output))
    x = plain(output)
    y = post_process(x)
    if isinstance(post_process, FakeQuantizeBase) and _is_narrow(post_process):
        y = rounded(x, post_process)
    return standing(y, post_process)


def rounded(x: Tensor, source: Any) -> Tensor:
    """`x` rounded to the steps of the fake quantization `source`; as it is while only ranges are observed."""
    if not isinstance(source, FakeQuantizeBase) or not bool(source.fake_quant_enabled):
        return x
    dtype: Any = quantized_dtype(source.dtype)
    scale, zero_point = float(source.scale), int(source.zero_point)
    return torch.ops.zeropoint.fake_quantize_per_tensor_affine(x, scale, zero_point, dtype.qmin, dtype.qmax)


def _as_integers(func: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """The `result` of a function, in training with the values that the integers will give and its own gradient."""
    given = [t for t in tensors_in((args, kwargs)) if isinstance(t, SimulatedTensor)]
    if not isinstance(result, Tensor) or not all(_rounds(t._source) for t in given):
        return result

    def integers(t: Tensor) -> Tensor:
        if not isinstance(t, SimulatedTensor):
            return t
        x = t.as_subclass(torch.Tensor).detach()
        if x.dim() in CHANNELS_LAST:  # as the layer before it will hand it over
            x = x.contiguous(memory_format=CHANNELS_LAST[x.dim()])
        return quantize_per_tensor(x, float(t._source.scale), int(t._source.zero_point), t._source.dtype)

    with torch.no_grad():
        values = func(*_map(args, integers), **_map(kwargs, integers)).dequantize()
    floats = plain(result)
    return floats + (values - floats).detach()


def _rounds(source: Any) -> bool:
    return isinstance(source, FakeQuantizeBase) and bool(source.fake_quant_enabled) and source.scale.numel() == 1


def _is_narrow(fake_quant: Any) -> bool:
    dtype = quantized_dtype(fake_quant.dtype)
    return fake_quant.scale.numel() == 1 and (fake_quant.quant_min, fake_quant.quant_max) != (dtype.qmin, dtype.qmax)


def _stands_for_bytes(post_process: Any) -> bool:
    inner = getattr(post_process, "activation_post_process", post_process)
    if getattr(inner, "prepared_elsewhere", False):  # and nothing would take the memory off again
        return False
    try:
        return quantized_dtype(post_process.dtype).name in ("quint8", "qint8")
    except (AttributeError, TypeError, ValueError):
        return False


def _layouts(func: Any, name: str, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """How the results of `func` will lie in memory, if that is known of what it gets; raises where `view` would."""
    given = [t for t in tensors_in((args, kwargs)) if isinstance(t, SimulatedTensor)]
    if len(given) != 1 or given[0]._layout is None:
        return iter(())

    def layout(t: Tensor) -> Tensor:
        return t._layout if isinstance(t, SimulatedTensor) and t._layout is not None else t

    try:
        results = tensors_in(func(*_map(args, layout), **_map(kwargs, layout)))
    except (NotImplementedError, RuntimeError):  # also what the meta device lacks
        if name not in ("view", "view_as"):
            return iter(())
        _refuse(
            f"{name} does not work with quantized tensors, which are channels last in memory after a convolution, so"
            f" the converted model would fail {call_site()[1]}. Use reshape or flatten."
        )
        return iter(())
    return iter([t for t in results if t.device.type == "meta"])


# --------------------------------------------------------------------------------------------- what cannot be quantized

_TRIED: dict[Any, str | bool | None] = {}
_TRIED_AT_MOST = 4096  # a model whose sizes differ from call to call would fill the memory
_WARNED: set[str] = set()


def _require_quantizable(func: Any, name: str, args: Any, kwargs: Any) -> bool | None:
    """Raise, or warn, unless real quantized tensors can go through `func`, called like this.

    The answer says whether the result is quantized with the parameters of the first tensor (True), with others (False)
    or not at all (None).
    """
    if kwargs.get("training") is True:  # dropout: the converted model is in evaluation
        kwargs = {**kwargs, "training": False}
    key = (func, repr(_map((args, kwargs), _signature)))
    if key not in _TRIED:
        if len(_TRIED) >= _TRIED_AT_MOST:
            _TRIED.clear()
        _TRIED[key] = _try(func, args, kwargs)
    outcome = _TRIED[key]
    if not isinstance(outcome, str):
        return outcome
    module, where = call_site()
    precisions = (
        "use a module or a zeropoint.nn.quantized.FloatFunctional, which has add, mul, cat and matmul; put a"
        " DeQuantStub before it (and a QuantStub after it); or set the qconfig of the layers before it to None"
    )
    if module is not None and not list(module.children()) and getattr(module, "qconfig", None) is None:
        precisions = "its qconfig is None, so it stays float: give it a qconfig, or put a DeQuantStub before it"
        precisions += " (and a QuantStub after it)"
    _refuse(
        f"{name or func} does not support quantized tensors, so the converted model would fail {where}."
        f" Instead: {precisions}."
    )
    return None


def _refuse(why: str) -> None:
    if CONTEXT.refuses_unquantizable:
        raise NotImplementedError(why) from None
    if why not in _WARNED:
        _WARNED.add(why)
        warnings.warn(why, stacklevel=4)


def _warn_of_joining(name: str) -> None:
    where = call_site()[1]
    if where not in _WARNED:
        _WARNED.add(where)
        warnings.warn(
            f"{name} uses the scale of the first tensor for all {where}: the converted model clips values outside it."
            " zeropoint.nn.quantized.FloatFunctional().cat observes the result.",
            stacklevel=3,
        )


def _try(func: Callable[..., Any], args: Any, kwargs: Any) -> str | bool | None:
    scales: dict[Any, float] = {}

    def quantized(t: Tensor) -> Tensor:
        if not isinstance(t, SimulatedTensor):
            return t
        floats = t.as_subclass(torch.Tensor).detach().to(torch.float32)
        scale = scales.setdefault(t._source, 0.125 * (1 + len(scales)))
        return quantize_per_tensor(floats, scale, 0, quantized_dtype(t._source.dtype))

    try:
        with torch.no_grad():
            results = tensors_in(func(*_map(args, quantized), **_map(kwargs, quantized)))
    except (NotImplementedError, TypeError, ValueError, RuntimeError) as error:
        return str(error)
    made = next((t for t in results if isinstance(t, QTensor)), None)
    return None if made is None else (made.q_scale(), made.q_zero_point()) == (0.125, 0)


def _signature(t: Tensor) -> str:
    return f"{type(t).__name__}({t.dim()})"


# ---------------------------------------------------------------------------------------------------------- structures


def _map(value: Any, function: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if type(value).__module__ == "torch.return_types":
        return type(value)(tuple(_map(v, function) for v in value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(v, function) for v in value))
    if type(value) in (tuple, list):
        return type(value)(_map(v, function) for v in value)
    if type(value) is dict:
        return {k: _map(v, function) for k, v in value.items()}
    return value


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of nested tuples, lists and dictionaries."""
    found: list[Tensor] = []
    _map(value, found.append)
    return found


def _has_float(value: Any) -> bool:
    return any(t.is_floating_point() for t in tensors_in(value))
