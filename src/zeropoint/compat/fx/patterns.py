"""Finding patterns of calls in graphs.

A nested pattern begins with the last call, followed by what it is called with: ``(ReLU, (BatchNorm2d, Conv2d))``. What
it is found at has the same shape, with nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.compat.fx.backend_config import BackendConfig, BackendPatternConfig


class MatchAllNode:
    """In a pattern: anything."""


@dataclass(frozen=True)
class Match:
    """Where a pattern was found: the last node, all nodes in the shape of the pattern, and what is known about it.

    A module that is quantized by itself (`is_standalone`), or by classes of the user's (`is_custom`), is a match
    without a config.
    """

    last: fx.Node
    nodes: Any
    config: BackendPatternConfig | None = None
    is_custom: bool = False
    is_standalone: bool = False

    @property
    def root(self) -> fx.Node:
        """The node that the inputs go into."""
        getter = None if self.config is None else self.config._root_node_getter
        return (getter or root_of)(self.nodes)


def root_of(nodes: Any) -> Any:
    """The first call of what a pattern was found at, which stands last in it."""
    while nodes is not None and not isinstance(nodes, fx.Node):
        nodes = nodes[-1]
    return nodes


def nodes_of(nodes: Any) -> Iterator[fx.Node]:
    """Every node of what a pattern was found at."""
    if isinstance(nodes, fx.Node):
        yield nodes
    elif isinstance(nodes, (list, tuple)):
        for part in nodes:
            yield from nodes_of(part)


def is_match(modules: Mapping[str, nn.Module], node: Any, pattern: Any, max_uses: int = sys.maxsize) -> bool:
    """Whether `node` is the last call of `pattern`; what is inside the pattern must have no other use.

    Example:
        >>> traced = fx.symbolic_trace(nn.Sequential(nn.Linear(1, 1), nn.ReLU()))
        >>> last = list(traced.graph.nodes)[-2]
        >>> is_match(dict(traced.named_modules()), last, (nn.ReLU, nn.Linear))
        True
    """
    called, arguments = (pattern[0], pattern[1:]) if isinstance(pattern, tuple) else (pattern, ())
    if isinstance(called, type) and issubclass(called, MatchAllNode):
        return True
    if not isinstance(node, fx.Node):
        return bool(node == pattern)
    if len(node.users) > max_uses or not _calls(modules, node, called):
        return False
    if called is getattr:
        return not arguments or node.args[1] == arguments[0]
    if not arguments:
        return True
    return len(arguments) == len(node.args) and all(
        is_match(modules, argument, part, 1) for argument, part in zip(node.args, arguments)
    )


def _calls(modules: Mapping[str, nn.Module], node: fx.Node, called: Any) -> bool:
    if isinstance(called, type) and issubclass(called, nn.Module):
        return node.op == "call_module" and type_before_parametrizations(modules[str(node.target)]) is called
    if isinstance(called, str):
        return node.op == "call_method" and node.target == called
    if callable(called):
        return node.op == "call_function" and node.target is called
    return bool(node.target == called)


def _length(pattern: Any) -> int:
    return sum(map(_length, pattern)) if isinstance(pattern, tuple) else 1


def by_length(config: BackendConfig) -> dict[Any, BackendPatternConfig]:
    """The patterns of a backend, longer ones first, so that ``linear, relu`` is found before ``linear``."""
    patterns = config.by_pattern.items()
    return dict(sorted(patterns, key=lambda item: -_length(item[0]) if isinstance(item[0], tuple) else 1))


def _nodes_at(node: Any, pattern: Any) -> Any:
    """The nodes of a match, in the shape of its pattern."""
    if not isinstance(pattern, tuple) or pattern[0] is getattr:
        return node
    return (node, *(_nodes_at(argument, part) for argument, part in zip(node.args, pattern[1:])))


def _claimed(node: Any, pattern: Any) -> Iterator[fx.Node]:
    """The nodes of a match without those that stand for anything."""
    if isinstance(pattern, tuple) and pattern[0] is not getattr:
        yield node
        for argument, part in zip(node.args, pattern[1:]):
            yield from _claimed(argument, part)
    elif isinstance(node, fx.Node) and pattern is not MatchAllNode:
        yield node


def find_matches(
    graph: fx.Graph, modules: Mapping[str, nn.Module], patterns: Mapping[Any, BackendPatternConfig]
) -> dict[fx.Node, Match]:
    """Which match each node belongs to: from the end of the graph, the first pattern that fits free nodes."""
    found: dict[fx.Node, Match] = {}
    for node in reversed(graph.nodes):
        if node in found:
            continue
        for pattern, config in patterns.items():
            if not is_match(modules, node, pattern):
                continue
            claimed = list(_claimed(node, pattern))
            if any(part in found for part in claimed):
                continue
            match = Match(node, _nodes_at(node, pattern), config)
            found.update(dict.fromkeys(claimed, match))
            break
    return found
