"""One graph for a method: what it calls is put in its place, and settings that do not change are constants."""

from __future__ import annotations

from typing import Any

import torch

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.script.control_flow import fill_lists, hoist_exceptions, unroll_loops
from zeropoint.graph.frontends.script.functionalize import functionalize
from zeropoint.graph.frontends.script.scalar_operators import TENSOR_PROPERTIES
from zeropoint.graph.frontends.script.script_module import (
    PATH,
    SCRIPT_OBSERVER,
    at_path,
    changed_attributes,
    of_kind,
    path_of,
    walk,
)
from zeropoint.operators import BY_ATEN

_SETTINGS = ("BoolType", "IntType", "FloatType", "StringType", "NoneType")
_FACTS = ("prim::dtype", "aten::dim", "aten::size", "aten::is_floating_point")
_ALIAS = "_interface_"
# One float operator for a whole layer of nn.Transformer, taken in evaluation.
_WHOLE_LAYERS = ("aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention")


def simplify(module: Any, graph: Any, apart: list[str] | None = None) -> Any:
    """The graph of a method of `module`, a `torch._C.ScriptModule`, changed in place.

    Args:
        apart: names of methods of the model itself, calls of which stay calls. None if the graph will not be written
            back: then all are inlined, and `module` is not changed.
    """
    calls = _Calls(module, graph, apart)
    while True:
        calls.inline()
        if graph.findNode("prim::fork") is None:
            break
        internals.inline_forks(graph)
    _take_apart(graph)
    changed = changed_attributes(module)
    for node in of_kind(graph, "prim::GetAttr"):
        _fold_setting(module, graph, node, changed)
    for node in list(walk(graph)):
        if node.kind() in _FACTS and node.inputsSize() == 1:
            _fold_fact(module, graph, node, changed)
    _leave_whole_layers(graph)
    left = None
    while left != (left := sum(1 for _ in walk(graph))):
        _open_tuples(graph)
        internals.propagate_constants(graph)
        internals.simplify_peepholes(graph)
        internals.propagate_constants(graph)
        internals.remove_dead_code(graph)
        unroll_loops(graph)
        fill_lists(graph)
    hoist_exceptions(graph)
    functionalize(graph)
    return graph


def _take_apart(graph: Any) -> None:
    """Put what operators are made of in the place of their calls."""
    named = ((name.split(".")[:-1], record.parts) for name, record in BY_ATEN.items() if record.parts)
    functions = {"::".join(("aten", *path)[-2:]): parts for path, parts in named}
    for node in list(walk(graph)):
        if node.kind() in functions:
            internals.insert_function(graph, node, torch.jit.script(functions[node.kind()]))


def _leave_whole_layers(graph: Any) -> None:
    """Let every condition that leads to a whole layer choose the other branch, where the layer stands in parts."""
    for node in of_kind(graph, "prim::If"):
        whole = [any(inner.kind() in _WHOLE_LAYERS for inner in block.nodes()) for block in node.blocks()]
        if whole.count(True) == 1:
            with graph.insert_point_guard(node):
                node.replaceInput(0, graph.insertConstant(not whole[0]))


class _Calls:
    """The calls in a graph, which are inlined."""

    def __init__(self, module: Any, graph: Any, apart: list[str] | None) -> None:
        self.module, self.graph, self.apart = module, graph, apart
        self.aliases: dict[str, str] = {}

    def inline(self) -> None:
        found = True
        while found:
            found = False
            for node in of_kind(self.graph, "prim::CallMethod"):
                found = self.method(node) or found
            for node in of_kind(self.graph, "prim::CallFunction"):
                _replace(self.graph, node, _function(node), list(node.inputs())[1:], _marked(node))
                found = True

    def method(self, node: Any) -> bool:
        """Inline a call of a method; False for one that stays."""
        owner, name = node.inputsAt(0), node.s("name")
        path = path_of(self.graph, owner)
        if path is None or path.rsplit(".", 1)[-1].startswith(SCRIPT_OBSERVER):
            return False
        if path == "" and name in (self.apart or ()):
            return False
        child = at_path(self.module, path)
        inputs = list(node.inputs())
        if owner.type().kind() == "InterfaceType":
            inputs[0] = self.concrete(owner, path, child)
            self.aliases[path_of(self.graph, inputs[0]) or ""] = path
        head, _, rest = path.partition(".")
        named = ".".join(part for part in (self.aliases.get(head, head), rest) if part)
        _replace(self.graph, node, child._get_method(name).graph, inputs, named)
        return True

    def concrete(self, owner: Any, path: str, child: Any) -> Any:
        """A module that is known by its interface as one of its class.

        In a file it is read from an attribute of the model that has the class.
        """
        if self.apart is None:
            owner.setType(child._type())
            return owner
        name = _ALIAS + path.replace(".", "_")
        if not self.module.hasattr(name):
            internals.add_attribute(self.module, name, child._type(), child)
        made = self.graph.create("prim::GetAttr", [next(self.graph.inputs())], 1)
        made.s_("name", name)
        made.output().setType(child._type())
        self.graph.prependNode(made)
        return made.output()


