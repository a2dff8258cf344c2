"""Reductions along axes: sums, products, variances, norms, any and all."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from zeropoint.operators.expressions import Expression, in_dtype
from zeropoint.operators.float_forms import FloatCall, in_parts
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments
from zeropoint.operators.record import Operator
from zeropoint.operators.steps import Emit, GraphBuilder, ProgramStep, StepBuilder, restores, steps

aten, ours = torch.ops.aten, torch.ops.zeropoint


def _axes(a: dict[str, Any]) -> list[int]:
    """The axes that a call names, none for all."""
    dim = a.get("dim")
    return [] if dim is None else list(dim) if isinstance(dim, (list, tuple)) else [dim]


# ---------------------------------------------------------------------------------------------------- steps of programs


def _emit_whole_numbers(op: str) -> Emit:
    """Sums and products of integers and bools, which are int64."""

    def emit(c: StepBuilder, node: fx.Node) -> str:
        if c.dtype(node) != torch.int64:
            raise c.unsupported("on floats it has its own operator in quantized graphs")
        a = arguments(node)
        x = in_dtype(c, node.args[0], torch.int64)
        return c.add(op, x, axes=_axes(a), keepdim=bool(a.get("keepdim")))

    return emit


def _emit_ours(c: StepBuilder, node: fx.Node) -> str:
    """One of our operators on float32, whose steps have its name."""
    a = arguments(node)
    more = {"correction": a["correction"]} if "correction" in a else {}
    op = str(node.target).split(".")[1]
    axes = _axes(a) if c.rank(a["input"]) else []
    return c.add(op, c.tensor(a["input"]), axes=axes, keepdim=bool(a["keepdim"]), **more)


def _emit_bools(op: str) -> Emit:
    """`any` is a sum of bools, `all` their product: those of none are known, too."""

    def emit(c: StepBuilder, node: fx.Node) -> str:
        a, e, made = arguments(node), Expression(c), Expression(c)
        x = e.step(e.convert(e.term(node.args[0], torch.bool), torch.int64))
        axes = _axes(a) if c.rank(node.args[0]) else []
        count = made.tensor(c.add(op, x, axes=axes, keepdim=bool(a.get("keepdim"))), torch.int64)
        return made.step(made.convert(made.convert(count, torch.bool), c.dtype(node)))

    return emit


def _emit_place(largest: bool) -> Emit:
    """Where the largest or smallest value is, along an axis or among all."""

    def emit(c: StepBuilder, node: fx.Node) -> str:
        a = arguments(node)
        x, rank, axis = str(c.tensor(node.args[0])), c.rank(node.args[0]), a["dim"]
        if axis is None or rank == 0:
            x, axis = c.add("flatten", x, first=0, last=-1), 0
        numbers = {"axis": axis, "keepdim": bool(a["keepdim"]) and a["dim"] is not None and rank > 0}
        names = [f"{node}_value", f"{node}"]
        place = c.builder.add_several("extreme", [x], names, largest=largest, **numbers)[1]
        return c.add("reshape", place, shape=[1] * rank) if a["keepdim"] and a["dim"] is None else place

    return emit


# ------------------------------------------------------------------------------------------------ float forms in graphs


def _product(g: Lowering, a: dict[str, Any]) -> FloatCall | None:
    if a.get("dtype") not in (None, torch.float32):
        return None
    return ours.float_product.default, (g.floats(a["self"]), _axes(a), bool(a.get("keepdim")))


def _sum(g: Lowering, a: dict[str, Any]) -> FloatCall | None:
    if a.get("dtype") not in (None, torch.float32):
        return None
    return ours.float_sum.default, (g.floats(a["self"]), _axes(a), bool(a.get("keepdim")))


def _variance(g: Lowering, a: dict[str, Any]) -> FloatCall:
    correction = a.get("correction", float(a.get("unbiased", True)))
    correction = 1.0 if correction is None else float(correction)
    return ours.float_variance.default, (g.floats(a["self"]), _axes(a), correction, bool(a.get("keepdim")))


def _deviation(g: Lowering, a: dict[str, Any]) -> FloatCall:
    target, args = _variance(g, a)
    return ours.float_unary.default, (g.call(target, *args), "sqrt")


def _log_sum_exp(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``m + log(sum(exp(x - m)))`` with the largest value m, or 0 where that is infinite; ``log(0)`` of no values."""
    x, axes = g.floats(a["self"]), _axes(a)
    sizes = getattr(a["self"].meta.get("val"), "shape", ())
    if any(isinstance(sizes[axis], int) and sizes[axis] == 0 for axis in axes if sizes):
        return ours.float_unary.default, (g.call(ours.float_sum.default, x, axes, bool(a["keepdim"])), "log")
    largest = g.call(aten.amax.default, x, axes, True)
    infinite = g.call(aten.isinf.default, largest)
    largest = g.call(aten.masked_fill.Scalar, largest, infinite, 0.0)
    e = g.call(ours.float_unary.default, g.call(aten.sub.Tensor, x, largest), "exp")
    total = g.call(ours.float_unary.default, g.call(ours.float_sum.default, e, axes, True), "log")
    made = g.call(aten.add.Tensor, total, largest)
    return (aten.alias.default, (made,)) if a["keepdim"] else (aten.squeeze.dims, (made, axes))


