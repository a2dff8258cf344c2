"""What 8 bits lose on a batch of the calibration, of each value and of the outputs: what `to_int8` warns of."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.graph.frontends.export import copied
from zeropoint.graph.passes.annotate import Choice, operator_name
from zeropoint.graph.passes.equalize import ChannelStatistics
from zeropoint.graph.passes.insert_observers import is_observer
from zeropoint.graph.provenance import origin
from zeropoint.graph.state_buffers import kept_state
from zeropoint.graph.torch_internals import leaves
from zeropoint.nn.quantized.storage import found_qparams, has_observed
from zeropoint.numerics.distance import Distance, decibels
from zeropoint.operators.node import packet_name

_LEAST = 3.0  # dB of signal to rounding noise: below, nearly everything is lost
_POOR = 12.0  # dB of outputs: below, a quarter of them is error
_SHOWN = 5  # operators that a warning names
_SEED = 0  # of random operators, which a graph and its lowered form call in the same order
_ROW = 8  # values that a row has at least: of fewer, some are always less than a step


@dataclass(frozen=True)
class Loss:
    """A value that rounding leaves little of: the module and operator it comes from, and its signal to noise in dB."""

    path: str
    operator: str
    sqnr: float


@dataclass(frozen=True)
class Measured:
    """A batch, what the float graph makes of it, and what rounding costs each of its values."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Any]
    losses: list[Loss]


class _Probe(nn.Module):
    """Stands in for an observer: rounds what it sees as the integers will be, and keeps how much of a row is left.

    Rows, along the last axis, are judged one by one, as a few large ones would hide what becomes of all others. Where
    the last axis is short, as in small images, a row has more axes. An observer that several values share is called
    for each of them, in the order of the graph.
    """

    def __init__(self, observer: Any) -> None:
        super().__init__()
        scale, zero_point = found_qparams(observer)
        self.scale, self.zero_point = float(scale), float(zero_point)
        self.limits = float(observer.quant_min), float(observer.quant_max)
        self.sqnr: list[float] = []  # of each call

    def forward(self, x: Tensor) -> Tensor:
        self.sqnr.append(self._of(x.detach().float()) if x.numel() else torch.inf)
        return x

    def _of(self, x: Tensor) -> float:
        length = 1
        for size in reversed(x.shape):
            if length >= _ROW:
                break
            length *= size
        rows = x.reshape(-1, length)
        rounded = ((rows / self.scale).round() + self.zero_point).clamp(*self.limits)
        noise = (rows - (rounded - self.zero_point) * self.scale).square().sum(1)
        signal = rows.square().sum(1)
        ratios = (signal / noise.clamp(min=torch.finfo(torch.float32).tiny))[signal > 0]
        return decibels(float(ratios.median()), 1.0) if len(ratios) else torch.inf


def rounding_losses(
    graph: fx.GraphModule, choices: dict[fx.Node, Choice], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Measured:
    """What rounding costs the values of a calibrated graph on a batch, in the order of the graph.

    Values that are equalized are left out: their large channels are divided before they are rounded.
    """
    probes: dict[str, _Probe] = {}
    observers: dict[str, nn.Module] = {}
    for node in graph.graph.nodes:
        observer = graph.get_submodule(str(node.target)) if is_observer(node) else None
        if observer is not None and not isinstance(observer, ChannelStatistics) and has_observed(observer):
            observers[str(node.target)], probes[str(node.target)] = observer, _Probe(observer)
    try:
        for name, probe in probes.items():
            setattr(graph, name, probe)
        outputs = _outputs(graph, args, kwargs)
    finally:
        for name, observer in observers.items():
            setattr(graph, name, observer)
    found: list[Loss] = []
    calls = {name: iter(probe.sqnr) for name, probe in probes.items()}
    for node in graph.graph.nodes:
        if is_observer(node) and str(node.target) in probes:
            value, sqnr = node.args[0], next(calls[str(node.target)])
            called = (
                operator_name(value, choices[value]) if value in choices else packet_name(value) or str(value.target)
            )
            found.append(Loss(origin(value).path, called, sqnr))
    return Measured(args, kwargs, outputs, found)


def _outputs(graph: fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What a graph returns on a copy of a batch, from its first state, with the same random numbers each time."""
    args, kwargs = copied((args, kwargs))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), kept_state(graph):
        torch.manual_seed(_SEED)
        return leaves(graph(*args, **kwargs))


def _named(losses: list[Loss]) -> str:
    return ", ".join(f"{loss.operator} in {loss.path or 'the model'} ({loss.sqnr:.1f} dB)" for loss in losses[:_SHOWN])


def warn_of_poor_outputs(measured: Measured, quantized: fx.GraphModule, stacklevel: int) -> None:
    """Say how far the outputs are from those of the float model, if that is far, and what can be done."""
    distance = Distance()
    for wanted, got in zip(measured.outputs, _outputs(quantized, measured.args, measured.kwargs)):
        if isinstance(wanted, Tensor) and wanted.is_floating_point():
            distance.add(wanted, got)
    if distance.sqnr >= _POOR or not distance.signal:
        return
    worst = sorted((loss for loss in measured.losses if loss.sqnr < torch.inf), key=lambda loss: loss.sqnr)
    warnings.warn(
        f"to_int8: on the first calibration batch, the outputs differ from those of the float model by"
        f" {10 ** (-distance.sqnr / 20):.0%} ({distance.sqnr:.1f} dB). Rounding costs the most in {_named(worst)}."
        " zeropoint.compare(model, quantized, batches) shows all layers. Try mode='dynamic', which computes ranges at"
        " run time, or zeropoint.tune, which keeps in float what loses too much",
        stacklevel=stacklevel,
    )


def warn_of_lost_values(measured: Measured, stacklevel: int) -> None:
    """Name the operators whose results are lost, and what can be done."""
    losses = [loss for loss in measured.losses if loss.sqnr < _LEAST]
    if not losses:
        return
    named = _named(losses)
    more = f" and {len(losses) - _SHOWN} more" if len(losses) > _SHOWN else ""
    warnings.warn(
        f"to_int8: 8 bits lose nearly all of the precision of these values on the calibration data: {named}{more}."
        " Their ranges are far larger than most of their values, or nearly zero. Keep them in float:"
        " QConfigMapping().set_module_name(path, None), or policy={'float_operators': ...}; or calibrate on real data",
        stacklevel=stacklevel,
    )
