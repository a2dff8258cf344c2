"""Which layers gain from input-weight equalization."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.compat.fx.model_report.detector import (
    PRE_OBSERVER_NAME,
    WEIGHTED,
    DetectorBase,
    DetectorQConfigInfo,
    watch,
    watched,
)
from zeropoint.compat.fx.model_report.observer import ModelReportObserver


class InputWeightEqualizationDetector(DetectorBase):
    """Advises equalization where the channels of an input and the columns of the weight take similar shares of a range.

    For each channel, ``s = sqrt(share of the column in the range of the weight / share of the channel in that of the
    input)``. A channel gains if s is between `ratio_threshold` and its inverse; a layer, if four of ten channels do.

    Args:
        ratio_threshold: between 0 and 1.
        ch_axis: the axis of the channels.
    """

    DEFAULT_PRE_OBSERVER_NAME = PRE_OBSERVER_NAME
    WEIGHT_PREFIX = "weight_"
    ACTIVATION_PREFIX = "input_activation_"
    PER_CHANNEL_MAX_KEY = "per_channel_max"
    PER_CHANNEL_MIN_KEY = "per_channel_min"
    GLOBAL_MAX_KEY = "global_max"
    GLOBAL_MIN_KEY = "global_min"
    RECOMMENDED_KEY = "input_weight_equalization_recommended"
    COMP_METRIC_KEY = "input_weight_channel_comparison_metrics"
    THRESHOLD_KEY = "input_weight_threshold"
    CHANNEL_KEY = "input_weight_channel_axis"
    SUPPORTED_MODULES = frozenset(WEIGHTED)
    DEFAULT_RECOMMEND_INPUT_WEIGHT_CHANNEL_RATIO = 0.4

    def __init__(self, ratio_threshold: float, ch_axis: int = 1) -> None:
        if not 0 < ratio_threshold < 1:
            raise ValueError(f"ratio_threshold must be above 0 and below 1, got {ratio_threshold}")
        self.ratio_threshold, self.ch_axis = ratio_threshold, ch_axis

    def get_detector_name(self) -> str:
        return "input_weight_equalization_detector"

    def determine_observer_insert_points(self, model: fx.GraphModule) -> dict[str, dict[str, Any]]:
        """In front of linear layers and convolutions."""
        return watch(model, lambda m: isinstance(m, WEIGHTED), lambda: ModelReportObserver(ch_axis=self.ch_axis))

    def _ranges(self, prefix: str, low: Tensor, high: Tensor) -> dict[str, Tensor]:
        return {
            prefix + self.PER_CHANNEL_MAX_KEY: high,
            prefix + self.PER_CHANNEL_MIN_KEY: low,
            prefix + self.GLOBAL_MAX_KEY: high.max(),
            prefix + self.GLOBAL_MIN_KEY: low.min(),
        }

    def _shares(self, path: str, prefix: str, ranges: dict[str, Tensor]) -> Tensor:
        whole = ranges[prefix + self.GLOBAL_MAX_KEY] - ranges[prefix + self.GLOBAL_MIN_KEY]
        if whole == 0:
            raise ValueError(f"all values of the {prefix.rstrip('_')} of {path} are equal: run the model on other data")
        return (ranges[prefix + self.PER_CHANNEL_MAX_KEY] - ranges[prefix + self.PER_CHANNEL_MIN_KEY]) / whole

    def _found(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        found = {}
        for path, module in watched(model, WEIGHTED, PRE_OBSERVER_NAME):
            observer = getattr(module, PRE_OBSERVER_NAME)
            weight = module.weight.detach().to(torch.float32).movedim(self.ch_axis, 0).flatten(1)
            inputs = self._ranges(self.ACTIVATION_PREFIX, observer.min_val, observer.max_val)
            weights = self._ranges(self.WEIGHT_PREFIX, *torch.aminmax(weight, dim=1))
            of_weight = self._shares(path, self.WEIGHT_PREFIX, weights)
            of_input = self._shares(path, self.ACTIVATION_PREFIX, inputs)
            if len(of_input) % len(of_weight):
                raise ValueError(
                    f"{path} has an input of {len(of_input)} channels on axis {self.ch_axis}, and a weight for "
                    f"{len(of_weight)}: use another ch_axis for the detector"
                )
            # Groups of a convolution have the same columns.
            s = torch.sqrt(of_weight.repeat(len(of_input) // len(of_weight))) / torch.sqrt(of_input)
            found[path] = {
                self.RECOMMENDED_KEY: [self.ratio_threshold <= v <= 1 / self.ratio_threshold for v in s.tolist()],
                self.COMP_METRIC_KEY: s,
                self.THRESHOLD_KEY: self.ratio_threshold,
                self.CHANNEL_KEY: self.ch_axis,
                **inputs,
                **weights,
            }
        return found

    def _gains(self, entry: dict[str, Any]) -> bool:
        channels = entry[self.RECOMMENDED_KEY]
        return sum(channels) / len(channels) >= self.DEFAULT_RECOMMEND_INPUT_WEIGHT_CHANNEL_RATIO

    def get_qconfig_info(self, model: nn.Module) -> dict[str, DetectorQConfigInfo]:
        return {
            path: DetectorQConfigInfo(path, is_equalization_recommended=self._gains(entry))
            for path, entry in self._found(model).items()
        }

    def generate_detector_report(self, model: nn.Module) -> tuple[str, dict[str, Any]]:
        found = self._found(model)
        lines = ["Input-weight equalization:"]
        for path, entry in found.items():
            channels, advised = entry[self.RECOMMENDED_KEY], "equalize" if self._gains(entry) else "leave"
            lines.append(f"  {path}: {advised}, as {sum(channels)} of {len(channels)} channels gain")
        if not found:
            lines.append("  no linear layer and no convolution was observed")
        return "\n".join(lines) + "\n", found
