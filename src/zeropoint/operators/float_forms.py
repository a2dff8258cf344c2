"""How an operator stays float32: our operator for it, whose bytes a program has too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments, parameter

ours = torch.ops.zeropoint
FloatCall = tuple[Any, tuple[Any, ...]]
FloatForm = Callable[[Lowering, fx.Node], FloatCall | None]


def are_floats(g: Lowering, nodes: list[fx.Node], least_axes: int = 0) -> bool:
    """Whether all tensors of some nodes are float32 on the CPU, with so many axes."""

    def known(value: fx.Node) -> Any:
        value = g.unobserved(value)
        return parameter(g.old, value) if value.op == "get_attr" else value.meta.get("val")

    tensors = pytree.tree_leaves([known(value) for value in nodes])
    tensors = [t for t in tensors if not isinstance(t, (int, torch.SymInt))]
    return all(
        isinstance(t, Tensor) and t.dtype == torch.float32 and t.device.type == "cpu" and t.dim() >= least_axes
        for t in tensors
    )


def by_operator(
    name: str,
    *taken: str,
    stored: tuple[str, ...] = (),
    least_axes: int = 0,
    gives_floats: bool = True,
    when: Callable[[dict[str, Any]], bool] = lambda a: True,
) -> FloatForm:
    """A float form that is one operator of zeropoint.

    Args:
        taken: the arguments of ATen's operator that ours takes.
        stored: those that must be parameters, because ours packs them.
        least_axes: that every tensor has.
        gives_floats: whether all results are floats too.
        when: what must hold for the other arguments.
    """

    def form(g: Lowering, node: fx.Node) -> FloatCall | None:
        a = arguments(node)
        involved = [*node.all_input_nodes, node] if gives_floats else node.all_input_nodes
        packed = pytree.tree_leaves([a[k] for k in stored if a.get(k) is not None])
        if "written" in node.meta or not are_floats(g, involved, least_axes):
            return None
        if any(w.op != "get_attr" for w in packed) or a.get("dtype") not in (None, torch.float32) or not when(a):
            return None
        return getattr(ours, name).default, g.argument([a[k] for k in taken])

    return form


def first_of(*forms: FloatForm) -> FloatForm:
    """The first of some forms that fits a call."""

    def form(g: Lowering, node: fx.Node) -> FloatCall | None:
        return next((found for found in (form(g, node) for form in forms) if found is not None), None)

    return form


def in_parts(compute: Callable[[Any, dict[str, Any]], FloatCall | None]) -> FloatForm:
    """A float form in parts: `compute` makes nodes for all of them but the last, and returns that."""

    def form(g: Lowering, node: fx.Node) -> FloatCall | None:
        if "written" in node.meta or not are_floats(g, [*node.all_input_nodes, node]):
            return None
        return compute(g, arguments(node))

    return form
