"""Every model of `interchange_models` in every way in and out of zeropoint: the matrix of docs/interchange.md.

    .venv/bin/python tests/interop/matrix.py                            print it
    .venv/bin/python tests/interop/matrix.py --write                    write it to docs/interchange.md
    .venv/bin/python tests/interop/matrix.py --pythons python3.10 ...   with the wheels of dist/ on these interpreters

A cell says how far a result is from the one it is compared with: "same bytes"; "equal", up to floats that are summed in
another order; "within a step", of 8 bits over the results; so many steps; or which library rejects it, and why. The
last columns run the programs where PyTorch is not: by the C++ example `run`, here and in qemu (`make check-arm` builds
it), and wheels.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("", "interop", "c_api")]
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # as in the Makefile

import c_library
import numpy as np
import torch
import ways
from interchange_models import MODELS, case, step_of
from safetensors.numpy import load_file, save_file

import zeropoint
from zeropoint import runtime

PAGE = ROOT / "docs" / "interchange.md"
BEGIN, END = "<!-- matrix: written by tests/interop/matrix.py -->", "<!-- end of the matrix -->"
PROGRAMS = ROOT / "build" / "interchange"
SUM_ORDER = 1e-6  # of the largest result: floats are summed in another order
REASON = 70  # characters of an error that a cell has room for


class Refused(Exception):
    """Who refused a model, and why."""

    def __init__(self, who: str, error: Exception) -> None:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        super().__init__(f"{who} rejects it: {first[:REASON]}{'...' if len(first) > REASON else ''}")


def by(who: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """What a function gives; its errors are refusals of `who`."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return function(*args, **named)
    except Exception as error:  # whatever it is: the cell says it
        raise Refused(who, error) from error


