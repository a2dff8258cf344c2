"""Which nodes of a graph become integers, and why the others do not."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.canonicalize import Unsized, arguments, aten_name, only_reads_shape
from zeropoint.graph.passes.fold_batch_norm import parameter
from zeropoint.graph.passes.qconfig_rules import qconfig_of, stays_float
from zeropoint.graph.recipes import BY_ATEN, MOVING, POOLING, RESHAPING, Form, Operator
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.observers import PlaceholderObserver
from zeropoint.qconfig_mapping import QConfigMapping

__all__ = [
    "PADDED",
    "Choice",
    "State",
    "Way",
    "is_float",
    "operator_name",
    "plan",
    "skip_rounding",
    "table_bits",
    "watched",
]

PADDED = "padding_idx has no quantized form"
WRITTEN = "reads or gives a tensor that is written in place"


class Way(enum.Enum):
    """How a node is computed."""

    STATIC = "int8"
    DYNAMIC = "int8, dynamic"
    HALF = "float16 weights"
    WEIGHT = "int8 weights"
    WEIGHT_4 = "int4 weights"
    PASSED = "int8, passed on"
    JOINED = "int8, from either branch"
    FUSED = "int8, part of the one before"
    FLOAT = "float32"


@dataclass
class Choice:
    """What becomes of a node."""

    way: Way
    reason: str = ""
    operator: Any = None  # of the table of recipes, if it has one
    qconfig: Any = None
    inputs: tuple[str, ...] = ()  # activations that must be quantized: names of nodes, which copies of a graph keep
    relu: str | None = None  # the ReLU that is part of it
    to_float: bool = False  # its result is float32, because only float operators read it
    result: str | None = None  # the value whose observer watches the result too, where branches meet


@dataclass
class State:
    """A plan while it is made."""

    graph: fx.GraphModule
    mapping: QConfigMapping
    alone: bool = False
    choices: dict[fx.Node, Choice] = field(default_factory=dict)
    quantized: set[fx.Node] = field(default_factory=set)  # values that will have a scale


def plan(
    graph: fx.GraphModule,
    mapping: QConfigMapping,
    made: dict[fx.Node, Choice] | None = None,
    *,
    alone: bool = False,
    join: Callable[[State, fx.Node], Choice | None] | None = None,
) -> dict[fx.Node, Choice]:
    """A choice for every node that computes something.

    Args:
        made: choices that stand already.
        alone: quantize functions with parameters of their own (norms, hardswish, ...) even if their inputs are float.
        join: the choice for a value that comes from one of two branches.
    """
    state = State(graph, mapping, alone, dict(made or {}))
    for node in graph.graph.nodes:
        if node in state.choices and state.choices[node].way is Way.STATIC:
            state.quantized.add(node)
        if node.op == "call_function" and node not in state.choices:
            choice = join(state, node) if join is not None and "ends" in node.meta else _choose(state, node)
            if choice is None:
                continue
            state.choices[node] = choice
            if choice.way in (Way.STATIC, Way.PASSED, Way.JOINED) and is_float(node):
                state.quantized.add(node)
            if choice.relu is not None:
                relu = next(user for user in node.users if user.name == choice.relu)
                state.choices[relu] = Choice(Way.FUSED)
                if choice.way is Way.STATIC:
                    state.quantized.add(relu)
    return state.choices


def watched(node: fx.Node, choices: dict[fx.Node, Choice], by_name: dict[str, fx.Node]) -> fx.Node:
    """The value whose observer gives the scale of a node's result: itself, its ReLU, or one where branches meet."""
    choice = choices.get(node)
    if choice is None:
        return node
    if choice.result is not None:
        return watched(by_name[choice.result], choices, by_name)
    return by_name[choice.relu] if choice.relu else node


def skip_rounding(choices: dict[fx.Node, Choice]) -> None:
    """Let linear layers between float operators hand on float32: rounding their results would only cost accuracy."""
    for node, choice in choices.items():
        if choice.way is Way.STATIC and choice.relu is None and choice.operator.name == "linear" and node.users:
            read_by = [choices.get(user) for user in node.users]
            choice.to_float = all(c is not None and c.way is Way.FLOAT for c in read_by)


