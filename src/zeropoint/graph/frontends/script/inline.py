"""One graph for a method: what it calls is put in its place, and settings that nobody changes are constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from zeropoint.graph.frontends.script.lists import write_out_lists

__all__ = [
    "PATH",
    "SCRIPT_OBSERVER",
    "at_path",
    "changed_attributes",
    "methods",
    "modules",
    "path_of",
    "simplify",
    "unmark",
    "walk",
]

C: Any = torch._C
SCRIPT_OBSERVER = "_observer_"  # observers of ScriptModules are named so, and numbered
PATH = "zeropoint_path"  # attribute of nodes: the path of the module that they came from
_SETTINGS = ("BoolType", "IntType", "FloatType", "StringType", "NoneType")
_FACTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "prim::dtype": lambda t: t.dtype,
    "aten::dim": lambda t: t.dim(),
    "aten::size": lambda t: list(t.shape),
    "aten::is_floating_point": lambda t: t.is_floating_point(),
}
_ALIAS = "_interface_"
# One float operator for a whole layer of nn.Transformer, taken in evaluation.
_WHOLE_LAYERS = ("aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention")


def walk(block: Any) -> Iterator[Any]:
    """The nodes of a block and of those within it, in the order in which they run."""
    for node in list(block.nodes()):
        yield node
        for inner in node.blocks():
            yield from walk(inner)


def modules(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A module, `torch._C.ScriptModule`, and all within it, with their paths."""
    yield prefix, module
    for name, child in C.ModuleDict(module).items():
        yield from modules(child, f"{prefix}.{name}" if prefix else name)


def at_path(module: Any, path: str) -> Any:
    """The attribute of `module` at a dotted path."""
    for part in path.split(".") if path else ():
        module = module.getattr(part)
    return module


def path_of(graph: Any, value: Any) -> str | None:
    """The dotted path of what a chain of GetAttr reads; None for other values."""
    if value == next(graph.inputs()):
        return ""
    node = value.node()
    if node.kind() != "prim::GetAttr":
        return None
    owner = path_of(graph, node.inputsAt(0))
    return None if owner is None else f"{owner}.{node.s('name')}" if owner else node.s("name")


def methods(module: Any) -> list[str]:
    """``forward``, and the other methods of a model that read tensors or modules of it."""
    names = module._method_names()
    return [name for name in names if name == "forward" or _reads_parameters(module._get_method(name).graph)]


def _reads_parameters(graph: Any) -> bool:
    reads = (node.output().type() for node in walk(graph) if node.kind() == "prim::GetAttr")
    return any(kind.kind() in ("ClassType", "InterfaceType") or "Tensor" in kind.str() for kind in reads)


def simplify(module: Any, method: str, apart: list[str]) -> Any:
    """The graph of a method of `module`, a `torch._C.ScriptModule` of our own, changed in place.

    Calls of the methods `apart` of the model itself stay calls.
    """
    graph = module._get_method(method).graph
    aliases: dict[str, str] = {}
    while True:
        _inline_calls(module, graph, aliases, apart)
        if graph.findNode("prim::fork") is None:
            break
        C._jit_pass_inline_fork_wait(graph)
    changed = changed_attributes(module)
    for node in list(walk(graph)):
        if node.kind() == "prim::GetAttr":
            _fold_setting(module, graph, node, changed)
    for node in list(walk(graph)):
        if node.kind() in _FACTS and node.inputsSize() == 1:
            _fold_fact(module, graph, node, changed)
    _leave_whole_layers(graph)
    left = None
    while left != (left := sum(1 for _ in walk(graph))):
        _open_tuples(graph)
        C._jit_pass_constant_propagation(graph)
        C._jit_pass_peephole(graph, True)
        C._jit_pass_constant_propagation(graph)
        C._jit_pass_dce(graph)
        write_out_lists(graph, list(walk(graph)))
    return graph


def _leave_whole_layers(graph: Any) -> None:
    """Let every condition that leads to a whole layer choose the other branch, where the layer stands in parts."""
    for node in list(walk(graph)):
        if node.kind() == "prim::If":
            whole = [any(inner.kind() in _WHOLE_LAYERS for inner in block.nodes()) for block in node.blocks()]
            if whole.count(True) == 1:
                with graph.insert_point_guard(node):
                    node.replaceInput(0, graph.insertConstant(not whole[0]))


