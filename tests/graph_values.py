"""What the nodes of a graph give for some inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def values_of(graph: fx.GraphModule, *inputs: Any) -> dict[fx.Node, Any]:
    """The result of each node."""
    seen: dict[fx.Node, Any] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            seen[node] = super().run_node(node)
            return seen[node]

    with torch.no_grad():
        Recorder(graph).run(*inputs)
    return seen
