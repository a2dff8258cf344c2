"""The public surface is pinned: a changed name or signature shows as a diff of tests/golden/public_surface.txt.

Run this file to write the golden file anew:  .venv/bin/python tests/test_public_surface.py
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import zeropoint
from zeropoint import numerics, ops
from zeropoint.ops.library import KERNELS

GOLDEN = Path(__file__).parent / "golden" / "public_surface.txt"
REGENERATE = ".venv/bin/python tests/test_public_surface.py"


def submodules(package: ModuleType) -> list[ModuleType]:
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def defined_in(module: ModuleType) -> dict[str, Any]:
    """The public functions and classes that `module` itself defines."""
    return {
        name: value
        for name, value in sorted(vars(module).items())
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    }


# The operators of torch.ops.zeropoint, every overload; taken before any test can register one of its own.
SCHEMAS = sorted(
    (s for s in torch._C._jit_get_all_schemas() if s.name.startswith("zeropoint::")),
    key=lambda s: (s.name, s.overload_name),
)
MODULES = [zeropoint.cpu, *submodules(numerics)]


def signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("'", "")  # annotations are strings


def described(path: str, value: Any) -> Iterator[str]:
    """The lines of the golden file for one name."""
    if inspect.ismodule(value):
        yield f"module {path}"
    elif inspect.isclass(value):
        yield f"class {path}{signature(value)}" if dataclasses.is_dataclass(value) else f"class {path}"
        fields = [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        for name in sorted({*fields, *vars(value)}):
            if not name.startswith("_"):
                yield f"    .{name}"
    elif inspect.isroutine(value):
        yield f"def {path}{signature(value)}"
    else:
        yield f"{path} = {value!r}"


def surface() -> str:
    lines = [f"# What zeropoint offers. Written by: {REGENERATE}", "", "# import zeropoint"]
    for name in sorted(zeropoint.__all__):
        lines += described(f"zeropoint.{name}", getattr(zeropoint, name))
    for module in MODULES:
        lines += ["", f"# {module.__name__}"]
        for name, value in defined_in(module).items():
            if getattr(zeropoint, name, None) is not value:
                lines += described(f"{module.__name__}.{name}", value)
    lines += ["", "# torch.ops.zeropoint", *map(str, SCHEMAS)]
    return "\n".join(lines) + "\n"


def test_the_surface_is_the_golden_one() -> None:
    expected = GOLDEN.read_text().splitlines() if GOLDEN.exists() else []
    got = surface().splitlines()
    gone = [f"  - {line}" for line in expected if line not in got]
    new = [f"  + {line}" for line in got if line not in expected]
    assert got == expected, "\n".join(
        [
            "The public surface changed.",
            *gone,
            *new,
            f"If that is meant, run  {REGENERATE}  and commit the golden file.",
        ]
    )


@pytest.mark.parametrize("name", sorted(zeropoint.__all__))
def test_public_name_resolves_and_is_documented(name: str) -> None:
    assert not name.startswith("_")
    value = getattr(zeropoint, name)
    assert name in dir(zeropoint)
    assert inspect.getdoc(value)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'quantize_everything'"):
        _ = zeropoint.quantize_everything


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_public_functions_are_documented(module: ModuleType) -> None:
    assert module.__doc__
    bare = [name for name, value in defined_in(module).items() if not value.__doc__]
    assert not bare, f"{module.__name__}: no docstring on {', '.join(bare)}"


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{s.name}.{s.overload_name or 'default'}")
def test_operator_has_a_documented_function(schema: Any) -> None:
    """`op.overload` is documented by the function op_overload, or by the function op that stands for all overloads."""
    op = schema.name.removeprefix("zeropoint::")
    names = [f"{op}_{schema.overload_name}", op]
    functions = [getattr(module, name, None) for module in submodules(ops) for name in names]
    functions += [KERNELS.get(name) for name in names]  # those that a loop defines
    assert any(inspect.getdoc(function) for function in functions if function is not None), (
        f"none of the modules of zeropoint.ops has a documented function {' or '.join(names)}"
    )


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(surface())
    print(f"wrote {GOLDEN}")
