"""LSTM and GRU as one node each, with a sequence length that stays free.

torch.export follows both step by step to find the shapes of their results, and so fixes the length of the sequence to
that of the example. While a model is captured, operators that know these shapes stand in for the two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode

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
_BY_FUNCTION: dict[Any, Any] = {
    torch._C._VariableFunctions.lstm: torch.ops.zeropoint_capture.lstm.default,
    torch._C._VariableFunctions.gru: torch.ops.zeropoint_capture.gru.default,
}
_STAND_INS: dict[Any, Any] = {
    torch.ops.zeropoint_capture.lstm.default: torch.ops.aten.lstm.input,
    torch.ops.zeropoint_capture.gru.default: torch.ops.aten.gru.input,
}


class whole_recurrences(TorchFunctionMode):  # used as a context
    """In here, nn.LSTM and nn.GRU are captured as stand-ins. It holds for this thread alone."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        stand_in = _BY_FUNCTION.get(function)
        # Sequences that are packed have their sizes before the states.
        if stand_in is not None and isinstance(args[2], (list, tuple)) and torch_versions.is_exporting():
            return stand_in(*args)
        return function(*args, **(kwargs or {}))


def restore_recurrences(graph: fx.GraphModule) -> None:
    """ATen's operators in the place of the stand-ins."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target in _STAND_INS:
            node.target = _STAND_INS[node.target]
    graph.recompile()
