"""A graph for quantization-aware training: the graph and the plan of inference, with rounding where inference rounds.

- Results of operators go through a fake quantization where calibration would have an observer.
- Weights go through the fake quantization of their qconfig, batch norms inside (`fold_batch_norm_training.py`).
- What hands integers on but computes something (averages, bounds, numbers added) gets the values that integers give.
- Dropout, batch norm and recurrent layers know whether the graph is in training.

`remove_fake_quant` is the way back: the graph of inference, with the weights that were trained.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.fake_quant import FakeQuantize, FakeQuantizeBase
from zeropoint.graph.passes.annotate import Choice, Precision
from zeropoint.graph.passes.fold_batch_norm import add_parameter
from zeropoint.graph.passes.fold_batch_norm_training import (
    Statistics,
    fold,
    normalize,
    train_batch_norms,
    transposed,
)
from zeropoint.graph.passes.insert_observers import insert_observers, is_observer
from zeropoint.nn.simulated_tensor import observed, plain
from zeropoint.numerics.blocks import CHANNELS_LAST
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.observers import FixedQParamsObserver, MovingAverageMinMaxObserver, PlaceholderObserver
from zeropoint.operators import BY_ATEN
from zeropoint.operators.arithmetic import number_form
from zeropoint.operators.lowered_value import Scale
from zeropoint.operators.node import arguments, aten_name, parameter

ours = torch.ops.zeropoint
_MODES = frozenset(("train", "training"))  # arguments of ATen operators that say whether they are in training


def insert_fake_quant(graph: fx.GraphModule, choices: dict[fx.Node, Choice], model: nn.Module) -> None:
    """Make `graph`, which `model` was captured as and which has a plan, one that trains; in place."""
    insert_observers(graph, choices, _rounding)
    _keep_parameters(graph)
    train_batch_norms(graph, model)
    for node, choice in choices.items():
        for weight in _weights(graph, node, choice):
            fake_quant = _weight_fake_quant(graph, node, choice)
            if fake_quant is not None:
                _round_weight(graph, node, weight, fake_quant)
    for node, choice in choices.items():
        record = BY_ATEN.get(aten_name(node) or "") if choice.precision is Precision.PASSED else None
        is_rounded = any(is_observer(user) for user in node.users)
        if record is not None and not is_rounded and (record.rounds_to_input or not record.keeps_scale):
            _round_result(graph, node)
    _follow_mode(graph)
    graph.graph.lint()
    graph.recompile()


# --------------------------------------------------------------------------------------------------------- activations


class Rounded(nn.Module):
    """A fake quantization at its place in a graph; rounds to the whole range that the deployed value has."""

    def __init__(self, post_process: nn.Module) -> None:
        super().__init__()
        self.post_process = post_process

    def forward(self, x: Tensor) -> Tensor:
        return plain(observed(self.post_process, x))


def _rounding(observer: Any) -> Rounded:
    return Rounded(_fake_quant(observer))


def _fake_quant(observer: Any) -> nn.Module:
    """What rounds with the parameters that `observer` finds: qconfigs for training have observers for some layers."""
    if isinstance(observer, FakeQuantizeBase):
        return observer
    made = FakeQuantize(observer=lambda **_: observer)
    if isinstance(observer, FixedQParamsObserver):
        made.scale.copy_(observer.scale)
        made.zero_point.copy_(observer.zero_point)
    return made


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Tensor, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def straight_through(result: Tensor, values: Tensor) -> Tensor:
    """`values`, with the gradient of `result`.

    Example:
        >>> x = torch.tensor(0.4, requires_grad=True)
        >>> y = straight_through(2 * x, torch.tensor(1.0))
        >>> y.backward()
        >>> y.item(), x.grad.item()
        (1.0, 2.0)
    """
    return _StraightThrough.apply(result, values)


class AsIntegers(nn.Module):
    """The values that an operator on integers will give instead of its result on floats, whose gradient stays.

    Args:
        name: of the ATen operator, as `aten_name` has it.
        source: the fake quantization that the input went through.
        numbers: what was added to that, or multiplied with it, on the way: pairs of an operator's name and a number.
        after_dropout: the input is behind a dropout, whose values in training the integers could not hold.
    """

    def __init__(
        self, name: str, source: nn.Module, numbers: tuple[tuple[str, float], ...], after_dropout: bool
    ) -> None:
        super().__init__()
        self.name, self.numbers, self.after_dropout = name, numbers, after_dropout
        self._source = [source]  # in a list, so that it is no module of this

    def forward(self, result: Tensor, x: Tensor, **options: Any) -> Tensor:
        source: Any = self._source[0]
        rounds = isinstance(source, FakeQuantizeBase) and bool(source.fake_quant_enabled) and source.scale.numel() == 1
        if not rounds or (self.training and self.after_dropout):
            return result
        scale = Scale(float(source.scale), int(source.zero_point), quantized_dtype(source.dtype).torch_storage)
        for name, number in self.numbers:
            scale = number_form(BY_ATEN[name], scale, number)[1]
        with torch.no_grad():
            x = x.detach()
            if x.dim() in CHANNELS_LAST:  # as the layer before it will hand it over
                x = x.contiguous(memory_format=CHANNELS_LAST[x.dim()])
            q, scale = self._on_integers(ours.quantize_per_tensor(x, *scale.all), scale, options)
            values = ours.dequantize_per_tensor(q, *scale.all)
        return straight_through(result, values)

    def _on_integers(self, q: Tensor, scale: Scale, options: dict[str, Any]) -> tuple[Tensor, Scale]:
        record = BY_ATEN[self.name]
        if record.integers is not None:
            at_once: Any = _Immediate  # tensors where a lowering has nodes
            return record.integers(at_once, q, scale, options, None), scale
        number = float(options["other"])
        compute, result = number_form(record, scale, number)
        return compute(q, *scale.pair, number), result


class _Immediate:
    """Stands for a lowering where calls are to be made at once."""

    @staticmethod
    def call(target: Any, *args: Any) -> Any:
        return target(*args)

    @staticmethod
    def argument(value: Any) -> Any:
        return value


def _round_result(graph: fx.GraphModule, node: fx.Node) -> None:
    """Give a node that hands integers on the values that these will have."""
    first, *_ = node.args
    numbers: list[tuple[str, float]] = []
    after_dropout = False
    at: Any = first
    while not is_observer(at):
        name = aten_name(at) or ""
        if name in BY_ATEN and not BY_ATEN[name].keeps_scale:
            numbers.append((name, float(at.args[1])))
        after_dropout = after_dropout or name == "dropout.default"
        at = at.args[0]
    rounded: Any = graph.get_submodule(str(at.target))
    module = AsIntegers(str(aten_name(node)), rounded.post_process, tuple(reversed(numbers)), after_dropout)
    path = f"{node.name}_as_integers"
    graph.add_submodule(path, module)
    options = {k: v for k, v in arguments(node).items() if v is not first}
    with graph.graph.inserting_after(node):
        made = graph.graph.call_module(path, (node, first), options)
    made.meta.update({k: node.meta[k] for k in ("val", "origin") if k in node.meta})
    node.replace_all_uses_with(made, lambda user: user is not made)


# ------------------------------------------------------------------------------------------------------------- weights


def _keep_parameters(graph: fx.GraphModule) -> None:
    """Compute transposed weights from the model's own parameters, which thereby train under their names."""
    for node in list(graph.graph.nodes):
        if node.op == "get_attr" and "transposed" in node.meta:
            with graph.graph.inserting_before(node):
                source = graph.graph.get_attr(node.meta["transposed"])
                made = graph.graph.call_function(transposed, (source,))
            node.replace_all_uses_with(made)
            graph.graph.erase_node(node)
            delattr(graph, str(node.target))


