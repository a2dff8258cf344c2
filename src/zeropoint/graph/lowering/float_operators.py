"""What stays float32 in a graph on integers: the call of our operator that a node becomes, if there is one.

Functions are given the lowering, see `lower`, and the old node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from zeropoint.graph.passes.canonicalize import arguments, aten_name
from zeropoint.graph.passes.fold_batch_norm import parameter
from zeropoint.graph.passes.insert_observers import is_observer
from zeropoint.graph.recipes import FLOAT_OPERATORS, FLOAT_RECURRENT

__all__ = ["float_call"]

aten, ours = torch.ops.aten, torch.ops.zeropoint
# Arguments that are packed, so that they must not be computed.
_STORED = ("weight", "bias", "running_mean", "running_var", "w_ih", "w_hh", "b_ih", "b_hh", "params")


def float_call(g: Any, node: fx.Node) -> tuple[Any, tuple[Any, ...]] | None:
    """Our operator for a node, and its arguments in the new graph; None if the node stays as it is."""
    name = aten_name(node) or ""
    if name in _PARTS:
        are_floats = "written" not in node.meta and _are_floats(g, [*node.all_input_nodes, node], 0)
        return _PARTS[name](g, arguments(node)) if are_floats else None
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


# ------------------------------------------------------------------------------------------------ functions in parts
# Each is given the arguments of the function, makes nodes for all of its parts but the last, and returns that.

Call = tuple[Any, tuple[Any, ...]]


def _hard_sigmoid(g: Any, a: dict[str, Any]) -> Call:
    """``clamp(x + 3, 0, 6) / 6``"""
    shifted = g.call(aten.add.Tensor, g.floats(a["self"]), 3.0)
    return aten.div.Tensor, (g.call(aten.clamp.default, shifted, 0.0, 6.0), 6.0)


def _hard_swish(g: Any, a: dict[str, Any]) -> Call:
    """``x * hardsigmoid(x)``"""
    op, args = _hard_sigmoid(g, a)
    return aten.mul.Tensor, (g.floats(a["self"]), g.call(op, *args))


def _clamped(low: Any, high: Any) -> Callable[[Any, dict[str, Any]], Call]:
    def clamp(g: Any, a: dict[str, Any]) -> Call:
        bounds = (a[b] if isinstance(b, str) else b for b in (low, high))
        return aten.clamp.default, (g.floats(a["self"]), *bounds)

    return clamp


def _with_negative(g: Any, x: fx.Node, negative: fx.Node) -> Call:
    return aten.add.Tensor, (g.call(aten.clamp_min.default, x, 0.0), negative)


def _leaky_relu(g: Any, a: dict[str, Any]) -> Call:
    """``max(x, 0) + slope * min(x, 0)``"""
    x = g.floats(a["self"])
    return _with_negative(g, x, g.call(aten.mul.Tensor, g.call(aten.clamp_max.default, x, 0.0), a["negative_slope"]))


def _prelu(g: Any, a: dict[str, Any]) -> Call | None:
    """`_leaky_relu` with a slope for each channel."""
    slopes, value = g.parameter(a["weight"]) if a["weight"].op == "get_attr" else None, a["self"].meta.get("val")
    if slopes is None or (slopes.numel() > 1 and not isinstance(value, Tensor)):
        return None
    shape = (-1, *[1] * (value.dim() - 2)) if slopes.numel() > 1 else (1,)
    x, stored = g.floats(a["self"]), g.constant(str(a["weight"].target), slopes.reshape(shape))
    return _with_negative(g, x, g.call(aten.mul.Tensor, g.call(aten.clamp_max.default, x, 0.0), stored))


def _exponential(g: Any, x: fx.Node, factor: float, alpha: float) -> fx.Node:
    """``alpha * (exp(v) - 1)`` of ``v = factor * min(x, 0)``, as ``2 alpha t / (1 - t)`` with ``t = tanh(v / 2)``."""
    half = g.call(aten.mul.Tensor, g.call(aten.clamp_max.default, x, 0.0), factor / 2)
    t = g.call(ours.float_tanh.default, half)
    rest = g.call(aten.add.Tensor, g.call(aten.mul.Tensor, t, -1.0), 1.0)
    return g.call(aten.div.Tensor, g.call(aten.mul.Tensor, t, 2.0 * alpha), rest)


def _elu(g: Any, a: dict[str, Any]) -> Call:
    x = g.floats(a["self"])
    op, args = _with_negative(g, x, _exponential(g, x, float(a["input_scale"]), float(a["alpha"])))
    return (op, args) if a["scale"] == 1 else (aten.mul.Tensor, (g.call(op, *args), float(a["scale"])))


def _celu(g: Any, a: dict[str, Any]) -> Call:
    x = g.floats(a["self"])
    return _with_negative(g, x, _exponential(g, x, 1.0 / float(a["alpha"]), float(a["alpha"])))


def _mish(g: Any, a: dict[str, Any]) -> Call:
    """``x * tanh(log(1 + exp(x)))``, as ``x * sigmoid(x) * (1 + t) / (1 + t^2)`` with ``t = sigmoid(-x)``."""
    x = g.floats(a["self"])
    t = g.call(ours.float_sigmoid.default, g.call(aten.mul.Tensor, x, -1.0))
    over = g.call(aten.mul.Tensor, g.call(ours.float_sigmoid.default, x), g.call(aten.add.Tensor, t, 1.0))
    under = g.call(aten.add.Tensor, g.call(aten.mul.Tensor, t, t), 1.0)
    return aten.mul.Tensor, (x, g.call(aten.div.Tensor, over, under))


def _weighted(op: Any) -> Callable[[Any, dict[str, Any]], Call | None]:
    """``x + alpha * y``, whose product PyTorch does not always round."""

    def weighted(g: Any, a: dict[str, Any]) -> Call | None:
        if a["alpha"] == 1 or isinstance(a["alpha"], fx.Node) or not isinstance(a["other"], fx.Node):
            return None
        return op, (g.floats(a["self"]), g.call(aten.mul.Tensor, g.floats(a["other"]), a["alpha"]))

    return weighted


_PARTS: dict[str, Callable[[Any, dict[str, Any]], Call | None]] = {
    "add.Tensor": _weighted(aten.add.Tensor),
    "sub.Tensor": _weighted(aten.sub.Tensor),
    "hardsigmoid.default": _hard_sigmoid,
    "hardswish.default": _hard_swish,
    "relu6.default": _clamped(0.0, 6.0),
    "hardtanh.default": _clamped("min_val", "max_val"),
    "leaky_relu.default": _leaky_relu,
    "prelu.default": _prelu,
    "elu.default": _elu,
    "celu.default": _celu,
    "mish.default": _mish,
}
