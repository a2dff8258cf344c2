"""What the callbacks of operator records see of the graph that is being lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, fx

from zeropoint.operators.lowered_value import Scale

if TYPE_CHECKING:
    from zeropoint.operators.choice import Choice


class Lowering(Protocol):
    """The new graph while it is made (`zeropoint.graph.lowering`). Its methods take nodes of the old one."""

    old: fx.GraphModule
    graph: fx.Graph

    @property
    def choices(self) -> Mapping[fx.Node, Choice]:
        """How each node of the old graph is computed."""
        ...

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A new node that calls `target`."""
        ...

    def floats(self, node: Any) -> fx.Node:
        """The new node with the float32 values of a node."""
        ...

    def argument(self, value: Any) -> Any:
        """An argument with the nodes in it as `floats`."""
        ...

    def integers(self, node: Any) -> tuple[fx.Node, Scale]:
        """The new node with the integers of a node, and their scale."""
        ...

    def quantized(self, node: Any) -> tuple[Any, ...]:
        """Integers, scale and zero point of a node, as operators take them."""
        ...

    def scale_at(self, node: Any) -> Scale:
        """The scale of a node."""
        ...

    def output_scale(self, node: fx.Node, choice: Choice) -> Scale:
        """The scale that the result of a node was observed to need."""
        ...

    def unobserved(self, node: Any) -> fx.Node:
        """A node of the old graph without the observers behind it."""
        ...

    def op(self, choice: Choice, suffix: str = "") -> Any:
        """The operator on integers of a choice, with the ReLU that belongs to it."""
        ...

    def constant(self, name: Any, value: Tensor) -> fx.Node:
        """A new node that reads a stored tensor."""
        ...

    def parameter(self, node: Any) -> Any:
        """The parameter or buffer that a node reads, or None."""
        ...

    def stored_or_none(self, node: Any) -> fx.Node | None:
        """A parameter as a constant; None for None."""
        ...

    def weight(self, node: Any, choice: Choice, axis: int = 0) -> tuple[fx.Node, fx.Node, fx.Node]:
        """Integers, scales and zero points of a weight as constants."""
        ...

    def weight_observer(self, node: Any, new: Callable[[], Any], axis: int = 0) -> Any:
        """What watched a weight: the fake quantization it was trained with, or else a new observer."""
        ...


class ReferenceLowering(Lowering, Protocol):
    """The same for a reference graph, with quantize and dequantize between float operators."""

    def dequantized_weight(
        self, integers: fx.Node, scales: fx.Node, zero_points: fx.Node, axis: int, reader: fx.Node
    ) -> fx.Node:
        """The floats that a quantized weight stands for, computed before `reader`."""
        ...
