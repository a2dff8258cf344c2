"""LSTM layers whose hidden state is projected: a step of the sequence after the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from zeropoint.graph.passes.compositions.common import NotComposed, compose

_MOST_STEPS = 256  # of all layers, each of which is some twenty nodes


def _projected_lstm(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Layers without projections have steps of their own; those of a free length would need a loop."""
    count, directions = 5 if biases else 3, 2 if bidirectional else 1
    axis = 1 if batch_first else 0
    length = x.shape[axis]
    if len(weights) != count * layers * directions or not isinstance(length, int) or (train and dropout):
        raise NotComposed
    if length * layers * directions > _MOST_STEPS:
        raise NotComposed
    last: list[tuple[Tensor, Tensor]] = []
    for layer in range(layers):
        found = []
        for direction in range(directions):
            place = layer * directions + direction
            found.append(
                _sequence(
                    x, axis, [s.select(0, place) for s in states], weights[place * count :][:count], direction == 1
                )
            )
            last.append(found[-1][1])
        x = torch.cat([outputs for outputs, _ in found], -1) if bidirectional else found[0][0]
    return x, torch.stack([hidden for hidden, _ in last]), torch.stack([cell for _, cell in last])


def _sequence(
    x: Tensor, axis: int, states: list[Tensor], weights: Sequence[Tensor], backwards: bool
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The outputs of one layer in one direction, and its last states."""
    of_input, of_hidden, *biases, projection = weights
    input_bias, hidden_bias = biases or (None, None)
    given = F.linear(x, of_input, input_bias).unbind(axis)
    hidden, cell = states
    outputs = []
    for step in reversed(given) if backwards else given:
        gates = step + F.linear(hidden, of_hidden, hidden_bias)
        enter, forget, new, leave = gates.chunk(4, -1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = F.linear(leave.sigmoid() * cell.tanh(), projection)
        outputs.append(hidden)
    return torch.stack(outputs[::-1] if backwards else outputs, axis), (hidden, cell)


compose("lstm.input", _projected_lstm)
