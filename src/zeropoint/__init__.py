"""zeropoint: quantization of PyTorch models to int8, on CPUs.

Names load on first use (PEP 562), so that what needs no torch works where torch is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from typing import Any


def _exports() -> tuple[dict[str, str], list[str]]:
    """Public name -> the module that defines it, and the public modules: as the stub has them, so there is one list."""
    source = __loader__.get_data(os.path.join(os.path.dirname(__file__), "__init__.pyi")).decode()  # type: ignore[union-attr]
    names: dict[str, str] = {}
    for module, listed in re.findall(r"^from zeropoint\.?([\w.]*) import ([^(\n]+|\([^)]+\))", source, re.MULTILINE):
        names.update(dict.fromkeys(re.findall(r"as (\w+)", listed), module))
    return {name: module for name, module in names.items() if module}, [n for n, module in names.items() if not module]


_EXPORTS, _MODULES = _exports()
__all__ = [*_EXPORTS, *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("zeropoint")
    module = _EXPORTS.get(name)
    if module is None and name not in _MODULES:
        raise AttributeError(f"module 'zeropoint' has no attribute {name!r}")
    try:
        loaded = importlib.import_module(f"zeropoint.{module or name}")
    except ModuleNotFoundError as error:
        if error.name == "torch":
            from zeropoint.installation import install_command

            raise ImportError(f"zeropoint.{name} needs PyTorch: {install_command('torch')}") from error
        raise
    value = getattr(loaded, name) if module else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _stand_in(path: str) -> Any:
    """A function that loads what `zeropoint.<path>` names, and calls it."""
    module, _, name = path.rpartition(".")

    def rebuild(*parts: Any) -> Any:
        return getattr(importlib.import_module(f"zeropoint.{module}"), name)(*parts)

    rebuild.__name__ = rebuild.__qualname__ = f"_rebuild_{name}"
    return rebuild


def _meet_torch() -> None:
    """Register what files name: our operators, for TorchScript, and what torch.load(weights_only=True) may call."""
    stand_ins = {
        path: _stand_in(path)
        for path in (
            "tensor.qtensor.rebuild",
            "qfunctions.packed.LinearPackedParams",
            "qfunctions.packed.LinearPackedParamsFp16",
            "qfunctions.packed.ConvPackedParams",
            "qfunctions.recurrent.CellParams",
            "qfunctions.embedding.EmbeddingPackedParams",
            "qfunctions.weight_only.WeightOnlyPackedParams",
        )
    }
    # Under their own names too: the first call imports what they stand for, which then has the other name, while a
    # file that is being loaded calls the stand-in again.
    sys.modules["torch"].serialization.add_safe_globals(
        [*stand_ins.values(), *((f, f"zeropoint.{path}") for path, f in stand_ins.items())]
    )
    importlib.import_module("zeropoint.ops")
    makers = importlib.import_module("zeropoint.ops.qtensor_storage").MAKERS
    for name in ("per_tensor", "per_channel"):
        makers.setdefault(name, _maker(makers, name))


def _maker(makers: Any, name: str) -> Any:
    """What makes QTensors until zeropoint.tensor is loaded: it loads that, which puts its own in this place."""

    def make(*parts: Any) -> Any:
        importlib.import_module("zeropoint.tensor")
        return makers[name](*parts)

    return make


class _AfterTorch:
    """Finds torch as everybody does, once, and calls `_meet_torch` when it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_meet(module: Any) -> None:
                load(module)
                _meet_torch()

            spec.loader.exec_module = load_and_meet  # type: ignore[method-assign]
        return spec


if sys.modules.get("torch"):
    _meet_torch()
else:
    sys.meta_path.insert(0, _AfterTorch())
