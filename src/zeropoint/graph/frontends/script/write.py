"""A view of a method, changed, back into its TorchScript graph.

Nodes that were read stay where they are and get their inputs anew; new ones are put before the node that they replace,
or behind it if they read it. What nothing needs any more is removed at the end.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.script.script_module import PATH, SCRIPT_OBSERVER, walk
from zeropoint.graph.frontends.script.view import Place, View, opaque
from zeropoint.graph.passes.insert_observers import OBSERVER

_NUMBERS: dict[Any, str] = {
    torch.ops.aten.sym_size.int: "aten::size",
    operator.mul: "aten::mul",
    torch.sym_int: "aten::Int",
}


def write(view: View, graph: fx.GraphModule | None = None) -> None:
    """Change the TorchScript graph of `view` into `graph`, which was made from it, or else into the view itself."""
    _Writer(view, graph if graph is not None else view).run()


def call_observer(graph: Any, module: Any, node: Any, index: int, path: str) -> None:
    """Let the observer of `module` at `path` see an input of a node of one of its graphs, as it is passed on to it."""
    value = list(node.inputs())[index]
    read, owner = next(graph.inputs()), module
    for part in path.split("."):
        owner = owner.getattr(part)
        get = graph.create("prim::GetAttr", [read], 1)
        get.s_("name", part)
        get.output().setType(owner._type())
        get.insertBefore(node)
        read = get.output()
    read.setDebugName(path.rpartition(".")[2])
    call = graph.create("prim::CallMethod", [read, value], 1)
    call.s_("name", "forward")
    call.insertBefore(node)
    node.replaceInput(index, call.output())


class _Writer:
    def __init__(self, view: View, graph: fx.GraphModule) -> None:
        self.script, self.module, self.graph = view.script, view.module, graph
        kept = {node.meta["script"] for node in graph.graph.nodes if "script" in node.meta}
        self.dead = view.read - kept
        self.values: dict[fx.Node, Any] = {}
        self.paths: dict[str, Any] = {}
        self.first = next(iter(self.script.nodes()), self.script.return_node())

    def run(self) -> None:
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = node.meta["value"]
            elif node.op == "get_attr":
                self.values[node] = self.tensor(node)
            elif node.op == "call_module":
                self.values[node] = self.observer(node)
            elif node.op == "call_function":
                self.call(node)
        for node in reversed(list(walk(self.script))):
            if node in self.dead and not any(value.uses() for value in node.outputs()):
                node.destroy()
        internals.remove_dead_code(self.script)
        internals.lint(self.script)

    # --------------------------------------------------------------------------------------------------- places

    def put(self, made: Any, place: Place, inputs: list[Any]) -> None:
        """Insert a new node: before its anchor, or behind what it reads if that is there or later."""
        anchor = place.anchor
        if anchor is None:
            made.insertBefore(self.first)
            return
        if place.path:
            made.s_(PATH, place.path)
        block = anchor.owningBlock()
        behind = [node for node in (value.node() for value in inputs) if node.owningBlock() == block]
        behind = [node for node in behind if node == anchor or node.isAfter(anchor)]
        if not behind:
            made.insertBefore(anchor)
            return
        latest = functools.reduce(lambda a, b: b if b.isAfter(a) else a, behind)
        made.insertAfter(latest)

    def constant(self, value: Any, place: Place, inputs: list[Any]) -> Any:
        """A constant beside the node that reads it: `inputs` are the other values that it reads."""
        made = internals.new_graph()
        output = made.insertConstant(value)
        clone = self.script.createClone(output.node(), lambda v: v)
        self.put(clone, place, inputs)
        if clone.hasAttribute(PATH):
            clone.removeAttribute(PATH)
        return clone.output()

    def tensor(self, node: fx.Node) -> Any:
        if "value" in node.meta:
            return node.meta["value"]
        path = str(node.target)
        if path not in self.paths:
            value: Any = self.graph
            for part in path.split("."):
                value = getattr(value, part)
            self.paths[path] = self.existing(path) or self.added(path.replace(".", "_"), value.detach())
        return self.paths[path]

    def existing(self, path: str) -> Any:
        """A tensor that the model has, read anew; None if it has no such tensor."""
        owner, value = self.module, next(self.script.inputs())
        for part in path.split("."):
            if not isinstance(owner, internals.ScriptModule) or not owner.hasattr(part):
                return None
            owner = owner.getattr(part)
            value = self.read_attribute(
                part, internals.tensor_type() if isinstance(owner, Tensor) else owner._type(), value
            )
        return value

    def added(self, name: str, value: Tensor) -> Any:
        while self.module.hasattr(name):
            name += "_"
        internals.add_attribute(self.module, name, internals.tensor_type(), value)
        return self.read_attribute(name, internals.tensor_type(), next(self.script.inputs()))

    def read_attribute(self, name: str, kind: Any, owner: Any) -> Any:
        made = self.script.create("prim::GetAttr", [owner], 1)
        made.s_("name", name)
        made.output().setType(kind)
        made.insertBefore(self.first)
        return made.output()

    # ---------------------------------------------------------------------------------------------------- nodes

    def observer(self, node: fx.Node) -> Any:
        if "value" in node.meta:
            return node.meta["value"]
        name = SCRIPT_OBSERVER + str(node.target).removeprefix(OBSERVER)
        source = self.values[node.args[0]]
        observer = self.module.getattr(name)
        read = self.read_attribute(name, observer._type(), next(self.script.inputs()))
        made = self.script.create("prim::CallMethod", [read, source], 1)
        made.s_("name", "forward")
        self.put(made, node.meta["origin"], [source])
        return made.output()

    def call(self, node: fx.Node) -> None:
        script = node.meta.get("script")
        if script is not None:
            offset = 1 if node.target is opaque else 0
            self.remap(script, list(node.args[offset:]), node)
            outputs = list(script.outputs())
            self.values[node] = outputs[0] if len(outputs) == 1 else outputs
        elif "value" in node.meta and node.target is opaque:
            self.values[node] = node.meta["value"]
        elif node.target is operator.getitem:
            self.part(node)
        else:
            self.values[node] = self.created(node)

    def remap(self, script: Any, args: list[Any], node: fx.Node) -> None:
        for index, (argument, old) in enumerate(zip(args, list(script.inputs()))):
            if isinstance(argument, fx.Node):
                new = self.values[argument]
                if new != old:
                    script.replaceInput(index, new)
            elif isinstance(argument, list) and old.node().kind() == "prim::ListConstruct":
                parts = list(old.node().inputs())
                new_parts = [self.values[p] if isinstance(p, fx.Node) else o for p, o in zip(argument, parts)]
                if new_parts != parts:
                    script.replaceInput(index, self.listed(new_parts, old.type(), node.meta["origin"]))

    def listed(self, parts: list[Any], kind: Any, place: Place) -> Any:
        made = self.script.create("prim::ListConstruct", parts, 1)
        made.output().setType(kind)
        self.put(made, place, parts)
        if made.hasAttribute(PATH):
            made.removeAttribute(PATH)
        return made.output()

    def part(self, node: fx.Node) -> None:
        source, index = self.values[node.args[0]], node.args[1]
        if isinstance(source, list):
            self.values[node] = source[index]
        elif "value" in node.meta and node.meta["value"].node().inputsAt(0) == source:
            self.values[node] = node.meta["value"]
        else:
            number = self.constant(index, node.meta["origin"], [source])
            made = self.script.create("aten::__getitem__", [source, number], 1)
            made.output().setType(internals.tensor_type())
            self.put(made, node.meta["origin"], [source, number])
            self.values[node] = made.output()

    def created(self, node: fx.Node) -> Any:
        """A node of TorchScript for a new call."""
        place = node.meta["origin"]
        target: Any = node.target
        if target in _NUMBERS:
            inputs = self.inputs([(a, None) for a in node.args], place)
            made = self.script.create(_NUMBERS[target], inputs, 1)
            scalar = isinstance(node.args[-1], float) and target is operator.mul
            made.output().setType(internals.float_type() if scalar else internals.int_type())
            self.put(made, place, inputs)
            return made.output()
        schema = target._schema
        given = dict(zip((a.name for a in schema.arguments), node.args)) | dict(node.kwargs)
        pairs = [(given.get(a.name, a.default_value), a.type) for a in schema.arguments]
        inputs = self.inputs(pairs, place)
        made = self.script.create(schema.name, inputs, len(schema.returns))
        for value, result in zip(made.outputs(), schema.returns):
            value.setType(result.type)
        self.put(made, place, inputs)
        outputs = list(made.outputs())
        return outputs[0] if len(outputs) == 1 else outputs

    def inputs(self, pairs: list[tuple[Any, Any]], place: Place) -> list[Any]:
        known = [self.values[a] for a, _ in pairs if isinstance(a, fx.Node)]
        known += [self.values[p] for a, _ in pairs if isinstance(a, (list, tuple)) for p in a if isinstance(p, fx.Node)]
        return [self.argument(value, kind, place, known) for value, kind in pairs]

    def argument(self, value: Any, kind: Any, place: Place, known: list[Any]) -> Any:
        if isinstance(value, fx.Node):
            return self.values[value]
        text = "" if kind is None else str(kind)
        if isinstance(value, (list, tuple)):
            inner = kind.getElementType() if text.startswith("List") else None
            if not value or any(isinstance(part, fx.Node) for part in value):
                listed = kind if text.startswith("List") else internals.list_of_ints_type()
                parts = [self.argument(part, inner, place, known) for part in value]
                made = self.script.create("prim::ListConstruct", parts, 1)
                made.output().setType(listed)
                self.put(made, place, known)
                return made.output()
            value = [float(v) if str(inner) == "float" else v for v in value]
        elif text in ("float", "Optional[float]") and isinstance(value, int):
            value = float(value)
        if isinstance(value, Tensor):
            raise TypeError("a tensor cannot be a constant of a call")
        return self.constant(value, place, known)
