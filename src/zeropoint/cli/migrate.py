"""zeropoint migrate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zeropoint.atomic_file import replacing
from zeropoint.cli.output import AsJson, note, show, work
from zeropoint.installation import install_command


def migrate(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A Python file or a directory.")],
    write: Annotated[bool, typer.Option("--write", help="Write the files instead of showing a diff.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rewrite code that uses torch.ao.quantization to use zeropoint, and list the lines that need manual work.

    Shows a diff. Exit code 1 if some lines are left to you.
    """
    if not path.exists():
        raise typer.BadParameter(f"{path} does not exist: pass a Python file or a directory")
    with work(as_json):
        try:
            from zeropoint.compat.migrate import migrate as rewritten, python_files
        except ImportError as error:
            raise ImportError(f"zeropoint migrate needs libcst ({error}): {install_command('migrate')}") from error
        files = [rewritten(_source(file), str(file)) for file in python_files(path)]
        changed = [file for file in files if file.before != file.after]
        if write:
            for file in changed:
                with replacing(file.path) as new:
                    new.write_text(file.after, encoding="utf-8")
        left = [(file.path, finding) for file in files for finding in file.left]
        data = {
            "files": [{"file": file.path, "diff": file.diff()} for file in changed],
            "written": write,
            "left": [{"file": name, "line": f.line, "name": f.name, "reason": f.reason} for name, f in left],
        }
        text = f"{len(changed)} files written" if write else "".join(file.diff() for file in changed)
        show(text or "nothing to change", data, as_json)
    if not as_json:
        for name, finding in left:
            note(f"{name}:{finding.line}: {finding.name} stays: {finding.reason}")
    if left:
        raise typer.Exit(1)


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be rewritten: it must be text in UTF-8 ({error})") from error
