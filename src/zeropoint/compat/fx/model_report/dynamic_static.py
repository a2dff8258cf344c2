"""Which layers have inputs and results whose range moves, so that one range for all batches fits none."""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from zeropoint.compat.fx.model_report.detector import (
    POST_OBSERVER_NAME,
    PRE_OBSERVER_NAME,
    WEIGHTED,
    DetectorBase,
    DetectorQConfigInfo,
    watch,
    watched,
)
from zeropoint.compat.fx.model_report.observer import ModelReportObserver


class DynamicStaticDetector(DetectorBase):
    """Advises dynamic quantization for layers whose result is not stationary.

    Values are stationary if ``mean range of a batch / range of all batches`` is above `tolerance`.
    """

    DEFAULT_PRE_OBSERVER_NAME = PRE_OBSERVER_NAME
    DEFAULT_POST_OBSERVER_NAME = POST_OBSERVER_NAME
    STATIONARY_STR = "stationary"
    NON_STATIONARY_STR = "non-stationary"
    INPUT_ACTIVATION_PREFIX = "input_activation_"
    OUTPUT_ACTIVATION_PREFIX = "output_activation_"
    TOLERANCE_KEY = "dynamic_static_tolerance"
    DEFAULT_DYNAMIC_REC_KEY = "dynamic_recommended"
    PRE_OBS_COMP_STAT_KEY = INPUT_ACTIVATION_PREFIX + "dynamic_static_comp_stat"
    POST_OBS_COMP_STAT_KEY = OUTPUT_ACTIVATION_PREFIX + "dynamic_static_comp_stat"
    PRE_OBS_DATA_DIST_KEY = INPUT_ACTIVATION_PREFIX + "dynamic_static_data_classification"
    POST_OBS_DATA_DIST_KEY = OUTPUT_ACTIVATION_PREFIX + "dynamic_static_data_classification"
    IS_CURRENTLY_SUPPORTED_KEY = "is_dynamic_supported"
    # FX mode quantizes linear layers dynamically; of convolutions the advice is for eager mode.
    DEFAULT_DYNAMIC_STATIC_CHECK_SUPPORTED = frozenset({nn.Linear})

    def __init__(self, tolerance: float = 0.5) -> None:
        self.tolerance = tolerance

    def get_detector_name(self) -> str:
        return "dynamic_vs_static_detector"

    def determine_observer_insert_points(self, model: fx.GraphModule) -> dict[str, dict[str, Any]]:
        """In front of and behind linear layers and convolutions."""
        return watch(model, lambda module: isinstance(module, WEIGHTED), ModelReportObserver, behind=True)

    def _found(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        found = {}
        for path, module in watched(model, WEIGHTED, PRE_OBSERVER_NAME, POST_OBSERVER_NAME):
            before = getattr(module, PRE_OBSERVER_NAME).get_batch_to_epoch_ratio()
            behind = getattr(module, POST_OBSERVER_NAME).get_batch_to_epoch_ratio()
            found[path] = {
                self.TOLERANCE_KEY: self.tolerance,
                self.DEFAULT_DYNAMIC_REC_KEY: bool(behind <= self.tolerance),
                self.PRE_OBS_COMP_STAT_KEY: before,
                self.PRE_OBS_DATA_DIST_KEY: self._kind(before),
                self.POST_OBS_COMP_STAT_KEY: behind,
                self.POST_OBS_DATA_DIST_KEY: self._kind(behind),
                self.IS_CURRENTLY_SUPPORTED_KEY: isinstance(module, tuple(self.DEFAULT_DYNAMIC_STATIC_CHECK_SUPPORTED)),
            }
        return found

    def _kind(self, ratio: Any) -> str:
        return self.STATIONARY_STR if ratio > self.tolerance else self.NON_STATIONARY_STR

    def get_qconfig_info(self, model: nn.Module) -> dict[str, DetectorQConfigInfo]:
        return {
            path: DetectorQConfigInfo(path, is_activation_dynamic=entry[self.DEFAULT_DYNAMIC_REC_KEY])
            for path, entry in self._found(model).items()
        }

    def generate_detector_report(self, model: nn.Module) -> tuple[str, dict[str, Any]]:
        found = self._found(model)
        lines = ["Dynamic or static quantization:"]
        for path, entry in found.items():
            advised = "dynamic" if entry[self.DEFAULT_DYNAMIC_REC_KEY] else "static"
            line = (
                f"  {path}: {advised}, as its result is {entry[self.POST_OBS_DATA_DIST_KEY]}"
                f" ({float(entry[self.POST_OBS_COMP_STAT_KEY]):.2f} against {self.tolerance}) and its input"
                f" {entry[self.PRE_OBS_DATA_DIST_KEY]} ({float(entry[self.PRE_OBS_COMP_STAT_KEY]):.2f})"
            )
            if advised == "dynamic" and not entry[self.IS_CURRENTLY_SUPPORTED_KEY]:
                line += "; FX mode quantizes linear layers alone dynamically, quantize_dynamic this one, too"
            lines.append(line)
        if not found:
            lines.append("  no linear layer and no convolution was observed")
        return "\n".join(lines) + "\n", found
