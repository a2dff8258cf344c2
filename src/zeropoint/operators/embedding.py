"""Embedding tables, and bags of their rows."""

from __future__ import annotations

import math
import operator as python
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from zeropoint.nn import qat as nnqat
from zeropoint.nn import quantized as nnq
from zeropoint.nn.quantized import reference as nnqr
from zeropoint.nn.quantized.storage import quantize_weight
from zeropoint.operators.float_forms import FloatCall
from zeropoint.operators.node import arguments, parameter
from zeropoint.operators.plan import Choice, State, Way
from zeropoint.operators.record import ModuleForms, Operator, Output
from zeropoint.operators.steps import GraphBuilder, ProgramStep, StepBuilder, restores, steps
from zeropoint.operators.values import Value
from zeropoint.ops.embedding import MODES, NAMES
from zeropoint.qfunctions.embedding import embedding_bag_prepack

__all__ = ["PADDED", "RECORDS", "bags_alone", "table_bits"]

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
        return Choice(Way.FLOAT, "embedding tables need float_qparams_weight_only_qconfig", operator)
    if parameter(state.graph, node.args[0]) is None:
        return Choice(Way.FLOAT, "its table is not a constant", operator)
    return Choice(Way.DYNAMIC, "", operator, qconfig)


def _annotate_bags(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    choice = _annotate(state, node, operator, qconfig)
    padding = arguments(node).get("padding_idx")
    if choice.way is Way.DYNAMIC and padding is not None and padding >= 0:
        return Choice(Way.FLOAT, PADDED, operator)
    if not bags_alone(node):
        return Choice(Way.FLOAT, "outputs other than the bags are used", operator)
    return choice


def bags_alone(node: fx.Node) -> bool:
    """Whether of the results of a call the bags alone are used, not where each began."""
    return all(user.target is python.getitem and user.args[1] == 0 for user in node.users)


def _rows(g: Any, node: fx.Node, choice: Choice) -> tuple[fx.Node, str]:
    """The packed table, and what operators on it are called for their bits."""
    name = "4bit" if table_bits(choice.qconfig.weight()) == 4 else "byte"
    table = g.parameter(node.args[0])
    if "fake_quant" in node.args[0].meta:  # trained with ranges of its own
        observer = g.weight_observer(node.args[0], choice.qconfig.weight)
        packed = embedding_bag_prepack(quantize_weight(table, observer)).table()
    else:
        packed = getattr(ours, f"embedding_bag_{name}_prepack")(table)
    return g.constant(node.args[0].target, packed), name


def _lower(g: Any, node: fx.Node, choice: Choice) -> Value:
    rows, name = _rows(g, node, choice)
    return Value(g.call(getattr(ours, f"embedding_{name}").default, rows, g.floats(node.args[1])))


def _lower_bags(g: Any, node: fx.Node, choice: Choice) -> Value:
    a = arguments(node)
    rows, name = _rows(g, node, choice)
    options = g.argument([a[k] for k in ("indices", "offsets", "scale_grad_by_freq", "mode")])
    samples, last = g.argument([a["per_sample_weights"], a["include_last_offset"]])
    bags = getattr(ours, f"embedding_bag_{name}_rowwise_offsets").default
    return Value(g.call(bags, rows, *options, False, samples, None, last))


def _float_bags(g: Any, node: fx.Node) -> FloatCall | None:
    """Bags of rows that stay float: the rows, and for each the bag to which it is added, or compared."""
    used = [g.choices.get(user) for user in node.users]
    if any(choice is None or choice.way is not Way.FUSED for choice in used):
        return None
    a = arguments(node)
    indices, offsets = g.floats(a["indices"]), g.floats(a["offsets"])
    rows = g.call(aten.embedding.default, g.floats(a["weight"]), indices)
    if a["per_sample_weights"] is not None:
        rows = g.call(aten.mul.Tensor, rows, g.call(aten.unsqueeze.default, g.floats(a["per_sample_weights"]), -1))
    bags = g.call(aten.sym_size.int, offsets, 0)
    if a["include_last_offset"]:  # which is where no bag begins
        bags = g.call(python.sub, bags, 1)
    places = g.call(aten.arange.default, g.call(aten.sym_size.int, indices, 0))
    bag = g.call(aten.sub.Tensor, g.call(aten.bucketize.Tensor, places, offsets, right=True), 1)
    kept = g.call(aten.ones_like.default, g.call(aten.select.int, rows, -1, 0))
    none = -math.inf if MODES[a["mode"]] == "max" else 0.0
    padding = a.get("padding_idx")
    if padding is not None:
        size = g.unobserved(a["weight"]).meta["val"].shape[0] if padding < 0 else 0
        counts = g.call(aten.ne.Scalar, indices, padding + size)
        rows = g.call(aten.where.ScalarOther, g.call(aten.unsqueeze.default, counts, -1), rows, none)
        kept = g.call(aten.mul.Tensor, kept, counts)
    begin = g.call(aten.new_full.default, rows, [bags, g.call(aten.sym_size.int, rows, 1)], none)
    if MODES[a["mode"]] == "sum":
        return aten.index_add.default, (begin, 0, bag, rows)
    numbers = g.call(aten.index_add.default, g.call(aten.new_zeros.default, kept, [bags]), 0, bag, kept)
    numbers = g.call(aten.unsqueeze.default, numbers, -1)
    if MODES[a["mode"]] == "mean":
        total = g.call(aten.index_add.default, begin, 0, bag, rows)
        return aten.div.Tensor, (total, g.call(aten.clamp.default, numbers, 1.0))
    place = g.call(aten.expand_as.default, g.call(aten.unsqueeze.default, bag, -1), rows)
    largest = g.call(aten.scatter_reduce.two, begin, 0, place, rows, "amax")
    return aten.where.ScalarOther, (g.call(aten.gt.Scalar, numbers, 0.0), largest, 0.0)


# ---------------------------------------------------------------------------------------------------- steps of programs


def _bits(node: fx.Node) -> int:
    return next(bits for bits, name in NAMES.items() if f"_{name}" in str(node.target))


def _emit(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("embedding", c.tensor(a["weight"]), c.tensor(a["indices"]), bits=_bits(node))


def _emit_float(c: StepBuilder, node: fx.Node) -> str:
    """Rows of a table of floats."""
    a = arguments(node)
    indices = c.tensor(a["indices"])
    if c.dtype(a["indices"]) != torch.int64:
        indices = c.add("convert", indices, dtype="int64")
    return c.add("index", c.tensor(a["weight"]), indices, axis=0)


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
        annotate=_annotate_bags, lower=_lower_bags, float_form=_float_bags,
        steps=steps(_emit_bags, *(f"embedding_bag_{name}_rowwise_offsets" for name in NAMES.values())),
        restores=restores(_restore_bags, "embedding_bags"),
        forms=(
            ModuleForms(nn.EmbeddingBag, nnq.EmbeddingBag, nnq.EmbeddingBag, nnqr.EmbeddingBag, nnqat.EmbeddingBag),
            ModuleForms(nnqat.EmbeddingBag, nnq.EmbeddingBag),
        ),
    ),
)  # fmt: skip
