"""Reading reference models: ``dequantize, operator, quantize``, with or without a ReLU before the last."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from zeropoint.compat.fx.modules import called_module
from zeropoint.compat.fx.targets import DYNAMIC, PER_TENSOR, TARGETS


@dataclass(frozen=True)
class StaticMatch:
    """An operator between dequantize and quantize."""

    quantize: fx.Node
    relu: fx.Node | None
    node: fx.Node


def is_dequantize(node: Any) -> bool:
    """Whether a node dequantizes, or makes floats of float16."""
    return isinstance(node, fx.Node) and (node.op, node.target) in (("call_method", "dequantize"), TARGETS.dequantize)


def is_quantize(node: Any) -> bool:
    """Whether a node quantizes, with one scale for all."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target is PER_TENSOR


def is_dynamic_quantize(node: Any) -> bool:
    """Whether a node quantizes with a range that it finds, to 8 bits or float16."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target is DYNAMIC


def is_relu(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a node is a ReLU, as a module or a function."""
    return (node.op == "call_function" and node.target in (F.relu, torch.relu)) or type(
        called_module(node, modules)
    ) is nn.ReLU


def stays_float(node: fx.Node, qconfigs: Mapping[str, Any]) -> bool:
    """Whether a node has the qconfig None."""
    return node.name in qconfigs and qconfigs[node.name] is None


def static_match(
    node: fx.Node,
    modules: Mapping[str, nn.Module],
    qconfigs: Mapping[str, Any],
    known: Collection[Any],
    indices: tuple[int, ...],
) -> StaticMatch | None:
    """The operator that `node` quantizes the result of, if it is one of `known`, module classes or functions.

    At least one of its arguments at `indices` must be dequantized, and those that are not must be no tensors.
    """
    if not is_quantize(node):
        return None
    found: Any = node.args[0]
    relu = found if is_relu(found, modules) else None
    if relu is not None:
        found = relu.args[0]
    if not isinstance(found, fx.Node) or stays_float(found, qconfigs):
        return None
    key = type(called_module(found, modules)) if found.op == "call_module" else found.target
    if found.op not in ("call_module", "call_function") or key not in known:
        return None
    taken = [found.args[i] for i in indices if i < len(found.args)]
    if not any(map(is_dequantize, taken)) or any(isinstance(a, fx.Node) and not is_dequantize(a) for a in taken):
        return None
    return StaticMatch(node, relu, found)
