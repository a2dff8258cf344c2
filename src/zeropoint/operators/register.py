"""Operators of users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from zeropoint.nn import quantized as nnq
from zeropoint.operators import registry
from zeropoint.operators.activations import table_function
from zeropoint.operators.node import overload_key
from zeropoint.operators.record import ModuleForms, Operator, Output

_OUTPUTS = {"observed": Output.OWN, "unit": Output.UNIT, "symmetric": Output.SYMMETRIC}
_FORMS = ("table", "parts")


def register_operator(
    name: str,
    function: Callable[..., Any],
    *,
    ops: Sequence[Any] = (),
    modules: Sequence[type[nn.Module]] = (),
    output: str = "observed",
    form: str = "table",
    quantized_module: type[nn.Module] | None = None,
) -> None:
    """Register a custom operator, so that models that use it can be quantized.

    There are two forms. "table" is for element-wise activations: the function takes one float tensor and numbers, and
    its quantized version is a table of 256 results. "parts" is for all other operators: the function takes any number
    of tensors, including weights, and calls PyTorch operators, which replace yours and are quantized one by one. Both
    forms work without a kernel in eager mode (`modules`), in graphs of torch.export and TorchScript (`ops`), in
    training, and in programs.

    Args:
        name: the name in summaries.
        function: the computation on floats. For "parts", it needs the type annotations of torch.jit.script.
        ops: operators of torch.library, such as ``torch.ops.mine.wave.default``. Graphs contain operators, not Python
            functions.
        modules: module classes that compute it.
        output: the output range of a table: "observed", "unit" for [0, 1], or "symmetric" for [-1, 1].
        form: "table" or "parts".
        quantized_module: the class that replaces `modules` in `convert`, by its ``from_float``. By default, a "table"
            is looked up, and a "parts" module runs in float between dequantize and quantize.

    Raises:
        ValueError: if a name, an operator or a module class is already registered, or `output` or `form` is unknown.
        TypeError: if `ops` contains something other than operators, or `modules` something other than module classes.

    Example:
        >>> class Wave(nn.Module):
        ...     def forward(self, x):
        ...         return x.sin()
        >>> register_operator("wave", torch.sin, modules=[Wave], output="symmetric")
        >>> registry.unregister("wave")
    """
    if output not in _OUTPUTS:
        raise ValueError(f"register_operator: output must be one of {', '.join(_OUTPUTS)}, got {output!r}")
    if form not in _FORMS:
        raise ValueError(f"register_operator: form must be one of {', '.join(_FORMS)}, got {form!r}")
    for op in ops:
        if not isinstance(op, torch._ops.OpOverload):
            raise TypeError(f"register_operator: ops takes operators such as torch.ops.mine.wave.default, got {op!r}")
    for module in (*modules, *([quantized_module] if quantized_module is not None else [])):
        if not (isinstance(module, type) and issubclass(module, nn.Module)):
            raise TypeError(f"register_operator: modules takes module classes, got {module!r}")
    static = quantized_module or (nnq.Function if form == "table" else nnq.Dequantized)
    forms = tuple(ModuleForms(module, static) for module in modules)
    if form == "table":
        record = table_function(
            name, function, ops=tuple(ops), modules=tuple(modules), output=_OUTPUTS[output], forms=forms
        )
    else:
        keys = tuple(overload_key(op) for op in ops)
        record = Operator(name, keys, tuple(modules), (function,), forms=forms, parts=function)
    registry.register(record)
