"""Environments beside the project's own: they see its packages, and have some more."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path


def venv_beside(folder: Path) -> list[str]:
    """The command that installs packages in the environment in `folder`, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=False)
        (site,) = folder.glob("lib/python3*/site-packages")
        ours = sysconfig.get_path("purelib")
        (site / "zeropoint_development.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "-qq"]
