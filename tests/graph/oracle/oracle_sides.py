"""A float model quantized twice, by PyTorch (the oracle) and by zeropoint, and what the two have in common.

`Side` is what one of them made, in a form that can be compared: observers with the values they watched, weights as
integers, the quantized values of one run, the output. PyTorch warns at every call: hence `quietly`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from observer_pairs import quietly
from torch import Tensor, fx, nn
from torch.ao.quantization import quantize_fx as their_fx

import zeropoint
from zeropoint.graph.provenance import represented


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Run PyTorch's quantized operators on the engine `name`."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


@dataclass
class Observed:
    """An observer: the value it watches by name, what that was in the first batch, and what it found."""

    name: str
    scale: list[float] = field(default_factory=list)
    zero_point: list[int] = field(default_factory=list)
    seen: list[Tensor] = field(default_factory=list)


@dataclass
class Weight:
    """A quantized weight; one scale, or one for each channel."""

    name: str
    integers: Tensor
    scales: list[float]
    zero_points: list[int]

    def same(self, other: Weight) -> bool:
        return (
            self.integers.shape == other.integers.shape
            and torch.equal(self.integers, other.integers)
            and self.scales == other.scales
            and self.zero_points == other.zero_points
        )


@dataclass
class Value:
    """A quantized tensor of a run."""

    name: str
    integers: Tensor
    scale: float
    zero_point: int

    def comparable(self, other: Value) -> bool:
        """Whether both hold integers of one represented."""
        mine, their = (v.integers.shape for v in (self, other))
        return mine == their and close(self.scale, other.scale) and self.zero_point == other.zero_point

    def steps_to(self, other: Value) -> int:
        """How far apart two comparable values are."""
        difference = (self.integers.to(torch.int64) - other.integers.to(torch.int64)).abs()
        return int(difference.max()) if difference.numel() else 0


@dataclass
class Side:
    """What one library made of a model."""

    observers: list[Observed]
    weights: list[Weight]
    model: nn.Module
    output: Tensor
    values: list[Value]


# Scales of values behind float attention: PyTorch's fused kernel sums in another order than its operators.
_ROUNDING = 2**-21


def close(a: float, b: float) -> bool:
    """Whether two scales are the same up to the rounding of the floats they were computed from."""
    return abs(a - b) <= _ROUNDING * max(a, b)


def sqnr(expected: Tensor, found: Tensor) -> float:
    """Signal over noise, in dB."""
    noise = (expected - found).double().square().sum()
    return float(10 * torch.log10(expected.double().square().sum() / noise))


# ------------------------------------------------------------------------------------------------------------ theirs


def their_fx_side(
    model: nn.Module, mapping: Any, batches: Sequence[tuple[Any, ...]], prepare: Callable[..., Any] | None = None
) -> Side:
    """`model` quantized by torch.ao's FX mode, calibrated on `batches`, and run on the first of them."""
    with quietly():
        prepared = (prepare or their_fx.prepare_fx)(copy.deepcopy(model), mapping, batches[0])
        observers = _calibrate(prepared, prepared.graph, prepared, batches)
        converted = their_fx.convert_fx(copy.deepcopy(prepared).eval())
        recorder = _Recorder(converted)
        output = recorder.run(*batches[0])
    return Side(observers, list(their_weights(converted)), converted, output, recorder.values)


class _Recorder(fx.Interpreter):
    """Runs a graph of torch.ao, and keeps its quantized values."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: list[Value] = []

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor) and result.is_quantized and result.qscheme() == torch.per_tensor_affine:
            value = Value(n.name, result.int_repr().clone(), result.q_scale(), result.q_zero_point())
            self.values.append(value)
        return result


def _plain(name: str, q: Tensor) -> Weight:
    if q.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return Weight(name, q.int_repr(), [q.q_scale()], [q.q_zero_point()])
    scales, zero_points = q.q_per_channel_scales(), q.q_per_channel_zero_points()
    return Weight(name, q.int_repr(), scales.tolist(), [int(z) for z in zero_points.tolist()])


def their_weights(converted: nn.Module) -> Iterator[Weight]:
    """The weights of a model that torch.ao made: of modules, and packed attributes that functions read."""
    for name, module in converted.named_modules():
        weight = getattr(module, "weight", None)
        if callable(weight) and not isinstance(weight, Tensor):
            yield _plain(name, weight())
        elif callable(getattr(module, "get_weight", None)):  # recurrent layers and cells
            for key, q in module.get_weight().items():
                yield _plain(f"{name}.{key}", q)
        for key, value in vars(module).items():
            if isinstance(value, torch.ScriptObject) and "packed_weight" in key:
                yield _plain(f"{name}.{key}", value.unpack()[0])


# -------------------------------------------------------------------------------------------------------------- ours


def our_fx_side(
    model: nn.Module,
    mapping: Any,
    batches: Sequence[tuple[Any, ...]],
    oracle: Sequence[Value] = (),
    prepare: Callable[..., Any] | None = None,
) -> tuple[Side, Forced]:
    """`model` quantized by zeropoint's graph mode; and run again with every layer fed the integers of `oracle`."""
    prepared = (prepare or zeropoint.prepare_graph)(copy.deepcopy(model), mapping, batches[0])
    observers = _calibrate(prepared, prepared.graph_module.graph, prepared.graph_module, batches)
    converted = zeropoint.convert_graph(prepared)
    with torch.no_grad():
        output = converted(*batches[0])
        forced = Forced(converted.graph_module, oracle)
        forced.run(*batches[0])
    return Side(observers, list(our_weights(converted.graph_module)), converted, output, forced.own), forced


