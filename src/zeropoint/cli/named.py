"""``package.module:name``: something in Python code, found from the working directory, too."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import typer

from zeropoint.regular_file import require_regular

__all__ = ["existing", "is_named", "named"]


def is_named(text: str) -> bool:
    """Whether `text` names something in code, not a file.

    Example:
        >>> is_named("package.module:model"), is_named("model.pt2")
        (True, False)
    """
    module, colon, name = text.partition(":")
    return (
        bool(colon)
        and not Path(text).exists()
        and all(p.isidentifier() for p in (*module.split("."), *name.split(".")))
    )


def named(text: str) -> Any:
    """What ``package.module:name`` names.

    Example:
        >>> named("math:pi") > 3
        True
    """
    module, _, name = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
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


def existing(text: str) -> Path:
    """The path of a file that must be there."""
    path = Path(text)
    try:
        require_regular(path)
    except FileNotFoundError:
        raise typer.BadParameter(f"no such file: {text}. Did you mean package.module:name?") from None
    except OSError as error:
        raise typer.BadParameter(str(error)) from None
    return path
