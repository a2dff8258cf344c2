"""LSTM and GRU layers as one node each.

torch.export runs a recurrent layer step by step to find the shapes of its results: that takes long,
and fixes the length of sequences to theirs. Here it meets operators in their place that know
their shapes, and that are taken out of the graph again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode

__all__ = ["WholeRecurrent"]

_OPTIONS = "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"


def _result(input: Tensor, state: Tensor, bidirectional: bool) -> Tensor:
    return input.new_empty((*input.shape[:-1], state.shape[-1] * (2 if bidirectional else 1)))


def _fake_lstm(input: Tensor, hx: Sequence[Tensor], params: Any, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _result(input, hx[0], options[4]), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _fake_gru(input: Tensor, hx: Tensor, params: Any, *options: Any) -> tuple[Tensor, Tensor]:
    return _result(input, hx, options[4]), torch.empty_like(hx)


# A namespace of its own: these are in no graph that anybody sees.
_LIBRARY = torch.library.Library("zeropoint_capture", "DEF")
_LIBRARY.define(f"lstm(Tensor input, Tensor[] hx, Tensor[] params, {_OPTIONS}) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(f"gru(Tensor input, Tensor hx, Tensor[] params, {_OPTIONS}) -> (Tensor, Tensor)")
torch.library.register_fake("zeropoint_capture::lstm", _fake_lstm, lib=_LIBRARY)
torch.library.register_fake("zeropoint_capture::gru", _fake_gru, lib=_LIBRARY)

_captured, aten = torch.ops.zeropoint_capture, torch.ops.aten
_STAND_INS: dict[Callable[..., Any], Any] = {torch.lstm: _captured.lstm.default, torch.gru: _captured.gru.default}
_MEANT = {_captured.lstm.default: aten.lstm.input, _captured.gru.default: aten.gru.input}


class WholeRecurrent(TorchFunctionMode):
    """While it is entered, recurrent layers are one operator for torch.export."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        stand_in = _STAND_INS.get(function)
        if stand_in is not None and not kwargs and _is_padded(args):
            return stand_in(*args)
        return function(*args, **(kwargs or {}))

    @staticmethod
    def restore(graph: fx.Graph) -> None:
        """Put torch's own operators into a graph that was captured."""
        for node in graph.nodes:
            if node.op == "call_function" and node.target in _MEANT:
                node.target = _MEANT[node.target]


def _is_padded(args: Sequence[Any]) -> bool:
    """Not the form for packed sequences, whose second argument has the sizes of the batches."""
    return len(args) == 9 and not isinstance(args[3], (list, tuple, Tensor))
