"""Print what pyproject.toml asks for, a line each: ``requirements.py torch,cli`` with the extras torch and cli."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib  # pip reads pyproject.toml with it

ROOT = Path(__file__).resolve().parents[1]


def requirements(extras: list[str]) -> list[str]:
    """Those of the project and of its extras, each once; extras of extras (``zeropoint[torch]``) are followed."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, None] = {}
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    for requirement in (r for listed in lists for r in listed):
        name, _, rest = requirement.partition("[")
        if name == project["name"]:
            found |= dict.fromkeys(requirements(rest.partition("]")[0].split(",")))
        else:
            found[requirement] = None
    return list(found)


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1].split(","))))
