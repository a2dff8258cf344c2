"""What stays float32 in a graph on integers: the call of our operator that a node becomes, if there is one.

Functions are given the lowering, see `lower`, and the old node.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from zeropoint.graph.fx.fold_batch_norm import parameter
from zeropoint.graph.fx.observe import is_observer
from zeropoint.graph.fx.plain import arguments, aten_name
from zeropoint.graph.recipes import FLOAT_OPERATORS, FLOAT_RECURRENT

__all__ = ["float_call"]

ours = torch.ops.zeropoint
# Arguments that are packed, so that they must not be computed.
_STORED = ("weight", "bias", "running_mean", "running_var", "w_ih", "w_hh", "b_ih", "b_hh", "params")


def float_call(g: Any, node: fx.Node) -> tuple[Any, tuple[Any, ...]] | None:
    """Our operator for a node, and its arguments in the new graph; None if the node stays as it is."""
    name = aten_name(node) or ""
    op = FLOAT_OPERATORS[name][0] if name in FLOAT_OPERATORS else FLOAT_RECURRENT.get(name)
    if op is None:
        return None
    a = arguments(node)
    involved = node.all_input_nodes if op == "top" else [*node.all_input_nodes, node]  # which gives places, too
    if "written" in node.meta or not (_are_floats(g, involved, 2 if op == "float_matmul" else 0) and _is_plain(op, a)):
        return None
    if name in FLOAT_RECURRENT:
        return _recurrent(g, getattr(ours, op), a)
    return getattr(ours, op).default, g.argument([a[k] for k in FLOAT_OPERATORS[name][1]])


def _are_floats(g: Any, nodes: list[fx.Node], least: int) -> bool:
    """Whether all tensors of some nodes are float32 on the CPU, with so many axes."""

    def known(value: fx.Node) -> Any:
        if is_observer(value):
            value = value.args[0]
        return parameter(g.old, value) if value.op == "get_attr" else value.meta.get("val")

    tensors = pytree.tree_leaves([known(value) for value in nodes])
    tensors = [t for t in tensors if not isinstance(t, (int, torch.SymInt))]
    return all(
        isinstance(t, Tensor) and t.dtype == torch.float32 and t.device.type == "cpu" and t.dim() >= least
        for t in tensors
    )


def _is_plain(op: str, a: dict[str, Any]) -> bool:
    """Whether weights are stored, and arguments that our operator does not have say nothing."""
    stored = pytree.tree_leaves([a[k] for k in _STORED if a.get(k) is not None])
    if op == "float_layer_norm":
        stored = []
    if any(w.op != "get_attr" for w in stored):
        return False
    if op == "float_batch_norm":
        return not a["training"]
    if op == "float_instance_norm":
        return bool(a["use_input_stats"])
    if op == "float_norm":
        return a["ord"] == 2 and a["dtype"] is None and len(a["dim"] or ()) == 1
    if "params" in a:
        each_layer = (4 if a["has_biases"] else 2) * (2 if a["bidirectional"] else 1)
        return len(a["params"]) == each_layer * a["num_layers"] and not (a["train"] and a["dropout"])
    return a.get("dtype") is None


def _recurrent(g: Any, packet: Any, a: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """A recurrent layer, or one step of it, whose weights stay float32."""
    first = g.argument([a["input"], a["hx"]])
    if "params" not in a:
        weights = [part for w in ("w_ih", "w_hh") for part in (g.floats(a[w]), None, None)]
        return packet.default, (*first, *weights, *g.argument([a["b_ih"], a["b_hh"]]))
    params, step = g.argument(list(a["params"])), 4 if a["has_biases"] else 2
    weights, biases = ([p for i, p in enumerate(params) if (i % step < 2) is early] for early in (True, False))
    options = (a["num_layers"], 0.0, False, a["bidirectional"], a["batch_first"])
    return packet.input, (*first, weights, [], [], biases, *options)