def _choose(state: State, node: fx.Node) -> Choice | None:
    name = aten_name(node)
    if node.target is operator.getitem:
        of_bags = state.choices.get(node.args[0])
        if of_bags is not None and of_bags.way is Way.DYNAMIC and of_bags.operator.name == "embedding_bag":
            return Choice(Way.FUSED)
        return Choice(Way.PASSED) if node.args[0] in state.quantized else None
    if name is None:
        return None
    if name in MOVING or name in POOLING:
        return _pass(state, node, name)
    found = BY_ATEN.get(name)
    if found is None:
        computes = is_float(node) and any(is_float(t) for t in _tensor_arguments(node))
        return Choice(Way.FLOAT, "no recipe") if computes else None
    qconfig = _qconfig(state, node, found)
    if qconfig is None:
        return Choice(Way.FLOAT, "qconfig None", found)
    if "stays_float" in node.meta:
        return Choice(Way.FLOAT, node.meta["stays_float"], found)
    if any("written" in part.meta for part in (node, *node.all_input_nodes)):
        return Choice(Way.FLOAT, WRITTEN, found)
    choose = {
        Form.LAYER: _layer,
        Form.BINARY: _several,
        Form.MATMUL: _several,
        Form.CAT: _several,
        Form.FUNCTION: _function,
        Form.SLOPES: _function,
        Form.EMBEDDING: _embedding,
        Form.RECURRENT: _recurrent,
        Form.CELL: _cell,
    }[found.form]
    return choose(state, node, found, qconfig)


def _pass(state: State, node: fx.Node, name: str) -> Choice | None:
    if node.args[0] not in state.quantized:
        return None
    if "written" in node.meta or "written" in node.args[0].meta:
        return Choice(Way.FLOAT, WRITTEN)
    if stays_float(state.mapping, node):
        return Choice(Way.FLOAT, "qconfig None")
    if "stays_float" in node.meta:
        return Choice(Way.FLOAT, node.meta["stays_float"])
    computed = [k for k, v in arguments(node).items() if isinstance(v, fx.Node) and v is not node.args[0]]
    if computed and name in POOLING:
        return Choice(Way.FLOAT, f"its {computed[0]} is computed")
    if name == "mean.dim" and (arguments(node)["dtype"] is not None):
        return Choice(Way.FLOAT, "changes the dtype")
    if "pad" in name and arguments(node).get("mode", "constant") == "constant" and arguments(node)["value"]:
        return Choice(Way.FLOAT, "pads with a number other than zero")
    return Choice(Way.PASSED)


def _qconfig(state: State, node: fx.Node, found: Operator) -> Any:
    return qconfig_of(state.mapping, node, found.functions)


def _activation(qconfig: Any) -> Any:
    """An observer of the activations, to be asked what it is."""
    return qconfig.activation()


def _is_static(observer: Any) -> bool:
    return not getattr(observer, "is_dynamic", False) and str(observer.dtype).rsplit(".", 1)[-1] in ("quint8", "qint8")


def _is_float_placeholder(observer: Any) -> bool:
    """Whether activations are to stay float."""
    return isinstance(observer, PlaceholderObserver) and observer.dtype == torch.float32 and not observer.is_dynamic


def _relu_after(node: fx.Node, found: Operator) -> str | None:
    if not found.relu or len(node.users) != 1:
        return None
    user = next(iter(node.users))
    return user.name if aten_name(user) == "relu.default" else None


