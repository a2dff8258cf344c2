"""``python scripts/write_hashes.py``: write hashes.txt: the SHA-256 of what pip takes for build and runtime.

For Linux on x86-64 and aarch64 and the Pythons that are supported, as the package index of this machine names them.
Checked by ``pip install --require-hashes -r hashes.txt``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PLATFORMS = [
    [
        f"{tag}_{machine}"
        for tag in (
            "manylinux_2_28",
            "manylinux_2_27",
            "manylinux_2_17",
            "manylinux2014",
            "manylinux_2_12",
            "manylinux2010",
            "manylinux1",
        )
    ]
    for machine in ("x86_64", "aarch64")
]
SECTIONS = ("# build", "# runtime")


def pins() -> list[str]:
    """The lines of constraints.txt in the sections of build and runtime."""
    found, inside = [], False
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            inside = line.strip() in SECTIONS
        elif inside and line.strip():
            found.append(line.strip())
    return found


def hashes(requirement: str, python: str, platform: list[str]) -> dict[str, str]:
    """By name and version, the hash of the file that pip takes there."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--dry-run", "--quiet"]
    command += ["--ignore-installed", "--no-deps", "--only-binary", ":all:", "--target", "unused", "--report", "-"]
    command += ["--python-version", python, *(word for tag in platform for word in ("--platform", tag)), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return {}
    return {
        f"{item['metadata']['name'].lower()}=={item['metadata']['version']}": item["download_info"]["archive_info"][
            "hashes"
        ]["sha256"]
        for item in json.loads(done.stdout)["install"]
    }


def main() -> None:
    lines = ["# Written by scripts/write_hashes.py: pip install --require-hashes -r hashes.txt"]
    for pin in pins():
        requirement, _, marker = (part.strip() for part in pin.partition(";"))
        found = set()
        for python in PYTHONS:
            if marker and not _applies(marker, python):
                continue
            for platform in PLATFORMS:
                found |= set(hashes(requirement, python, platform).values())
        if not found:
            raise SystemExit(f"write_hashes: pip finds no file for {pin}")
        lines.append(" \\\n    ".join([pin, *(f"--hash=sha256:{value}" for value in sorted(found))]))
    (ROOT / "hashes.txt").write_text("\n".join(lines) + "\n")


def _applies(marker: str, python: str) -> bool:
    match = re.fullmatch(r'python_version (>=|<) "3\.(\d+)"', marker)
    if match is None:
        raise SystemExit(f"write_hashes: a marker that is not known: {marker}")
    minor = int(python.split(".")[1])
    return minor >= int(match[2]) if match[1] == ">=" else minor < int(match[2])


if __name__ == "__main__":
    main()
