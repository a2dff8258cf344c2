"""LSTM, GRU and RNN as one node each, with a sequence length that stays free.

torch.export follows them step by step to find the shapes of their results, and so fixes the length of the sequence to
that of the example. While a model is captured, operators that know these shapes stand in for them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode

from zeropoint import torch_versions
from zeropoint.graph.frontends.export_packed import PACKING

_LIBRARY = torch.library.Library("zeropoint_capture", "DEF")
_OPTIONS = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)
_LIBRARY.define(f"lstm(Tensor input, Tensor[] hx, {_OPTIONS}) -> (Tensor, Tensor, Tensor)")
_ONE_STATE = ("gru", "rnn_tanh", "rnn_relu")
for _name in _ONE_STATE:
    _LIBRARY.define(f"{_name}(Tensor input, Tensor hx, {_OPTIONS}) -> (Tensor, Tensor)")


def _output(input: Tensor, hidden: Tensor, directions: int) -> Tensor:
    return input.new_empty((*input.shape[:-1], hidden.shape[-1] * directions))


def _lstm_shapes(input: Tensor, hx: list[Tensor], *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _output(input, hx[0], 2 if rest[5] else 1), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _one_state_shapes(input: Tensor, hx: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _output(input, hx, 2 if rest[5] else 1), torch.empty_like(hx)


_LIBRARY.impl("lstm", torch.ops.aten.lstm.input, "CompositeExplicitAutograd")
torch.library.register_fake("zeropoint_capture::lstm", _lstm_shapes, lib=_LIBRARY)
for _name in _ONE_STATE:
    _LIBRARY.impl(_name, getattr(torch.ops.aten, _name).input, "CompositeExplicitAutograd")
    torch.library.register_fake(f"zeropoint_capture::{_name}", _one_state_shapes, lib=_LIBRARY)
_BY_FUNCTION: dict[Any, Any] = {
    getattr(torch._C._VariableFunctions, name): getattr(torch.ops.zeropoint_capture, name).default
    for name in ("lstm", *_ONE_STATE)
}
_STAND_INS: dict[Any, Any] = {
    getattr(torch.ops.zeropoint_capture, name).default: getattr(torch.ops.aten, name).input
    for name in ("lstm", *_ONE_STATE)
}


class whole_recurrences(TorchFunctionMode):  # used as a context
    """In here, nn.LSTM, nn.GRU and nn.RNN are captured as stand-ins. It holds for this thread alone."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function in PACKING and torch_versions.is_exporting():
            return PACKING[function](*args, **(kwargs or {}))
        stand_in = _BY_FUNCTION.get(function)
        # Sequences that are packed have their sizes before the states, and then the parameters.
        if stand_in is not None and isinstance(args[2], (list, tuple)) and torch_versions.is_exporting():
            return stand_in(*args)
        return function(*args, **(kwargs or {}))


def restore_recurrences(graph: fx.GraphModule) -> None:
    """ATen's operators in the place of the stand-ins."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target in _STAND_INS:
            node.target = _STAND_INS[node.target]
    graph.recompile()
