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

__all__ = ["register_operator"]

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

    In one of two forms. A "table" is for an activation: the function takes one float tensor, and numbers, and computes
    each value by itself; quantized, it is a table of 256 results. "parts" is for everything else: the function takes
    any number of tensors, weights among them, and calls operators of PyTorch; each of those is then quantized by
    itself, in the place of yours. Neither needs a kernel, in eager mode (`modules`), in graphs of torch.export and
    TorchScript (`ops`), in training, and in programs.

    Args:
        name: what summaries call it.
        function: computes it on floats. In the form "parts" with annotations, as torch.jit.script wants them.
        ops: operators of torch.library that compute it, such as ``torch.ops.mine.wave.default``: graphs see operators,
            not Python functions.
        modules: classes that compute it.
        output: "observed": the result has a range of its own. "unit": it lies in [0, 1]. "symmetric": in [-1, 1]. For
            tables.
        form: "table" or "parts".
        quantized_module: what `convert` puts in the place of `modules`, by its ``from_float``. By default a table is
            looked up, and a module of the other form computes on floats between dequantize and quantize.

    Raises:
        ValueError: if a name, an operator or a module class is taken, or `output` or `form` is none of these.
        TypeError: if `ops` has something that is no operator, or `modules` something that is no module class.

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
