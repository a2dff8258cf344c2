"""A TorchScript model with some of its modules quantized."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from zeropoint.described import described
from zeropoint.graph.frontends.script.saved_plan import summary
from zeropoint.graph.quantize_jit import quantize_dynamic_jit, quantize_jit
from zeropoint.graph.to_int8 import call_of
from zeropoint.qconfig import QConfig, default_dynamic_qconfig, get_default_qconfig


class ScriptLayers:
    """The modules of a TorchScript model with something to quantize, and the model with only some of them quantized.

    `layers`: name, path and operators of each; "(model)" is what the model computes outside of its modules.
    """

    def __init__(self, model: Any, batches: list[Any], qconfig: Any, mode: str) -> None:
        if mode not in ("static", "dynamic"):
            raise ValueError(f"the mode of a TorchScript model must be static or dynamic, got {described(mode)}")
        if qconfig is not None and not isinstance(qconfig, QConfig):
            raise TypeError(f"qconfig must be a QConfig for a TorchScript model, got {type(qconfig).__name__}")
        self._model, self._batches, self._dynamic = model, batches, mode == "dynamic"
        self._qconfig = qconfig or (default_dynamic_qconfig if self._dynamic else get_default_qconfig("native"))
        found: dict[str, list[str]] = {}
        for row in summary(self._quantized({"": self._qconfig})).rows:
            if row.precision != "float32" and row.operator not in found.setdefault(row.path, []):
                found[row.path].append(row.operator)
        self._paths = [path for path, operators in found.items() if operators]
        self.layers = [(path or "(model)", path, ", ".join(found[path])) for path in self._paths]

    def with_layers(self, names: Collection[str]) -> Any:
        """The model with these layers quantized and all others in float."""
        return self._quantized(
            {"": None} | {path: self._qconfig if name in names else None for name, path, _ in self.layers}
        )

    def _quantized(self, qconfigs: dict[str, Any]) -> Any:
        if self._dynamic:
            return quantize_dynamic_jit(self._model, qconfigs)
        return quantize_jit(self._model, qconfigs, self._calibrate, ())

    def _calibrate(self, prepared: Any) -> None:
        with torch.no_grad():
            for batch in self._batches:
                args, kwargs = call_of(batch)
                prepared(*args, **kwargs)
