"""Functions on quantized tensors that follow from what operators declare: ``operator(on_qtensors=...)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zeropoint.ops.library import ON_QTENSORS, QTensorForm, named
from zeropoint.qfunctions.dispatch import run
from zeropoint.qfunctions.operands import activation, result
from zeropoint.tensor.qtensor import QTensor

__all__ = ["derived"]

_NUMBERS = {"float": float, "Scalar": float, "int": int}


def derived() -> dict[str, Callable[..., QTensor]]:
    """The functions, by name. Each takes what its declaration says, and calls its operator on the integers.

    Example:
        >>> import torch, zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.ones(1, 4), 0.5, 10, zeropoint.quint8)
        >>> derived()["softmax"](x, -1, 1 / 256, 0).dequantize()
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    return {name: _function(name, form) for name, form in ON_QTENSORS.items()}


def _function(name: str, form: QTensorForm) -> Callable[..., QTensor]:
    names = [parameter.name for parameter in form.parameters]
    output = names.index("output_scale")
    quantized, rest = (
        names[: form.tensors],
        [i for i in range(form.tensors, len(names)) if i not in (output, output + 1)],
    )
    convert = [_NUMBERS.get(form.parameters[i].type) for i in rest]

    def function(*given: Any, **more: Any) -> QTensor:
        if more or len(given) != len(names):
            given = _filled(name, form, given, more)
        scale, zero_point = float(given[output]), int(given[output + 1])
        operands: list[Any] = []
        for label, q in zip(quantized, given):
            operands += activation(name, q, "input" if label == quantized[0] else label, form.dtypes)
        others = [given[i] if to is None else to(given[i]) for i, to in zip(rest, convert)]
        return result(run(name, *operands, *others, scale, zero_point), scale, zero_point, given[0]._qdtype)

    return named(name, function, f"{form.what}\n\nIts arguments are ``{form.text}``.")


def _filled(name: str, form: QTensorForm, given: Sequence[Any], more: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments in order, from those that were given by place and by name, and the defaults."""
    names = [parameter.name for parameter in form.parameters]
    if len(given) > len(names) or not more.keys() <= set(names[len(given) :]):
        raise TypeError(f"{name} takes ({form.text}), got {len(given)} by place and {sorted(more)} by name")
    values = form.defaults | dict(zip(names, given)) | more
    if missing := [key for key in names if key not in values]:
        raise TypeError(f"{name} takes ({form.text}), got no {', '.join(missing)}")
    return tuple(values[key] for key in names)
