"""Values of a graph that depend on no input."""

from __future__ import annotations

from typing import Any

from torch import fx


def compute(model: fx.GraphModule, node: fx.Node) -> Any:
    """The value of a node that depends on no input; its modules are called."""
    if node.op == "get_attr":
        value: Any = model
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value
    args = fx.map_arg(node.args, lambda n: compute(model, n))
    kwargs = fx.map_arg(node.kwargs, lambda n: compute(model, n))
    if node.op == "call_module":
        return model.get_submodule(str(node.target))(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    if node.op == "call_function":
        return node.target(*args, **kwargs)
    raise ValueError(f"{node.name} must not depend on an input of the graph")