def _vector_norm(g: Lowering, a: dict[str, Any]) -> FloatCall | None:
    """Norms of order 1, 2 and infinity, and others as a root of a sum of powers."""
    order = a.get("ord", a.get("p", 2))
    order = 2.0 if order is None else float(order)
    if a.get("dtype") not in (None, torch.float32):
        return None
    x, axes, keep = g.floats(a["self"]), _axes(a), bool(a.get("keepdim"))
    if order == 2:
        return ours.float_norm.default, (x, axes, keep)
    if order == 0:
        return ours.float_sum.default, (g.call(aten.to.dtype, g.call(aten.ne.Scalar, x, 0), torch.float32), axes, keep)
    size = g.call(aten.abs.default, x)
    if math.isinf(order):
        return (aten.amax if order > 0 else aten.amin).default, (size, axes, keep)
    if order == 1:
        return ours.float_sum.default, (size, axes, keep)
    exponents = [g.constant(f"exponent_{n}", torch.tensor(n)) for n in (order, 1.0 / order)]
    powers = g.call(ours.float_binary.default, size, exponents[0], "pow")
    return ours.float_binary.default, (g.call(ours.float_sum.default, powers, axes, keep), exponents[1], "pow")


# ------------------------------------------------------------------------------------------------- steps as nodes again


def _restore_reduced(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    more = [a["correction"]] if "correction" in a else []
    axes = a.get("axes", [-1])  # old norms name none
    return r.call(getattr(ours, step.op).default, r.tensor(step.inputs[0]), axes, *more, a["keepdim"])


def _restore_whole_sum(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    return r.call(aten.sum.dim_IntList, r.tensor(step.inputs[0]), a["axes"] or None, a["keepdim"])


def _restore_whole_product(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, x = step.attributes, r.tensor(step.inputs[0])
    return r.call(aten.prod.dim_int, x, *a["axes"], a["keepdim"]) if a["axes"] else r.call(aten.prod.default, x)


RECORDS = (
    Operator(
        "sum", ("sum.default", "sum.dim_IntList"), float_form=in_parts(_sum),
        steps=(
            *steps(_emit_whole_numbers("integer_sum"), "aten.sum.default", "aten.sum.dim_IntList"),
            *steps(_emit_ours, "float_sum"),
        ),
        restores=(
            *restores(_restore_reduced, "float_sum", "float_product", "float_variance", "float_norm"),
            *restores(_restore_whole_sum, "integer_sum"),
        ),
    ),
    Operator(
        "prod", ("prod.default", "prod.dim_int"), float_form=in_parts(_product),
        steps=(
            *steps(_emit_whole_numbers("integer_product"), "aten.prod.default", "aten.prod.dim_int"),
            *steps(_emit_ours, "float_product"),
        ),
        restores=restores(_restore_whole_product, "integer_product"),
    ),
    Operator(
        "var", tuple(f"var.{k}" for k in ("default", "dim", "correction")), float_form=in_parts(_variance),
        steps=steps(_emit_ours, "float_variance"),
    ),
    Operator("std", tuple(f"std.{k}" for k in ("default", "dim", "correction")), float_form=in_parts(_deviation)),
    Operator("logsumexp", ("logsumexp.default",), float_form=in_parts(_log_sum_exp)),
    Operator(
        "vector_norm",
        ("linalg_vector_norm.default", "norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype"),
        float_form=in_parts(_vector_norm), steps=steps(_emit_ours, "float_norm"),
    ),
    *(
        Operator(name, steps=steps(_emit_bools(op), *(f"aten.{name}.{k}" for k in ("default", "dim", "dims"))))
        for name, op in (("any", "integer_sum"), ("all", "integer_product"))
    ),
    Operator("argmax", steps=steps(_emit_place(True), "aten.argmax.default")),
    Operator("argmin", steps=steps(_emit_place(False), "aten.argmin.default")),
)  # fmt: skip
