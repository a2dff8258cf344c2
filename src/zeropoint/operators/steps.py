"""How a node of a quantized graph becomes steps of a program, and a step a node again: what records say about it, and
what such code sees.

What a step computes, and the numbers it takes, is in native/engine/steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, fx

LAST = 2**62  # beyond the end of every axis


class StepBuilder(Protocol):
    """The program while it is made, as a function sees it that emits the steps of one node."""

    builder: Any  # constants, and steps with several results
    node: fx.Node | None
    found: dict[fx.Node, Any]  # what each node gave for the example, tensors without their values

    def tensor(self, node: Any) -> str | None:
        """The name of a tensor; None for None."""

    def parameter(self, node: Any) -> Tensor:
        """A tensor that the graph holds."""

    def is_parameter(self, node: Any) -> bool:
        """Whether the graph holds it."""

    def dtype(self, node: fx.Node) -> torch.dtype:
        """The dtype of a node's result."""

    def rank(self, node: fx.Node) -> int:
        """The number of axes of a node's result."""

    def size(self, value: Any) -> Any:
        """A number, or the name of one that is known when the program runs."""

    def sizes(self, values: Any) -> list[Any]:
        """The same for each of several."""

    def number(self, operation: str, a: Any, b: Any) -> Any:
        """A number made from two others: at once, if both are known."""

    def quantity(self, value: Any) -> Any:
        """As `size`, of a number that need not be whole."""

    def calculate(self, operation: str, *numbers: Any) -> Any:
        """A number made from others as Python does: at once, if all are known."""

    def axis_size(self, node: fx.Node, axis: int) -> Any:
        """The size of an axis of a tensor."""

    def number_of_elements(self, node: fx.Node) -> Any:
        """The product of the sizes of all axes."""

    def add(self, op: str, *inputs: str | None, **attributes: Any) -> str:
        """A step for the node at hand; the name of its result."""

    def require(self, value: Any, why: str, exact: bool = False) -> None:
        """Refuse to run if a number is negative, or if it is not zero."""

    def state(self, node: Any) -> str:
        """The name of a tensor that the program keeps from call to call."""

    def update_state(self, node: Any, following: str | None, initial: Tensor) -> None:
        """Say what replaces a state at the end of a call, and what it begins with."""

    def unsupported(self, why: str = ...) -> Exception:
        """The error for a node that no step computes."""


class ProgramStep(Protocol):
    """One step of a program."""

    op: str
    inputs: list[str | None]
    outputs: list[str]
    attributes: dict[str, Any]


class GraphBuilder(Protocol):
    """The quantized graph while it is made of a program again, as a function sees it that restores one step."""

    def call(self, target: Any, *args: Any, **named: Any) -> fx.Node:
        """A node that calls an operator."""

    def tensor(self, name: str | None) -> fx.Node | None:
        """A value of the program; None for None."""

    def constant(self, name: str | None) -> Tensor | None:
        """A tensor of the file; None for None."""

    def stored(self, name: str, value: Tensor) -> fx.Node:
        """A tensor that the graph holds."""

    def size(self, value: Any) -> Any:
        """An attribute that may name a number: that number as a node; others as they are, also in lists."""

    def shape(self, node: Any) -> tuple[int, ...]:
        """The shape of a node's result, for the example."""

    def dtype(self, node: Any) -> torch.dtype:
        """The dtype of a node's result."""

    def unsupported(self, why: str) -> Exception:
        """The error for a step that no operator of graphs is."""


# Makes the steps of a node: the name of its result, or a list of names where it gives several.
Emit = Callable[[Any, fx.Node], Any]
Steps = tuple[tuple[str, Emit], ...]
# Makes the node of a step again: the node of its result, or a list of them where it gives several.
Restore = Callable[[Any, Any], Any]
Restores = tuple[tuple[str, Restore], ...]


def steps(emit: Emit, *targets: str | Sequence[str]) -> Steps:
    """Calls of these operators, and the function that emits their steps.

    Args:
        targets: ``"aten.flip.default"``; one of zeropoint's by its name alone, ``"linear_relu"``.

    Example:
        >>> [name for name, _ in steps(print, "aten.flip.default", "linear")]
        ['aten.flip.default', 'zeropoint.linear.default']
    """
    return tuple((name, emit) for name in full_names(*targets))


def restores(restore: Restore, *kinds: str) -> Restores:
    """Kinds of steps, and the function that makes nodes of them."""
    return tuple((kind, restore) for kind in kinds)


def called(target: Any, *names: str) -> Restore:
    """Restores a step as a call with its tensors, and with attributes of these names behind them."""

    def restore(r: GraphBuilder, step: ProgramStep) -> fx.Node:
        tensors = (r.tensor(name) for name in step.inputs)
        return r.call(target, *tensors, *(r.size(step.attributes[name]) for name in names))

    return restore


def full_names(*calls: str | Sequence[str]) -> list[str]:
    """Calls with their namespace and overload; zeropoint's may be given by the name alone."""
    names = (name for call in calls for name in ([call] if isinstance(call, str) else call))
    return [name if "." in name else f"zeropoint.{name}.default" for name in names]


def dtype_name(dtype: torch.dtype) -> str:
    """``uint8`` for ``torch.uint8``."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """``torch.uint8`` for ``uint8``."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def emit_same(c: StepBuilder, node: fx.Node) -> str | None:
    """Values never change, so that a copy is the value itself."""
    return c.tensor(node.args[0])


def with_axis(c: StepBuilder, node: fx.Node, name: str | None = None) -> str:
    """A tensor, whose name may be given; one without axes as a row of one, whose axis PyTorch calls 0 or -1."""
    name = str(c.tensor(node) if name is None else name)
    return name if c.rank(node) else c.add("reshape", name, shape=[1])


def without_axis(c: StepBuilder, name: str, node: fx.Node) -> str:
    """What was computed with `with_axis`, with as many axes as a node has."""
    return name if c.rank(node) else c.add("reshape", name, shape=[])


def require_stored(c: StepBuilder, *nodes: Any) -> None:
    """Refuse weights that are computed: steps pack them when a program is loaded."""
    if any(node is not None and not c.is_parameter(node) for node in nodes):
        raise c.unsupported("its weight or bias is not a constant")
