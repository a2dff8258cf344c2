"""A method of a ScriptModule, read once: its nodes, blocks, constants, attributes, module paths and lines of code.

`view` makes of it the graph that the passes change and `write` writes back, `evaluate` the graph without control flow
that programs and comparisons are made from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.script.functionalize import written
from zeropoint.graph.frontends.script.script_module import PATH, at_path, changed_attributes, path_of


@dataclass(eq=False)
class _OfScript:
    """What has inputs and results in TorchScript."""

    script: Any

    @property
    def inputs(self) -> list[Any]:
        return list(self.script.inputs())

    @property
    def outputs(self) -> list[Any]:
        return list(self.script.outputs())


@dataclass(eq=False)
class Node(_OfScript):
    """A node of TorchScript. `target` is the operator of torch.ops that it calls, `path` its module's path."""

    kind: str
    target: Any
    path: str
    blocks: tuple[Block, ...]

    @cached_property
    def line(self) -> str:
        """The line of code that it came from, as far as it is known, as ``File model.py, line 7: x.relu()``."""
        lines = [line.strip() for line in self.script.sourceRange().splitlines() if line.strip()]
        file = next((line for line in lines if line.startswith("File ")), "")
        marked = next((i for i, line in enumerate(lines) if set(line) <= set("~ <-HERE")), None)
        return ": ".join(part for part in (file.replace('"', ""), lines[marked - 1] if marked else "") if part)

    @property
    def where(self) -> str:
        """What it is and where, for messages."""
        return f"{self.kind} ({self.line})" if self.line else self.kind


@dataclass(eq=False)
class Block(_OfScript):
    """Nodes in the order in which they run; `end` is the TorchScript node that reads the results."""

    nodes: tuple[Node, ...]
    end: Any


class Method:
    """A method of `module`, a `torch._C.ScriptModule`, whose graph was simplified."""

    def __init__(self, module: Any, graph: Any) -> None:
        self.module, self.graph = module, graph
        self.written = written(graph)
        self._changed = changed_attributes(module)
        self.body = self._block(graph, graph.return_node())

    def _block(self, block: Any, end: Any) -> Block:
        return Block(block, tuple(self._node(node) for node in block.nodes()), end)

    def _node(self, node: Any) -> Node:
        path = node.s(PATH) if node.hasAttribute(PATH) else ""
        blocks = tuple(self._block(block, block.returnNode()) for block in node.blocks())
        return Node(node, node.kind(), operator_of(node), path, blocks)

    def path(self, value: Any) -> str | None:
        """The dotted path of the attribute that a value is; None for what is computed."""
        return path_of(self.graph, value)

    def constant(self, node: Node) -> Any:
        """What a node with a constant or an attribute gives; None for functions and modules."""
        output = node.outputs[0]
        if node.kind == "prim::Constant":
            return None if output.type().kind() == "FunctionType" else output.toIValue()
        value = at_path(self.module, self.path(output) or "")
        return None if isinstance(value, internals.ScriptModule) else value

    def is_written(self, node: Node) -> bool:
        """Whether something writes to the tensor that a node reads from the model."""
        return node.outputs[0] in self.written and "Tensor" in node.outputs[0].type().str()

    def is_assigned(self, node: Node) -> bool:
        """Whether some method assigns or writes to the attribute that a node reads."""
        return (node.script.inputsAt(0).type().str(), node.script.s("name")) in self._changed


def add_tensor(root: nn.Module, path: str, tensor: Tensor) -> None:
    """Put a tensor of the model at its path below `root`, if it is not there yet."""
    *parents, last = path.split(".")
    for part in parents:
        if not hasattr(root, part):
            root.add_module(part, nn.Module())
        root = root.get_submodule(part)
    if not hasattr(root, last):
        root.register_buffer(last, tensor)


def operator_of(node: Any) -> Any:
    """The operator of torch.ops that a node calls; None for what only TorchScript has."""
    text = node.schema()
    if text == "(no schema)" or text.startswith("prim::"):
        return None
    space, _, name = text.split("(")[0].partition("::")
    packet, _, overload = name.partition(".")
    found = getattr(getattr(getattr(torch.ops, space), packet, None), overload or "default", None)
    return found if internals.is_operator(found) else None