def unmark(graph: Any) -> None:
    """Take the paths off the nodes again."""
    for node in walk(graph):
        if node.hasAttribute(PATH):
            node.removeAttribute(PATH)


def _inline_calls(module: Any, graph: Any, aliases: dict[str, str], apart: list[str]) -> None:
    found = True
    while found:
        found = False
        for node in list(walk(graph)):
            if node.kind() == "prim::CallMethod":
                is_apart = node.s("name") in apart and path_of(graph, node.inputsAt(0)) == ""
                found = (not is_apart and _inline_method(module, graph, node, aliases)) or found
            elif node.kind() == "prim::CallFunction":
                _replace(graph, node, _function(node), list(node.inputs())[1:], _marked(node))
                found = True


def _inline_method(module: Any, graph: Any, node: Any, aliases: dict[str, str]) -> bool:
    owner, name = node.inputsAt(0), node.s("name")
    path = path_of(graph, owner)
    if path is None or path.rsplit(".", 1)[-1].startswith(SCRIPT_OBSERVER):
        return False
    child = at_path(module, path)
    inputs = list(node.inputs())
    if owner.type().kind() == "InterfaceType":
        inputs[0] = _concrete(module, graph, path, child)
        aliases[path_of(graph, inputs[0]) or ""] = path
    head, _, rest = path.partition(".")
    named = ".".join(part for part in (aliases.get(head, head), rest) if part)
    _replace(graph, node, child._get_method(name).graph, inputs, named)
    return True


def _concrete(module: Any, graph: Any, path: str, child: Any) -> Any:
    """A module that is known by its interface, read from an attribute of the model that has its class."""
    name = _ALIAS + path.replace(".", "_")
    if not module.hasattr(name):
        module._register_attribute(name, child._type(), child)
    made = graph.create("prim::GetAttr", [next(graph.inputs())], 1)
    made.s_("name", name)
    made.output().setType(child._type())
    graph.prependNode(made)
    return made.output()


def _function(node: Any) -> Any:
    """The graph of the function that a node calls."""
    graph = C.Graph()
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
    C._jit_pass_inline(graph)
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


def changed_attributes(module: Any) -> set[tuple[str, str]]:
    """Classes and names of the attributes that some method assigns, or writes to in place."""
    found = set()
    for _, part in modules(module):
        for name in part._method_names():
            for node in walk(part._get_method(name).graph):
                target = node
                if node.kind().endswith("_") and node.inputsSize() > 0:
                    target = node.inputsAt(0).node()
                if target.kind() == ("prim::SetAttr" if target == node else "prim::GetAttr"):
                    found.add((target.inputsAt(0).type().str(), target.s("name")))
    return found


def _fold_setting(module: Any, graph: Any, node: Any, changed: set[tuple[str, str]]) -> None:
    """An attribute that no method assigns, as a constant; of an optional tensor, that it is there."""
    path = path_of(graph, node.output())
    kind = node.output().type().kind()
    if path is None or kind not in (*_SETTINGS, "OptionalType") or _is_changed(node, changed):
        return
    value = at_path(module, path)
    if isinstance(value, torch.Tensor):
        known = graph.create("prim::unchecked_cast", [node.output()], 1)
        known.output().setType(C.TensorType.get())
        known.insertAfter(node)
        node.output().replaceAllUsesAfterNodeWith(known, known.output())
    elif isinstance(value, (bool, int, float, str, type(None))):
        with graph.insert_point_guard(node):
            node.output().replaceAllUsesWith(graph.insertConstant(value))
        node.destroy()


def _open_tuples(graph: Any) -> None:
    """Read the parts of tuples where they are made."""
    for node in list(walk(graph)):
        made = node.inputsAt(0).node() if node.kind() in ("prim::TupleUnpack", "prim::TupleIndex") else None
        if made is None or made.kind() != "prim::TupleConstruct":
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
            node.output().replaceAllUsesWith(graph.insertConstant(_FACTS[node.kind()](value)))
        node.destroy()
