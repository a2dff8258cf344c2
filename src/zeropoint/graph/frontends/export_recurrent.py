"""LSTM and GRU as one node each, with a sequence length that stays free.

torch.export follows both step by step to find the shapes of their results, and so fixes the length of the sequence to
that of the example. While a model is captured, operators that know these shapes stand in for the two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint import torch_versions

__all__ = ["restore_recurrences", "whole_recurrences"]

_LIBRARY = torch.library.Library("zeropoint_capture", "DEF")
_OPTIONS = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)
_LIBRARY.define(f"lstm(Tensor input, Tensor[] hx, {_OPTIONS}) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(f"gru(Tensor input, Tensor hx, {_OPTIONS}) -> (Tensor, Tensor)")


def _output(input: Tensor, hidden: Tensor, directions: int) -> Tensor:
    return input.new_empty((*input.shape[:-1], hidden.shape[-1] * directions))


def _lstm_shapes(input: Tensor, hx: list[Tensor], *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _output(input, hx[0], 2 if rest[5] else 1), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _gru_shapes(input: Tensor, hx: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _output(input, hx, 2 if rest[5] else 1), torch.empty_like(hx)


_LIBRARY.impl("lstm", torch.ops.aten.lstm.input, "CompositeExplicitAutograd")
_LIBRARY.impl("gru", torch.ops.aten.gru.input, "CompositeExplicitAutograd")
torch.library.register_fake("zeropoint_capture::lstm", _lstm_shapes, lib=_LIBRARY)
torch.library.register_fake("zeropoint_capture::gru", _gru_shapes, lib=_LIBRARY)
_STAND_INS: dict[Any, Any] = {
    torch.ops.zeropoint_capture.lstm.default: torch.ops.aten.lstm.input,
    torch.ops.zeropoint_capture.gru.default: torch.ops.aten.gru.input,
}


def _instead(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    stand_in = getattr(torch.ops.zeropoint_capture, name).default

    def call(*args: Any) -> Any:
        padded = isinstance(args[2], (list, tuple))  # sequences that are packed have their sizes before the states
        return stand_in(*args) if padded and torch_versions.is_exporting() else own(*args)

    return call


@contextlib.contextmanager
def whole_recurrences() -> Iterator[None]:
    """In here, nn.LSTM and nn.GRU are captured as stand-ins."""
    functions: Any = torch._VF
    for name in ("lstm", "gru"):
        setattr(functions, name, _instead(name, getattr(torch._C._VariableFunctions, name)))
    try:
        yield
    finally:
        for name in ("lstm", "gru"):
            delattr(functions, name)


def restore_recurrences(graph: fx.GraphModule) -> None:
    """ATen's operators in the place of the stand-ins."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target in _STAND_INS:
            node.target = _STAND_INS[node.target]
    graph.recompile()
