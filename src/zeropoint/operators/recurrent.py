"""LSTM, GRU and RNN layers, one step of them, and attention as a module."""

from __future__ import annotations

import operator as python
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from zeropoint.nn import quantizable as nnqa, quantized as nnq
from zeropoint.nn.quantized import dynamic as nnqd, reference as nnqr
from zeropoint.operators.choice import Choice, Precision, State, is_float_placeholder, weight_dtype
from zeropoint.operators.float_forms import FloatCall, are_floats
from zeropoint.operators.lowered_value import Value
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments, parameter
from zeropoint.operators.record import CustomModule, ModuleForms, Operator, Output
from zeropoint.operators.steps import (
    Emit,
    GraphBuilder,
    ProgramStep,
    StepBuilder,
    Steps,
    called,
    dtype_name,
    restores,
    steps,
)
from zeropoint.ops.recurrent import KINDS, Kind

ours = torch.ops.zeropoint
_KINDS = {kind.name: kind for kind in KINDS}


def _is_whole(a: dict[str, Any]) -> bool:
    """Whether there are two weights, and biases, for each layer and direction: no projections."""
    each_layer = (4 if a["has_biases"] else 2) * (2 if a["bidirectional"] else 1)
    return len(a["params"]) == each_layer * a["num_layers"]


