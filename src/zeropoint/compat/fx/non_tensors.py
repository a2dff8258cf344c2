"""What is known about the values of a traced graph without running it: which are no tensors."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx, nn

from zeropoint.compat.fx.modules import is_observer_call


class Plainness:
    """Says which nodes are made of numbers alone, as sizes are; what is not known counts as a tensor."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._modules = modules
        self._known: dict[fx.Node, bool] = {}

    def __call__(self, node: Any) -> bool:
        if not isinstance(node, fx.Node):
            return True
        if node not in self._known:
            self._known[node] = self._found(node)
        return self._known[node]

    def _found(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return is_observer_call(node, self._modules) and self(node.args[0])
        if node.op in ("placeholder", "get_attr", "output"):
            return False
        if node.target is operator.getitem:
            return self(node.args[0])
        if (node.target is getattr and node.args[1] in ("ndim", "shape")) or (
            node.op == "call_method" and node.target == "size"
        ):
            return True
        return bool(node.args) and not any(map(self._may_have_tensor, node.args))

    def _may_have_tensor(self, argument: Any) -> bool:
        if isinstance(argument, list):
            return any(isinstance(part, fx.Node) and not self(part) for part in argument)
        if isinstance(argument, fx.Node):
            return not self(argument)
        return not isinstance(argument, int)


# Methods -> the arguments that are no tensors of floats; None: all but the first.
_PLAIN: dict[str, tuple[int, ...] | None] = {
    "masked_fill": (1, 2), "permute": None, "repeat": None, "reshape": None, "size": (1,), "transpose": None,
    "unsqueeze": (1,), "unsqueeze_": (1,), "view": None,
}  # fmt: skip


def plain_arguments(node: fx.Node) -> Iterator[fx.Node]:
    """The arguments of a method that are masks or numbers."""
    if node.op != "call_method" or node.target not in _PLAIN:
        return
    indices = _PLAIN[node.target]
    for index in range(1, len(node.args)):
        if indices is None or index in indices:
            argument = node.args[index]
            parts = argument if isinstance(argument, (tuple, list)) else (argument,)
            yield from (part for part in parts if isinstance(part, fx.Node))
