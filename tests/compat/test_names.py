"""The table of old names against everything PyTorch 2.13 exports."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from zeropoint.compat import lookup, names
from zeropoint.compat.modules import resolve

TREES = (
    "torch.ao.quantization",
    "torch.ao.nn",
    "torch.quantization",
    "torch.nn.quantized",
    "torch.nn.qat",
    "torch.nn.intrinsic",
    "torch.nn.quantizable",
)
# Modules in these trees that have nothing to do with them.
OTHERS = {"torch.quantization._quantized_conversions"}
OLD_NAME = re.compile(
    r"quant(?!ile)|^q_|^qscheme$|^q(u?)int\d|per_(tensor|channel)_|int_repr|choose_qparams|saturate_weight|^fbgemm_"
    r"|moving_avg_obs"
)
# Operators on floats that only have the word in their names.
NEWER = {"_dyn_quant_matmul_4bit", "_dyn_quant_pack_4bit_weight"}


def old_modules() -> list[str]:
    found = []
    for tree in TREES:
        found.append(tree)
        for info in pkgutil.walk_packages(importlib.import_module(tree).__path__, tree + "."):
            found.append(info.name)
    return sorted(set(found) - OTHERS)


def exported(path: str) -> set[str]:
    """What a module offers: its `__all__`, and the public functions and classes that it defines."""
    module = importlib.import_module(path)
    listed = set(getattr(module, "__all__", ()))
    own = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == path
    }
    return {n for n in listed | own if not inspect.ismodule(getattr(module, n, None))}


def is_gone(path: str) -> bool:
    current = lookup.current_path(path)
    return any(current == gone or current.startswith(gone + ".") for gone in names.GONE)


@pytest.mark.parametrize("path", [p for p in old_modules() if not is_gone(p) and p not in names.CONTAINERS])
def test_every_exported_name_is_in_the_table(path: str) -> None:
    forgotten = exported(path) - set(lookup.names_of(path)) - BROKEN.get(path, set())
    assert not forgotten, f"{path}: say in compat/names.py what becomes of {sorted(forgotten)}"


# Names that PyTorch lists in `__all__` and does not have.
BROKEN = {
    "torch.quantization": {
        "_prepare_ondevice_dynamic_jit",
        "_convert_ondevice_dynamic_jit",
        "_quantize_ondevice_dynamic_jit",
        "WeightObserver",
        "observer",
    }
}


def every_entry() -> Iterator[tuple[str, lookup.Counterpart]]:
    for module in lookup.old_modules():
        for name, found in lookup.names_of(module).items():
            yield f"{module}.{name}", found
    for part in (names.FUNCTIONS, names.VALUES, names.OPERATORS):
        yield from lookup.entries(part)


def test_every_counterpart_exists() -> None:
    missing = []
    for name, found in every_entry():
        if found.path:
            try:
                resolve(found.path)
            except (AttributeError, ImportError):
                missing.append(f"{name} -> {found.path}")
    assert not missing


def test_every_absent_name_has_its_reason() -> None:
    reasons = {found.reason for _, found in every_entry() if not found.path} | set(names.GONE.values())
    assert all(len(reason.split()) > 5 for reason in reasons)


@pytest.mark.oracle  # it walks over what PyTorch has
def test_every_function_and_value_of_torch_is_in_the_table() -> None:
    known = dict(lookup.entries(names.FUNCTIONS)) | dict(lookup.entries(names.VALUES))
    found = {n for n in dir(torch) if OLD_NAME.search(n) and not inspect.ismodule(getattr(torch, n))}
    assert found - set(known) == NEWER
    assert not {n for n in known if not hasattr(torch, n)}


def test_every_method_of_tensors_is_in_the_table() -> None:
    assert {n for n in dir(torch.Tensor) if OLD_NAME.search(n)} | {"dequantize"} == set(names.METHODS.split())


def operators(namespace: str) -> set[str]:
    return {s.name.split("::")[1] for s in torch._C._jit_get_all_schemas() if s.name.startswith(f"{namespace}::")}


@pytest.mark.oracle  # it walks over what PyTorch has
def test_every_operator_is_in_the_table() -> None:
    known = {name for name, _ in lookup.entries(names.OPERATORS)}
    assert not operators("quantized") - known
    importlib.import_module("torch.ao.quantization.fx._decomposed")
    assert operators("quantized_decomposed") - {"convert_element_type"} == set(names.DECOMPOSED.split())


@pytest.mark.parametrize(
    ("path", "name", "ours"),
    [
        ("torch.ao.quantization", "prepare", "zeropoint.prepare"),
        ("torch.quantization.observer", "MinMaxObserver", "zeropoint.MinMaxObserver"),
        ("torch.nn.quantized._reference.modules.linear", "Linear", "zeropoint.nn.quantized.reference.Linear"),
        ("torch.ao.nn.intrinsic", "_FusedModule", "zeropoint.nn.intrinsic.FusedModule"),
    ],
)
def test_names_are_found_under_every_path(path: str, name: str, ours: Any) -> None:
    assert lookup.names_of(path)[name].path == ours


def test_no_name_stands_twice_in_one_place() -> None:
    for part in (*names.MODULES.values(), names.FUNCTIONS, names.VALUES, names.OPERATORS):
        listed = [name for name, _ in lookup.entries(part)]
        assert len(listed) == len(set(listed))


def taken(path: str) -> dict[str, str]:
    """Names of a module that other modules of torch.ao define, which have a counterpart of ours, and those modules."""
    found = {}
    for name, value in vars(importlib.import_module(path)).items():
        home = getattr(value, "__module__", None)
        if isinstance(home, str) and home != path and home.startswith("torch.ao") and not name.startswith("__"):
            counterpart = lookup.names_of(home).get(name)
            if counterpart is not None and counterpart.path:
                found[name] = counterpart.path
    return found


@pytest.mark.parametrize("path", [path for path in old_modules() if not is_gone(path)])
def test_names_can_be_imported_from_modules_that_take_them_from_others(path: str) -> None:
    known = lookup.reachable_from(path)
    for name, ours in taken(path).items():
        assert name in known, name
        assert known[name].path is None or resolve(known[name].path) is resolve(ours), name
