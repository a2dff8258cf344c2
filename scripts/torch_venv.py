"""A virtual environment with another release of torch to test zeropoint with: torch_venv.py 2.9.1 build/torch-2.9.1

Takes the CPU build of the release if pip knows one, otherwise the default build. On Linux that one is for CUDA and
links gigabytes of CUDA libraries; they are replaced by libraries in which every function reports that there is no
device. Such a torch can be imported, and computes on the CPU. This needs a C compiler, binutils and ldd.

zeropoint is the one that is installed where this script runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from collections import defaultdict
from pathlib import Path

import zeropoint._native

ROOT = Path(__file__).resolve().parents[1]
NEEDED_BY_TORCH = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions")
NEEDED_BY_ZEROPOINT = ("numpy", "safetensors")
NEEDED_BY_TESTS = ("expecttest", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "scipy")

NO_DEVICE = 100  # cudaErrorNoDevice
CUDA_NAME = re.compile(r"(__cuda|cu|nccl|nv)[A-Za-z]\w*")


def main(version: str, folder: Path) -> None:
    ready = folder / ".ready"
    if not ready.exists():
        _create(version, folder)
        ready.touch()
    (packages,) = folder.glob("lib/python3*/site-packages")
    link_zeropoint(packages)


def _create(version: str, folder: Path) -> None:
    venv.create(folder, clear=True, with_pip=False)
    python = folder / "bin" / "python"
    _install_torch(python, version)
    constraints = folder / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(line for line in lines if not line.startswith("torch==")))
    _pip(python, "-c", str(constraints), *NEEDED_BY_TORCH, *NEEDED_BY_ZEROPOINT, *NEEDED_BY_TESTS)
    (libraries,) = folder.glob("lib/python3*/site-packages/torch/lib")
    stub_cuda(libraries)
    _output(python, "-c", "import torch")


def _install_torch(python: Path, version: str) -> None:
    """Without what it depends on: for the default build that is CUDA."""
    try:
        _pip(python, "--no-deps", f"torch=={version}+cpu")
    except subprocess.CalledProcessError:
        _pip(python, "--no-deps", f"torch=={version}")


def link_zeropoint(packages: Path) -> None:
    """The zeropoint that this interpreter has, its native module too: that has no torch headers, so one serves all."""
    target = packages / "zeropoint"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    native = Path(zeropoint._native.__file__)
    for entry in (*Path(zeropoint.__file__).parent.iterdir(), native):
        link = target / entry.name
        if entry.name != "__pycache__" and not link.exists():
            link.symlink_to(entry.resolve())
    (described,) = [path for path in map(Path, sys.path) for path in path.glob("zeropoint-*.dist-info")][:1]
    link = packages / described.name
    link.unlink(missing_ok=True)
    link.symlink_to(described)


def stub_cuda(libraries: Path) -> None:
    """Write a library beside torch's own for each one that they link and the machine has not."""
    own = sorted(libraries.glob("*.so"))
    missing = sorted(set(re.findall(r"(\S+) => not found", _output("ldd", *own))))
    if not missing:
        return
    symbols: dict[str, set[str]] = defaultdict(set)  # by version; without one, by ""
    for name, version in re.findall(r" U (\w+)@?(\S*)$", _output("nm", "-D", "--undefined-only", *own), re.MULTILINE):
        if CUDA_NAME.fullmatch(name):
            symbols[version].add(name)
    headers = "".join(_output("objdump", "-p", library) for library in own)
    for library in missing:
        required = re.findall(rf"required from {re.escape(library)}:\n((?:\s+0x.*\n)+)", headers)
        versions = {line.split()[-1] for block in required for line in block.splitlines()} or {""}
        _write_stub(libraries / library, {version: symbols[version] for version in sorted(versions)})


def _write_stub(path: Path, symbols: dict[str, set[str]]) -> None:
    """A library with these functions, by version."""
    names = sorted(name for version in symbols.values() for name in version)
    source, script = path.with_suffix(".c"), path.with_suffix(".map")
    source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in names))
    listed = {version: "".join(f" {name};" for name in sorted(names)) for version, names in symbols.items()}
    script.write_text("".join(f"{version} {{{names and ' global:' + names} }};\n" for version, names in listed.items()))
    versioned = [] if "" in symbols else [f"-Wl,--version-script={script}"]
    _output("cc", "-shared", "-fPIC", "-w", *versioned, f"-Wl,-soname,{path.name}", "-o", path, source)
    source.unlink()
    script.unlink()


def _pip(python: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    # pip's complaint that torch lacks CUDA is on stderr, and expected
    subprocess.run([*command, "install", "-qq", "--no-compile", *arguments], check=True, stderr=subprocess.PIPE)


def _output(*command: str | Path) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"torch_venv: {command[0]} failed:\n{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
