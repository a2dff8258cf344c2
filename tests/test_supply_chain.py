"""What is installed and why, and what importing does: nothing outside this process."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[1]
SECURITY = (ROOT / "SECURITY.md").read_text()


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower() for requirement in requirements}


def test_every_package_that_users_install_has_a_reason() -> None:
    described = set()
    for row in re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", SECURITY, re.MULTILINE):
        described |= {name.strip().lower() for name in row.split(",")}
    wanted = project()
    installed = names(wanted["project"]["dependencies"]) | names(wanted["build-system"]["requires"])
    for extra in ("torch", "cli", "migrate"):
        installed |= names(wanted["project"]["optional-dependencies"][extra])
    assert installed <= described, f"say in SECURITY.md why {sorted(installed - described)} is installed"


def test_hashes_are_those_of_the_pinned_versions() -> None:
    text = (ROOT / "constraints.txt").read_text()
    pinned = set()
    for section in ("# build", "# runtime"):
        pinned |= {line for line in text.split(f"{section}\n")[1].split("\n\n")[0].splitlines() if line}
    hashed = dict(
        re.findall(
            r"^(\S.*?) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
            (ROOT / "hashes.txt").read_text(),
            re.MULTILINE,
        )
    )
    assert set(hashed) == pinned, "run scripts/write_hashes.py"


IMPORT = """
    import sys
    seen = []
    def hook(event, arguments):
        if event.startswith(("socket.", "urllib.", "http.", "ftplib.", "smtplib.")) and event != "socket.__new__":
            seen.append((event, str(arguments)[:200]))
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            seen.append((event, str(arguments)[:200]))
        if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            seen.append((event, str(arguments)[:200]))
    {before}
    sys.addaudithook(hook)
    {imports}
    print(seen)
"""


@pytest.mark.parametrize(
    ("before", "imports"),
    [
        ("pass", "import zeropoint.runtime"),
        ("import torch, torch.export", "import zeropoint; [getattr(zeropoint, name) for name in zeropoint.__all__]"),
    ],
    ids=["runtime", "everything"],
)
def test_importing_opens_no_connection_writes_no_file_and_starts_no_process(before: str, imports: str) -> None:
    code = textwrap.dedent(IMPORT).format(before=before, imports=imports)
    command = [sys.executable, "-B", "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_native_core_needs_the_standard_library_alone() -> None:
    from zeropoint import _native

    done = subprocess.run(["ldd", _native.__file__], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        pytest.skip("ldd is not here")
    needed = set(re.findall(r"^\s*(?:/\S*/)?(lib[a-z_+]+|ld-linux)[^\s]*", done.stdout, re.MULTILINE))
    assert needed <= {"libstdc++", "libm", "libgcc_s", "libc", "ld-linux", "libpthread", "libdl"}, done.stdout
