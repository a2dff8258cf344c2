"""What detectors know of a tensor: how its range moves from batch to batch, how far its largest values stand out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics.dtypes import qint8
from zeropoint.observers.base import ObserverBase

_SEEN = ("min_val", "max_val", "average_percentile_ratio", "percentile_batches_tracked", "constant_channels")


class ModelReportObserver(ObserverBase):
    """Keeps statistics of what passes through, of the whole tensor and of each channel.

    Args:
        ch_axis: the axis of the channels.
        comp_percentile: what the largest value of a channel is compared with, between 0 and 1.

    Attributes:
        average_batch_activation_range: mean of ``max - min`` over the batches.
        epoch_activation_min, epoch_activation_max: range of everything since the last reset.
        min_val, max_val: range of each channel.
        average_percentile_ratio: mean of ``largest value / percentile`` of each channel, of the batches where one of
            both is not zero; `percentile_batches_tracked` says how many those are.
        constant_channels: number of batches in which a channel had one value alone.

    Example:
        >>> observer = ModelReportObserver()
        >>> _ = observer(torch.tensor([[0.0, 2.0]])), observer(torch.tensor([[0.0, 4.0]]))
        >>> observer.average_batch_activation_range, observer.get_batch_to_epoch_ratio()
        (tensor(3.), tensor(0.7500))
    """

    epoch_activation_min: Tensor
    epoch_activation_max: Tensor
    min_val: Tensor
    max_val: Tensor
    comp_percentile: Tensor
    average_percentile_ratio: Tensor
    percentile_batches_tracked: Tensor
    constant_channels: Tensor

    def __init__(self, ch_axis: int = 1, comp_percentile: float = 0.9) -> None:
        super().__init__(qint8)
        self.ch_axis = ch_axis
        self.num_batches_tracked = 0
        self.average_batch_activation_range = torch.tensor(0.0)
        self.register_buffer("epoch_activation_min", torch.tensor(math.inf))
        self.register_buffer("epoch_activation_max", torch.tensor(-math.inf))
        self.register_buffer("comp_percentile", torch.tensor([comp_percentile]))
        for name in _SEEN:
            self.register_buffer(name, torch.tensor([]))

    def forward(self, x: Tensor) -> Tensor:
        values = x.detach().to(torch.float32)
        if values.numel():
            self._observe_range(values)
            self._observe_channels(values.movedim(self.ch_axis, 0).flatten(1))
        return x

    def _observe_range(self, values: Tensor) -> None:
        low, high = torch.aminmax(values)
        self.epoch_activation_min.copy_(torch.min(self.epoch_activation_min, low))
        self.epoch_activation_max.copy_(torch.max(self.epoch_activation_max, high))
        batches, average = self.num_batches_tracked, self.average_batch_activation_range
        self.average_batch_activation_range = (average * batches + (high - low)) / (batches + 1)
        self.num_batches_tracked = batches + 1

    def _observe_channels(self, channels: Tensor) -> None:
        """Take a batch in; one row for each channel."""
        low, high = torch.aminmax(channels, dim=1)
        if self.min_val.numel() == 0:
            for name in _SEEN:
                getattr(self, name).resize_(low.shape).zero_()
            self.min_val.copy_(low)
            self.max_val.copy_(high)
        self.min_val.copy_(torch.min(self.min_val, low))
        self.max_val.copy_(torch.max(self.max_val, high))
        self.constant_channels += low == high
        place = math.floor(float(self.comp_percentile) * (channels.size(1) - 1))  # the value below, not between two
        percentile = channels.kthvalue(place + 1, dim=1).values
        counts = (percentile != 0) | (high != 0)
        ratio = torch.nan_to_num(high / percentile) * counts
        batches = self.percentile_batches_tracked
        average = (self.average_percentile_ratio * batches + ratio) / (batches + counts)
        self.average_percentile_ratio.copy_(torch.nan_to_num(average))
        batches += counts

    def get_batch_to_epoch_ratio(self) -> Tensor:
        """Mean range of a batch, divided by the range of all: near 1 if the values always lie in the same range.

        Raises:
            ValueError: if all values were equal, or nothing was seen.
        """
        everything = self.epoch_activation_max - self.epoch_activation_min
        if not 0 < float(everything) < math.inf:
            raise ValueError(
                f"the values must have a finite range above 0, got {float(everything)}: all are equal, one is "
                "infinite, or there are none"
            )
        return self.average_batch_activation_range / everything

    def reset_batch_and_epoch_values(self) -> None:
        """Forget everything."""
        self.num_batches_tracked = 0
        self.average_batch_activation_range = torch.zeros_like(self.epoch_activation_min)
        self.epoch_activation_min.fill_(math.inf)
        self.epoch_activation_max.fill_(-math.inf)
        for name in _SEEN:
            getattr(self, name).resize_(0)

    def calculate_qparams(self, **kwargs: Any) -> Any:
        raise RuntimeError(
            "a ModelReportObserver keeps statistics for detectors and has no scale and zero point: use another observer"
        )
