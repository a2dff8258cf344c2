"""Embedding tables, and bags of their rows."""

from __future__ import annotations

import math
import operator as python
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from zeropoint.nn import qat as nnqat, quantized as nnq
from zeropoint.nn.quantized import reference as nnqr
from zeropoint.nn.quantized.storage import quantize_weight
from zeropoint.operators.choice import Choice, Precision, State
from zeropoint.operators.expressions import in_dtype
from zeropoint.operators.float_forms import FloatCall, are_floats
from zeropoint.operators.lowered_value import Value
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments, aten_name, parameter
from zeropoint.operators.record import ModuleForms, Operator, Output
from zeropoint.operators.steps import GraphBuilder, ProgramStep, StepBuilder, restores, steps
from zeropoint.ops.embedding import MODES, NAMES
from zeropoint.qfunctions.embedding import embedding_bag_prepack

aten, ours = torch.ops.aten, torch.ops.zeropoint
PADDED = "padding_idx is not supported"


def table_bits(weight: Any) -> int | None:
    """8 or 4, as a qconfig wants the rows of an embedding table; None for a qconfig of something else."""
    if getattr(weight, "custom_op", ""):
        return {"embedding_bag_byte": 8, "embedding_bag_4bit": 4}.get(weight.custom_op)
    if "float_qparams" not in str(weight.qscheme):
        return None
    return {"quint8": 8, "quint4x2": 4}.get(str(weight.dtype).rsplit(".", 1)[-1])


