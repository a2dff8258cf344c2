"""zeropoint doctor"""

from __future__ import annotations

import typer

from zeropoint.cli.diagnosis import diagnose
from zeropoint.cli.output import AsJson, show


def doctor(as_json: AsJson = False) -> None:
    """Show the CPU, instruction sets, versions and known problems. Exit code 1 if the native core does not work."""
    text, data = diagnose()
    show(text, data, as_json)
    if not data["works"]:
        raise typer.Exit(1)
