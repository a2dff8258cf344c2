"""The command line: ``zeropoint --help``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; exit code 0: done, 1: the work failed, 2: wrong usage."""
    try:
        from zeropoint.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        _without_packages(sys.argv[1:])
    else:
        app(sorted(sys.argv[1:], key=lambda argument: argument != "--traceback"))  # an option of all commands


def _without_packages(arguments: list[str]) -> None:
    """`doctor` of an install that has the runtime alone; all else says what it needs."""
    if arguments not in (["doctor"], ["doctor", "--json"]):
        from zeropoint.installation import install_command

        sys.exit(f"zeropoint: the command line needs typer and rich: {install_command('cli')}")
    import json

    from zeropoint.cli.diagnosis import diagnose

    text, data = diagnose()
    print(json.dumps(data) if "--json" in arguments else text)
    sys.exit(not data["works"])
