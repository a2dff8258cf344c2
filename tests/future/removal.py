"""A PyTorch that has lost quantization, for tests: ``pytest -p removal`` with this folder on the path, or `remove()`.

What goes: the modules, the names in torch, the methods of Tensor, and the kernels of the operators, for Python,
TorchScript, exported and compiled code alike. What stays: Tensor.is_quantized and torch.qscheme, which PyTorch's own
code asks for. Tests that need what is gone, as the oracle, are marked `oracle` and left out.
"""

from __future__ import annotations

import importlib.abc
import re
import sys
import types
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
import torch._dynamo
import torch._inductor.compile_fx
import torch._inductor.quantized_lowerings
import torch.export
import torch.fx
import torch.jit._recursive

GONE_MODULES = re.compile(
    r"torch\.(ao|quantization|nn\.(quantized|qat|intrinsic|quantizable)|backends\.quantized)(\.|$)"
)
GONE_METHODS = (
    "dequantize", "int_repr", "q_scale", "q_zero_point", "q_per_channel_scales", "q_per_channel_zero_points",
    "q_per_channel_axis", "qscheme",
)  # fmt: skip
_STEMS = (
    r"q_(?:scale|zero_point|per_)\w*|q?u?int_repr|dequantize|quantize_per_\w+|quantized_\w+|_?empty_\w*quantized"
    r"|_make_per_\w+|_?choose_qparams\w*|fbgemm_\w+|_?_?fake_quantize_\w+|_?fused_moving_avg\w*|_saturate_weight_to_fp16"
)
GONE_NAMES = re.compile(rf"(?:{_STEMS}|qu?int\d+(?:x\d+)?|per_(?:tensor|channel)_\w+|QU?Int\w*Storage)$")
GONE_OPERATORS = re.compile(
    rf"(?:quantized|_quantized|quantized_decomposed|onednn)::|aten::(?:{_STEMS}|_empty_per_channel_\w+)(?:\.|$)"
)
# Those of PyTorch's compilers that know the operators by name. A PyTorch without them would not.
_COMPILERS = ("torch._inductor", "torch._decomp", "torch._dynamo", "torch._functorch", "torch._export", "torch.export")
_BACKENDS = ("CPU", "QuantizedCPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd")


class _Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if GONE_MODULES.match(name):
            raise ModuleNotFoundError(f"removed: No module named {name!r}", name=name)


class _GoneMethod:
    """In torch.Tensor itself it can be found, as PyTorch walks over its names; on a tensor it is an AttributeError."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        raise AttributeError(f"removed: 'Tensor' object has no attribute {self.__name__!r}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AttributeError(f"removed: 'Tensor' object has no attribute {self.__name__!r}")


def _fill_tables() -> None:
    """PyTorch lists its own names once, when it first compiles or unpickles: before they go."""
    import torch._dynamo.trace_rules as rules
    import torch._dynamo.variables.torch as variables

    for fill in (
        torch.overrides.get_overridable_functions,
        torch.overrides.get_testing_overrides,
        torch.overrides.get_ignored_functions,
        rules.get_tensor_method,
        rules.get_torch_obj_rule_map,
        variables.get_overridable_functions,
        torch._weights_only_unpickler._get_allowed_globals,
    ):
        fill()


def _remove_modules() -> None:
    decomposed = sys.modules.get("torch.ao.quantization.fx._decomposed")
    if decomposed is not None:
        decomposed.quantized_decomposed_lib._destroy()
    for name in [n for n in sys.modules if GONE_MODULES.match(n)]:
        parent, _, last = name.rpartition(".")
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(last, None)
        del sys.modules[name]
    sys.meta_path.insert(0, _Refusing())
    # TorchScript's compiler asks whether a module is a QuantWrapper.
    wrapper = types.SimpleNamespace(quantization=types.SimpleNamespace(QuantWrapper=type("QuantWrapper", (), {})))
    seen_by_torchscript = types.ModuleType("torch")
    seen_by_torchscript.__getattr__ = lambda name: wrapper if name == "ao" else getattr(torch, name)  # type: ignore[method-assign]
    torch.jit._recursive.torch = seen_by_torchscript


def _remove_names() -> None:
    storages = [n for n in dir(torch) if re.match(r"QU?Int\w*Storage$", n)]
    kept = {k: v for k, v in torch.storage._dtype_to_storage_type_map().items() if v not in storages}
    torch.storage._dtype_to_storage_type_map = lambda: kept
    torch.storage._storage_type_to_dtype_map.cache_clear()
    for name in storages:
        torch._storage_classes.discard(getattr(torch, name))
    for name in [n for n in dir(torch) if GONE_NAMES.match(n)]:
        delattr(torch, name)
    for name in GONE_METHODS:
        setattr(torch.Tensor, name, _GoneMethod(name))


_LIBRARIES: dict[str, Any] = {}


def _remove_operators() -> None:
    gone = [n for n in torch._C._dispatch_get_all_op_names() if GONE_OPERATORS.match(n)]
    for full in gone:
        space, _, name = full.partition("::")

        def removed(*args: Any, _full: str = full, **kwargs: Any) -> NoReturn:
            raise RuntimeError(f"removed: operator {_full}")

        library = _LIBRARIES.setdefault(space, torch.library.Library(space, "IMPL"))
        for key in _BACKENDS:
            if torch._C._dispatch_has_kernel_for_dispatch_key(full, key):
                library.impl(name, removed, key, allow_override=True)
    packets = {n.split(".")[0] for n in gone}
    spaces = {n.split("::")[0] for n in gone} - {"aten"}
    found = torch._ops._OpNamespace.__getattr__

    def lookup(self: Any, name: str) -> Any:
        if self.name not in spaces and f"{self.name}::{name}" not in packets:
            return found(self, name)
        if sys._getframe(1).f_globals.get("__name__", "").startswith(_COMPILERS):
            packet = found(self, name)
            vars(self).pop(name, None)
            return packet
        raise AttributeError(f"removed: torch.ops.{self.name}.{name}")

    for packet in packets:
        space, _, name = packet.partition("::")
        vars(getattr(torch.ops, space)).pop(name, None)
    torch._ops._OpNamespace.__getattr__ = lookup


def remove() -> None:
    """Take PyTorch's quantization away, for the rest of this process."""
    _fill_tables()
    _remove_modules()
    _remove_names()
    _remove_operators()


# ------------------------------------------------------------------------------------------ as a pytest plugin


sys.path.insert(0, str(Path(__file__).parents[1]))

from oracle_uses import oracle_names


def pytest_configure(config: pytest.Config) -> None:
    remove()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Files that cannot even be imported."""
    if collection_path.suffix != ".py" or not collection_path.stem.startswith("test_"):
        return None
    return True if "*" in oracle_names(collection_path) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if item.get_closest_marker("oracle") is None]
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("oracle") is not None])
    config._future = len(kept), len(items)  # type: ignore[attr-defined]
    items[:] = kept


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    kept, found = getattr(config, "_future", (0, 0))
    if found:
        terminalreporter.write_line(f"without PyTorch's quantization: {kept} of {found} tests ({kept / found:.0%})")
