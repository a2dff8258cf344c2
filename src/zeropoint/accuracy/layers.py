"""The layers of a model on integers, one after the other, each with what it gets and what it should give.

An algorithm that changes weights or biases is a loop over `layers_of`. When it has changed a layer, the layers behind
it get what the changed one gives. What it changes are the integers that will be deployed, and errors are measured with
the operator that will run: what is tuned is what is deployed.

What a change was found with does not say whether it is a good one: with few batches there is always one that fits them
better. So every fourth batch is held out (`held_out`): an algorithm fits to the others, and the layer keeps its change
only if it is nearer on these.
"""

from __future__ import annotations

import abc
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.accuracy.operation import Operation
from zeropoint.graph.workflow import Quantized
from zeropoint.numerics.distance import Distance

MEMORY = 1 << 30  # bytes that the values of all batches may take at one place of a graph
_HELD = 4  # of so many batches, or rows of a single one, the last judges


def held_out(count: int) -> frozenset[int]:
    """Which of so many batches judge what was found with the others: every fourth, the last one of two or three.

    Of a single batch there is nothing to hold out.

    Example:
        >>> sorted(held_out(8)), sorted(held_out(2)), sorted(held_out(1))
        ([3, 7], [1], [])
    """
    return frozenset(range(count - 1, -1, -_HELD)) if count > 1 else frozenset()


@dataclass(frozen=True)
class Change:
    """The effect of an algorithm on one layer: the SQNR of its output against the float model, in dB, before and after.

    Measured on held-out batches (`held_out`). `what` describes the change. If the change did not help, the layer stays
    unchanged and both numbers are equal.
    """

    name: str
    path: str
    algorithm: str
    what: str
    before: float
    after: float


