"""Operators of users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from zeropoint.operators import registry
from zeropoint.operators.activations import table_function
from zeropoint.operators.record import Output

__all__ = ["register_operator"]

_OUTPUTS = {"observed": Output.OWN, "unit": Output.UNIT, "symmetric": Output.SYMMETRIC}


def register_operator(
    name: str,
    function: Callable[..., Any],
    *,
    ops: Sequence[Any] = (),
    modules: Sequence[type[nn.Module]] = (),
    output: str = "observed",
) -> None:
    """Let models with an activation of your own be quantized.

    The function takes one float tensor, and numbers, and computes each value by itself. Quantized, it is a table of
    256 results, so it needs no kernel: in eager mode (`modules`), in graphs of torch.export and TorchScript (`ops`), in
    training, and in programs.

    Args:
        name: what summaries call it.
        function: computes it on floats; for what stays float, and for the table.
        ops: operators of torch.library that compute it, such as ``torch.ops.mine.wave.default``: graphs see operators,
            not Python functions.
        modules: classes that compute it.
        output: "observed": the result has a range of its own. "unit": it lies in [0, 1]. "symmetric": in [-1, 1].

    Raises:
        ValueError: if a name, an operator or a module class is taken, or `output` is none of these.
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
    for op in ops:
        if not isinstance(op, torch._ops.OpOverload):
            raise TypeError(f"register_operator: ops takes operators such as torch.ops.mine.wave.default, got {op!r}")
    for module in modules:
        if not (isinstance(module, type) and issubclass(module, nn.Module)):
            raise TypeError(f"register_operator: modules takes module classes, got {module!r}")
    registry.register(table_function(name, function, ops=tuple(ops), modules=tuple(modules), output=_OUTPUTS[output]))
