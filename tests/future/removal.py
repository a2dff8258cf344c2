"""A PyTorch that has lost quantization, for tests: ``pytest -p removal`` with this folder on the path, or `remove()`.

What goes: the modules, the names in torch, the methods of Tensor, and the kernels of the operators, for Python,
TorchScript, exported and compiled code alike. What stays: Tensor.is_quantized and torch.qscheme, which PyTorch's own
code asks for. Tests that need what is gone, as the oracle, are marked `oracle` and left out.
"""

from __future__ import annotations

import builtins
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
import torch._inductor.fx_passes.mkldnn_fusion
import torch._inductor.fx_passes.quantization
import torch._inductor.quantized_lowerings
import torch.export
import torch.fx
import torch.jit._recursive

GONE_MODULES = re.compile(
    r"torch\.(ao|quantization|nn\.(quantized|qat|intrinsic|quantizable)|backends\.quantized)(\.|$)"
)
# What other libraries give cannot be had on such a PyTorch as long as they import what is gone.
LEANING_MODULES = re.compile(r"torchao(\.|$)")
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
        torch._inductor.fx_passes.mkldnn_fusion._mkldnn_fusion_init,
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
    seen_by_compilers: dict[tuple[str, str], Any] = {}

    def lookup(self: Any, name: str) -> Any:
        if self.name not in spaces and f"{self.name}::{name}" not in packets:
            return found(self, name)
        if sys._getframe(1).f_globals.get("__name__", "").startswith(_COMPILERS):
            known = seen_by_compilers.get((self.name, name))
            if known is None:  # looked up once: PyTorch adds the name to a list each time, which it may be walking over
                known = seen_by_compilers[self.name, name] = found(self, name)
                vars(self).pop(name, None)
            return known
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


class _Stand:
    """In the place of what is gone while files of tests are imported: tests that use it are left out afterwards.

    So that a file that names PyTorch's quantization in a table or a decorator can be read, for its other tests.
    """

    __all__ = __path__ = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> _Stand:
        if name.startswith("__") or not _COLLECTING:
            raise AttributeError(f"removed: {name!r}")
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> _Stand:
        if not _COLLECTING:
            raise RuntimeError("removed: PyTorch's quantization")
        return self

    def __getitem__(self, key: Any) -> _Stand:
        return self

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, value: object) -> bool:
        return False


_COLLECTING: list[bool] = []
_BEFORE: list[tuple[Any, str, Any]] = []  # what `_stand_in` changed, until all tests are collected
_TESTS = str(Path(__file__).parents[1])


def _in_a_test_file(frame: Any) -> bool:
    return bool(_COLLECTING) and frame.f_globals.get("__file__", "").startswith(_TESTS)


def _is_stood_for(module: str, frame: Any) -> bool:
    return bool(GONE_MODULES.match(module) or LEANING_MODULES.match(module)) and _in_a_test_file(frame)


def _stand_in() -> None:
    """Show stands to files of tests, and to nobody else."""
    find, find_by_name = builtins.__import__, importlib.import_module
    name_of, operator_of = torch.__getattr__, torch._ops._OpNamespace.__getattr__

    def load(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if _is_stood_for(name, sys._getframe(1)):
            return _Stand() if fromlist else torch
        return find(name, globals, locals, fromlist, level)

    def load_by_name(name: str, package: str | None = None) -> Any:
        return _Stand() if _is_stood_for(name, sys._getframe(1)) else find_by_name(name, package)

    def attribute(name: str) -> Any:
        gone = GONE_NAMES.match(name) or GONE_MODULES.match(f"torch.{name}")
        return _Stand() if gone and _in_a_test_file(sys._getframe(1)) else name_of(name)

    def operator(self: Any, name: str) -> Any:
        try:
            return operator_of(self, name)
        except AttributeError:
            if not _in_a_test_file(sys._getframe(1)):
                raise
            return _Stand()

    for place, name, function in (
        (builtins, "__import__", load),
        (importlib, "import_module", load_by_name),
        (torch, "__getattr__", attribute),
        (torch._ops._OpNamespace, "__getattr__", operator),
    ):
        _BEFORE.append((place, name, getattr(place, name)))
        setattr(place, name, function)


def pytest_configure(config: pytest.Config) -> None:
    remove()
    _stand_in()
    _COLLECTING.append(True)


def pytest_collection_finish(session: pytest.Session) -> None:
    _COLLECTING.clear()
    while _BEFORE:
        setattr(*_BEFORE.pop())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-of-each", action="store_true", help="run one item of each test function, as CI does")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    free = [item for item in items if item.get_closest_marker("oracle") is None]
    functions, all_functions = _by_function(free), _by_function(items)
    config._future = len(free), len(items), len(functions), len(all_functions)  # type: ignore[attr-defined]
    kept = list(functions.values()) if config.getoption("--one-of-each") else free
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def _by_function(items: list[pytest.Item]) -> dict[str, pytest.Item]:
    """The first item of each test function."""
    found: dict[str, pytest.Item] = {}
    for item in items:
        found.setdefault(item.nodeid.partition("[")[0], item)
    return found


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not (counts := getattr(config, "_future", None)):
        return
    free, found, functions, all_functions = counts
    if found:
        terminalreporter.write_line(
            f"without PyTorch's quantization: {free} of {found} tests ({free / found:.0%}), {functions} of"
            f" {all_functions} functions ({functions / all_functions:.0%})"
        )
