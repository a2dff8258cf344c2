"""An environment with the packages of tests/clients: clients_venv.py build/clients-venv

Each is installed without what it depends on, which would be another torch; what importing it needs is listed with it.
The other packages, zeropoint and torch among them, are those of the interpreter that runs this script. A package that
pip cannot install is named, and the clients that need it are lines of the table that say so.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from venv_beside import venv_beside

CLIENTS = Path(__file__).resolve().parents[1] / "tests" / "clients"


def packages() -> list[str]:
    """What the clients need, each once."""
    found: dict[str, None] = {}
    for path in sorted(CLIENTS.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PACKAGES":
                found |= dict.fromkeys(ast.literal_eval(node.value))
    pinned = {name.partition("==")[0] for name in found if "==" in name}
    return [name for name in found if name not in pinned]


def main(folder: Path) -> None:
    pip = venv_beside(folder)
    for name in packages():
        ran = subprocess.run([*pip, "--no-deps", "--no-compile", name], capture_output=True, text=True)
        if ran.returncode:
            print(f"clients: NOT INSTALLED: {name}: {ran.stderr.strip().splitlines()[-1][:150]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
