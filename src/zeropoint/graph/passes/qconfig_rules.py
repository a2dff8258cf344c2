"""Which rule of a QConfigMapping is for a node of a graph.

Rules name what users write: module classes, functions, Python operators, methods of Tensor. A graph has ATen operators.
All spellings of one operator, such as ``torch.add``, ``x + y``, ``x += y`` and ``x.add(y)``, are one object type here:
a graph does not tell them apart.
"""

from __future__ import annotations

import functools
import operator
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from zeropoint.graph.passes.canonicalize import IN_PARTS
from zeropoint.graph.provenance import Origin, origin
from zeropoint.operators import operators
from zeropoint.operators.node import aten_name
from zeropoint.qconfig_mapping import QConfigMapping, get_default_qconfig_mapping

_OTHER_NAMES = {
    "sub": ("subtract", "isub", "__sub__", "__isub__"),
    "rsub": ("sub", "subtract"),
    "add": ("iadd", "__add__", "__iadd__"),
    "mul": ("multiply", "imul", "__mul__", "__imul__"),
    "div": ("divide", "true_divide", "truediv", "itruediv", "__truediv__"),
    "matmul": ("imatmul", "__matmul__"),
    "cat": ("concat", "concatenate"),
    "clamp": ("clip",),
    "_softmax": ("softmax",),
    "_safe_softmax": ("softmax",),
    "upsample_bilinear2d": ("interpolate", "upsample"),
    "upsample_nearest2d": ("interpolate", "upsample"),
    "alias": ("to", "contiguous"),
}


def qconfig_of(mapping: QConfigMapping, node: fx.Node, functions: tuple[Any, ...]) -> Any:
    """The QConfig of a node.

    Args:
        functions: what else is the operator of the node: a module of one of these classes is that operator.
    """
    at = origin(node)
    if at.kind is not None and at.kind in functions:
        for place in _module_places(at):
            if place in mapping.module_name_object_type_order_qconfigs:
                return mapping.module_name_object_type_order_qconfigs[place]
        return mapping.qconfig_for(at.path, at.kind)
    module_type = at.kind if isinstance(at.kind, type) and issubclass(at.kind, nn.Module) else None
    types = _types(node)
    for kind in types:
        if (at.path, kind, at.place) in mapping.module_name_object_type_order_qconfigs:
            return mapping.module_name_object_type_order_qconfigs[at.path, kind, at.place]
    named = next(_rules(mapping, types), types[0] if types else "")
    return mapping.qconfig_for(at.path, named, module_type=module_type)


def stays_float(mapping: QConfigMapping, node: fx.Node) -> bool:
    """Whether a rule for the type of a node, or for its place among others, leaves it in float."""
    at = origin(node)
    for place in (*_module_places(at), *((at.path, kind, at.place) for kind in _types(node))):
        if place in mapping.module_name_object_type_order_qconfigs:
            return mapping.module_name_object_type_order_qconfigs[place] is None
    found = next(_rules(mapping, (at.kind, *_types(node))), None)
    return found is not None and mapping.object_type_qconfigs[found] is None


def _rules(mapping: QConfigMapping, kinds: tuple[Any, ...]) -> Iterator[Any]:
    """Those of some spellings of an operator that a mapping has rules for; first those that no default mapping has."""
    found = [kind for kind in kinds if kind in mapping.object_type_qconfigs]
    yield from sorted(found, key=lambda kind: _is_default(kind, mapping.object_type_qconfigs[kind]))


def _is_default(kind: Any, qconfig: Any) -> bool:
    """Whether a rule may be one of a default mapping, none of which leaves anything in float."""
    return qconfig is not None and kind in get_default_qconfig_mapping("native").object_type_qconfigs


