"""What the inputs of a captured graph must be like, checked when it is run."""

from __future__ import annotations

from typing import Any

from torch import SymInt, Tensor, fx, nn
from torch.export import Dim

from zeropoint.described import described
from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.shape_guards import Condition, conditions_of, value_of


class Sizes(nn.Module):
    """Checks of the inputs of a graph: sizes that are fixed, sizes that are equal, values that are fixed, and what the
    model asked about sizes when it was captured.

    Args:
        names: of the inputs.
        expected: for each input: a list with a number for each size that is fixed and a name for each that is free,
            where sizes of one name are equal; or a tuple with the value that it must have; or None.
        conditions: what holds for the sizes on the way that the model took; on another way it is another graph.
    """

    _is_impure = True  # nothing reads its result, and it must stay in the graph

    def __init__(self, names: list[str], expected: list[Any], conditions: tuple[Condition, ...] = ()) -> None:
        super().__init__()
        self.names, self.expected, self.conditions = names, expected, conditions

    def dynamic_shapes(self) -> tuple[Any, ...]:
        """The free sizes of each input, as torch.export takes them."""
        return tuple(
            {axis: Dim.STATIC if isinstance(size, int) else Dim.AUTO for axis, size in enumerate(expected)}
            if isinstance(expected, list)
            else None
            for expected in self.expected
        )

    def forward(self, *inputs: Any) -> None:
        free: dict[str, Any] = {}
        for name, expected, given in zip(self.names, self.expected, inputs):
            if isinstance(expected, tuple) and given != expected[0]:
                raise ValueError(f"the model was captured with {name}={expected[0]!r}, got {described(given)}")
            if not isinstance(expected, list):
                continue
            if not isinstance(given, Tensor) or given.dim() != len(expected):
                what = f"{given.dim()} dimensions" if isinstance(given, Tensor) else type(given).__name__
                raise ValueError(f"the model was captured with {name} of {len(expected)} dimensions, got {what}")
            for axis, size in enumerate(expected):
                wanted = free.setdefault(size, given.shape[axis]) if isinstance(size, str) else size
                if wanted is not None and given.shape[axis] != wanted:
                    raise ValueError(
                        f"{name} has size {given.shape[axis]} along axis {axis}, but the model needs {wanted} "
                        'there: the model or its capture fixes this size; dynamic_shapes="all" makes more sizes '
                        "dynamic"
                    )
        for condition in self.conditions:
            found = value_of(condition.value, lambda place: inputs[place.input].shape[place.axis])
            if not condition.holds(found):
                raise ValueError(condition.refusal)


def free_sizes(graph: fx.GraphModule, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """With which free sizes a graph was captured, for a second capture; None where inputs are nested."""
    checks = [module for module in graph.children() if isinstance(module, Sizes)]
    shapes = checks[0].dynamic_shapes() if checks else ()
    flat = all(isinstance(arg, Tensor) == isinstance(shape, dict) for arg, shape in zip(args, shapes))
    return shapes if flat and len(shapes) == len(args) else None


def check_sizes(graph: fx.GraphModule) -> None:
    """Put a check of the inputs behind them."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    if not inputs:
        return
    known: dict[Any, str] = {}
    names, expected = [str(node.target) for node in inputs], [_expected(node, known) for node in inputs]
    graph.add_submodule("_sizes", Sizes(names, expected, conditions_of(inputs)))
    with graph.graph.inserting_after(inputs[-1]):
        graph.graph.call_module("_sizes", tuple(inputs))
    graph.recompile()


def update_sizes(graph: fx.GraphModule) -> None:
    """Let the check of the inputs know sizes that were fixed since it was made."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for module in graph.children():
        if isinstance(module, Sizes):
            known: dict[Any, str] = {}
            module.expected = [_expected(node, known) for node in inputs]


def _expected(node: fx.Node, known: dict[Any, str]) -> Any:
    value = node.meta.get("val")
    if isinstance(value, Tensor):
        return [_size(size, f"{node.target}.size({axis})", known) for axis, size in enumerate(value.shape)]
    return (value,) if isinstance(value, (bool, int, float, str)) else None


def _size(size: Any, name: str, known: dict[Any, str]) -> Any:
    """A number, or for a free size the name of the first place that has it."""
    if not isinstance(size, SymInt):
        return int(size)
    expression: Any = internals.expression(size)
    if expression.is_symbol:
        return known.setdefault(expression, name)
    return int(expression) if expression.is_number else None
