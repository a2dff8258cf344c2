"""The runtime where PyTorch is not: what it imports, and the wheel next to numpy and safetensors alone."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import golden_programs
import pytest

from zeropoint import runtime

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(runtime.__file__).parent


def run(*command: str | Path, timeout: float = 600) -> str:
    ran = subprocess.run([str(c) for c in command], cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-5000:]
    return ran.stdout


# Of the layers above, what the runtime uses.
BELOW = ("atomic_file", "cpu", "html_table")
SOURCES = [*sorted(PACKAGE.glob("*.py")), *(PACKAGE.parent / f"{name}.py" for name in BELOW)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_runtime_is_written_with_the_standard_library_alone(path: Path) -> None:
    """Arrays are numpy's, but only the native core makes them."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            first, _, rest = name.partition(".")
            own = (first == "zeropoint" and rest in ("", "_native", *BELOW)) or name.startswith("zeropoint.runtime")
            assert own or first in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_running_a_program_imports_numpy_and_nothing_else() -> None:
    path = golden_programs.FOLDER / "image.zpt"
    code = (
        "import sys; before = set(sys.modules)\n"
        "import zeropoint.runtime\n"
        f"program = zeropoint.runtime.load({str(path)!r})\n"
        "import numpy\n"
        "program(numpy.zeros((1, 3, 8, 8), numpy.float32)); program.profile(numpy.zeros((1, 3, 8, 8), numpy.float32))\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - set(sys.stdlib_module_names) - {'numpy', 'zeropoint'}))\n"
    )
    others = run(sys.executable, "-c", code).split()
    assert [name for name in others if not name.startswith(("_editable", "__editable"))] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)  # it may build the whole native core
@pytest.mark.skipif("ZEROPOINT_TEST_WHEEL" not in os.environ, reason="builds a wheel: make test-runtime")
def test_the_wheel_runs_programs_where_torch_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, ".", timeout=3000)
    (wheel,) = tmp_path.glob("zeropoint-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        installed = sum(entry.file_size for entry in archive.infolist())
    assert "zeropoint/runtime/program.schema.json" in names
    assert not [name for name in names if name.startswith("tests/") or name.endswith((".cpp", ".h"))]

    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    here = (python, "-m", "pip", "--disable-pip-version-check", "-q", "install", "-c", ROOT / "constraints.txt")
    run(*here, "numpy", "safetensors")
    run(*here, "--no-deps", wheel)
    output = run(python, "-I", ROOT / "scripts" / "try_wheel.py", golden_programs.FOLDER)
    assert output.strip().endswith(f": {len(golden_programs.paths())} programs, equal bytes")
    listed = run(python, "-m", "pip", "--disable-pip-version-check", "list", "--format", "freeze")
    packages = {line.split("==")[0].split()[0] for line in listed.splitlines()}
    assert packages <= {"numpy", "pip", "safetensors", "setuptools", "zeropoint"}
    with capsys.disabled():
        print(f"\nwheel: {wheel.stat().st_size:,} bytes, installed {installed:,} bytes")