def our_weights(graph: nn.Module) -> Iterator[Weight]:
    """The weights of a graph that zeropoint made: constants, with their scales and zero points beside them."""
    stored = dict(graph.named_buffers())
    for name, integers in stored.items():
        base = name.rstrip("_")
        if f"{base}_scale" in stored and f"{base}_zero_point" in stored:
            scales, zero_points = stored[f"{base}_scale"], stored[f"{base}_zero_point"]
            yield Weight(name, integers, scales.flatten().tolist(), [int(z) for z in zero_points.flatten().tolist()])


class Forced(fx.Interpreter):
    """Runs our graph with every layer fed the oracle's integers.

    After each node, the oracle's value of the same shape, scale and zero point that is nearest takes the place of ours.
    `steps` has how far apart they were, by the name of the value, where both were computed from the same; `equal` of
    `count` integers are equal; `alone` are the values for which the oracle has nothing.
    """

    def __init__(self, module: fx.GraphModule, oracle: Sequence[Value]) -> None:
        super().__init__(module)
        self.oracle = oracle
        self.own: list[Value] = []
        self.steps: dict[str, int] = {}
        self.equal = 0
        self.count = 0
        self.alone: list[str] = []
        self.replaced: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        held = represented(n)
        if held is None or held.scale is None or not isinstance(result, Tensor) or held.dtype != result.dtype:
            return result
        value = Value(held.value.name, result.clone(), held.scale, held.zero_point)
        self.own.append(value)
        candidates = [other for other in self.oracle if other.comparable(value)]
        if not candidates:
            self.alone.append(held.value.name)
            return result
        nearest = min(candidates, key=value.steps_to)
        if self._fed_alike(n):
            self.steps[held.value.name] = value.steps_to(nearest)
            self.equal += int((value.integers == nearest.integers).sum())
            self.count += value.integers.numel()
        self.replaced.add(n)
        return nearest.integers.to(result.dtype)

    def _fed_alike(self, n: fx.Node) -> bool:
        """Whether what a node computes from is the oracle's: its integers, or inputs of the model."""
        read = [a for a in n.all_input_nodes if a.op != "get_attr"]
        return all(a.op == "placeholder" or a in self.replaced for a in read)


# ---------------------------------------------------------------------------------------------------------- observers


def _calibrate(
    prepared: nn.Module, graph: fx.Graph, owner: nn.Module, batches: Sequence[tuple[Any, ...]]
) -> list[Observed]:
    """Run a prepared model on the batches; its observers of activations."""
    made: dict[int, tuple[Any, Observed]] = {}
    for node in graph.nodes:
        if node.op == "call_module" and "activation_post_process" in str(node.target):
            module = owner.get_submodule(str(node.target))
            made.setdefault(id(module), (module, Observed(str(node.args[0]))))
    hooks = [
        module.register_forward_pre_hook(lambda _, args, seen=observed.seen: seen.append(args[0].detach().clone()))
        for module, observed in made.values()
    ]
    with torch.no_grad():
        for number, batch in enumerate(batches):
            prepared(*batch)
            if number == 0:
                for hook in hooks:
                    hook.remove()
    for module, observed in made.values():
        _read(module, observed)
    return [observed for _, observed in made.values() if observed.scale]


def _read(module: Any, observed: Observed) -> None:
    """What an observer found, if it looks for anything: placeholders do not."""
    module = getattr(module, "post_process", module)
    module = getattr(module, "activation_post_process", module)
    if "Placeholder" in type(module).__name__:
        return
    scale, zero_point = module.calculate_qparams()
    observed.scale = torch.as_tensor(scale).flatten().tolist()
    observed.zero_point = [int(z) for z in torch.as_tensor(zero_point).flatten().tolist()]


def differences(ours: Side, their: Side) -> tuple[dict[tuple[str, str], str], int]:
    """Places whose observers differ, (side, value) -> how; and how many agree. A place is the value that is watched."""
    found: dict[tuple[str, str], str] = {}
    matched: set[int] = set()
    agree = 0
    for mine in ours.observers:
        same = [other for other in their.observers if _watch_the_same(mine, other)]
        matched |= {id(other) for other in same}
        if not same:
            found["ours", mine.name] = f"scale {mine.scale}, zero point {mine.zero_point}"
        elif all(_found_the_same(mine, other) for other in same):
            agree += 1
        else:
            found["both", mine.name] = f"{mine.scale}, {mine.zero_point}: " + ", ".join(
                f"{other.name} {other.scale}, {other.zero_point}" for other in same
            )
    for other in their.observers:
        if id(other) not in matched:
            found["theirs", other.name] = f"scale {other.scale}, zero point {other.zero_point}"
    return found, agree


def _watch_the_same(mine: Observed, other: Observed) -> bool:
    return any(a.shape == b.shape and torch.allclose(a, b, 1e-5, 1e-6) for a in mine.seen for b in other.seen)


def _found_the_same(mine: Observed, other: Observed) -> bool:
    scales = len(mine.scale) == len(other.scale) and all(map(close, mine.scale, other.scale))
    return scales and mine.zero_point == other.zero_point