def _weights(graph: fx.GraphModule, node: fx.Node, choice: Choice) -> Iterator[fx.Node]:
    """The weights that an operator will have as integers."""
    if choice.precision not in (Precision.STATIC, Precision.DYNAMIC, Precision.WEIGHT) or choice.operator is None:
        return
    names = (*choice.operator.weights, *choice.operator.slopes)
    a = arguments(node) if names else {}
    for value in (a[name] for name in names):
        if isinstance(value, fx.Node):
            yield value
        else:  # weights of recurrent layers, which are matrices, and their biases
            yield from (part for part in value if _is_matrix(parameter(graph, part)))


def _is_matrix(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dim() > 1


def _weight_fake_quant(graph: fx.GraphModule, node: fx.Node, choice: Choice) -> nn.Module | None:
    if choice.operator.slopes:  # with the dtype of the input, and the range of the slopes as they are
        rounded: Any = graph.get_submodule(str(next(n for n in _before(node) if is_observer(n)).target))
        dtype = quantized_dtype(rounded.post_process.dtype)
        return FakeQuantize(MovingAverageMinMaxObserver, dtype.qmin, dtype.qmax, dtype=dtype, averaging_constant=1.0)
    observer = choice.qconfig.weight()
    if isinstance(observer, PlaceholderObserver):  # tables that are packed by an operator that finds their ranges
        return None
    made: Any = _fake_quant(observer)
    axis = choice.operator.weight_axis
    if choice.operator.is_layer and "per_channel" in str(made.qscheme) and made.ch_axis != axis:
        for module in (made, getattr(made, "activation_post_process", made)):
            module.ch_axis = axis
    return made


def _before(node: fx.Node) -> Iterator[fx.Node]:
    at: Any = node.args[0]
    while isinstance(at, fx.Node):
        yield at
        at = at.args[0] if at.args else None


def _round_weight(graph: fx.GraphModule, node: fx.Node, weight: fx.Node, fake_quant: nn.Module) -> None:
    at: Any = weight
    while at.op != "get_attr":  # the parameter that the weight is made of
        at = at.args[0] if at.target is not fold else at.args[1]
    path = f"{at.target}_fake_quant"
    while _is_taken(graph, path):
        path += "_"
    graph.add_submodule(path, fake_quant)
    with graph.graph.inserting_before(node):
        made = graph.graph.call_module(path, (weight,))
    node.replace_input_with(weight, made)


def _is_taken(graph: fx.GraphModule, path: str) -> bool:
    return any(name == path for name, _ in graph.named_modules())


# ---------------------------------------------------------------------------------------------------------------- mode


class Mode(nn.Module):
    """Answers whether it is in training."""

    def forward(self) -> bool:
        return self.training


def _follow_mode(graph: fx.GraphModule) -> None:
    """Let operators that do another thing in training do it when the graph is."""
    mode: fx.Node | None = None
    for node in list(graph.graph.nodes):
        if aten_name(node) is None:
            continue
        for place, argument in enumerate(node.target._schema.arguments):
            if argument.name not in _MODES or arguments(node)[argument.name] is not False:
                continue
            if mode is None:
                graph.add_submodule("_mode", Mode())
                with graph.graph.inserting_before(next(iter(graph.graph.nodes))):
                    mode = graph.graph.call_module("_mode")
            if place < len(node.args):
                node.update_arg(place, mode)
            else:
                node.update_kwarg(argument.name, mode)


# ------------------------------------------------------------------------------------------------------------ and back


def remove_fake_quant(graph: fx.GraphModule) -> None:
    """The graph of inference again, in place: folded weights as constants, whose ``meta["fake_quant"]`` rounds them."""
    known: dict[fx.Node, Any] = {}  # what nodes for training alone give in evaluation
    for node in list(graph.graph.nodes):
        module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, (Mode, Statistics)):
            known[node] = (False, 0.0) if isinstance(module, Statistics) else False
        elif node.target in (fold, transposed) or (node.target is operator.getitem and node.args[0] in known):
            values = fx.node.map_arg(node.args, lambda n: known[n] if n in known else parameter(graph, n))
            known[node] = node.target(*values)
        elif node.target is normalize or isinstance(module, AsIntegers):
            node.replace_all_uses_with(node.args[0])
        elif module is not None and not is_observer(node) and node.args and _is_weight(node.args[0], known):
            _restore_weight(graph, node, module, known)
        else:
            _insert_known(graph, node, known)
    graph.graph.eliminate_dead_code()
    for node in reversed(list(graph.graph.nodes)):
        module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, (Mode, Statistics, AsIntegers)):
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _is_weight(value: Any, known: dict[fx.Node, Any]) -> bool:
    return isinstance(value, fx.Node) and (value in known or value.op == "get_attr")


def _restore_weight(graph: fx.GraphModule, node: fx.Node, fake_quant: nn.Module, known: dict[fx.Node, Any]) -> None:
    weight: Any = node.args[0]
    if weight in known:
        path = str(node.target).removesuffix("_fake_quant") + "_folded"
        made = add_parameter(graph, path, known[weight], node)
    else:
        with graph.graph.inserting_before(node):
            made = graph.graph.get_attr(weight.target)
    made.meta["fake_quant"] = fake_quant
    node.replace_all_uses_with(made)
    graph.graph.erase_node(node)


def _insert_known(graph: fx.GraphModule, node: fx.Node, known: dict[fx.Node, Any]) -> None:
    """Constants instead of the nodes for training that `node` reads."""

    def constant(value: fx.Node) -> Any:
        if value not in known or not isinstance(known[value], Tensor):
            return known.get(value, value)
        return add_parameter(graph, f"{node.name}_{value.name}", known[value], node)

    node.args = fx.node.map_arg(node.args, constant)
    node.kwargs = fx.node.map_arg(node.kwargs, constant)
