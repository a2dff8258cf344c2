"""Registration of operators: one namespace, one decorator, which reads the schema from the function's signature."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import torch

# In signatures: sizes that may be symbols while a graph is captured, and tensors that are written to.
Size = int
Sizes = Sequence[int]
Written = torch.Tensor
TwoTensors = tuple[torch.Tensor, torch.Tensor]
NAMESPACE = "zeropoint"
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
BYTES, INTEGERS = ("qint8", "quint8"), ("qint32", "qint8", "quint8")  # dtypes of quantized tensors
_KEPT: list[Any] = []
KERNELS: dict[str, Callable[..., Any]] = {}

Function = TypeVar("Function", bound=Callable[..., Any])
Types = Mapping[str, str]


class Parameter(NamedTuple):
    """One parameter of a schema, without its default."""

    type: str
    name: str


@dataclass(frozen=True)
class QTensorForm:
    """An operator as a function on quantized tensors.

    Args:
        text: its parameters, as in a schema, the quantized tensors first; ``output_scale`` and ``output_zero_point``
            are those of the result.
        tensors: how many quantized tensors the operator takes.
        dtypes: what they may be.
        what: a sentence about it.
    """

    text: str
    tensors: int
    dtypes: tuple[str, ...]
    what: str

    @property
    def parameters(self) -> list[Parameter]:
        return [Parameter(*part.split("=")[0].split(" ")) for part in self.text.split(", ")]

    @property
    def defaults(self) -> dict[str, Any]:
        given = (part.split(" ", 1)[1].split("=") for part in self.text.split(", ") if "=" in part)
        return {name: ast.literal_eval(default) for name, default in given}


ON_QTENSORS: dict[str, QTensorForm] = {}


def operator(
    schema: str = "",
    *,
    fake: Callable[..., Any],
    name: str = "",
    types: Types = MappingProxyType({}),
    on_qtensors: str = "",
    dtypes: tuple[str, ...] = BYTES,
    tags: tuple[torch.Tag, ...] = (),
) -> Callable[[Function], Function]:
    """Define ``torch.ops.zeropoint.<name>`` with the decorated function as its kernel on every device.

    The function itself comes back unchanged. Defining a name twice is an error of torch.library.

    Args:
        schema: of a function that takes what comes, ``*arguments``; else the signature says it.
        fake: answers shape, dtype and layout without data (for torch.compile, torch.export and meta tensors). It names
            those of the kernel's parameters that it needs, or takes all as ``*arguments``.
        name: with an overload, ``name.overload``; the function's own if it is empty.
        on_qtensors: the parameters of the function on quantized tensors (`QTensorForm.text`), if it has one.
        dtypes: of those tensors.
        types: of parameters, and of the result under "return", where the annotations are not those of a schema.

    Example:
        >>> from torch import Tensor
        >>> @operator(fake=torch.empty_like)
        ... def double_it(x: Tensor, times: int = 2) -> Tensor:
        ...     return x * times
        >>> torch.ops.zeropoint.double_it(torch.tensor([3.0]))
        tensor([6.])
    """

    def register(kernel: Function) -> Function:
        text = schema or schema_of(kernel, name, types)
        defined = _define(text, tags)
        if on_qtensors:
            what = (kernel.__doc__ or "").partition("\n")[0]
            ON_QTENSORS[defined] = QTensorForm(on_qtensors, text.count("_zero_point"), dtypes, what)
        KERNELS[defined] = kernel
        LIBRARY.impl(defined, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{defined}", _with_named(fake, kernel), lib=LIBRARY)
        return kernel

    return register


def _with_named(fake: Callable[..., Any], kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes what `kernel` takes, and calls `fake` with those arguments that it names."""
    parameters = inspect.signature(kernel).parameters
    if inspect.isbuiltin(fake) or any(
        parameter.kind is parameter.VAR_POSITIONAL
        for parameter in (*parameters.values(), *inspect.signature(fake).parameters.values())
    ):
        return fake
    wanted = list(inspect.signature(fake).parameters)
    if unknown := sorted({*wanted} - {*parameters}):
        raise TypeError(f"fake of {kernel.__name__}: the kernel has no parameter {', '.join(unknown)}")
    defaults = {name: parameter.default for name, parameter in parameters.items()}

    def named_only(*arguments: Any, **keywords: Any) -> Any:
        given = {**defaults, **dict(zip(parameters, arguments)), **keywords}
        return fake(*[given[name] for name in wanted])

    return named_only


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
        >>> def scaled(x: Tensor, by: float | None, axes: Sequence[int] = (0,)) -> tuple[Tensor, bool]: ...
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
        >>> kernel_of("zeropoint::stored_pack") is zeropoint.ops.qtensor_storage.stored_pack
        True
    """
    return KERNELS.get(name.removeprefix(f"{NAMESPACE}::"))


def named(name: str, function: Function, what: str) -> Function:
    """`function`, which was made for operator `name`, under its name and with a sentence about it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = what
    return function


def composite(*, name: str = "", types: Types = MappingProxyType({})) -> Callable[[Function], Function]:
    """Define an operator that is made of others: their gradients and fake kernels are its own."""

    def register(function: Function) -> Function:
        LIBRARY.impl(_define(schema_of(function, name, types)), function, "CompositeImplicitAutograd")
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
