"""Sums, products, products of matrices, and tensors joined."""

from __future__ import annotations

import operator as python
from typing import Any

import torch
from torch import fx

from zeropoint.nn import quantized as nnq
from zeropoint.numerics import functions, scalars
from zeropoint.numerics.binary import fits_fixed_add
from zeropoint.numerics.functions import Step
from zeropoint.operators.choice import (
    Choice,
    Precision,
    State,
    is_float,
    is_static,
    relu_after,
    stored_source,
    tensor_arguments,
)
from zeropoint.operators.elementwise import emit_arithmetic, overloads
from zeropoint.operators.expressions import Expression
from zeropoint.operators.float_forms import FloatCall, by_operator, in_parts
from zeropoint.operators.lookup import emit_table, restored_table
from zeropoint.operators.lowered_value import Scale, Value
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments, aten_name, only_reads_shape
from zeropoint.operators.record import Effect, ModuleForms, Observed, Operator, Traced
from zeropoint.operators.registry import BY_ATEN
from zeropoint.operators.steps import Emit, GraphBuilder, ProgramStep, StepBuilder, called, restores, steps
from zeropoint.ops import checks, rounding

aten, ours = torch.ops.aten, torch.ops.zeropoint


def _product(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    """A product of matrices; of floats that are quantized on the way where a rule of its own asks for it."""
    if not getattr(qconfig.activation(), "is_dynamic", False):
        return _of_stored(state, node, _several(state, node, operator, qconfig))
    at, places = node.meta.get("origin"), state.mapping.module_name_object_type_order_qconfigs
    named = at is not None and any((at.path, kind, at.place) in places for kind in operator.object_types)
    if not named and not any(
        state.mapping.object_type_qconfigs.get(kind) is not None for kind in operator.object_types
    ):
        return Choice(
            Precision.FLOAT,
            "products of activations stay in float in dynamic mode, unless the policy sets products",
            operator,
        )
    if not all(_is_matrix(t) for t in tensor_arguments(node)):
        return Choice(Precision.FLOAT, "its inputs are not float32 matrices", operator)
    return Choice(Precision.DYNAMIC, "", operator, qconfig)


def _of_stored(state: State, node: fx.Node, choice: Choice) -> Choice:
    """`choice` with parameters as inputs, where it takes values of these: weights of experts, embeddings of places."""
    tensors = tuple(tensor_arguments(node))
    values = [t.meta.get("val") for t in tensors if t.op != "get_attr"]
    if choice.precision is Precision.STATIC and all(
        isinstance(v, torch.Tensor) and v.dtype == torch.float32 for v in values
    ):
        choice.inputs = tuple(stored_source(state, t).name for t in tensors)
    return choice


def _is_matrix(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.dim() >= 2


def _several(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    """Several tensors, all of which become integers."""
    if not is_static(qconfig.activation()):
        return Choice(Precision.FLOAT, "no dynamic version", operator)
    if operator.name == "cat" and isinstance(node.args[0], fx.Node):
        return Choice(Precision.FLOAT, "its list is not a constant", operator)
    tensors = tuple(tensor_arguments(node))
    if operator.name == "cat" and _is_masking(state, node, tensors):
        return Choice(Precision.FLOAT, f"it may join {_MASK}", operator)
    if any(not is_float(t) for t in tensors):
        return Choice(Precision.FLOAT, "its inputs are not floats", operator)
    if isinstance(arguments(node).get("alpha"), fx.Node) or not tensors:
        return Choice(Precision.FLOAT, "its operands are sizes", operator)
    if not operator.heavy and not any(t in state.quantized for t in tensors):
        return Choice(Precision.FLOAT, "its inputs are in float", operator)
    return Choice(Precision.STATIC, "", operator, qconfig, tuple(t.name for t in tensors), relu_after(node, operator))


def _elementwise(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    """Two tensors, or a tensor and a number, which changes the parameters of the tensor and nothing else."""
    choice = _several(state, node, operator, qconfig)
    tensors = tuple(tensor_arguments(node))
    if choice.precision is Precision.FLOAT:
        return choice
    if operator.name == "add" and _is_masking(state, node, tensors):
        return Choice(Precision.FLOAT, f"it may add {_MASK}", operator)
    if len(tensors) > 1:
        return _of_stored(state, node, choice)
    if any(isinstance(v, fx.Node) and v is not tensors[0] for v in node.args):
        return Choice(Precision.FLOAT, "its operand is a size", operator)
    return Choice(Precision.PASSED, "", operator)


_MASK = "a mask to scores: the range of the mask would leave too little precision for them"


def _is_masking(state: State, node: fx.Node, tensors: tuple[fx.Node, ...]) -> bool:
    """Whether a sum, or a tensor joined with something that is not quantized, goes into a softmax and nowhere else."""
    return len(tensors) > 1 and any(t not in state.quantized for t in tensors) and _becomes_weights(node)


_SCORES = ("add", "cat", "max", "amax", "mul", "clamp", "clamp_min", "clamp_max")  # what is done to scores on their way


def _becomes_weights(node: fx.Node) -> bool:
    """Whether all that is made of a value goes into a softmax, as scores do: joined with others, less their largest."""
    waiting, reached, seen = [node], False, {node}
    while waiting:
        for user in waiting.pop().users:
            record = BY_ATEN.get(aten_name(user) or "")
            if record is not None and record.name in ("softmax", "safe_softmax"):
                reached = True
            elif only_reads_shape(user):
                continue
            elif user.target is python.getitem or (
                record is not None and (record.name in _SCORES or (record.keeps_scale and record.integers is None))
            ):
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
            else:
                return False
    return reached


def _binary(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    out = g.output_scale(node, choice)
    integers, scale, zero_point = g.quantized(node.args[1])
    factor = arguments(node).get("alpha", 1) * (-1 if str(aten_name(node)).startswith("sub") else 1)
    args = (*g.quantized(node.args[0]), integers, scale * factor, zero_point, *out.pair)
    return Value(integers=g.call(g.op(choice), *args), scale=out)


def _multiplied(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    if choice.precision is Precision.DYNAMIC:
        return Value(g.call(ours.matmul_dynamic.default, *(g.floats(part) for part in node.args[:2])))
    return _binary(g, node, choice)


def _with_number(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    """A tensor and a number: the integers stay, or nearly, and the parameters change."""
    if choice.precision is Precision.STATIC:
        return _binary(g, node, choice)
    integers, scale = g.integers(node.args[0])
    number = float(node.args[1])
    op, new = number_form(choice.operator, scale, number)
    return Value(integers=g.call(op, integers, *scale.pair, number), scale=new)


def number_form(record: Operator, scale: Scale, number: float) -> tuple[Any, Scale]:
    """What computes a sum or a product with a number on integers, and the parameters of the result."""
    op, parameters = {
        "add": (ours.add_scalar.default, scalars.sum_parameters),
        "mul": (ours.mul_scalar.default, scalars.product_parameters),
    }[record.name]
    return op, Scale(*parameters(scale.scale, scale.zero_point, number, scale.dtype), scale.dtype)


def _cat(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    out = g.output_scale(node, choice)
    parts = [g.quantized(t) for t in node.args[0]]
    integers, scales, zero_points = (list(column) for column in zip(*parts))
    dim = arguments(node)["dim"]
    return Value(integers=g.call(g.op(choice), integers, scales, zero_points, dim, *out.pair), scale=out)


def _weighted(g: Lowering, node: fx.Node) -> FloatCall | None:
    """``x + alpha * y``, whose product PyTorch does not always round."""

    def parts(g: Lowering, a: dict[str, Any]) -> FloatCall | None:
        if a.get("alpha", 1) == 1 or isinstance(a["alpha"], fx.Node) or not isinstance(a["other"], fx.Node):
            return None
        return node.target, (g.floats(a["self"]), g.call(aten.mul.Tensor, g.floats(a["other"]), a["alpha"]))

    return in_parts(parts)(g, node)


# ---------------------------------------------------------------------------------------------------- steps of programs


def _emit_binary(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    op = "add" if "zeropoint.add" in str(node.target) else "multiply"
    scales = {k: float(a[k]) for k in ("a_scale", "b_scale", "scale")}
    zero_points = {k: int(a[k]) for k in ("a_zero_point", "b_zero_point", "zero_point")}
    numbers: dict[str, Any] = {**scales, **zero_points, "relu": "_relu" in str(node.target)}
    if op == "add" and rounding.of_values() == rounding.QNNPACK and fits_fixed_add(*scales.values()):
        numbers["rounding"] = rounding.code(op, rounding.QNNPACK)
    return c.add(op, c.tensor(a["a"]), c.tensor(a["b"]), **numbers)


def _emit_plain_cat(c: StepBuilder, node: fx.Node) -> str:
    """Tensors of several dtypes are converted to that of the result."""
    a, dtype = arguments(node), c.dtype(node)
    e = Expression(c)
    tensors = [c.tensor(t) if c.dtype(t) == dtype else e.step(e.term(t, dtype)) for t in a["tensors"]]
    axis = a.get("dim", min(c.rank(a["tensors"][0]) - 1, 1))
    return c.add("cat", *tensors, *[None] * (2 * len(tensors)), axis=axis)


def _emit_cat(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    dtype = c.dtype(node)
    low, high = checks.bounds(dtype)
    scale, zero_point = float(a["scale"]), int(a["zero_point"])
    least = max(low, zero_point) if "_relu" in str(node.target) else low

    def table(piece: tuple[float, int], function: str) -> str | None:
        if piece == (scale, zero_point) and least == low:
            return None
        step = Step(*piece, scale, zero_point, least, high)
        return c.builder.constant(f"{node}_table", functions.table_of(function, (), step, dtype, dtype))

    pieces = [(float(s), int(z)) for s, z in zip(a["scales"], a["zero_points"])]
    tables = [table(piece, function) for function in ("requantize", "same") for piece in pieces]
    return c.add("cat", *(c.tensor(t) for t in a["inputs"]), *tables, axis=a["dim"])


def _emit_matmul(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    scales = {k: float(a[k]) for k in ("a_scale", "b_scale", "scale")}
    zero_points = {k: int(a[k]) for k in ("a_zero_point", "b_zero_point", "zero_point")}
    if "bmm" in str(node.target):  # the step would repeat one matrix for a whole batch
        batches = c.number("subtract", c.axis_size(a["a"], 0), c.axis_size(a["b"], 0))
        c.require(batches, "bmm: both tensors must have the same number of matrices", exact=True)
    return c.add("matmul", c.tensor(a["a"]), c.tensor(a["b"]), **scales, **zero_points)


def _emit_product(op: str) -> Emit:
    """A product of floats."""

    def emit(c: StepBuilder, node: fx.Node) -> str:
        a = arguments(node)
        return c.add(op, c.tensor(a["a"]), c.tensor(a["b"]))

    return emit


# ------------------------------------------------------------------------------------------------- steps as nodes again


def _restore_pair(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    """Two tensors of bytes, each with its scale."""
    a = step.attributes
    name = {"multiply": "mul"}.get(step.op, step.op) + ("_relu" if a.get("relu") else "")
    given = [(r.tensor(x), a[f"{k}_scale"], a[f"{k}_zero_point"]) for x, k in zip(step.inputs, "ab")]
    return r.call(getattr(ours, name).default, *given[0], *given[1], a["scale"], a["zero_point"])


def _restore_cat(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    """Pieces, each through its table if it has one: the one for images of which channels come last, or the other."""
    count = len(step.inputs) // 3
    pieces = [r.tensor(name) for name in step.inputs[:count]]
    axis = step.attributes["axis"]
    is_image = len(r.shape(pieces[0])) == 4 and axis % 4 == 1
    tables = step.inputs[2 * count :] if is_image else step.inputs[count : 2 * count]
    pieces = [x if t is None else restored_table(r, x, t, r.dtype(x)) for x, t in zip(pieces, tables)]
    return r.call(aten.cat.default, pieces, axis)


# ----------------------------------------------------------------------------------------------------------- records


def _added_product(g: Lowering, a: dict[str, Any]) -> FloatCall:
    """``beta * c + alpha * a b`` of matrices that are computed."""
    product = ours.float_matmul.default, (g.floats(a["mat1"]), g.floats(a["mat2"]))
    if a["alpha"] != 1:
        product = aten.mul.Tensor, (g.call(product[0], *product[1]), float(a["alpha"]))
    if a["beta"] == 0:
        return product
    first = g.floats(a["self"])
    first = first if a["beta"] == 1 else g.call(aten.mul.Tensor, first, float(a["beta"]))
    return aten.add.Tensor, (g.call(product[0], *product[1]), first)


RECORDS = (
    Operator("addmm", ("addmm.default",), float_form=in_parts(_added_product)),
    Operator(
        "matmul", ("matmul.default",), functions=(torch.matmul, python.matmul), heavy=True, dynamic=True,
        annotate=_product, lower=_multiplied, float_form=by_operator("float_matmul", "self", "other", least_axes=2),
        traced=Traced(Observed.PRODUCT, without=(python.matmul,)),
        steps=(
            *steps(_emit_matmul, "matmul"),
            *steps(_emit_product("float_matmul"), "float_matmul"),
            *steps(_emit_product("matmul_dynamic"), "matmul_dynamic"),
        ),
        restores=(
            *restores(_restore_pair, "matmul"), *restores(called(ours.float_matmul.default), "float_matmul"),
            *restores(called(ours.matmul_dynamic.default), "matmul_dynamic"),
        ),
    ),
    Operator(
        "bmm", ("bmm.default",), functions=(torch.bmm,), heavy=True, dynamic=True, annotate=_product, lower=_multiplied,
        float_form=by_operator("float_matmul", "self", "mat2", least_axes=2), steps=steps(_emit_matmul, "bmm"),
    ),
    Operator("mm", ("mm.default",), float_form=by_operator("float_matmul", "self", "mat2", least_axes=2)),
    Operator(
        "add", ("add.Tensor", "add.Scalar", "sub.Tensor"), functions=(torch.add, torch.sub, python.add, python.sub),
        relu=True, annotate=_elementwise, lower=_with_number, float_form=_weighted,
        traced=Traced(Observed.SUM, without=(torch.sub, python.sub)), restores=restores(_restore_pair, "add"),
        steps=(
            *steps(_emit_binary, "add", "add_relu"),
            *steps(emit_table, "add_scalar", "add_scalar_relu"),
            *steps(emit_arithmetic("add"), overloads("add")),
            *steps(emit_arithmetic("sub"), overloads("sub", "subtract")),
            *steps(emit_arithmetic("sub", swapped=True), overloads("rsub")),
        ),
    ),
    Operator(
        "mul", ("mul.Tensor", "mul.Scalar"), functions=(torch.mul, python.mul), relu=True, annotate=_elementwise,
        lower=_with_number, traced=Traced(Observed.SUM), restores=restores(_restore_pair, "multiply"),
        steps=(
            *steps(_emit_binary, "mul", "mul_relu"),
            *steps(emit_table, "mul_scalar", "mul_scalar_relu"),
            *steps(emit_arithmetic("mul"), overloads("mul", "multiply")),
        ),
    ),
    Operator(
        "cat", ("cat.default",), functions=(torch.cat,), relu=True, effect=Effect.JOINS, annotate=_several, lower=_cat,
        traced=Traced(Observed.JOINED), restores=restores(_restore_cat, "cat"),
        steps=(
            *steps(_emit_cat, "cat", "cat_relu"),
            *steps(_emit_plain_cat, "aten.cat.default", "aten.concat.default", "aten.hstack.default"),
        ),
    ),
    Operator("stack", functions=(torch.stack,), traced=Traced(Observed.SHARED)),  # elsewhere it is cat before we look
    Operator("float_functional", forms=(ModuleForms(nnq.FloatFunctional, nnq.QFunctional),)),
)  # fmt: skip