class TunableLayer(abc.ABC):
    """A layer with an integer weight: what it gets in each batch, what it should give, and its integers.

    Attributes:
        inputs: what it gets, in float: what the integers stand for.
        wanted: what it gives in the float model.
        weight: in float, as it was before it was rounded.
        scale, zero_point: of every weight, in the shape of `weight` or one that is broadcast to it.
        low, high: the integers that a weight may be.
        gives_wanted: whether `operation` of `inputs` is what should be `wanted`; not so inside of a recurrent layer.
    """

    name: str
    path: str
    operation: Operation
    inputs: list[Tensor]
    wanted: list[Tensor]
    weight: Tensor
    scale: Tensor
    zero_point: Tensor
    low: int
    high: int
    gives_wanted: bool = True

    @property
    @abc.abstractmethod
    def integers(self) -> Tensor:
        """Its integers, one for each weight, as int32."""

    @property
    @abc.abstractmethod
    def bias(self) -> Tensor | None:
        """Its bias."""

    @abc.abstractmethod
    def store(self, integers: Tensor) -> None:
        """Replace its integers."""

    @abc.abstractmethod
    def store_bias(self, bias: Tensor) -> None:
        """Replace its bias, or give it one."""

    @abc.abstractmethod
    def run(self) -> list[Tensor]:
        """What it gives now, in float, by the operator that will run."""

    def to_fit(self, values: list[Tensor]) -> list[Tensor]:
        """Of values in each batch, `inputs` or `wanted` or what it gives, those that a change may be fitted to."""
        return self._part(values, False)

    def to_judge(self, values: list[Tensor]) -> list[Tensor]:
        """Those that say whether a change is a good one."""
        return self._part(values, True)

    def _part(self, values: list[Tensor], judging: bool) -> list[Tensor]:
        held = held_out(len(values))
        if held:
            return [value for i, value in enumerate(values) if (i in held) is judging]
        # A single batch: some of its samples, or of its rows if it has one sample.
        unbatched = self.operation.dims + 1
        axes = range(self.wanted[0].dim() - unbatched)
        axis = next((d for d in axes if values[0].shape[d] > 1), None)
        if axis is None:
            return values
        count = values[0].shape[axis]
        cut = count - max(count // _HELD, 1)
        return [value.narrow(axis, cut, count - cut) if judging else value.narrow(axis, 0, cut) for value in values]

    def sqnr(self) -> float:
        """Of what it gives now against what it should give, in dB, on what is held out."""
        distance = Distance()
        for wanted, got in zip(self.to_judge(self.wanted), self.to_judge(self.run())):
            distance.add(wanted, got)
        return distance.sqnr

    def rounded(self, integers: Tensor | None = None) -> Tensor:
        """What integers stand for, its own by default."""
        stored = self.integers if integers is None else integers
        return (stored.float() - self.zero_point) * self.scale

    def try_bias(self, bias: Tensor, algorithm: str, what: str) -> Change:
        """Take this bias if the layer is nearer to the float model with it, on what is held out."""
        old, before = self.bias, self.sqnr()
        self.store_bias(bias)
        after = self.sqnr()
        if after <= before:
            self.store_bias(torch.zeros_like(bias) if old is None else old)
            return Change(self.name, self.path, algorithm, "unchanged", before, before)
        return Change(self.name, self.path, algorithm, what, before, after)

    def try_integers(self, integers: Tensor, algorithm: str) -> Change:
        """Take these integers if the layer is nearer to the float model with them, on what is held out."""
        old, before = self.integers, self.sqnr()
        self.store(integers)
        after = self.sqnr()
        if after <= before:
            self.store(old)
            return Change(self.name, self.path, algorithm, "unchanged", before, before)
        moved = int((integers != old).sum())
        return Change(self.name, self.path, algorithm, f"{moved} of {old.numel()} weights", before, after)


def layers_of(
    float_model: Any, quantized: nn.Module, batches: Iterable[Any], memory: int = MEMORY
) -> Iterator[TunableLayer]:
    """The layers with integer weights of a model from `to_int8`, `convert_graph` or eager `convert`, in their order.

    Args:
        float_model: the original module, or its graph (`zeropoint.graph.workflow.float_graph`).
        batches: input batches. A batch is a tensor, a tuple of positional arguments, or a dictionary of keyword
            arguments. Uses as many as fit into `memory`.
        memory: bytes for the values of all batches at one place.

    Raises:
        ValueError: without a batch.

    Example:
        >>> import zeropoint
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> batches = [torch.randn(16, 4) for _ in range(4)]
        >>> quantized = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
        >>> [(layer.path, layer.integers.shape) for layer in layers_of(model, quantized, batches)]
        [('0', torch.Size([8, 4])), ('2', torch.Size([2, 8]))]
    """
    from zeropoint.accuracy.eager_layers import eager_layers
    from zeropoint.accuracy.graph_layers import graph_layers

    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        raise ValueError("batches is empty: pass at least one batch")
    every = itertools.chain([first], iterator)
    if isinstance(quantized, Quantized):
        yield from graph_layers(float_model, quantized, every, memory)
    elif isinstance(quantized, torch.jit.ScriptModule):
        raise NotImplementedError("TorchScript models cannot be tuned: pass the original module to to_int8")
    else:
        yield from eager_layers(float_model, quantized, every, memory)


def round_layers(
    algorithm: str,
    rounded: Callable[[TunableLayer], Tensor | None],
    float_model: Any,
    quantized: nn.Module,
    batches: Iterable[Any],
    seconds: float = math.inf,
    found: dict[Any, Any] | None = None,
) -> tuple[Change, ...]:
    """Give each layer the integers that an algorithm finds for it, if it is nearer with them, in place.

    Args:
        rounded: the integers for a layer; None for one that it cannot round.
        seconds: after which no layer is begun; the rest stays as it is.
        found: the integers that were found before, which are tried instead of looking for them again; and the new ones.
    """
    end = time.monotonic() + seconds
    changes = []
    known = _Integers({} if found is None else found)
    for layer in layers_of(float_model, quantized, batches):
        if time.monotonic() >= end:
            break
        integers = known.of(layer)
        if integers is None:
            integers = rounded(layer)
            known.add(layer, integers)
        if integers is not None:
            changes.append(layer.try_integers(integers, algorithm))
    return tuple(changes)


class _Integers:
    """Integers of layers that were found before: a layer with the same weight and scale may have them."""

    def __init__(self, found: dict[Any, Any]) -> None:
        self._found = found

    def of(self, layer: TunableLayer) -> Tensor | None:
        """Those of a layer; None if they are not known."""
        for weight, scale, zero_point, integers in self._found.get(self._key(layer), ()):
            if all(map(torch.equal, (weight, scale, zero_point), (layer.weight, layer.scale, layer.zero_point))):
                return integers.to(torch.int32).reshape(layer.weight.shape)
        return None

    def add(self, layer: TunableLayer, integers: Tensor | None) -> None:
        if integers is not None:
            stored = integers.to(torch.uint8 if layer.low >= 0 else torch.int8)
            self._found.setdefault(self._key(layer), []).append((layer.weight, layer.scale, layer.zero_point, stored))

    @staticmethod
    def _key(layer: TunableLayer) -> Any:
        return layer.path, tuple(layer.weight.shape), layer.low, layer.high
