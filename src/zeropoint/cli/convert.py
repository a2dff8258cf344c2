"""zeropoint convert"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.paths import existing, writable


def convert(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="A file from torch.save or torch.jit.save with a torch.ao model.")
    ],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The safetensors file to write.", callback=writable())],
    as_json: AsJson = False,
) -> None:
    """Convert the state dict of a torch.ao checkpoint to safetensors, without executing code from the file."""
    path = existing(old)
    with work(as_json):
        from zeropoint.compat import convert as convert_file

        state = convert_file(path, new)
        show(f"{new}: {len(state)} entries from {path}", {"file": str(new), "entries": list(state)}, as_json)
