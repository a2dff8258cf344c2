"""Products with a parameter, and what is added to them, as linear layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.fold_batch_norm import add_parameter
from zeropoint.operators.node import arguments, aten_name, parameter

aten = torch.ops.aten
_PRODUCTS = frozenset(("matmul.default", "mm.default", "addmm.default"))
_TRANSPOSED = frozenset(("t.default", "numpy_T.default", "mT.default", "transpose.int", "permute.default"))


def fold_linear(graph: fx.GraphModule) -> int:
    """``x @ w``, ``x @ w.t() + b``, ``addmm(b, x, w)`` with parameters `w` and `b` as linear layers; how many.

    A weight that is not transposed gets a transposed copy, which is a parameter of its own.
    """
    folded = 0
    for node in list(graph.graph.nodes):
        if aten_name(node) in _PRODUCTS and _fold(graph, node):
            folded += 1
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return folded


def _fold(graph: fx.GraphModule, node: fx.Node) -> bool:
    a = arguments(node)
    adds = aten_name(node) == "addmm.default"
    bias = a["self"] if adds else None
    x, right = (a["mat1"], a["mat2"]) if adds else (a["self"], a.get("other", a.get("mat2")))
    outputs = _outputs(graph, right)
    if outputs is None or parameter(graph, x) is not None:
        return False
    if adds and (a["beta"] != 1 or a["alpha"] != 1 or not _is_bias(graph, bias, outputs)):
        return False
    last = node
    if bias is None:
        last, bias = _sum_after(graph, node, outputs)
    with graph.graph.inserting_before(last):
        weight = _weight(graph, right, last)
        made = graph.graph.call_function(aten.linear.default, (x, weight, bias))
    made.meta.update({k: last.meta[k] for k in ("val",) if k in last.meta}, origin=node.meta.get("origin"))
    last.replace_all_uses_with(made)
    for old in (last, node) if last is not node else (node,):
        graph.graph.erase_node(old)
    return True


def _outputs(graph: fx.GraphModule, right: Any) -> int | None:
    """How many outputs a product with `right` has, if that is a matrix that is a parameter, or one transposed."""
    source = _source(right)
    value = parameter(graph, source)
    if value is None or value.dim() != 2 or not value.is_floating_point():
        return None
    return value.shape[1] if source is right else value.shape[0]


def _source(right: Any) -> Any:
    """The parameter of which `right` is the transpose, or `right`."""
    if aten_name(right) not in _TRANSPOSED:
        return right
    name, rest = aten_name(right), right.args[1:]
    if name == "transpose.int" and sorted(d % 2 for d in rest) != [0, 1]:
        return right
    if name == "permute.default" and [d % 2 for d in rest[0]] != [1, 0]:
        return right
    return right.args[0]


def _weight(graph: fx.GraphModule, right: fx.Node, before: fx.Node) -> fx.Node:
    source = _source(right)
    if source is not right:
        return graph.graph.get_attr(source.target)
    value: Any = parameter(graph, right)
    made = add_parameter(graph, f"{right.target}_transposed", value.detach().t().contiguous(), before)
    parameter(graph, made).requires_grad_(value.requires_grad)  # type: ignore[union-attr]
    made.meta["transposed"] = str(right.target)
    return made


def _is_bias(graph: fx.GraphModule, node: Any, outputs: int) -> bool:
    value = parameter(graph, node)
    return value is not None and value.is_floating_point() and tuple(value.shape) == (outputs,)


def _sum_after(graph: fx.GraphModule, node: fx.Node, outputs: int) -> tuple[fx.Node, Any]:
    """The sum of the product with a bias, and the bias, if nothing else reads the product; else the product itself."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    if user is None or aten_name(user) != "add.Tensor" or arguments(user)["alpha"] != 1:
        return node, None
    left, right = user.args[:2]
    other = right if left is node else left
    return (user, other) if _is_bias(graph, other, outputs) else (node, None)