def _annotate(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    a = arguments(node)
    if not isinstance(a["params"], (list, tuple)) or any(parameter(state.graph, w) is None for w in a["params"]):
        return Choice(Precision.FLOAT, "its weights are not constants", operator)
    if a["train"] and a["dropout"]:
        return Choice(Precision.FLOAT, "in training", operator)
    if not _is_whole(a):
        return Choice(Precision.FLOAT, "projections are not supported", operator)
    kind = weight_dtype(qconfig)
    if kind == "float16":
        return Choice(Precision.HALF, "", operator, qconfig)
    if is_float_placeholder(qconfig.activation()):
        return Choice(Precision.FLOAT, "weight-only quantization is supported in linear layers only", operator)
    if kind != "qint8":
        return Choice(Precision.FLOAT, f"unsupported weight dtype {qconfig.weight().dtype}", operator)
    return Choice(Precision.DYNAMIC, "", operator, qconfig)


def _annotate_cell(state: State, node: fx.Node, operator: Operator, qconfig: Any) -> Choice:
    a = arguments(node)
    tensors = [a[name] for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    if any(t is not None and parameter(state.graph, t) is None for t in tensors):
        return Choice(Precision.FLOAT, "its weights are not constants", operator)
    if weight_dtype(qconfig) != "qint8":
        return Choice(Precision.FLOAT, f"unsupported weight dtype {qconfig.weight().dtype} of a cell", operator)
    if is_float_placeholder(qconfig.activation()):
        return Choice(Precision.FLOAT, "weight-only quantization is supported in linear layers only", operator)
    return Choice(Precision.DYNAMIC, "", operator, qconfig)


def _split(a: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Weights and biases, which lie one after the other for each layer."""
    step = 4 if a["has_biases"] else 2
    weights = [w for i, w in enumerate(a["params"]) if i % step < 2]
    return weights, [b for i, b in enumerate(a["params"]) if i % step >= 2]


def reduces_range(choice: Choice) -> bool:
    """Whether what 8-bit weights are multiplied with has 7 bits, as in PyTorch's layers: if the qconfig asks for it."""
    return bool(getattr(choice.qconfig.activation(), "reduce_range", False))


def has_ranges_of_rows(choice: Choice) -> bool:
    """Whether each row has its own range: unless the qconfig asks for one of all, or for that of PyTorch's layers."""
    activation = choice.qconfig.activation()
    of_all = getattr(activation, "is_dynamic", False) and "per_channel" not in str(getattr(activation, "qscheme", ""))
    return not of_all and not reduces_range(choice)


def _lower(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    a = arguments(node)
    weights, biases = _split(a)
    stored = [g.constant(b.target, g.parameter(b)) for b in biases]
    if choice.precision is Precision.HALF:
        half = [g.constant(w.target, g.parameter(w).to(torch.float16)) for w in weights]
        columns: tuple[list[Any], ...] = (half, [], [])
    else:
        columns = tuple(list(c) for c in zip(*(g.weight(w, choice) for w in weights)))
    hx = a["hx"]
    states = [g.floats(h) for h in hx] if isinstance(hx, (list, tuple)) else g.floats(hx)
    op = getattr(ours, choice.operator.name).input
    options = (a["num_layers"], 0.0, False, a["bidirectional"], a["batch_first"], reduces_range(choice))
    sizes = [g.argument(a["batch_sizes"])] if "batch_sizes" in a else []
    if choice.precision is not Precision.HALF and has_ranges_of_rows(choice):
        sizes = [*(sizes or [None]), True]
    return Value(g.call(op, g.floats(a["input"]), states, *columns, stored, *options, *sizes))


def _lower_cell(g: Lowering, node: fx.Node, choice: Choice) -> Value:
    a = arguments(node)
    weights = (*g.weight(a["w_ih"], choice), *g.weight(a["w_hh"], choice))
    biases = [g.stored_or_none(a[k]) for k in ("b_ih", "b_hh")]
    args = (g.floats(a["input"]), g.argument(a["hx"]), *weights, *biases, reduces_range(choice))
    more = [True] if has_ranges_of_rows(choice) else []
    return Value(g.call(g.op(choice, "_dynamic"), *args, *more))


def _float_inputs(g: Lowering, node: fx.Node, *stored: str) -> dict[str, Any] | None:
    """The arguments of a layer that stays float32 and whose weights are stored, else None."""
    a = arguments(node)
    weights = pytree.tree_leaves([a[k] for k in stored if a[k] is not None])
    if "written" in node.meta or any(w.op != "get_attr" for w in weights):
        return None
    sizes = a.get("batch_sizes")
    return a if are_floats(g, [*(n for n in node.all_input_nodes if n is not sizes), node]) else None


def _float(g: Lowering, node: fx.Node) -> FloatCall | None:
    a = _float_inputs(g, node, "params")
    if a is None or not _is_whole(a) or (a["train"] and a["dropout"]):
        return None
    weights, biases = (g.argument(part) for part in _split(a))
    options = (a["num_layers"], 0.0, False, a["bidirectional"], a["batch_first"])
    name = node.target._schema.name.rpartition("::")[2].removesuffix("_padded")
    sizes = [False, g.argument(a["batch_sizes"])] if "batch_sizes" in a else []
    return getattr(ours, f"quantized_{name}").input, (
        *g.argument([a["input"], a["hx"]]), weights, [], [], biases, *options, *sizes,
    )  # fmt: skip


def _float_cell(g: Lowering, node: fx.Node) -> FloatCall | None:
    a = _float_inputs(g, node, "w_ih", "w_hh", "b_ih", "b_hh")
    if a is None:
        return None
    weights = [part for w in ("w_ih", "w_hh") for part in (g.floats(a[w]), None, None)]
    op = getattr(ours, f"quantized_{node.target._schema.name.removeprefix('aten::')}_dynamic").default
    return op, (*g.argument([a["input"], a["hx"]]), *weights, *g.argument([a["b_ih"], a["b_hh"]]))


# ---------------------------------------------------------------------------------------------------- steps of programs


def _matrix(c: StepBuilder, weight: fx.Node, scale: Any, zero_point: Any, bias: Any) -> list[str | None]:
    """The constants of one of the matrices of a cell."""

    def constant(node: Any, dtype: torch.dtype) -> str | None:
        return None if node is None else c.builder.constant(str(node.target), c.parameter(node).reshape(-1).to(dtype))

    numbers = constant(scale, torch.float32), constant(zero_point, torch.int32), constant(bias, torch.float32)
    return [c.tensor(weight), *numbers]


def _emit_recurrent(
    c: StepBuilder, kind: Kind, x: Any, states: list[Any], matrices: list[Any], weight: fx.Node, sizes: Any = None,
    **numbers: Any,
) -> list[str]:  # fmt: skip
    """The step: the names of its output and of the last states."""
    names = [str(c.node), *(f"{c.node}_{state}" for state in ("hidden", "cell"))][: 1 + len(states)]
    dtype = dtype_name(c.parameter(weight).dtype)
    numbers |= {"cell": kind.name, "weight_dtype": dtype}
    inputs = [x, *states, *(part for m in matrices for part in m), *([] if sizes is None else [sizes])]
    return c.builder.add_several("recurrent", inputs, names, **numbers)


def _ranges(a: dict[str, Any]) -> dict[str, bool]:
    """How operands are quantized; files without `per_token` have ranges of all rows."""
    return {"reduce_range": bool(a["reduce_range"]), **({"per_token": True} if a["per_token"] else {})}


def _each(given: Any, count: int) -> list[Any]:
    return list(given) if given else [None] * count


def _emit_layer(kind: Kind) -> Emit:
    def emit(c: StepBuilder, node: fx.Node) -> list[str]:
        a = arguments(node)
        if a["train"] and a["dropout"]:
            raise c.unsupported("it applies dropout: call eval() before you convert the model")
        columns = (_each(a[k], len(a["weights"])) for k in ("weight_scales", "weight_zero_points", "biases"))
        matrices = [_matrix(c, *parts) for parts in zip(a["weights"], *columns)]
        states = [c.tensor(h) for h in (a["hx"] if kind.has_cell_state else [a["hx"]])]
        numbers: dict[str, Any] = {"batch_first": bool(a["batch_first"]), **_ranges(a)}
        numbers |= {"layers": a["num_layers"], "directions": 2 if a["bidirectional"] else 1}
        x, sizes = c.tensor(a["input"]), c.tensor(a["batch_sizes"])
        return _emit_recurrent(c, kind, x, states, matrices, a["weights"][0], sizes, **numbers)

    return emit


def _emit_cell(kind: Kind) -> Emit:
    """A sequence of one step, of one layer."""

    def emit(c: StepBuilder, node: fx.Node) -> Any:
        a = arguments(node)
        matrices = [_matrix(c, a[w], a[f"{w}_scale"], a[f"{w}_zero_point"], a[b]) for w, b in
                    (("w_ih", "b_ih"), ("w_hh", "b_hh"))]  # fmt: skip
        states = [c.add("unsqueeze", c.tensor(h), axis=0) for h in (a["hx"] if kind.has_cell_state else [a["hx"]])]
        x = c.add("unsqueeze", c.tensor(a["input"]), axis=0)
        numbers = {"layers": 1, "directions": 1, "batch_first": False, **_ranges(a)}
        _, *last = _emit_recurrent(c, kind, x, states, matrices, a["w_ih"], **numbers)
        next_states = [c.add("squeeze", state, axes=[0]) for state in last]
        return next_states if kind.has_cell_state else next_states[0]

    return emit


def _emit_batch_sizes(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("batch_sizes", c.tensor(a["lengths"]), steps=c.size(a["steps"]))


def _emit_padding_mask(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("padding_mask", c.tensor(a["batch_sizes"]), batch=c.size(a["batch"]), whole=bool(a["whole"]))


def _restore_recurrent(r: GraphBuilder, step: ProgramStep) -> list[fx.Node]:
    a = step.attributes
    kind = _KINDS[a["cell"]]
    count = 2 if kind.has_cell_state else 1
    x, *states = (r.tensor(name) for name in step.inputs[: 1 + count])
    number = 2 * a["layers"] * a["directions"]
    parts = step.inputs[1 + count :]
    matrices = [parts[4 * i : 4 * i + 4] for i in range(number)]
    sizes = r.tensor(parts[4 * number]) if len(parts) > 4 * number else None
    weights, scales, biases = ([r.tensor(m[i]) for m in matrices if m[i] is not None] for i in (0, 1, 3))
    zero_points = [r.stored(str(m[2]), t.to(torch.int64)) for m in matrices if (t := r.constant(m[2])) is not None]
    options = [a["layers"], 0.0, False, a["directions"] == 2, a["batch_first"], a["reduce_range"], sizes]
    options += [True] if a.get("per_token", False) else []
    op = getattr(ours, f"quantized_{a['cell']}").input
    made = r.call(op, x, states if kind.has_cell_state else states[0], weights, scales, zero_points, biases, *options)
    return [r.call(python.getitem, made, i) for i in range(1 + count)]


# ----------------------------------------------------------------------------------------------------------- records


def _layer_steps(name: str) -> Steps:
    return steps(_emit_layer(_KINDS[name]), f"zeropoint.quantized_{name}.input")


def _layer(name: str, **more: Any) -> Operator:
    return Operator(
        f"quantized_{name}", (f"{name}.input", f"zeropoint.{name}_padded.default"), output=Output.FLOAT,
        weights=("params",), dynamic=True, heavy=True, annotate=_annotate, lower=_lower, float_form=_float,
        steps=_layer_steps(name), **more,
    )  # fmt: skip


def _cell(name: str, module: type[nn.Module], **more: Any) -> Operator:
    return Operator(
        f"quantized_{name}_cell", (f"{name}_cell.default",), (module,), output=Output.FLOAT, weights=("w_ih", "w_hh"),
        dynamic=True, heavy=True, annotate=_annotate_cell, lower=_lower_cell, float_form=_float_cell,
        steps=steps(_emit_cell(_KINDS[name]), f"quantized_{name}_cell_dynamic"), **more,
    )  # fmt: skip


RECORDS = (
    _layer(
        "lstm", modules=(nn.LSTM,), forms=(ModuleForms(nn.LSTM, dynamic=nnqd.LSTM, reference=nnqr.LSTM),),
        custom=(CustomModule(nn.LSTM, nnqa.LSTM, nnq.LSTM),), restores=restores(_restore_recurrent, "recurrent"),
    ),
    _layer("gru", modules=(nn.GRU,), forms=(ModuleForms(nn.GRU, dynamic=nnqd.GRU, reference=nnqr.GRU),)),
    _cell(
        "lstm", nn.LSTMCell, forms=(ModuleForms(nn.LSTMCell, dynamic=nnqd.LSTMCell, reference=nnqr.LSTMCell),)
    ),
    _cell("gru", nn.GRUCell, forms=(ModuleForms(nn.GRUCell, dynamic=nnqd.GRUCell, reference=nnqr.GRUCell),)),
    _cell("rnn_tanh", nn.RNNCell, forms=(ModuleForms(nn.RNNCell, dynamic=nnqd.RNNCell, reference=nnqr.RNNCell),)),
    _cell("rnn_relu", nn.RNNCell),
    _layer("rnn_tanh", modules=(nn.RNN,)),
    _layer("rnn_relu", modules=(nn.RNN,)),
    Operator(
        "batch_sizes", steps=steps(_emit_batch_sizes, "batch_sizes"),
        restores=restores(called(ours.batch_sizes.default, "steps"), "batch_sizes"),
    ),
    Operator(
        "padding_mask", steps=steps(_emit_padding_mask, "padding_mask"),
        restores=restores(called(ours.padding_mask.default, "batch", "whole"), "padding_mask"),
    ),
    Operator(
        "attention", custom=(CustomModule(nn.MultiheadAttention, nnqa.MultiheadAttention, nnq.MultiheadAttention),)
    ),
)  # fmt: skip
