"""Which qconfig each node of a traced graph gets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import fx, nn

from zeropoint.compat.fx.backend_config import BackendConfig
from zeropoint.compat.fx.modules import is_activation_post_process, parent_and_name
from zeropoint.nn.intrinsic import FusedModule
from zeropoint.qconfig import add_module_to_qconfig_obs_ctr, qconfig_equals
from zeropoint.qconfig_mapping import QConfigMapping

# Name of a node -> the path and class of the module it stands in.
Scopes = Mapping[str, tuple[str, Any]]


def object_type_qconfig(mapping: QConfigMapping, object_type: Any, fallback: Any) -> Any:
    """What the rules about types say, or `fallback`."""
    return mapping.object_type_qconfigs.get(object_type, fallback)


def module_name_regex_qconfig(mapping: QConfigMapping, module_name: str, fallback: Any) -> Any:
    """What the first matching rule about names says, or `fallback`."""
    for regex, qconfig in mapping.module_name_regex_qconfigs.items():
        if re.match(regex, module_name):
            return qconfig
    return fallback


def module_name_qconfig(mapping: QConfigMapping, module_name: str, fallback: Any) -> Any:
    """What the rule for a module, or for the nearest one around it, says, or `fallback`."""
    while module_name:
        if module_name in mapping.module_name_qconfigs:
            return mapping.module_name_qconfigs[module_name]
        module_name = parent_and_name(module_name)[0]
    return fallback


def order_qconfig(mapping: QConfigMapping, module_path: str, object_type: Any, index: int, fallback: Any) -> Any:
    """What the rule for the call number `index` of this type inside a module says, or `fallback`."""
    return mapping.module_name_object_type_order_qconfigs.get((module_path, object_type, index), fallback)


def _of_module(mapping: QConfigMapping, kind: Any, path: str, fallback: Any) -> Any:
    return mapping.qconfig_for_name(path, object_type_qconfig(mapping, kind, fallback))


def add_fused_types(model: fx.GraphModule, mapping: QConfigMapping) -> None:
    """Give fused modules the rule that the types of their parts have.

    Raises:
        LookupError: if the parts have different rules.
    """
    rules = mapping.object_type_qconfigs
    modules = dict(model.named_modules()) if rules else {}
    for node in model.graph.nodes if rules else ():
        fused = modules.get(str(node.target)) if node.op == "call_module" else None
        if not isinstance(fused, FusedModule):
            continue
        first, *others = (type(part) for part in fused._modules.values())
        qconfig = rules.get(first)
        for other in others:
            if not qconfig_equals(rules.get(other), qconfig):
                raise LookupError(
                    f"{node.target} is fused from {first.__name__} and {other.__name__}, whose qconfigs differ: "
                    "set the same qconfig for both types"
                )
        if qconfig is not None:
            rules[type(fused)] = qconfig


def add_trained_types(mapping: QConfigMapping, backend_config: BackendConfig) -> None:
    """Give modules in training the rules of the float modules that they stand for."""
    trained = backend_config.training_modules()
    for kind, qconfig in list(mapping.object_type_qconfigs.items()):
        if kind in trained:
            mapping.object_type_qconfigs[trained[kind]] = qconfig


def qconfigs_by_node(
    modules: Mapping[str, nn.Module], graph: fx.Graph, mapping: QConfigMapping, scopes: Scopes
) -> dict[str, Any]:
    """Name of a node -> its qconfig; modules get theirs as an attribute, too."""
    seen: Counter[tuple[str, Any]] = Counter()
    found: dict[str, Any] = {}
    for node in graph.nodes:
        if node.op == "call_module" and is_activation_post_process(modules[node.target]):
            continue
        found[node.name] = add_module_to_qconfig_obs_ctr(
            _of_node(node, modules, mapping, scopes, seen), modules.get(str(node.target))
        )
        if node.op == "call_module":
            modules[node.target].qconfig = found[node.name]
    return found


def _of_node(
    node: fx.Node, modules: Mapping[str, nn.Module], mapping: QConfigMapping, scopes: Scopes, seen: Counter[Any]
) -> Any:
    everywhere = mapping.global_qconfig
    if node.op == "get_attr":
        path = parent_and_name(str(node.target))[0]
        return _of_module(mapping, type(modules[path]), path, everywhere)
    if node.op == "call_function":
        path, kind = scopes[node.name]
        by_type = object_type_qconfig(mapping, node.target, everywhere)
        return _in_order(mapping, path, node.target, _of_module(mapping, kind, path, by_type), seen)
    if node.op == "call_method":
        path, kind = scopes[node.name]
        of_method = _of_module(mapping, node.target, path, everywhere)
        return _of_module(mapping, kind, path, of_method)
    if node.op == "call_module":
        target = str(node.target)
        path, kind = scopes[node.name]
        of_module = _of_module(mapping, type(modules[target]), target, everywhere)
        return _in_order(mapping, parent_and_name(path)[0], kind, of_module, seen)
    return None


def _in_order(mapping: QConfigMapping, path: str, kind: Any, qconfig: Any, seen: Counter[Any]) -> Any:
    index = seen[path, kind]
    seen[path, kind] += 1
    return order_qconfig(mapping, path, kind, index, qconfig)


def require_same_rules(prepared: QConfigMapping, converted: QConfigMapping) -> None:
    """Refuse rules for `convert_fx` that are neither those of `prepare_fx` nor None.

    Raises:
        ValueError: naming the rule.
    """
    if not qconfig_equals(prepared.global_qconfig, converted.global_qconfig):
        raise ValueError("convert_fx: the global qconfig must be that of prepare_fx")
    for style in ("object_type_qconfigs", "module_name_qconfigs", "module_name_regex_qconfigs"):
        rules, later = getattr(prepared, style), getattr(converted, style)
        for key, qconfig in rules.items():
            if key not in later:
                raise ValueError(
                    f"convert_fx: {style} has no rule for {key}, which prepare_fx had: repeat it, or set None"
                )
            if later[key] is not None and not qconfig_equals(qconfig, later[key]):
                raise ValueError(
                    f"convert_fx: the rule for {key} in {style} is not that of prepare_fx: repeat it, or set None"
                )