def _layer(state: State, node: fx.Node, found: Operator, qconfig: Any) -> Choice:
    a = arguments(node)
    if parameter(state.graph, a["weight"]) is None:
        return Choice(Way.FLOAT, "its weight is computed", found)
    if a["bias"] is not None and parameter(state.graph, a["bias"]) is None:
        return Choice(Way.FLOAT, "its bias is computed", found)
    if isinstance(a.get("padding"), str):
        return Choice(Way.FLOAT, f"padding={a['padding']!r} with more on one side", found)
    weight, activation = qconfig.weight(), _activation(qconfig)
    if weight.dtype == torch.float16:
        if found.name != "linear":
            return Choice(Way.FLOAT, "float16 weights are for linear layers", found)
        return Choice(Way.HALF, "", found, qconfig)
    kind = quantized_dtype(weight.dtype).name
    if _is_float_placeholder(activation) and kind in ("qint8", "quint8", "quint4x2"):
        if found.name != "linear":
            return Choice(Way.FLOAT, "weights alone are quantized in linear layers only", found)
        return Choice(Way.WEIGHT_4 if kind == "quint4x2" else Way.WEIGHT, "", found, qconfig)
    if kind not in ("qint8", "quint8"):
        return Choice(Way.FLOAT, f"weights of {weight.dtype}", found)
    relu = _relu_after(node, found)
    if getattr(activation, "is_dynamic", False):
        if not found.dynamic:
            return Choice(Way.FLOAT, "no dynamic form", found)
        relu = relu if found.name == "linear" else None
        return Choice(Way.DYNAMIC, "", found, qconfig, relu=relu)
    if not _is_static(activation):
        return Choice(Way.FLOAT, f"activations of {activation.dtype}", found)
    if "per_channel" in str(activation.qscheme):
        return Choice(Way.FLOAT, "activations with a scale for each channel", found)
    return Choice(Way.STATIC, "", found, qconfig, (_source(state, a["input"]).name,), relu)


def _several(state: State, node: fx.Node, found: Operator, qconfig: Any) -> Choice:
    if not _is_static(_activation(qconfig)):
        return Choice(Way.FLOAT, "no dynamic form", found)
    if found.form is Form.CAT and isinstance(node.args[0], fx.Node):
        return Choice(Way.FLOAT, "its list is computed", found)
    tensors = tuple(_tensor_arguments(node))
    if any(not is_float(t) for t in tensors):
        return Choice(Way.FLOAT, "not of floats", found)
    a = arguments(node)
    if isinstance(a.get("alpha"), fx.Node) or not tensors:
        return Choice(Way.FLOAT, "its numbers are sizes", found)
    if not found.heavy and not any(t in state.quantized for t in tensors):
        return Choice(Way.FLOAT, "not worth it: its inputs are float", found)
    if found.name == "add" and _is_masking(state, node, tensors):
        return Choice(Way.FLOAT, "adds what may be a mask to scores: its range would leave these no steps", found)
    if found.form is Form.BINARY and len(tensors) == 1:
        if any(isinstance(v, fx.Node) and v is not tensors[0] for v in node.args):
            return Choice(Way.FLOAT, "its number is a size", found)
        return Choice(Way.PASSED, "", found)
    return Choice(Way.STATIC, "", found, qconfig, tuple(t.name for t in tensors), _relu_after(node, found))


def _is_masking(state: State, node: fx.Node, tensors: tuple[fx.Node, ...]) -> bool:
    """Whether a sum with something that is not quantized goes into a softmax and nowhere else."""
    users = {aten_name(user) for user in node.users}
    into_softmax = users <= {"softmax.int", "_softmax.default", "_safe_softmax.default"}
    return len(tensors) > 1 and into_softmax and any(t not in state.quantized for t in tensors)


def _function(state: State, node: fx.Node, found: Operator, qconfig: Any) -> Choice:
    if not _is_static(_activation(qconfig)):
        return Choice(Way.FLOAT, "no dynamic form", found)
    first = node.args[0]
    if first not in state.quantized and not (state.alone and found.alone and is_float(first)):
        return Choice(Way.FLOAT, "not worth it: its input is float", found)
    a = arguments(node)
    computed = [k for k in found.more if isinstance(a[k], fx.Node) and parameter(state.graph, a[k]) is None]
    if computed:
        return Choice(Way.FLOAT, f"its {computed[0]} is computed", found)
    if a.get("training") or a.get("use_input_stats") is False or a.get("half_to_float"):
        return Choice(Way.FLOAT, "in training", found)
    if found.form is Form.SLOPES and parameter(state.graph, node.args[1]) is None:
        return Choice(Way.FLOAT, "its slopes are computed", found)
    return Choice(Way.STATIC, "", found, qconfig, (_source(state, first).name,), _relu_after(node, found))


def _source(state: State, value: fx.Node) -> fx.Node:
    """What `value` has its values from, if only reshapes lie between, which then are done on integers.

    So what is watched is seen even if the reshapes are in a branch that calibration does not take.
    """
    between: list[fx.Node] = []
    current = value
    while state.alone and current not in state.quantized and aten_name(current) in RESHAPING:
        if sum(not only_reads_shape(user) for user in current.users) > 1:
            break
        between.append(current)
        current = current.args[0]
    if not between or not is_float(current) or current.op == "get_attr" or "written" in current.meta:
        return value
    for node in between:
        state.choices[node] = Choice(Way.PASSED)
        state.quantized.add(node)
    return current