def has_own_rule(mapping: QConfigMapping, node: fx.Node) -> bool:
    """Whether a mapping has a rule for the type of a node, or for its place, that default mappings do not have."""
    at = origin(node)
    orders = mapping.module_name_object_type_order_qconfigs
    if any(place in orders for place in (*_module_places(at), *((at.path, kind, at.place) for kind in _types(node)))):
        return True
    defaults = get_default_qconfig_mapping("native").object_type_qconfigs
    return any(kind in mapping.object_type_qconfigs and kind not in defaults for kind in (at.kind, *_types(node)))


def unused_rules(graph: fx.GraphModule, mapping: QConfigMapping) -> tuple[str, ...]:
    """Rules of a mapping that are for nothing in a graph, in words; not those of the default mappings."""
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    places = [origin(node) for node in nodes]
    types = {kind for node in nodes for kind in (origin(node).kind, *_types(node))}
    orders = {place for at in places for place in _module_places(at)}
    orders |= {(origin(node).path, kind, origin(node).place) for node in nodes for kind in _types(node)}
    paths = {at.path for at in places}
    defaults = get_default_qconfig_mapping("native").object_type_qconfigs
    without = modules_without_calls(graph, mapping)
    found = [f"set_module_name({n!r})" for n in mapping.module_name_qconfigs if n in without]
    regexes = mapping.module_name_regex_qconfigs
    found += [f"set_module_name_regex({r!r})" for r in regexes if not any(re.match(r, path) for path in paths)]
    for kind, qconfig in mapping.object_type_qconfigs.items():
        if kind not in types and not (kind in defaults and qconfig is not None):
            found.append(f"set_object_type({_words(kind)})")
    for name, kind, index in mapping.module_name_object_type_order_qconfigs:
        if (name, kind, index) not in orders:
            found.append(f"set_module_name_object_type_order({name!r}, {_words(kind)}, {index})")
    return tuple(found)


def modules_without_calls(graph: fx.GraphModule, mapping: QConfigMapping) -> set[str]:
    """Modules that a mapping names and that compute nothing in a graph."""
    paths = {origin(node).path for node in graph.graph.nodes if node.op == "call_function"}
    return {name for name in mapping.module_name_qconfigs if not any(_inside(path, name) for path in paths)}


def warn_of_unused_rules(rules: tuple[str, ...]) -> None:
    if rules:
        warnings.warn(f"qconfig_mapping: these rules match nothing in the model: {', '.join(rules)}", stacklevel=3)


def _inside(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def _words(kind: Any) -> str:
    if isinstance(kind, str):
        return repr(kind)
    module = str(getattr(kind, "__module__", "")).removeprefix("_")
    return f"{module}.{kind.__name__}" if module and module != "None" else str(getattr(kind, "__name__", kind))


def _module_places(at: Origin) -> Iterator[tuple[str, Any, int]]:
    """The place of a module of torch.nn among those of its class in the module around it."""
    if isinstance(at.kind, type) and at.kind.__module__.startswith("torch.nn"):
        yield at.path.rpartition(".")[0], at.kind, at.module_place


def _types(node: fx.Node) -> tuple[Any, ...]:
    own = (aten_name(node) or "").split(".")[0]
    called = origin(node).call or own
    users = [r for r in operators() if r.parts is not None and any(k.split(".")[-2] == called for k in r.aten)]
    functions = (function for record in users for function in record.functions)
    # Of a call that became several operators, a rule for one of these is for it, too.
    return (*functions, *_spellings(called), *(_spellings(own) if called in IN_PARTS or users else ()))


@functools.cache
def _spellings(packet: str) -> tuple[Any, ...]:
    """What users write for an ATen operator."""
    found: dict[Any, None] = {}
    for name in (packet, *_OTHER_NAMES.get(packet, ())):
        written = (name, f"{name}_") if hasattr(torch.Tensor, name) else (name,)
        functions = (getattr(owner, n, None) for n in written for owner in (torch, F, torch.Tensor, operator))
        found.update(dict.fromkeys(f for f in (*written, *functions) if f is not None))
    return tuple(found) if packet else ()
