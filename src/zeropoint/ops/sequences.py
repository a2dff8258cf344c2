"""Sequences of several lengths in one padded tensor: what pack_padded_sequence and pad_packed_sequence are in a graph.

A packed sequence has as many rows as its sequences have steps together, which no graph knows. Here the tensor stays
padded, ``(steps, batch, ...)`` with the longest sequence first, and the number of sequences that reach each step,
`batch_sizes`, goes along. Recurrent layers compute what they compute on the packed sequence, and zeros behind the ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.ops.library import Size, named, operator


def _fake_batch_sizes(lengths: Tensor, steps: Size) -> Tensor:
    return lengths.new_empty((steps,), dtype=torch.int64)


@operator(fake=_fake_batch_sizes)
def batch_sizes(lengths: Tensor, steps: Size) -> Tensor:
    """How many sequences reach each step.

    Args:
        lengths: int64, ``(batch,)``, the longest first, each from 1 to `steps`.
        steps: of the padded tensor.

    Raises:
        ValueError: for lengths that do not fit.

    Example:
        >>> batch_sizes(torch.tensor([3, 1]), 4)
        tensor([2, 1, 1, 0])
    """
    if lengths.dim() != 1 or lengths.dtype != torch.int64:
        raise ValueError(f"lengths must be int64 and have one axis, got {lengths.dtype}, shape {tuple(lengths.shape)}")
    if bool((lengths < 1).any()) or bool((lengths > steps).any()):
        raise ValueError(f"lengths must be from 1 to {steps}, the steps of the sequence")
    if bool((lengths[1:] > lengths[:-1]).any()):
        raise ValueError("lengths must not grow: sort the sequences, or pass enforce_sorted=False")
    return (lengths > torch.arange(steps, device=lengths.device)[:, None]).sum(1)


def _fake_mask(batch_sizes: Tensor, batch: Size) -> Tensor:
    return batch_sizes.new_empty((batch_sizes.shape[0], batch), dtype=torch.bool)


@operator(fake=_fake_mask)
def padding_mask(batch_sizes: Tensor, batch: Size, whole: bool) -> Tensor:
    """Which values of ``(steps, batch)`` belong to a sequence, and are no padding.

    Args:
        whole: the longest sequence must be as long as the tensor: without total_length, what is made of it is.

    Raises:
        ValueError: if it is not, with the way out.

    Example:
        >>> padding_mask(torch.tensor([2, 1]), 2, True)
        tensor([[ True,  True],
                [ True, False]])
    """
    if whole and int(batch_sizes[-1]) == 0:
        longest, steps = int((batch_sizes > 0).sum()), batch_sizes.shape[0]
        raise ValueError(
            f"the longest sequence has {longest} steps and the input {steps}: cut the input to the longest, or pass"
            f" total_length={steps} to pad_packed_sequence"
        )
    return torch.arange(batch, device=batch_sizes.device) < batch_sizes[:, None]


def packed_rows(input: Tensor, batch_sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of a packed sequence, how many belong to each step that there is, and where they are from."""
    mask = torch.arange(input.shape[1]) < batch_sizes[:, None]
    return input[mask], batch_sizes[batch_sizes > 0], mask


def _define(name: str, several: bool) -> Callable[..., Any]:
    """An operator of ATen's on padded sequences."""
    types = {"hx": "Tensor[]" if several else "Tensor", "return": f"(Tensor, Tensor{', Tensor' * several})"}

    def fake(input: Tensor, hx: Any, params: Sequence[Tensor], *rest: Any) -> tuple[Tensor, ...]:
        states = list(hx) if several else [hx]
        units = states[0].shape[-1] * (2 if rest[4] else 1)
        return (input.new_empty((*input.shape[:2], units)), *(torch.empty_like(s) for s in states))

    @operator(fake=fake, name=f"{name}_padded", types=types)
    def run(
        input: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        batch_sizes: Tensor,
    ) -> tuple[Tensor, ...]:
        if batch_first:
            raise ValueError(f"{name}_padded: input must be (steps, batch, inputs)")
        data, sizes, mask = packed_rows(input, batch_sizes)
        whole = getattr(torch.ops.aten, name).data
        options = (list(params), has_biases, num_layers, dropout, train, bidirectional)
        y, *last = whole(data, sizes, list(hx) if several else hx, *options)
        made = y.new_zeros((*input.shape[:2], y.shape[-1]))
        made[mask] = y
        return (made, *last)

    return named(f"{name}_padded", run, f"aten.{name} on sequences of several lengths, see `batch_sizes`.")


lstm_padded = _define("lstm", True)
gru_padded = _define("gru", False)
rnn_tanh_padded = _define("rnn_tanh", False)
rnn_relu_padded = _define("rnn_relu", False)