def table_bits(weight: Any) -> int | None:
    """8 or 4, as a qconfig wants the rows of an embedding table; None for a qconfig of something else."""
    if getattr(weight, "custom_op", ""):
        return {"embedding_bag_byte": 8, "embedding_bag_4bit": 4}.get(weight.custom_op)
    if "float_qparams" not in str(weight.qscheme):
        return None
    return {"quint8": 8, "quint4x2": 4}.get(str(weight.dtype).rsplit(".", 1)[-1])


def _embedding(state: State, node: fx.Node, found: Operator, qconfig: Any) -> Choice:
    if table_bits(qconfig.weight()) is None:
        return Choice(Way.FLOAT, "embedding tables need float_qparams_weight_only_qconfig", found)
    if parameter(state.graph, node.args[0]) is None:
        return Choice(Way.FLOAT, "its table is computed", found)
    if found.name == "embedding_bag":
        padding = arguments(node).get("padding_idx")
        if padding is not None and padding >= 0:
            return Choice(Way.FLOAT, PADDED, found)
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
            return Choice(Way.FLOAT, "more than the bags is read", found)
    return Choice(Way.DYNAMIC, "", found, qconfig)


def _recurrent(state: State, node: fx.Node, found: Operator, qconfig: Any) -> Choice:
    a = arguments(node)
    if not isinstance(a["params"], (list, tuple)) or any(parameter(state.graph, w) is None for w in a["params"]):
        return Choice(Way.FLOAT, "its weights are computed", found)
    if a["train"] and a["dropout"]:
        return Choice(Way.FLOAT, "in training", found)
    per_direction = 4 if a["has_biases"] else 2
    directions = 2 if a["bidirectional"] else 1
    if len(a["params"]) != per_direction * directions * a["num_layers"]:
        return Choice(Way.FLOAT, "projections have no quantized form", found)
    weight = qconfig.weight()
    if weight.dtype == torch.float16:
        return Choice(Way.HALF, "", found, qconfig)
    if _is_float_placeholder(_activation(qconfig)):
        return Choice(Way.FLOAT, "weights alone are quantized in linear layers only", found)
    if quantized_dtype(weight.dtype).name != "qint8":
        return Choice(Way.FLOAT, f"weights of {weight.dtype}", found)
    return Choice(Way.DYNAMIC, "", found, qconfig)


def _cell(state: State, node: fx.Node, found: Operator, qconfig: Any) -> Choice:
    a = arguments(node)
    tensors = [a[name] for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    if any(t is not None and parameter(state.graph, t) is None for t in tensors):
        return Choice(Way.FLOAT, "its weights are computed", found)
    weight = qconfig.weight()
    if weight.dtype == torch.float16 or quantized_dtype(weight.dtype).name != "qint8":
        return Choice(Way.FLOAT, f"cells with weights of {weight.dtype}", found)
    if _is_float_placeholder(_activation(qconfig)):
        return Choice(Way.FLOAT, "weights alone are quantized in linear layers only", found)
    return Choice(Way.DYNAMIC, "", found, qconfig)


def _tensor_arguments(node: fx.Node) -> Iterator[fx.Node]:
    """Tensors that a call takes, those of a list one by one."""
    for argument in node.args:
        for part in argument if isinstance(argument, (list, tuple)) else (argument,):
            known = part.meta.get("val") if isinstance(part, fx.Node) else None
            if isinstance(known, (torch.Tensor, Unsized)) or (isinstance(part, fx.Node) and part.op == "get_attr"):
                yield part


def is_float(node: fx.Node) -> bool:
    """Whether a node gives floats, or begins with them if it gives several tensors."""
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return node.op == "get_attr" or (isinstance(first, (torch.Tensor, Unsized)) and first.is_floating_point())


def operator_name(node: fx.Node, choice: Choice) -> str:
    """What a summary calls a node."""
    return choice.operator.name if choice.operator else (aten_name(node) or str(node.target)).split(".")[0]
