"""Registration of operators: one namespace, one decorator, which reads the schema from the function's signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import torch

# In signatures: sizes that may be symbols while a graph is captured, and tensors that are written to.
Size = int
Sizes = Sequence[int]
Written = torch.Tensor
TwoTensors = tuple[torch.Tensor, torch.Tensor]
NAMESPACE = "zeropoint"
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
_KEPT: list[Any] = []
_KERNELS: dict[str, Callable[..., Any]] = {}

Function = TypeVar("Function", bound=Callable[..., Any])
Types = Mapping[str, str]


def operator(
    schema: str = "",
    *,
    fake: Callable[..., Any],
    name: str = "",
    types: Types = MappingProxyType({}),
    tags: tuple[torch.Tag, ...] = (),
) -> Callable[[Function], Function]:
    """Define ``torch.ops.zeropoint.<name>`` with the decorated function as its kernel on every device.

    The function itself comes back unchanged. Defining a name twice is an error of torch.library.

    Args:
        schema: of a function that takes what comes, ``*arguments``; else the signature says it.
        fake: answers shape, dtype and layout without data (for torch.compile, torch.export and meta tensors).
        name: with an overload, ``name.overload``; the function's own if it is empty.
        types: of parameters, and of the result under "return", where the annotations are not those of a schema.

    Example:
        >>> @operator(fake=torch.empty_like)
        ... def double_it(x: torch.Tensor, times: int = 2) -> torch.Tensor:
        ...     return x * times
        >>> torch.ops.zeropoint.double_it(torch.tensor([3.0]))
        tensor([6.])
    """

    def register(kernel: Function) -> Function:
        defined = _define(schema or schema_of(kernel, name, types), tags)
        _KERNELS[defined] = kernel
        LIBRARY.impl(defined, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{defined}", fake, lib=LIBRARY)
        return kernel

    return register


_TYPES = {
    "torch.dtype": "ScalarType",
    "Size": "SymInt",
    "Sizes": "SymInt[]",
    "int | float": "Scalar",
    "TwoTensors": "(Tensor, Tensor)",
    "None": "()",
}


def schema_of(function: Callable[..., Any], name: str = "", types: Types = MappingProxyType({})) -> str:
    """The schema of an operator with the signature of `function`, whose annotations are text.

    Example:
        >>> from torch import Tensor
        >>> def scaled(x: "Tensor", by: "float | None", axes: "Sequence[int]" = (0,)) -> "tuple[Tensor, bool]": ...
        >>> schema_of(scaled)
        'scaled(Tensor x, float? by, int[] axes=[0]) -> (Tensor, bool)'
    """
    signature = inspect.signature(function)
    parameters: list[str] = []
    for key, parameter in signature.parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parameters:
            parameters.append("*")
        default = "" if parameter.default is inspect.Parameter.empty else f"={_default(parameter.default)}"
        parameters.append(f"{types.get(key) or _type(parameter.annotation)} {key}{default}")
    letters = iter("abcdefgh")
    parameters = [re.sub("^Written", lambda _: f"Tensor({next(letters)}!)", text) for text in parameters]
    result = types.get("return") or _type(signature.return_annotation)
    return f"{name or function.__name__}({', '.join(parameters)}) -> {result}"


def _type(annotation: str) -> str:
    if annotation.endswith(" | None"):
        return f"{_type(annotation.removesuffix(' | None'))}?"
    if several := re.fullmatch(r"(?:Sequence|list)\[(.+)\]", annotation):
        return f"{_type(several[1])}[]"
    if parts := re.fullmatch(r"tuple\[(.+)\]", annotation):
        return f"({', '.join(_type(part) for part in parts[1].split(', '))})"
    return _TYPES.get(annotation, annotation)


def _default(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value) if isinstance(value, tuple) else value)


def kernel_of(name: str) -> Callable[..., Any] | None:
    """The function that computes operator `name`, as in ``zeropoint::linear``, on every device.

    None for operators that are made of others, which need torch's dispatcher, and for those of others.

    Example:
        >>> import zeropoint.ops
        >>> kernel_of("zeropoint::stored_pack") is zeropoint.ops.stored.stored_pack
        True
    """
    return _KERNELS.get(name.removeprefix(f"{NAMESPACE}::"))


def named(name: str, function: Function, what: str) -> Function:
    """`function`, which was made for operator `name`, under its name and with a sentence about it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = what
    return function


def composite(*, name: str = "") -> Callable[[Function], Function]:
    """Define an operator that is made of others: their gradients and fake kernels are its own."""

    def register(function: Function) -> Function:
        LIBRARY.impl(_define(schema_of(function, name)), function, "CompositeImplicitAutograd")
        return function

    return register


def differentiable(
    name: str, backward: Callable[..., Any], setup_context: Callable[[Any, tuple[Any, ...], Any], None]
) -> None:
    """Give operator `name` a gradient."""
    torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup_context, lib=LIBRARY)


def _define(schema: str, tags: tuple[torch.Tag, ...] = ()) -> str:
    name = schema.split("(", 1)[0]
    packet = getattr(getattr(torch.ops, NAMESPACE), name.split(".")[0], None)
    if packet is not None:
        # A new overload makes torch replace this object, whose address TorchScript keeps as that of an operator. If
        # something else came to lie there, such as a list of a module, torch.jit.script would take that for one.
        _KEPT.append(packet._op)
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag, *tags))
    return name