def _annotate(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    if table_bits(qconfig.weight()) is None:
        return Choice(Precision.FLOAT, "embedding tables need float_qparams_weight_only_qconfig", operator)
    if parameter(state.graph, node.args[0]) is None:
        return Choice(Precision.FLOAT, "its table is not a constant", operator)
    return Choice(Precision.DYNAMIC, "", operator, qconfig)


def _annotate_bags(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    choice = _annotate(state, node, operator, qconfig)
    padding = arguments(node).get("padding_idx")
    if choice.precision is Precision.DYNAMIC and padding is not None and padding >= 0:
        return Choice(Precision.FLOAT, PADDED, operator)
    if not bags_alone(node):
        return Choice(Precision.FLOAT, "outputs other than the bags are used", operator)
    return choice


def bags_alone(node: fx.Node) -> bool:
    """Whether of the results of a call the bags alone are used, not where each began."""
    return all(user.target is python.getitem and user.args[1] == 0 for user in node.users)


def _rows(g: Lowering, node: fx.Node, choice: Choice) -> tuple[fx.Node, str]:
    """The packed table, and what operators on it are called for their bits."""
    name = "4bit" if table_bits(choice.qconfig.weight()) == 4 else "byte"
    table = g.parameter(node.args[0])
    if "fake_quant" in node.args[0].meta:  # trained with ranges of its own
        observer = g.weight_observer(node.args[0], choice.qconfig.weight)
        packed = embedding_bag_prepack(quantize_weight(table, observer)).table()
    else:
        packed = getattr(ours, f"embedding_bag_{name}_prepack")(table)
    return g.constant(node.args[0].target, packed), name


def _lower(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    rows, name = _rows(g, node, choice)
    return Value(g.call(getattr(ours, f"embedding_{name}").default, rows, g.floats(node.args[1])))


def _lower_bags(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    a = arguments(node)
    rows, name = _rows(g, node, choice)
    options = g.argument([a[k] for k in ("indices", "offsets", "scale_grad_by_freq", "mode")])
    samples, last = g.argument([a["per_sample_weights"], a["include_last_offset"]])
    bags = getattr(ours, f"embedding_bag_{name}_rowwise_offsets").default
    return Value(g.call(bags, rows, *options, False, samples, None, last))


# ------------------------------------------------------------------------------------------------ float forms in graphs


def _bags_in_parts(g: Lowering, node: fx.Node) -> FloatCall | None:
    """Rows of a table of floats, and what those of each bag come to, if nothing else is read."""
    a, call = arguments(node), g.call
    floats = [a[k] for k in ("weight", "per_sample_weights") if a[k] is not None]
    used = [g.choices.get(user) for user in node.users]
    if any(choice is None or choice.precision is not Precision.FUSED for choice in used):
        return None
    if "written" in node.meta or not are_floats(g, floats):
        return None
    mode, padding, (size, columns) = MODES[a["mode"]], a.get("padding_idx"), map(int, node.args[0].meta["val"].shape)
    indices = g.floats(a["indices"])
    values = call(aten.embedding.default, g.floats(a["weight"]), indices)
    if a["per_sample_weights"] is not None:
        values = call(aten.mul.Tensor, values, call(aten.unsqueeze.default, g.floats(a["per_sample_weights"]), 1))
    left_out = size if padding is None else padding % size  # no index is `size`
    counted = call(aten.unsqueeze.default, call(aten.ne.Scalar, indices, left_out), 1)
    if padding is not None:
        values = call(aten.where.ScalarOther, counted, values, -math.inf if mode == "max" else 0.0)
    total, largest = _in_equal_bags(g, a) or _in_bags(g, a)
    if mode == "sum":
        return aten.alias.default, (total(values, columns),)
    counts = total(call(aten.to.dtype, counted, torch.float32), 1)
    if mode == "mean":
        return aten.div.Tensor, (total(values, columns), call(aten.clamp.default, counts, 1.0))
    return aten.where.ScalarOther, (call(aten.gt.Scalar, counts, 0.0), largest(values, columns), 0.0)


_Reduction = Callable[[fx.Node, int], fx.Node]  # of rows, and how many columns they have


def _in_equal_bags(g: Lowering, a: dict[str, Any]) -> tuple[_Reduction, _Reduction] | None:
    """Sums and maxima of bags of one length, as the offsets of a matrix of indices say; None for others."""
    offsets = g.unobserved(a["offsets"])
    if aten_name(offsets) != "arange.start_step" or offsets.args[0] != 0 or a["include_last_offset"]:
        return None
    matrix = g.unobserved(a["indices"]).args[:1]
    shape: Any = matrix[0].meta["val"].shape if matrix and isinstance(matrix[0], fx.Node) else ()
    _, end, step = (n.meta["val"] if isinstance(n, fx.Node) else n for n in offsets.args[:3])
    # As text: to compare free sizes would bind them.
    if len(shape) != 2 or (str(end), str(step)) != (str(shape[0] * shape[1]), str(shape[1])):
        return None
    length = g.argument(offsets.args[2])

    def bags(values: fx.Node, columns: int) -> fx.Node:
        return g.call(aten.reshape.default, values, [-1, length, columns])

    def total(values: fx.Node, columns: int) -> fx.Node:
        return g.call(ours.float_sum.default, bags(values, columns), [1], False)

    def largest(values: fx.Node, columns: int) -> fx.Node:
        return g.call(aten.amax.default, bags(values, columns), [1])

    return total, largest


def _in_bags(g: Lowering, a: dict[str, Any]) -> tuple[_Reduction, _Reduction]:
    """The same where offsets say where bags begin: each row goes to the last bag that has begun."""
    call, offsets = g.call, g.floats(a["offsets"])
    if a["include_last_offset"]:
        offsets = call(aten.slice.Tensor, offsets, 0, 0, -1)
    places = call(aten.arange.default, call(aten.sym_size.int, g.floats(a["indices"]), 0))
    begun = call(aten.bucketize.Tensor, places, call(aten.to.dtype, offsets, torch.int64), right=True)
    bag = call(aten.unsqueeze.default, call(aten.sub.Tensor, begun, 1), 1)
    count = call(aten.sym_size.int, offsets, 0)

    def scattered(values: fx.Node, columns: int, first: float, mode: str) -> fx.Node:
        empty, into = call(aten.full.default, [count, columns], first), call(aten.expand.default, bag, [-1, columns])
        return call(aten.scatter_reduce.two, empty, 0, into, values, mode)

    def total(values: fx.Node, columns: int) -> fx.Node:
        return scattered(values, columns, 0.0, "sum")

    def largest(values: fx.Node, columns: int) -> fx.Node:
        return scattered(values, columns, -math.inf, "amax")

    return total, largest


# ---------------------------------------------------------------------------------------------------- steps of programs


def _bits(node: fx.Node) -> int:
    return next(bits for bits, name in NAMES.items() if f"_{name}" in str(node.target))


def _emit(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("embedding", c.tensor(a["weight"]), c.tensor(a["indices"]), bits=_bits(node))


def _emit_float(c: StepBuilder, node: fx.Node) -> str:
    """Rows of a table of floats."""
    a = arguments(node)
    return c.add("index", c.tensor(a["weight"]), in_dtype(c, a["indices"], torch.int64), axis=0)


def _emit_bags(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    if a["pruned_weights"]:
        raise c.unsupported("pruned tables are not supported")
    tensors = (c.tensor(a[k]) for k in ("weight", "indices", "offsets", "per_sample_weights"))
    numbers = {"mode": MODES[a["mode"]], "include_last_offset": bool(a["include_last_offset"])}
    return c.add("embedding_bags", *tensors, bits=_bits(node), **numbers)


def _restore(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    op = getattr(ours, f"embedding_{NAMES[step.attributes['bits']]}").default
    return r.call(op, *(r.tensor(name) for name in step.inputs))


def _restore_bags(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a = step.attributes
    op = getattr(ours, f"embedding_bag_{NAMES[a['bits']]}_rowwise_offsets").default
    rows, indices, offsets, weights = (r.tensor(name) for name in step.inputs)
    mode = next(number for number, name in MODES.items() if name == a["mode"])
    return r.call(op, rows, indices, offsets, False, mode, False, weights, None, a["include_last_offset"])


RECORDS = (
    Operator(
        "embedding", ("embedding.default",), (nn.Embedding,), (F.embedding,), output=Output.FLOAT, weights=("weight",),
        weight_only=True, heavy=True, annotate=_annotate, lower=_lower,
        steps=(
            *steps(_emit, *(f"embedding_{name}" for name in NAMES.values())),
            *steps(_emit_float, "aten.embedding.default"),
        ),
        restores=restores(_restore, "embedding"),
        forms=(
            ModuleForms(nn.Embedding, nnq.Embedding, nnq.Embedding, nnqr.Embedding, nnqat.Embedding),
            ModuleForms(nnqat.Embedding, nnq.Embedding),
        ),
    ),
    Operator(
        "embedding_bag", ("embedding_bag.padding_idx", "embedding_bag.default"), (nn.EmbeddingBag,), (F.embedding_bag,),
        output=Output.FLOAT, weights=("weight",), weight_only=True, heavy=True,
        annotate=_annotate_bags, lower=_lower_bags, float_form=_bags_in_parts,
        steps=steps(_emit_bags, *(f"embedding_bag_{name}_rowwise_offsets" for name in NAMES.values())),
        restores=restores(_restore_bags, "embedding_bags"),
        forms=(
            ModuleForms(nn.EmbeddingBag, nnq.EmbeddingBag, nnq.EmbeddingBag, nnqr.EmbeddingBag, nnqat.EmbeddingBag),
            ModuleForms(nnqat.EmbeddingBag, nnq.EmbeddingBag),
        ),
    ),
)  # fmt: skip
