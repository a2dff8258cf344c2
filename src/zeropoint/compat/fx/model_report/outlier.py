"""Which channels have single values far above the others, which widen the range for all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.compat.fx.model_report.detector import (
    PRE_OBSERVER_NAME,
    DetectorBase,
    DetectorQConfigInfo,
    watch,
    watched,
)
from zeropoint.compat.fx.model_report.observer import ModelReportObserver
from zeropoint.compat.fx.modules import is_activation_post_process


class OutlierDetector(DetectorBase):
    """Finds channels in the inputs of modules whose largest value is far from a percentile of the values.

    Args:
        ratio_threshold: a channel has outliers if largest value and percentile are this many times apart.
        reference_percentile: what the largest value is compared with, between 0 and 1.
        fraction_batches_used_threshold: the share of the batches that has to count for the answer to be sure; batches
            in which both values are zero do not.
        ch_axis: the axis of the channels.
    """

    DEFAULT_PRE_OBSERVER_NAME = PRE_OBSERVER_NAME
    INPUT_ACTIVATION_PREFIX = "input_activation_"
    OUTLIER_KEY = "outliers_detected"
    NUM_BATCHES_KEY = "outlier_detection_batches_used"
    IS_SUFFICIENT_BATCHES_KEY = "outlier_detection_is_sufficient_batches"
    COMP_METRIC_KEY = "outlier_detection_percentile_ratios"
    RATIO_THRES_KEY = "outlier_detection_ratio_threshold"
    REF_PERCENTILE_KEY = "outlier_detection_reference_percentile"
    CHANNEL_AXIS_KEY = "outlier_detection_channel_axis"
    MAX_VALS_KEY = INPUT_ACTIVATION_PREFIX + "per_channel_max"
    CONSTANT_COUNTS_KEY = "constant_batch_counts"

    def __init__(
        self,
        ratio_threshold: float = 3.5,
        reference_percentile: float = 0.975,
        fraction_batches_used_threshold: float = 0.95,
        ch_axis: int = 1,
    ) -> None:
        for name, value in (
            ("reference_percentile", reference_percentile),
            ("fraction_batches_used_threshold", fraction_batches_used_threshold),
        ):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value}")
        self.ratio_threshold, self.reference_percentile = ratio_threshold, reference_percentile
        self.fraction_batches_used_threshold, self.ch_axis = fraction_batches_used_threshold, ch_axis

    def get_detector_name(self) -> str:
        return "outlier_detector"

    def determine_observer_insert_points(self, model: fx.GraphModule) -> dict[str, dict[str, Any]]:
        """In front of every module that has no modules inside."""

        def is_watched(module: nn.Module) -> bool:
            return not any(module.children()) and not is_activation_post_process(module)

        return watch(model, is_watched, lambda: ModelReportObserver(self.ch_axis, self.reference_percentile))

    def get_qconfig_info(self, model: nn.Module) -> dict[str, DetectorQConfigInfo]:
        """Nothing: an outlier needs another model, or another observer of your choice."""
        return {}

    def _found(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        found = {}
        for path, module in watched(model, (nn.Module,), PRE_OBSERVER_NAME):
            observer: ModelReportObserver = getattr(module, PRE_OBSERVER_NAME)
            batches = observer.percentile_batches_tracked
            ratios = _at_least_one(observer.average_percentile_ratio, batches)
            needed = self.fraction_batches_used_threshold * observer.num_batches_tracked
            found[path] = {
                self.CHANNEL_AXIS_KEY: self.ch_axis,
                self.REF_PERCENTILE_KEY: self.reference_percentile,
                self.RATIO_THRES_KEY: self.ratio_threshold,
                self.COMP_METRIC_KEY: ratios,
                self.NUM_BATCHES_KEY: batches,
                self.OUTLIER_KEY: (ratios > self.ratio_threshold).tolist(),
                self.IS_SUFFICIENT_BATCHES_KEY: (batches >= needed).tolist(),
                self.CONSTANT_COUNTS_KEY: observer.constant_channels,
                self.MAX_VALS_KEY: observer.max_val,
            }
        return found

    def generate_detector_report(self, model: nn.Module) -> tuple[str, dict[str, Any]]:
        found = self._found(model)
        lines = ["Outliers in the inputs of modules:"]
        for path, entry in found.items():
            for channel, is_outlier in enumerate(entry[self.OUTLIER_KEY]):
                where = f"  {path}, channel {channel} of axis {self.ch_axis}:"
                if is_outlier:
                    ratio, most = float(entry[self.COMP_METRIC_KEY][channel]), float(entry[self.MAX_VALS_KEY][channel])
                    sure = "" if entry[self.IS_SUFFICIENT_BATCHES_KEY][channel] else ", in few batches"
                    lines.append(f"{where} the largest value, {most:.4g}, is {ratio:.4g} times the percentile{sure}")
                if constant := int(entry[self.CONSTANT_COUNTS_KEY][channel]):
                    lines.append(f"{where} all values are equal in {constant} batches")
        if len(lines) == 1:
            lines.append("  none")
        else:
            lines.append("Of inputs whose range moves this says little: see the report on dynamic quantization.")
        return "\n".join(lines) + "\n", found


def _at_least_one(ratios: Tensor, batches: Tensor) -> Tensor:
    """How many times the larger is the smaller, whatever the signs; 1 where no batch counted."""
    sizes = ratios.abs()
    sizes = torch.where(sizes < 1, 1 / sizes, sizes)
    return torch.where(batches == 0, 1.0, sizes)
