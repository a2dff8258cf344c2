"""zeropoint convert"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zeropoint.cli.named import existing
from zeropoint.cli.output import AsJson, show, work

__all__ = ["convert"]


def convert(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="A file of torch.save or torch.jit.save with models of torch.ao.")
    ],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The safetensors file to write.")],
    as_json: AsJson = False,
) -> None:
    """Write the state_dict of a torch.ao checkpoint as safetensors. Nothing in the file is run."""
    path = existing(old)
    with work(as_json):
        from zeropoint.compat import convert as convert_file

        state = convert_file(path, new)
        show(f"{new}: {len(state)} entries from {path}", {"file": str(new), "entries": list(state)}, as_json)
