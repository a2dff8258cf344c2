"""Weights of functions, packed once and kept as attributes of the graph module."""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from zeropoint.compat.fx.constants import compute
from zeropoint.compat.fx.modules import free_name
from zeropoint.compat.fx.qconfigs import Scopes
from zeropoint.compat.fx.scriptable import ConvertedGraph
from zeropoint.graph.passes.nodes import producers

ORIGINAL_WEIGHTS_LOOKUP = "original_weights_lookup"
_PACKED = "_packed_weight_"


def _is_prepack(node: fx.Node) -> bool:
    return node.op == "call_function" and "prepack" in getattr(node.target, "__name__", "")


def pack_weights(model: fx.GraphModule, scopes: Scopes, keep_original_weights: bool = False) -> fx.GraphModule:
    """Pack each weight, and read it from an attribute that is named by the module of the layer."""
    graph = model.graph
    originals: dict[str, list[Any]] = {}
    for node in list(graph.nodes):
        sources = producers(node) if _is_prepack(node) else None
        if sources is None:
            continue
        path = scopes[next(iter(node.users)).name][0]
        name = free_name(model, f"{path}{_PACKED}")
        setattr(model, name, compute(model, node))
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.get_attr(name))
        if keep_original_weights:
            originals[_as_key(name)] = _originals(model, sources)
        graph.erase_node(node)
    graph.eliminate_dead_code()
    made = ConvertedGraph(model, graph)
    made._register_state_dict_hook(_save)
    made.register_load_state_dict_pre_hook(_load)
    if keep_original_weights:
        setattr(made, ORIGINAL_WEIGHTS_LOOKUP, originals)
    return made


def _as_key(name: str) -> str:
    """A name without what paths of modules may have and identifiers may not."""
    return name.translate(str.maketrans(":/|", "___", " ")).lower()


def _originals(model: fx.GraphModule, sources: list[fx.Node]) -> list[Any]:
    """The float weight and bias, the larger first; None for a bias that is not there."""
    floats = [compute(model, n) for n in sources if n.op == "get_attr" and "_scale_" not in n.name]
    found = sorted((t for t in floats if isinstance(t, nn.Parameter)), key=lambda t: -t.numel())
    return [*found, None] if len(found) == 1 else found


def _is_packed(value: Any) -> bool:
    return hasattr(value, "unpack") or hasattr(value, "_unpack")


def _save(module: nn.Module, destination: Any, prefix: str, local_metadata: Any) -> None:
    for name, value in vars(module).items():
        if _PACKED in name and _is_packed(value):
            destination[prefix + name] = value


def _load(module: nn.Module, state_dict: Any, prefix: str, *args: Any) -> None:
    for key in list(state_dict):
        name = key.removeprefix(prefix)
        if _PACKED in name and name in vars(module):
            setattr(module, name, state_dict.pop(key))
