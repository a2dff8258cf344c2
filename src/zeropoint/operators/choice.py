"""Choices: how each node of a graph is computed (static, dynamic, weight-only, float), and the rules families share."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.observers import PlaceholderObserver
from zeropoint.operators.node import Unsized, arguments, aten_name, only_reads_shape, parameter
from zeropoint.operators.record import Effect
from zeropoint.operators.registry import BY_ATEN


class Precision(enum.Enum):
    """How a node is computed."""

    STATIC = "int8"
    DYNAMIC = "int8, dynamic"
    HALF = "float16 weights"
    WEIGHT = "int8 weights"
    WEIGHT_4 = "int4 weights"
    PASSED = "int8, keeps scale"
    JOINED = "int8, joins branches"
    FUSED = "int8, fused"
    FLOAT = "float32"


@dataclass
class Choice:
    """What becomes of a node."""

    precision: Precision
    reason: str = ""
    operator: Any = None  # its record, if it has one
    qconfig: Any = None
    inputs: tuple[str, ...] = ()  # activations that must be quantized: names of nodes, which copies of a graph keep
    relu: str | None = None  # the ReLU that is part of it
    to_float: bool = False  # its result is float32, because only float operators read it
    rounded: bool = False  # float32 that has a scale: what reads it can have it as integers
    result: str | None = None  # the value whose observer watches the result too, where branches meet


@dataclass
class State:
    """A plan while it is made."""

    graph: fx.GraphModule
    mapping: Any  # a QConfigMapping, which is made from the records
    alone: bool = False
    choices: dict[fx.Node, Choice] = field(default_factory=dict)
    quantized: set[fx.Node] = field(default_factory=set)  # values that will have a scale
    tabled: set[fx.Node] = field(default_factory=set)  # floats inside an expression of one quantized tensor


def is_static(observer: Any) -> bool:
    """Whether an observer finds one range for 8 bits before the model runs."""
    return not getattr(observer, "is_dynamic", False) and str(observer.dtype).rsplit(".", 1)[-1] in ("quint8", "qint8")


def is_float_placeholder(observer: Any) -> bool:
    """Whether activations are to stay float."""
    return isinstance(observer, PlaceholderObserver) and observer.dtype == torch.float32 and not observer.is_dynamic


def relu_after(node: fx.Node, operator: Any) -> str | None:
    """The name of the ReLU that alone reads a node and can be a part of it."""
    if not operator.relu or len(node.users) != 1:
        return None
    user = next(iter(node.users))
    return user.name if aten_name(user) == "relu.default" else None


def tensor_arguments(node: fx.Node) -> Iterator[fx.Node]:
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


def source(state: State, value: fx.Node) -> fx.Node:
    """What `value` has its values from, if only reshapes lie between, which then are done on integers.

    So what is observed is seen even if the reshapes are in a branch that calibration does not take.
    """
    between: list[fx.Node] = []
    current = value
    while state.alone and current not in state.quantized and _reshapes(current):
        if sum(not only_reads_shape(user) for user in current.users) > 1:
            break
        between.append(current)
        current = current.args[0]
    if not between or not is_float(current) or current.op == "get_attr" or "written" in current.meta:
        return value
    for node in between:
        state.choices[node] = Choice(Precision.PASSED)
        state.quantized.add(node)
    return current


def stored_source(state: State, value: fx.Node) -> fx.Node:
    """The parameter that `value` has its values from, if these are only moved or chosen on the way to one reader.

    They are moved as integers then, and their range is that of the parameter, whatever calibration chooses of it.
    """
    between: list[fx.Node] = []
    current = value
    while current not in state.quantized and _moves(current) and _has_one_reader(current):
        between.append(current)
        current = current.args[0]
    stored = parameter(state.graph, current)
    if not between or stored is None or stored.dtype != torch.float32 or not _has_one_reader(current):
        return value
    for node in between:
        state.choices[node] = Choice(Precision.PASSED)
        state.quantized.add(node)
    return current


def _moves(node: fx.Node) -> bool:
    found = BY_ATEN.get(aten_name(node) or "")
    return found is not None and found.keeps_scale and found.integers is None and "written" not in node.meta


def _has_one_reader(node: fx.Node) -> bool:
    return sum(not only_reads_shape(user) for user in node.users) == 1


def _reshapes(node: fx.Node) -> bool:
    found = BY_ATEN.get(aten_name(node) or "")
    return found is not None and found.effect is Effect.RESHAPES


def function_of_one_tensor(state: State, node: fx.Node, operator: Any, qconfig: Any) -> Choice:
    """The choice for a function of one tensor, with numbers and parameters that are stored."""
    if not is_static(qconfig.activation()):
        return Choice(Precision.FLOAT, "no dynamic version", operator)
    first = node.args[0]
    if first not in state.quantized and not (state.alone and operator.alone and is_float(first)):
        return Choice(Precision.FLOAT, "its input is in float", operator)
    a = arguments(node)
    computed = [k for k in operator.arguments if isinstance(a[k], fx.Node) and parameter(state.graph, a[k]) is None]
    if computed:
        return Choice(Precision.FLOAT, f"its {computed[0]} is not a constant", operator)
    if a.get("training") or a.get("use_input_stats") is False or a.get("half_to_float"):
        return Choice(Precision.FLOAT, "in training", operator)
    return Choice(Precision.STATIC, "", operator, qconfig, (source(state, first).name,), relu_after(node, operator))


def weight_dtype(qconfig: Any) -> str:
    """``qint8`` or its like, as a qconfig wants weights; ``float16`` for halves."""
    weight = qconfig.weight()
    return "float16" if weight.dtype == torch.float16 else quantized_dtype(weight.dtype).name
