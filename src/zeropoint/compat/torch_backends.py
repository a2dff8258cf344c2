"""What the rest of PyTorch knows of the old stack: the choice of an engine, and what torch.fx does with its parts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
import torch.fx
from torch.package import PackageExporter

from zeropoint.compat.changes import Changes
from zeropoint.compat.objects import PACKED
from zeropoint.context import CONTEXT
from zeropoint.ops import rounding

ENGINES = ("x86", "fbgemm", "qnnpack", "onednn", "none")


class _Engine(ModuleType):
    """torch.backends.quantized, where PyTorch has none: kernels are zeropoint's, and the engine says how they round."""

    supported_engines = list(ENGINES)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._engine = "x86"

    @property
    def engine(self) -> str:
        return self._engine

    @engine.setter
    def engine(self, value: str) -> None:
        if value not in ENGINES:
            raise ValueError(f"torch.backends.quantized.engine must be one of {', '.join(ENGINES)}, got {value!r}")
        self._engine = value


def _rounding_of_engine(zero_points: torch.Tensor, groups: int, output_padding: Sequence[int]) -> str:
    """How the engine that is set rounds in a layer. x86 has two: FBGEMM, and oneDNN for most convolutions."""
    engine = torch.backends.quantized.engine
    if engine == "x86":
        with_onednn = 0 < groups <= 100 and not any(output_padding) and not zero_points.any()
        return "onednn" if with_onednn else "fbgemm"
    return engine if engine in rounding.CODES else rounding.OURS


def _rounding_of_values() -> str:
    """Sums, means and functions are the same for all engines but one."""
    return rounding.QNNPACK if torch.backends.quantized.engine == rounding.QNNPACK else rounding.OURS


def _leaving_whole(is_leaf_module: Any) -> Any:
    def with_ours(self: Any, m: torch.nn.Module, module_qualified_name: str) -> bool:
        ours = type(m).__module__.startswith("zeropoint.nn.") and not isinstance(m, torch.nn.Sequential)
        return ours or is_leaf_module(self, m, module_qualified_name)

    return with_ours


def _naming_packed_weights(create_arg: Any) -> Any:
    """Packed weights in graphs are attributes of the module, as those of PyTorch are."""

    def with_ours(self: Any, a: Any) -> Any:
        if not isinstance(a, PACKED):
            return create_arg(self, a)
        attributes = vars(self.root)
        name = next((n for n, value in attributes.items() if value is a), None)
        if name is None:
            name = next(n for i in range(len(attributes) + 1) if (n := f"_packed_weight_{i}") not in attributes)
            setattr(self.root, name, a)
        return self.create_node("get_attr", name, (), {})

    return with_ours


def _with_zeropoint_outside(can_implicitly_extern: Any) -> Any:
    """torch.package leaves torch outside of packages, and with it what stands for a part of torch."""

    def with_ours(self: Any, module_name: str) -> bool:
        return module_name.partition(".")[0] == "zeropoint" or can_implicitly_extern(self, module_name)

    return with_ours


def adapt_surroundings(changes: Changes) -> None:
    """Let torch.fx leave quantized modules whole and know packed weights, torch.package leave our modules outside, and
    offer torch.backends.quantized, whose engine says how layers round."""
    outside = _with_zeropoint_outside(PackageExporter._can_implicitly_extern)
    changes.attribute(PackageExporter, "_can_implicitly_extern", outside)
    changes.attribute(torch.fx.Tracer, "is_leaf_module", _leaving_whole(torch.fx.Tracer.is_leaf_module))
    changes.attribute(torch.fx.Tracer, "create_arg", _naming_packed_weights(torch.fx.Tracer.create_arg))
    changes.attribute(CONTEXT, "rounding_of_layer", _rounding_of_engine)
    changes.attribute(CONTEXT, "rounding_of_values", _rounding_of_values)
    changes.attribute(CONTEXT, "reduces_range", True)
    changes.attribute(CONTEXT, "asks_observers_again", True)
    changes.attribute(CONTEXT, "says_backend", True)
    changes.attribute(CONTEXT, "scripts_only_linear", True)
    changes.attribute(CONTEXT, "refuses_unquantizable", False)  # PyTorch prepares and trains such models
    if not hasattr(torch.backends, "quantized"):
        engine = _Engine("torch.backends.quantized")
        changes.item(sys.modules, engine.__name__, engine)
        changes.attribute(torch.backends, "quantized", engine)
