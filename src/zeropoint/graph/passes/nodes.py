"""Nodes of graphs: new ones with the values that they have on the example inputs, and what one depends on."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.graph import torch_internals as internals
from zeropoint.operators.node import Unsized
from zeropoint.torch_versions import calls_with_free_sizes


def call(graph: fx.Graph, like: fx.Node, target: Any, *args: Any) -> fx.Node:
    """A new node where `like` came from, with the value that it has on the example inputs."""
    node = graph.call_function(target, args)
    node.meta["origin"] = like.meta.get("origin")
    if isinstance(like.meta.get("val"), Unsized):
        node.meta["val"] = like.meta["val"]
    elif all(has_value(n) for n in node.all_input_nodes):
        with calls_with_free_sizes():
            node.meta["val"] = target(*internals.map_nodes(args, lambda n: n.meta["val"]))
    return node


def has_value(node: fx.Node) -> bool:
    """Whether it is known what a node gives on the example inputs."""
    return node.meta.get("val") is not None and not isinstance(node.meta["val"], Unsized)


def fixed_size(size: Any) -> int | None:
    """A size of an example's value as a number; None if it is free."""
    if isinstance(size, torch.SymInt):
        return None if internals.is_free(size) else int(size)
    return int(size)


def producers(node: fx.Node) -> list[fx.Node] | None:
    """The nodes that a value is computed from, itself included; None if one of them is an input."""
    found: dict[fx.Node, None] = {}
    pending = [node]
    while pending:
        current = pending.pop()
        if current.op == "placeholder":
            return None
        if current not in found:
            found[current] = None
            pending += current.all_input_nodes
    return list(found)
