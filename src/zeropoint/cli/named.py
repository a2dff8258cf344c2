"""Imports ``package.module:name`` or ``file.py:name``, also from the working directory."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import typer


def is_named(text: str) -> bool:
    """Whether `text` names something in code, not a file.

    Example:
        >>> is_named("package.module:model"), is_named("code/own.py:model"), is_named("model.pt2")
        (True, True, False)
    """
    module, _, name = text.rpartition(":")
    parts = [*([] if _is_file(module) else module.split(".")), *name.split(".")]
    return not Path(text).exists() and all(part.isidentifier() for part in parts)


def _is_file(module: str) -> bool:
    return module.endswith(".py")


def named(text: str) -> Any:
    """What ``package.module:name`` or ``file.py:name`` names.

    Example:
        >>> named("math:pi") > 3
        True
    """
    module, _, name = text.rpartition(":")
    folder = os.getcwd()
    if _is_file(module):
        if not Path(module).is_file():
            raise typer.BadParameter(f"{text}: there is no file {module}")
        folder, module = os.path.dirname(os.path.abspath(module)), Path(module).stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise typer.BadParameter(
            f"{text}: cannot find the module {error.name!r} from {os.getcwd()}: run the "
            "command in the folder of the module, or install it"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise typer.BadParameter(f"{text}: {module} has no {name!r}")
        found = getattr(found, part)
    return found
