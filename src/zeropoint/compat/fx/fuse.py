"""Fusing: modules that follow each other in a graph become one, as a backend's patterns say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import fx, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.compat.fx.backend_config import BackendConfig
from zeropoint.compat.fx.fuser_methods import get_fuser_method_new, nested
from zeropoint.compat.fx.modules import set_module
from zeropoint.compat.fx.patterns import Match, MatchAllNode, by_length, find_matches, nodes_of


def fuse(model: fx.GraphModule, is_qat: bool, backend_config: BackendConfig) -> fx.GraphModule:
    """The graph with one call of a fused module for each match of a pattern that has a fuser method."""
    modules = dict(model.named_modules())
    patterns = {p: config for p, config in by_length(backend_config).items() if config.fuser_method is not None}
    methods = {pattern: nested_method(config) for pattern, config in patterns.items()}
    found = find_matches(model.graph, modules, patterns)
    for node in list(model.graph.nodes):
        match = found.get(node)
        if match is not None and match.last is node:
            _fuse_match(model, match, modules, methods, is_qat)
    return fx.GraphModule(model, model.graph)


def nested_method(config: Any) -> Any:
    """The fuser method of a pattern, for modules in the shape of its nested form."""
    if config._pattern_complex_format is not None:
        return config.fuser_method
    if not isinstance(config.pattern, tuple):
        raise ValueError(f"a fuser method needs a tuple of modules, got the pattern {config.pattern}")
    return nested(config.fuser_method, len(config.pattern))


def _fuse_match(
    model: fx.GraphModule, match: Match, modules: Mapping[str, nn.Module], methods: Mapping[Any, Any], is_qat: bool
) -> None:
    root = match.root
    if root.op != "call_module":
        raise ValueError(
            f"a fused pattern must begin with a module; the pattern at {root.name!r} begins with {root.target}"
        )
    parts = _modules_at(match.nodes, modules, modules[str(root.target)].training)
    fused = get_fuser_method_new(_types(parts), methods)(is_qat, *parts)
    set_module(model, str(root.target), fused)
    getter = None if match.config is None else match.config._extra_inputs_getter
    extra = [] if getter is None else list(getter(match.nodes))
    match.last.replace_all_uses_with(root)
    match.last.append(root)  # what it is called with may come after it
    root.args = (*root.args, *extra)
    matched = [node for node in nodes_of(match.nodes) if node is not root and node not in extra]
    for node in matched:
        model.graph.erase_node(node)


def _modules_at(nodes: Any, modules: Mapping[str, nn.Module], training: bool) -> Any:
    """The modules that nodes call, in the same shape; functions of others; a ReLU for its function."""
    if isinstance(nodes, (list, tuple)):
        return tuple(_modules_at(part, modules, training) for part in nodes)
    if not isinstance(nodes, fx.Node):
        return MatchAllNode
    if nodes.op == "call_module":
        return modules[str(nodes.target)]
    if nodes.op == "call_function" and nodes.target is F.relu:
        return nn.ReLU().train(training)
    return nodes.target if nodes.op in ("call_function", "call_method") else MatchAllNode


def _types(parts: Any) -> Any:
    if isinstance(parts, tuple):
        return tuple(map(_types, parts))
    return type_before_parametrizations(parts) if isinstance(parts, nn.Module) else parts