def verdict(found: Any, wanted: Any) -> str:
    """How far results are from those that they are compared with."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"WRONG: {found.dtype} {found.shape}, not {wanted.dtype} {wanted.shape}"
    if found.tobytes() == wanted.tobytes():
        return "same bytes"
    apart = float(np.abs(found.astype(np.float64) - wanted).max())
    if apart <= SUM_ORDER * float(np.abs(wanted).max()):
        return "equal"
    steps = apart / step_of(wanted)
    return "within a step" if steps <= 1 else f"{math.ceil(steps)} steps"


def ours(name: str) -> Any:
    with torch.no_grad():
        return case(name).quantized()(*case(name).example).numpy()


# ---------------------------------------------------------------------------------------------------------------- cells


Cell = Callable[[str, Path], str]
Exported = Callable[[str, Path], Path]


def _model_file(name: str, folder: Path) -> Path:
    by("zeropoint", zeropoint.export_onnx, case(name).quantized(), case(name).example, folder / "model.onnx")
    return folder / "model.onnx"


def _program_file(name: str, folder: Path) -> Path:
    by("zeropoint", zeropoint.export_onnx, runtime.load(_kept(name)), None, folder / "program.onnx")
    return folder / "program.onnx"


def _out(exported: Exported, who: str, run: Callable[..., Any]) -> Cell:
    return lambda name, folder: verdict(by(who, run, exported(name, folder), case(name).example), ours(name))


def _out_and_in(exported: Exported) -> Cell:
    def cell(name: str, folder: Path) -> str:
        again = by("zeropoint", zeropoint.from_onnx, exported(name, folder), case(name).example)
        return verdict(_program(again, name), ours(name))

    return cell


def in_from_onnx_runtime(name: str, folder: Path) -> str:
    return _read(name, by("its quantizer", ways.quantized_by_onnx_runtime, name, folder))


def in_from_nncf(name: str, folder: Path) -> str:
    if case(name).mode == "dynamic":
        return "no such mode"
    return _read(name, by("NNCF", ways.quantized_by_nncf, name, folder))


def _read(name: str, path: Path) -> str:
    model = by("zeropoint", zeropoint.from_onnx, path, case(name).example)
    return verdict(_program(model, name), by("ONNX Runtime", ways.as_the_file_says, path, case(name).example))


def _in_from_pt2e(static: Callable[[], Any], dynamic: Callable[[], Any] | None) -> Cell:
    def cell(name: str, folder: Path) -> str:
        quantizer = static if case(name).mode == "static" else dynamic
        if quantizer is None:
            return "no such mode"
        theirs = by("torchao", ways.converted, case(name), quantizer())
        model = by("zeropoint", zeropoint.from_pt2e, theirs)
        return verdict(_program(model, name), by("torchao", theirs, *case(name).example).numpy())

    return cell


def _program(model: Any, name: str) -> Any:
    """What the program of a model gives."""
    example = case(name).example
    return by("zeropoint", lambda: zeropoint.compile(model, example)(*example).numpy())


# ------------------------------------------------------------------------------------------------------ without PyTorch


def _kept(name: str) -> Path:
    """The program of a model in a folder, with inputs and results, as scripts/try_wheel.py wants it."""
    path = PROGRAMS / f"{name.replace(', ', '_')}.zpt"
    if not path.exists():
        PROGRAMS.mkdir(parents=True, exist_ok=True)
        example = case(name).example
        program = zeropoint.compile(case(name).quantized(), example)
        arrays = {f"input_{i:02}": x.numpy() for i, x in enumerate(example)}
        save_file(arrays | {"output_00": np.ascontiguousarray(ours(name))}, path.with_suffix(".safetensors"))
        program.save(path)
    return path


def _by_client(*command: str | Path) -> Cell:
    def cell(name: str, folder: Path) -> str:
        path = _kept(name)
        arrays = load_file(path.with_suffix(".safetensors"))
        files = []
        for key in sorted(key for key in arrays if key.startswith("input")):
            (folder / key).write_bytes(np.ascontiguousarray(arrays[key]).tobytes())
            files.append(folder / key)
        ran = subprocess.run([str(c) for c in (*command, path, *files)], capture_output=True, timeout=600)
        if ran.returncode != 0:
            return f"WRONG: {ran.stderr.decode().strip()[:REASON]}"
        wanted = arrays["output_00"]
        return verdict(np.frombuffer(ran.stdout, wanted.dtype).reshape(wanted.shape), wanted)

    return cell


def _client_here() -> Path:
    """The C++ example, built against the installed C API."""
    build = PROGRAMS / "cpp"
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={c_library.installed()}"]
    for command in (["cmake", "-S", ROOT / "examples" / "cpp", "-B", build, *options], ["cmake", "--build", build]):
        subprocess.run([str(c) for c in command], check=True, capture_output=True, env=tools, timeout=900)
    return build / "run"


def _in_wheel(python: str) -> tuple[str, Cell]:
    """An environment with the wheel of dist/ for an interpreter, and what runs a program there."""
    asked = "import sys; print('%d.%d cp%d%d' % (*sys.version_info[:2], *min(sys.version_info[:2], (3, 12))))"
    version, tag = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.split()
    wheels = sorted((ROOT / "dist").glob(f"zeropoint-*-{tag}-*.whl"))
    if not wheels:
        raise SystemExit(f"matrix: dist/ has no wheel for {python}: make wheel PYTHONS={python}")
    place = PROGRAMS / f"python{version}"
    if not (place / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", str(place)], check=True)
    quiet = ["-q", "--disable-pip-version-check", "install", "--force-reinstall", "--no-deps"]
    subprocess.run([str(place / "bin" / "pip"), *quiet[:3], "numpy", "safetensors"], check=True)
    subprocess.run([str(place / "bin" / "pip"), *quiet, str(wheels[-1])], check=True)

    def cell(name: str, folder: Path) -> str:
        path = _kept(name)
        for part in (path, path.with_suffix(".safetensors")):
            (folder / part.name).write_bytes(part.read_bytes())
        command = [str(place / "bin" / "python"), str(ROOT / "scripts" / "try_wheel.py"), str(folder)]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
        return "same bytes" if ran.returncode == 0 else f"WRONG: {ran.stderr.strip().splitlines()[-1][:REASON]}"

    return f"wheel, Python {version}", cell


# ---------------------------------------------------------------------------------------------------------------- table


def columns(pythons: list[str]) -> Iterator[tuple[str, Cell]]:
    yield "ONNX out, ONNX Runtime", _out(_model_file, "ONNX Runtime", ways.by_onnx_runtime)
    yield "ONNX out, OpenVINO", _out(_model_file, "OpenVINO", ways.by_openvino)
    yield "ONNX out, ours again", _out_and_in(_model_file)
    yield "`.zpt` to ONNX, ONNX Runtime", _out(_program_file, "ONNX Runtime", ways.as_the_file_says)
    yield "`.zpt` to ONNX, ours again", _out_and_in(_program_file)
    yield "ONNX Runtime's quantizer in", in_from_onnx_runtime
    yield "NNCF in", in_from_nncf
    yield "PT2E in, x86", _in_from_pt2e(ways.x86_quantizer, ways.x86_dynamic_quantizer)
    yield "PT2E in, XNNPACK", _in_from_pt2e(ways.xnnpack_quantizer, None)
    yield "C++ client", _by_client(_client_here())
    arm = ROOT / "build" / "arm" / "examples" / "run"
    if arm.exists():
        yield (
            "C++ client, aarch64 in qemu",
            _by_client("qemu-aarch64-static", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu", arm),
        )
    else:
        print("matrix: NOT RUN: aarch64: make check-arm builds the client", file=sys.stderr)
    yield from map(_in_wheel, pythons)


def table(models: list[str], pythons: list[str]) -> str:
    rows = []
    for title, cell in columns(pythons):
        row = [title]
        for name in models:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    row.append(cell(name, Path(folder)))
                except Refused as reason:
                    row.append(str(reason))
            print(f"{title}; {name}: {row[-1]}", file=sys.stderr, flush=True)
        rows.append(row)
    lines = [["way", *models], ["---"] * (1 + len(models)), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "/") for text in line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="some of the models")
    parser.add_argument("--pythons", nargs="*", default=[], help="interpreters for the wheels of dist/")
    parser.add_argument("--write", action="store_true", help="write the table to docs/interchange.md")
    options = parser.parse_args()
    for old in PROGRAMS.glob("*.zpt"):
        old.unlink()
    made = table(options.models, options.pythons)
    print(made)
    if options.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.split(END)[1]}")
    if "WRONG" in made:
        raise SystemExit("matrix: something is neither near nor refused")


if __name__ == "__main__":
    main()
