"""Registration of operators: one namespace, one decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

NAMESPACE = "zeropoint"
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
_KEPT: list[Any] = []
_KERNELS: dict[str, Callable[..., Any]] = {}

Function = TypeVar("Function", bound=Callable[..., Any])


def operator(schema: str, fake: Callable[..., Any], tags: tuple[torch.Tag, ...] = ()) -> Callable[[Function], Function]:
    """Define ``torch.ops.zeropoint.<schema>`` with the decorated function as its kernel on every device.

    `fake` answers shape, dtype and layout without data (for torch.compile, torch.export and meta tensors).
    The function itself comes back unchanged. Defining a name twice is an error of torch.library.

        @operator("double_it(Tensor x) -> Tensor", fake=torch.empty_like)
        def double_it(x): ...
    """

    def register(kernel: Function) -> Function:
        name = _define(schema, tags)
        _KERNELS[name] = kernel
        LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)
        return kernel

    return register


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


def composite(schema: str) -> Callable[[Function], Function]:
    """Define an operator that is made of others: their gradients and fake kernels are its own."""

    def register(function: Function) -> Function:
        LIBRARY.impl(_define(schema), function, "CompositeImplicitAutograd")
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
