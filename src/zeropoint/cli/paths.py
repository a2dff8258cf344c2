"""Files that commands read and write, checked before any work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import typer

from zeropoint.regular_file import require_regular

_FILES = {".pt2", ".pt", ".onnx", ".zpt", ".gguf", ".npy", ".npz", ".safetensors", ".json"}


def existing(text: str) -> Path:
    """The path of a file that must be there."""
    path = Path(text)
    if path.is_dir():
        raise typer.BadParameter(f"{text} is a folder: pass a file")
    try:
        require_regular(path)
    except FileNotFoundError:
        hint = "" if path.suffix in _FILES else ". Did you mean package.module:name?"
        raise typer.BadParameter(f"no such file: {text}{hint}") from None
    except OSError as error:
        raise typer.BadParameter(str(error)) from None
    return path


def require_other(output: Path | None, *inputs: str | None) -> None:
    """Refuse to write over what is read."""
    for text in inputs:
        both = output is not None and text is not None and output.exists() and Path(text).exists()
        if both and os.path.samefile(str(output), str(text)):
            raise typer.BadParameter(f"{output} would be overwritten, and is an input: write to another file")


def writable(*suffixes: str) -> Callable[[Path | None], Path | None]:
    """What checks an option for a file to write: its suffix, and that it can be created where it shall be."""

    def check(path: Path | None) -> Path | None:
        if path is None:
            return None
        if suffixes and path.suffix not in suffixes:
            raise typer.BadParameter(f"output must end in {' or '.join(suffixes)}, got {path}")
        folder = Path(os.path.realpath(path)).parent
        if path.is_dir():
            raise typer.BadParameter(f"{path} is a folder: pass the name of a file")
        if not folder.is_dir():
            raise typer.BadParameter(f"{path} cannot be written: create the folder {path.parent} first")
        if not path.exists() and not os.access(folder, os.W_OK | os.X_OK):
            raise typer.BadParameter(f"{path} cannot be written: you may not create files in {path.parent}")
        return path

    return check
