"""Pairs of values from eager mode: modules of the same path, watched by hooks."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from zeropoint.comparison.pairs import OUTPUT, Layer, Pair, first_tensor
from zeropoint.comparison.sizes import stored_bytes
from zeropoint.graph.to_int8 import call_of
from zeropoint.nn.quantized import FloatFunctional, QFunctional
from zeropoint.nn.quantized.quantize import DeQuantize
from zeropoint.nn.simulated_tensor import plain
from zeropoint.nn.stubs import QuantWrapper
from zeropoint.tensor.qtensor import QTensor

_METHODS = tuple(name for name in vars(FloatFunctional) if not name.startswith("_") and name != "forward")
_WRAPPED = "module."  # where QuantWrapper and add_quant_dequant keep the model


class EagerPairs:
    """A model, and what eager `convert` or `quantize_dynamic` made of it.

    A layer is a module of another class than the float one of the same path. A fused layer is followed by identities
    where the float model has a batch norm or a ReLU: it is compared with the result of the last of them.

    Raises:
        ValueError: if no module differs, or one has no counterpart.
    """

    def __init__(self, float_model: nn.Module, quantized: nn.Module) -> None:
        if float_model.training or quantized.training:
            raise ValueError("both models must be in evaluation mode: call .eval()")
        self._float, self._quantized = copy.deepcopy(float_model), quantized
        wrapped = isinstance(quantized, QuantWrapper) and not isinstance(float_model, QuantWrapper)
        self._prefix = _WRAPPED if wrapped else ""
        self._layers: dict[str, Layer] = {}
        self._gone: set[str] = set()  # paths of what became part of a layer
        self._stubs: set[str] = set()  # paths that the float model lacks: the stubs of a wrapper
        for path, module in quantized.named_modules():
            self._look_at(path, module)
        if not self._layers:
            raise ValueError("there is nothing to compare, because no module is quantized: pass a converted model")

    def layers(self) -> tuple[Layer, ...]:
        return tuple(self._layers.values())

    def run(self, batch: Any) -> Iterator[Pair]:
        args, kwargs = call_of(batch)
        wanted: dict[str, list[Any]] = {}
        watched = {*self._layers, *self._gone} - self._stubs
        with torch.no_grad():
            with _watched(self._float, {self._counterpart(p) for p in watched}, _append_to(wanted)):
                wanted_output = first_tensor(_floats(self._float(*args, **kwargs)))
            calls: list[tuple[str, Any, Any, str]] = []
            with _watched(self._quantized, set(watched | self._stubs), lambda *call: calls.append(call)):
                got_output = first_tensor(_floats(self._quantized(*args, **kwargs)))
            yield from self._compare(calls, wanted)
        if wanted_output is not None and got_output is not None:
            yield Pair(OUTPUT, wanted_output, wanted_output, got_output, None)

    def _compare(self, calls: list[tuple[str, Any, Any, str]], wanted: dict[str, list[Any]]) -> Iterator[Pair]:
        for number, (path, given, got, method) in enumerate(calls):
            if path not in self._layers:
                continue
            chain = [path]
            for later, *_ in calls[number + 1 :]:
                if later not in self._gone:
                    break
                chain.append(later)
            alone = _floats(given)
            if path in self._stubs:
                right = alone = first_tensor(alone)
            else:
                for part in chain:
                    module: Any = self._float.get_submodule(self._counterpart(part))
                    inputs = alone if isinstance(alone, tuple) else (alone,)
                    alone = getattr(module, method)(*inputs) if part == path and method else module(*inputs)
                right = first_tensor([wanted[self._counterpart(part)].pop(0) for part in chain][-1])
            result, alone = first_tensor(got), first_tensor(_floats(alone))
            assert right is not None
            assert result is not None
            assert alone is not None
            integers = result.int_repr() if isinstance(result, QTensor) else None
            yield Pair(self._layers[path], right, alone, _floats(result), integers)

    def _counterpart(self, path: str) -> str:
        return path.removeprefix(self._prefix)

    def _look_at(self, path: str, module: nn.Module) -> None:
        inside = any(path.startswith(f"{at}.") for at in self._layers if at)
        if not path or inside or isinstance(module, DeQuantize) or (self._prefix and path == "module"):
            return
        try:
            source = self._float.get_submodule(self._counterpart(path))
        except AttributeError:
            if self._prefix and path == "quant":
                self._stubs.add(path)
                self._layers[path] = _layer(path, module, None)
                return
            raise ValueError(
                f"the float model has no module {path!r}: pass the float model that the quantized model was made from"
            ) from None
        if type(module) is nn.Identity:
            if type(source) is not nn.Identity:
                self._gone.add(path)
        elif type(module) is not type(source) and not isinstance(source, (nn.Sequential, nn.ModuleList)):
            self._layers[path] = _layer(path, module, source)


def _layer(path: str, module: Any, source: Any) -> Layer:
    scale, zero_point = getattr(module, "scale", None), getattr(module, "zero_point", None)
    dynamic = ".dynamic" in type(module).__module__
    weight = rounded = None
    if callable(getattr(module, "weight", None)) and isinstance(getattr(source, "weight", None), Tensor):
        stored = module.weight()
        if isinstance(stored, QTensor) and stored.shape == source.weight.shape:
            rounded = stored.dequantize()
            weight = _as_folded(source.weight.detach(), rounded)
    return Layer(
        name=path,
        path=path,
        operator=type(module).__name__,
        computed="int8 dynamic" if dynamic else "int8",
        scale=float(scale) if scale is not None and not dynamic else None,
        zero_point=int(zero_point) if zero_point is not None and not dynamic else None,
        dtype="float32" if dynamic else str(getattr(module, "dtype", "quint8")).split(".")[-1],
        weight=weight,
        rounded_weight=rounded,
        nbytes=stored_bytes(module.state_dict()),
        float_nbytes=0 if source is None else stored_bytes(source.state_dict()),
    )


def _as_folded(weight: Tensor, rounded: Tensor) -> Tensor:
    """A float weight with the factor for each channel that a batch norm behind it brought; nearly 1 without one."""
    axes = tuple(range(1, weight.dim()))
    factor = (weight * rounded).sum(axes, keepdim=True) / weight.square().sum(axes, keepdim=True).clamp_min(1e-30)
    return weight if bool(((factor - 1).abs() < 0.05).all()) else weight * factor


def _floats(value: Any) -> Any:
    """What it stands for, in plain tensors."""
    return pytree.tree_map(_plain, value)


def _plain(value: Any) -> Any:
    if isinstance(value, QTensor):
        return value.dequantize()
    return plain(value) if isinstance(value, Tensor) else value


def _append_to(found: dict[str, list[Any]]) -> Callable[[str, Any, Any, str], None]:
    def append(path: str, given: Any, got: Any, method: str) -> None:
        found.setdefault(path, []).append(_floats(got))

    return append


@contextlib.contextmanager
def _watched(model: nn.Module, paths: set[str], call: Callable[[str, Any, Any, str], None]) -> Iterator[None]:
    """Tell `call` of every use of the modules at `paths`: path, inputs, result, and the method of a FloatFunctional."""
    hooks, patched = [], []
    for path in sorted(paths):
        module: Any = model.get_submodule(path)
        if isinstance(module, (FloatFunctional, QFunctional)):
            for method in _METHODS:
                setattr(module, method, _told(path, method, getattr(module, method), call))
                patched.append((module, method))
        else:
            hooks.append(module.register_forward_hook(lambda _, given, got, path=path: call(path, given, got, "")))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module, method in patched:
            delattr(module, method)


def _told(path: str, method: str, function: Any, call: Callable[[str, Any, Any, str], None]) -> Any:
    def told(*args: Any, **kwargs: Any) -> Any:
        got = function(*args, **kwargs)
        call(path, (*args, *kwargs.values()), got, method)
        return got

    return told
