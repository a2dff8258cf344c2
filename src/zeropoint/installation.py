"""The command that installs what an optional part needs, wherever zeropoint itself was installed from."""

from __future__ import annotations

from importlib import metadata


def install_command(extra: str) -> str:
    """``pip install`` with the packages of an extra by name: neither a release of zeropoint nor its sources are needed.

    Example:
        >>> install_command("onnx")
        "pip install 'onnx>=1.18' 'onnx-ir>=0.1.10'"
    """
    try:
        listed = metadata.requires("zeropoint") or []
    except metadata.PackageNotFoundError:
        listed = []
    needed = [text.partition(";")[0].strip() for text in listed if text.endswith(f'extra == "{extra}"')]
    return " ".join(["pip install", *(f"'{package}'" for package in needed or [f"zeropoint[{extra}]"])])
