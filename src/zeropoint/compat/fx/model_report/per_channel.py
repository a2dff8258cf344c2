"""Which weights could have a scale for each channel."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from torch import nn

from zeropoint.compat.fx.model_report.detector import WEIGHTED, DetectorBase, DetectorQConfigInfo, watched
from zeropoint.numerics.schemes import qscheme


class PerChannelDetector(DetectorBase):
    """Names linear layers and convolutions whose weight has one scale, though the backend takes one for each channel.

    Args:
        backend: native, or a name that PyTorch has for an engine.

    Raises:
        ValueError: if the backend is unknown.
    """

    BACKEND_KEY = "backend"
    PER_CHAN_SUPPORTED_KEY = "per_channel_quantization_supported"
    PER_CHAN_USED_KEY = "per_channel_quantization_used"
    DEFAULT_BACKEND_PER_CHANNEL_SUPPORTED_MODULES = MappingProxyType(
        dict.fromkeys(("native", "fbgemm", "qnnpack", "onednn", "x86"), frozenset(WEIGHTED))
    )

    def __init__(self, backend: str = "native") -> None:
        known = self.DEFAULT_BACKEND_PER_CHANNEL_SUPPORTED_MODULES
        if backend not in known:
            raise ValueError(f"backend must be one of {', '.join(known)}, got {backend!r}")
        self.backend_chosen = backend
        self.supported_modules = known[backend]

    def get_detector_name(self) -> str:
        return "per_channel_detector"

    def determine_observer_insert_points(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        """None: the qconfigs say everything."""
        return {}

    def _found(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        found = {}
        for path, module in watched(model, tuple(self.supported_modules)):
            weight = getattr(getattr(module, "qconfig", None), "weight", None)
            if weight is not None:
                found[path] = {
                    self.PER_CHAN_SUPPORTED_KEY: True,
                    self.PER_CHAN_USED_KEY: qscheme(weight().qscheme).per_channel,
                    self.BACKEND_KEY: self.backend_chosen,
                }
        return found

    def get_qconfig_info(self, model: nn.Module) -> dict[str, DetectorQConfigInfo]:
        return {path: DetectorQConfigInfo(path, is_weight_per_channel=True) for path in self._found(model)}

    def generate_detector_report(self, model: nn.Module) -> tuple[str, dict[str, Any]]:
        found = self._found(model)
        lines = [f"Further Optimizations for backend {self.backend_chosen}: "]  # as programs compare it
        others = [path for path, entry in found.items() if not entry[self.PER_CHAN_USED_KEY]]
        lines += [f"  {path} has one scale" for path in others]
        if others:
            lines.append("Give these a qconfig whose weight observer is a per-channel one.")
        else:
            lines.append("No further per_channel optimizations possible.")
        return "\n".join(lines), found
