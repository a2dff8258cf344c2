"""Models that others quantized, with quantize and dequantize around float operators, as graphs on integers.

The pairs become observers with their scales, dequantized weights get the ranges they were made with, and what then is a
calibrated graph is lowered as every other. An operator is computed on integers if all its inputs were rounded and its
result is; what lies between is computed in float, as the file says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.graph.lowering.integer import Lowering
from zeropoint.graph.passes.annotate import choose
from zeropoint.graph.passes.canonicalize import make_plain
from zeropoint.graph.passes.compute_in_float32 import compute_in_float32
from zeropoint.graph.passes.fold_batch_norm import fold_batch_norm
from zeropoint.graph.passes.fold_constants import fold_constants
from zeropoint.graph.passes.fold_linear import fold_linear
from zeropoint.graph.passes.fuse_norms import fuse_norms
from zeropoint.graph.passes.insert_observers import watch
from zeropoint.graph.provenance import identify
from zeropoint.graph.workflow import Quantized, summarized
from zeropoint.numerics.affine import BYTE_LIMITS
from zeropoint.numerics.dtypes import qint8, quint8
from zeropoint.numerics.schemes import per_channel_affine, per_tensor_affine
from zeropoint.observers import ObserverBase
from zeropoint.operators import BY_ATEN, BY_NAME
from zeropoint.operators.choice import Choice, Precision, State, is_float, tensor_arguments
from zeropoint.operators.lowered_value import Scale, Value
from zeropoint.operators.node import arguments, aten_name, only_reads_shape, parameter
from zeropoint.operators.record import Effect
from zeropoint.qconfig import get_default_qconfig
from zeropoint.qconfig_mapping import QConfigMapping

aten, ours = torch.ops.aten, torch.ops.zeropoint
_QUANTIZE = ours.quantize_per_tensor.default
_DEQUANTIZE = (ours.dequantize_per_tensor.default, ours.dequantize_per_channel.default)
_STORAGE = {torch.uint8: quint8, torch.int8: qint8}


class NothingQuantized(ValueError):
    """A model that rounds values, and computes nothing on the integers."""


class Known(ObserverBase):
    """Answers with parameters that somebody else found.

    Args:
        axis: along which there is a scale for each index; None for one scale.
    """

    def __init__(self, scale: Tensor, zero_point: Tensor, dtype: torch.dtype, axis: int | None = None) -> None:
        super().__init__(dtype=_STORAGE[dtype], is_dynamic=False)
        self.register_buffer("scale", scale.float().reshape(-1))
        self.register_buffer("zero_point", zero_point.to(torch.int64).reshape(-1))
        self.qscheme = per_tensor_affine if axis is None else per_channel_affine
        self.ch_axis = -1 if axis is None else axis
        self.quant_min, self.quant_max = BYTE_LIMITS[dtype]

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        return self.scale, self.zero_point


class _Rounded(Lowering):
    """As `Lowering`, but what is rounded is read rounded by all, by float operators too, as the file says."""

    def observed(self, node: fx.Node) -> None:
        value = self.values[node.args[0]]
        if value.integers is not None:
            super().observed(node)
            return
        scale, floats = self.scale_of(node), value.floats
        assert floats is not None
        is_made_of_them = floats.target is ours.dequantize_per_tensor.default and tuple(floats.args[1:6]) == scale.all
        integers: Any = floats.args[0] if is_made_of_them else self.call(_QUANTIZE, floats, *scale.all)
        self.values[node] = Value(integers=integers, scale=scale)


def from_qdq(model: nn.Module, example_inputs: Any) -> Quantized:
    """The graph on integers of a module that rounds with ``torch.ops.zeropoint.quantize_per_tensor`` and back.

    Args:
        model: any module that torch.export can capture.
        example_inputs: a tuple of what it is called with, or a dictionary of keywords.

    Raises:
        NothingQuantized: if nothing in it is computed on integers.
    """
    from zeropoint.graph.frontends.export import capture

    return from_qdq_graph(capture(model, example_inputs))


def float_model(model: nn.Module, example_inputs: Any) -> Quantized:
    """A float model in the operators that programs have; weights that are stored as integers stay integers.

    Raises:
        CaptureError: if torch.export cannot follow the model.
        ValueError: if the model was prepared for quantization, and not converted.
    """
    from zeropoint.graph.frontends.export import capture

    if any(isinstance(module, (ObserverBase, FakeQuantizeBase)) for module in model.modules()):
        raise ValueError(f"{type(model).__name__} was prepared and not converted: call convert, then compile")
    graph = capture(model, example_inputs)
    compute_in_float32(graph)
    return from_qdq_graph(graph, may_be_float=True)


def from_qdq_graph(graph: fx.GraphModule, *, may_be_float: bool = False) -> Quantized:
    """The same of a graph that was captured, which is changed."""
    with torch.no_grad():
        make_plain(graph)
        _read_weights(graph)
        fold_linear(graph)
        fold_constants(graph)
        fold_linear(graph)
        fold_batch_norm(graph)
        fuse_norms(graph)
        identify(graph)
        observed = _take_out(graph)
        _round_earlier(graph, observed)
        choices = _plan(graph, observed)
        watch(graph, {value: _known(scale) for value, scale in observed.items()})
        on_integers = any(
            choice.precision in (Precision.STATIC, Precision.WEIGHT) for choice in choices.values()
        ) or _is_dynamic(graph)
        if not on_integers and not may_be_float:
            raise NothingQuantized("nothing in this model would run in int8: no layer has a quantized input")
        notes = ("scales of the file",) if on_integers else ()
        return Quantized(_Rounded(graph, choices).run(), summarized(_named(choices), notes))


# Layers on integers that readers of files call: what they are, and how they are computed.
_LAYERS = {
    ours.linear_dynamic.default: ("linear", Precision.DYNAMIC),
    ours.weight_only_linear.default: ("linear", Precision.WEIGHT),
    ours.weight_only_linear_4bit.default: ("linear", Precision.WEIGHT_4),
    **{getattr(ours, f"conv{d}d_dynamic").default: (f"conv{d}d", Precision.DYNAMIC) for d in (1, 2, 3)},
    **{
        getattr(ours, name).input: (name, Precision.DYNAMIC)
        for name, record in BY_NAME.items()
        if record.onnx.writes and name.startswith("quantized_")
    },
}


def _is_dynamic(graph: fx.GraphModule) -> bool:
    """Whether it has layers on integers already, as those that find the range of their input."""
    return any(node.target in _LAYERS for node in graph.graph.nodes)


def _named(choices: dict[fx.Node, Choice]) -> dict[fx.Node, Choice]:
    """What a summary says: layers on integers are there by their names."""
    found = {node: _LAYERS[node.target] for node in choices if node.target in _LAYERS}
    return choices | {node: Choice(precision, "", BY_NAME[name]) for node, (name, precision) in found.items()}


# ------------------------------------------------------------------------------------------------------------- weights


def _read_weights(graph: fx.GraphModule) -> None:
    """Dequantized constants as parameters that know what they were made with."""
    for node in list(graph.graph.nodes):
        if node.target not in _DEQUANTIZE or not _is_constant(node.args[0]):
            continue
        a = arguments(node)
        integers = _value(graph, a["input"])
        if "scales" in a:
            scale, axis = _value(graph, a["scales"]), int(a["axis"])
            shift = torch.zeros_like(scale) if a["zero_points"] is None else _value(graph, a["zero_points"])
            known = Known(scale, shift, integers.dtype, axis % integers.dim())
        else:
            known = Known(torch.tensor([float(a["scale"])]), torch.tensor([int(a["zero_point"])]), integers.dtype)
        name = f"{node.name}_weight"
        graph.register_buffer(name, _value(graph, node))
        with graph.graph.inserting_before(node):
            made = graph.graph.get_attr(name)
        made.meta.update({k: node.meta[k] for k in ("val", "origin") if k in node.meta})
        made.meta["fake_quant"] = known
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _is_constant(node: Any) -> bool:
    if not isinstance(node, fx.Node) or node.op == "get_attr":
        return isinstance(node, fx.Node)
    return node.op == "call_function" and bool(node.all_input_nodes) and all(map(_is_constant, node.all_input_nodes))


def _value(graph: fx.GraphModule, node: Any) -> Any:
    """What a node gives that is computed from constants alone."""
    found = parameter(graph, node)
    if found is not None or not isinstance(node, fx.Node):
        return found if found is not None else node
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: _value(graph, n))
    return node.target(*args, **kwargs)


# --------------------------------------------------------------------------------------------------------- activations


def _take_out(graph: fx.GraphModule) -> dict[fx.Node, Scale]:
    """Take the pairs out of a graph; the values that they rounded, with their scales.

    Who reads one of these values reads it rounded. A value that somebody reads as it is, or that is rounded in two
    ways, has an `alias` for each way.
    """
    observed: dict[fx.Node, Scale] = {}
    for value in graph.graph.nodes:  # those that are put in come along
        pairs: dict[Scale, list[fx.Node]] = {}
        for user in value.users:
            scale = _scale_of_pair(value, user)
            if scale is not None:
                pairs.setdefault(scale, []).append(user)
        taken = {user for users in pairs.values() for user in users}
        others = any(user not in taken and not only_reads_shape(user) for user in value.users)
        for scale, users in pairs.items():
            handle = value
            if observed.get(value, scale) != scale or (value not in observed and (others or len(pairs) > 1)):
                handle = _alias(graph, value)
            observed[handle] = scale
            for user in users:
                for reader in list(user.users):
                    reader.replace_all_uses_with(handle)
                    graph.graph.erase_node(reader)
                graph.graph.erase_node(user)
    observed.update(_from_integers(graph))
    graph.graph.lint()
    return _of_one_dtype(observed)


def _from_integers(graph: fx.GraphModule) -> dict[fx.Node, Scale]:
    """Values that come from integers that the file computes, such as what it looks up in a table: rounded already."""
    found: dict[fx.Node, Scale] = {}
    for node in graph.graph.nodes:
        value = node.args[0].meta.get("val") if node.target is ours.dequantize_per_tensor.default else None
        if isinstance(value, Tensor):
            a, dtype = arguments(node), value.dtype
            if dtype in BYTE_LIMITS:
                found[node] = Scale(float(a["scale"]), int(a["zero_point"]), dtype)
    return found


def _of_one_dtype(observed: dict[fx.Node, Scale]) -> dict[fx.Node, Scale]:
    """Signed integers moved up by 128 where a model has both kinds, as operators give the kind that they take."""
    if len({scale.dtype for scale in observed.values()}) < 2:
        return observed
    return {value: scale.as_uint8 for value, scale in observed.items()}


def _scale_of_pair(value: fx.Node, user: fx.Node) -> Scale | None:
    """Of a call that rounds `value` for others to dequantize: its parameters."""
    if user.target is not _QUANTIZE or not is_float(value):
        return None
    a = arguments(user)
    if a["dtype"] not in BYTE_LIMITS or (a["quant_min"], a["quant_max"]) != BYTE_LIMITS[a["dtype"]]:
        return None  # rounded to fewer bits: computed as it is
    scale = Scale(float(a["scale"]), int(a["zero_point"]), a["dtype"])
    return scale if user.users and all(_dequantizes(reader, scale) for reader in user.users) else None


def _dequantizes(node: fx.Node, scale: Scale) -> bool:
    if node.target is not ours.dequantize_per_tensor.default:
        return False
    a = arguments(node)
    return (float(a["scale"]), int(a["zero_point"])) == scale.pair


def _alias(graph: fx.GraphModule, value: fx.Node) -> fx.Node:
    with graph.graph.inserting_after(value):
        made = graph.graph.call_function(aten.alias.default, (value,))
    made.meta.update({k: value.meta[k] for k in ("val", "origin", "identity") if k in value.meta})
    return made


def _round_earlier(graph: fx.GraphModule, observed: dict[fx.Node, Scale]) -> None:
    """Let what is rounded behind a choice of values, an order of them or a bound be rounded before it.

    The integers are the same, as rounding keeps the order of numbers; and what gives the values can give integers. A
    ReLU that keeps the scale of what it alone reads becomes a part of that: rounding before it changes nothing either.
    """
    for node in reversed(list(graph.graph.nodes)):
        record = BY_ATEN.get(aten_name(node) or "")
        if node not in observed or record is None or not record.keeps_scale or record.effect is Effect.AVERAGES:
            continue
        before = node.args[0]
        if not isinstance(before, fx.Node) or before.op != "call_function" or len(before.users) > 1:
            continue
        behind = BY_ATEN.get(aten_name(before) or "")
        joins = aten_name(node) == "relu.default" and behind is not None and behind.relu
        if not joins and before not in observed and is_float(before):
            observed[before] = observed[node]
        elif joins and observed.get(before) == observed[node]:
            del observed[before]


def _plan(graph: fx.GraphModule, observed: dict[fx.Node, Scale]) -> dict[fx.Node, Choice]:
    """What is computed on integers: operators whose inputs have scales, and whose results do."""
    state = State(graph, QConfigMapping().set_global(get_default_qconfig("native")))
    state.quantized.update(observed)
    for node in graph.graph.nodes:
        if node.op != "call_function" or node in state.choices:
            continue
        choice = choose(state, node)
        if choice is None:
            continue
        choice = _allowed(state, node, choice, observed)
        state.choices[node] = choice
        if choice.precision is Precision.PASSED and is_float(node):
            state.quantized.add(node)
        if choice.relu is not None:
            state.choices[next(user for user in node.users if user.name == choice.relu)] = Choice(Precision.FUSED)
    return state.choices


def _allowed(state: State, node: fx.Node, choice: Choice, observed: dict[fx.Node, Scale]) -> Choice:
    """`choice`, or float where the file does not round what it would need rounded."""
    record = choice.operator
    if choice.precision is Precision.PASSED:  # a sum with a number rounds, if little, where the file may not
        rounds = record is not None and node not in observed
        return Choice(Precision.FLOAT, "its output is float in the file", record) if rounds else choice
    if choice.precision is not Precision.STATIC:
        is_as_it_was = choice.precision in (Precision.FLOAT, Precision.FUSED)
        return choice if is_as_it_was else Choice(Precision.FLOAT, "not quantized in the file", record)
    weights = [arguments(node)[name] for name in record.weights] if record is not None else []
    if any("fake_quant" not in getattr(weight, "meta", {}) for weight in weights):
        return Choice(Precision.FLOAT, "its weight is float in the file", record)
    inputs = [t for t in tensor_arguments(node) if t not in weights and is_float(t)]
    inputs = inputs[:1] if weights or (record is not None and record.arguments) else inputs
    if record is not None and record.slopes:
        return Choice(Precision.FLOAT, "its slopes are float in the file", record)
    if any(t not in state.quantized for t in inputs):
        if record is not None and record.weight_only:
            return Choice(Precision.WEIGHT, "", record, choice.qconfig)
        return Choice(Precision.FLOAT, "an input is float in the file", record)
    return _with_result(node, choice, observed)


def _with_result(node: fx.Node, choice: Choice, observed: dict[fx.Node, Scale]) -> Choice:
    record = choice.operator
    if choice.relu is not None:
        relu = next(user for user in node.users if user.name == choice.relu)
        if relu in observed:
            return choice
        choice = replace(choice, relu=None)
    if node in observed:
        return choice
    if record is not None and record.name == "linear":
        return replace(choice, to_float=True)
    return Choice(Precision.FLOAT, "its output is float in the file", record)


def _known(scale: Scale) -> Known:
    """An observer that knows the parameters with which a value was rounded."""
    return Known(torch.tensor([scale.scale]), torch.tensor([scale.zero_point]), scale.dtype)