def _function(node: Any) -> Any:
    """The graph of the function that a node calls."""
    graph = internals.new_graph()
    made = {}
    for value in list(node.inputs())[1:]:  # a value that is given twice has two inputs, of which one is read
        made[value] = graph.addInput()
        made[value].setTypeAs(value)
    constant = graph.createClone(node.inputsAt(0).node(), lambda value: value)
    graph.insertNode(constant)
    call = graph.createClone(node, lambda value: made.get(value, constant.output()))
    graph.insertNode(call)
    for output in call.outputs():
        graph.registerOutput(output)
    internals.inline(graph)
    return graph


def _marked(node: Any) -> str:
    return node.s(PATH) if node.hasAttribute(PATH) else ""


def _replace(graph: Any, node: Any, body: Any, inputs: list[Any], path: str) -> None:
    """Put `body` in the place of a call."""
    start = graph.create("prim::Constant", 1)
    start.insertBefore(node)
    with graph.insert_point_guard(node):
        outputs = graph.insertGraph(body, inputs)
    current = node.prev()
    while current != start:
        for inner in (current, *(n for block in current.blocks() for n in walk(block))):
            if not inner.hasAttribute(PATH) and inner.kind() not in ("prim::Constant", "prim::GetAttr"):
                inner.s_(PATH, path)
        current = current.prev()
    for old, new in zip(node.outputs(), outputs):
        old.replaceAllUsesWith(new)
    node.destroy()
    start.destroy()


def _fold_setting(module: Any, graph: Any, node: Any, changed: set[tuple[str, str]]) -> None:
    """An attribute that no method assigns, as a constant; of an optional tensor, that it is there."""
    path = path_of(graph, node.output())
    kind = node.output().type().kind()
    if path is None or kind not in (*_SETTINGS, "OptionalType") or _is_changed(node, changed):
        return
    value = at_path(module, path)
    if isinstance(value, torch.Tensor):
        known = graph.create("prim::unchecked_cast", [node.output()], 1)
        known.output().setType(internals.tensor_type())
        known.insertAfter(node)
        node.output().replaceAllUsesAfterNodeWith(known, known.output())
    elif isinstance(value, (bool, int, float, str, type(None))):
        with graph.insert_point_guard(node):
            node.output().replaceAllUsesWith(graph.insertConstant(value))
        node.destroy()


def _open_tuples(graph: Any) -> None:
    """Read the parts of tuples where they are made."""
    for node in (*of_kind(graph, "prim::TupleUnpack"), *of_kind(graph, "prim::TupleIndex")):
        made = node.inputsAt(0).node()
        if made.kind() != "prim::TupleConstruct":
            continue
        parts = list(made.inputs())
        if node.kind() == "prim::TupleUnpack":
            for old, new in zip(node.outputs(), parts):
                old.replaceAllUsesWith(new)
            node.destroy()
        elif isinstance(index := node.inputsAt(1).toIValue(), int):
            node.output().replaceAllUsesWith(parts[index])
            node.destroy()


def _is_changed(node: Any, changed: set[tuple[str, str]]) -> bool:
    return (node.inputsAt(0).type().str(), node.s("name")) in changed


def _fold_fact(module: Any, graph: Any, node: Any, changed: set[tuple[str, str]]) -> None:
    """What is asked about a parameter, as a constant."""
    source = node.inputsAt(0).node()
    if source.kind() == "prim::unchecked_cast":
        source = source.inputsAt(0).node()
    path = path_of(graph, source.output()) if source.kind() == "prim::GetAttr" else None
    if path is None or _is_changed(source, changed):
        return
    value = at_path(module, path)
    if isinstance(value, torch.Tensor):
        with graph.insert_point_guard(node):
            node.output().replaceAllUsesWith(graph.insertConstant(TENSOR_PROPERTIES[node.kind()](value)))
        node.destroy()
