"""Bias correction: what quantization adds to the mean of each channel is taken off the bias again.

Rounding weights moves the expected result of a layer (Nagel et al., 2019, section 4.2). A float layer on the same
inputs says by how much, channel by channel; the biases are corrected one layer after the other, first layer first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from zeropoint.accuracy.layers import Change, layers_of


def correct_biases(float_model: Any, quantized: nn.Module, batches: Iterable[Any]) -> tuple[Change, ...]:
    """Subtract the mean error of each output channel from the bias of each layer, in place.

    Changes a layer only if its output gets closer to the float model on held-out batches. A layer without a bias gets
    one.

    Args:
        float_model: the original model.
        quantized: its quantized version, from `to_int8`, `convert_graph`, eager `convert` or `quantize_dynamic`.
        batches: input batches; labels are not needed.
    """
    changes = []
    for layer in layers_of(float_model, quantized, batches):
        if not layer.gives_wanted:
            continue
        axis = layer.operation.channel_axis
        channels = layer.wanted[0].shape[axis]
        off, rows = torch.zeros(channels, dtype=torch.float64), 0
        for wanted, got in zip(layer.to_fit(layer.wanted), layer.to_fit(layer.run())):
            difference = (wanted.double() - got.double()).movedim(axis, -1).reshape(-1, channels)
            off += difference.sum(0)
            rows += len(difference)
        mean = (off / max(rows, 1)).float()
        bias = mean if layer.bias is None else layer.bias.detach() + mean
        changes.append(
            layer.try_bias(bias, "bias correction", f"{channels} biases by {float(mean.abs().max()):.2g} at most")
        )
    return tuple(changes)
