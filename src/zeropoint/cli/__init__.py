"""The command line: ``zeropoint --help``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; exit code 0: done, 1: the work failed, 2: wrong usage."""
    try:
        from zeropoint.cli.app import app
    except ModuleNotFoundError as error:
        if error.name in ("typer", "rich"):
            sys.exit("zeropoint: the command line needs typer and rich: pip install 'zeropoint[cli]'")
        raise
    app()
