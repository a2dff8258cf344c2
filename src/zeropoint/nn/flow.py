"""Floats that stand for a quantized tensor, in a model that is calibrated or trained.

What an observer or a fake quantization lets through becomes a `Standing` tensor, which remembers it. Functions that
pass values on (ReLU, max pooling, reshaping) keep the memory. Functions that average (pools, mean, interpolation) round
their result in training to the same steps, as the integers will be. Any other function is tried on real quantized
tensors, once: if they cannot take it, the deployed model would fail there, so that is said now, with the place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.tensor.create import quantize_per_tensor
from zeropoint.tensor.watchers import is_recorded

# Functions whose results are some of the values they were given, or bounds that the integers keep too.
_PASSING = frozenset(
    (
        "relu", "relu_", "relu6", "hardtanh", "hardtanh_", "clamp", "clamp_", "clip", "threshold", "dropout",
        "dropout1d", "dropout2d", "dropout3d", "max_pool1d", "max_pool2d", "max_pool3d", "boolean_dispatch",
        "adaptive_max_pool2d", "reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "ravel",
        "permute", "transpose", "t", "swapaxes", "movedim", "squeeze", "unsqueeze", "expand", "expand_as",
        "contiguous", "clone", "chunk", "split", "unbind", "tensor_split", "narrow", "select", "index_select",
        "__getitem__", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "roll", "flip", "max", "min", "amax",
        "amin", "repeat", "detach", "to", "cpu", "T.__get__",
    )
)  # fmt: skip
# Functions whose results lie between the values they were given, and are rounded to the same steps.
_AVERAGING = frozenset(
    (
        "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
        "mean", "interpolate", "upsample", "upsample_nearest", "upsample_bilinear",
    )
)  # fmt: skip


class Standing(torch.Tensor):
    """A float tensor that stands for a quantized one, and knows the observer or fake quantization it went through."""

    _source: Any

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__" or not _has_float(result):
            return result
        source = next((t._source for t in _tensors((args, kwargs)) if isinstance(t, Standing)), None)
        if name in _AVERAGING:
            return standing(_as_integers(func, args, kwargs, result, source), source)
        if name in _PASSING:
            return _map(result, lambda t: standing(t, source))
        _require_quantizable(func, name, args, kwargs)
        return result


def standing(x: Tensor, source: Any) -> Tensor:
    """`x`, which went through `source`, as a tensor that remembers it."""
    if source is None or not x.is_floating_point():
        return x
    made = x.as_subclass(Standing)
    made._source = source
    return made


class Moved:
    """Stands for an observer where values were shifted or scaled by a number: quantized, with other parameters."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype


def moved(x: Tensor, like: Any) -> Tensor:
    """`x`, made of `like` and a number; it stands for a quantized tensor if `like` does."""
    return standing(x, Moved(like._source.dtype)) if isinstance(like, Standing) else x


def plain(x: Any) -> Any:
    """`x` without its memory; also in tuples, lists and dictionaries."""
    return _map(x, lambda t: t.as_subclass(torch.Tensor) if isinstance(t, Standing) else t)


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


def as_integers(func: Any, x: Tensor, options: dict[str, Any], result: Tensor, source: Any) -> Tensor:
    """The `result` of ``func(x, **options)``, an average, with the values that the integers of `source` will give."""
    return _as_integers(func, (standing(x, source),), options, result, source)


def _as_integers(func: Any, args: Any, kwargs: Any, result: Tensor, source: Any) -> Tensor:
    """The `result` of an averaging function with the values that the integers will give, and its own gradient."""
    if not isinstance(source, FakeQuantizeBase) or not bool(source.fake_quant_enabled):
        return result
    scale, zero_point = float(source.scale), int(source.zero_point)

    def integers(t: Tensor) -> Tensor:
        if not isinstance(t, Standing):
            return t
        x = t.as_subclass(torch.Tensor).detach()
        if x.dim() in _CHANNELS_LAST:  # as the layer before it will hand it over
            x = x.contiguous(memory_format=_CHANNELS_LAST[x.dim()])
        return quantize_per_tensor(x, scale, zero_point, source.dtype)

    with torch.no_grad():
        values = func(*_map(args, integers), **_map(kwargs, integers)).dequantize()
    return result + (values - result).detach()


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _is_narrow(fake_quant: Any) -> bool:
    dtype = quantized_dtype(fake_quant.dtype)
    return fake_quant.scale.numel() == 1 and (fake_quant.quant_min, fake_quant.quant_max) != (dtype.qmin, dtype.qmax)


def _stands_for_bytes(post_process: Any) -> bool:
    try:
        return quantized_dtype(post_process.dtype).name in ("quint8", "qint8")
    except (AttributeError, TypeError, ValueError):
        return False


# --------------------------------------------------------------------------------------------- what cannot be quantized

_TRIED: dict[tuple[Any, ...], str | None] = {}


def _require_quantizable(func: Any, name: str, args: Any, kwargs: Any) -> None:
    """Raise unless real quantized tensors can go through `func` where it is called now."""
    frame = _caller()
    key = (func, frame and (frame.f_code, frame.f_lineno))
    if key not in _TRIED:
        _TRIED[key] = _try(func, args, kwargs)
    if _TRIED[key] is None:
        return
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}, in {type(_self(frame)).__name__}" if frame else "?"
    raise NotImplementedError(
        f"{name or func} cannot take quantized tensors ({where}), so the converted model would fail here. Ways out:"
        " use a module or a zeropoint.nn.quantized.FloatFunctional, which has add, mul, cat and matmul; put a"
        " DeQuantStub before it (and a QuantStub after it); or set the qconfig of the layers before it to None."
    )


def _try(func: Callable[..., Any], args: Any, kwargs: Any) -> str | None:
    def quantized(t: Tensor) -> Tensor:
        if not isinstance(t, Standing):
            return t
        floats = t.as_subclass(torch.Tensor).detach().to(torch.float32)
        return quantize_per_tensor(floats, 0.1, 0, quantized_dtype(t._source.dtype))

    try:
        with torch.no_grad():
            func(*_map(args, quantized), **_map(kwargs, quantized))
    except (NotImplementedError, TypeError, ValueError, RuntimeError) as error:
        return str(error)
    return None


def _caller() -> Any:
    """The innermost frame that is the method of a module outside torch."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if isinstance(_self(frame), nn.Module) and not name.startswith(("torch.", "zeropoint.nn.flow")):
            return frame
        frame = frame.f_back
    return None


def _self(frame: Any) -> Any:
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if names else None


# ---------------------------------------------------------------------------------------------------------- structures


def _map(value: Any, function: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(v, function) for v in value))
    if type(value) in (tuple, list):
        return type(value)(_map(v, function) for v in value)
    if type(value) is dict:
        return {k: _map(v, function) for k, v in value.items()}
    return value


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _map(value, found.append)
    return found


def _has_float(value: Any) -> bool:
    return any(t.is_floating_point() for t in _tensors(value))
