"""ScriptModules: private copies of them, results in their place, and what is in them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import torch

from zeropoint.graph import torch_internals as internals

SCRIPT_OBSERVER = "_observer_"  # observers of ScriptModules are named so, and numbered
PATH = "zeropoint_path"  # attribute of nodes: the path of the module that they came from


def script_module(name: str, model: Any) -> Any:
    """The `torch._C.ScriptModule` of a model; `name` is who asks, for messages.

    Raises:
        TypeError: if `model` is no ScriptModule with a method forward.
    """
    if not isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            f"{name} takes a ScriptModule, got {type(model).__name__}: use torch.jit.script or torch.jit.trace first,"
            " or zeropoint.prepare_graph"
        )
    if not model._c._has_method("forward"):
        raise TypeError(
            f"{name} takes a ScriptModule with a method forward; this one has {', '.join(model._c._method_names())}"
            ". Wrap it in a module with a forward method"
        )
    return model._c


def private_copy(name: str, model: Any) -> Any:
    """A copy of `model`, as `torch._C.ScriptModule`, with classes of its own, so that changes stay in it.

    Raises:
        TypeError: if `model` is no ScriptModule, or one that cannot be saved.
    """
    script_module(name, model)
    stream = io.BytesIO()
    try:
        torch.jit.save(model, stream)
    except RuntimeError as error:
        raise TypeError(f"{name} needs a ScriptModule that torch.jit.save can save: {error}") from error
    stream.seek(0)
    return torch.jit.load(stream)._c


def result(model: Any, made: Any, inplace: bool) -> Any:
    """`made`, a `torch._C.ScriptModule`, as a model for people: a new one, or `model`, which now is that."""
    if not inplace:
        return internals.torchscript_module(made)
    internals.reconstruct(model, made)
    return model


def walk(block: Any) -> Iterator[Any]:
    """The nodes of a block and of those within it, in the order in which they run."""
    for node in list(block.nodes()):
        yield node
        for inner in node.blocks():
            yield from walk(inner)


def of_kind(graph: Any, kind: str) -> list[Any]:
    """The nodes of one kind, as `walk` finds them, but much quicker."""
    return graph.findAllNodes(kind)


def unmark(graph: Any) -> None:
    """Take the paths off the nodes again."""
    for node in walk(graph):
        if node.hasAttribute(PATH):
            node.removeAttribute(PATH)


def modules(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A module, `torch._C.ScriptModule`, and all within it, with their paths."""
    yield prefix, module
    for name, child in internals.submodules(module):
        yield from modules(child, f"{prefix}.{name}" if prefix else name)


def at_path(module: Any, path: str) -> Any:
    """The attribute of `module` at a dotted path, through objects that are no modules and names that have dots."""
    parts = path.split(".") if path else []
    for count in range(1, len(parts) + 1):
        name, rest = ".".join(parts[:count]), ".".join(parts[count:])
        if isinstance(module, internals.ScriptModule):
            if module.hasattr(name):
                return at_path(module.getattr(name), rest)
        elif hasattr(module, name):
            return at_path(getattr(module, name), rest)
    assert not parts, path
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
    reads = (node.output().type() for node in of_kind(graph, "prim::GetAttr"))
    return any(kind.kind() in ("ClassType", "InterfaceType") or "Tensor" in kind.str() for kind in reads)


def changed_attributes(module: Any) -> set[tuple[str, str]]:
    """Classes and names of the attributes that some method assigns, or writes to in place."""
    found = set()
    for _, part in modules(module):
        for name in part._method_names():
            graph = part._get_method(name).graph
            written = [node for node in of_kind(graph, "prim::GetAttr") if _is_written(node.output())]
            for node in (*of_kind(graph, "prim::SetAttr"), *written):
                found.add((node.inputsAt(0).type().str(), node.s("name")))
    return found


def _is_written(value: Any) -> bool:
    """Whether an operator writes to a value in place."""
    return any(use.offset == 0 and use.user.kind().endswith("_") for use in value.uses())
