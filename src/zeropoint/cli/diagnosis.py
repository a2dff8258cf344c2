"""What `zeropoint doctor` finds, as text and as data; with the packages of the runtime alone."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata, util
from typing import Any

from zeropoint.installation import install_command

PACKAGES = ("torch", "numpy", "safetensors", "onnx", "onnxruntime", "openvino")


def diagnose() -> tuple[str, dict[str, Any]]:
    """The CPU, the versions, whether the native core computes what it must, and known problems."""
    from zeropoint.cpu import cpu_info

    info = cpu_info()
    problems = _problems(info)
    wrong = _self_test(info.available)
    versions = {"zeropoint": metadata.version("zeropoint"), "python": platform.python_version()}
    versions |= {name: _version(name) for name in PACKAGES if util.find_spec(name) is not None}
    lines = [str(info), "", *(f"{name:<12}{version}" for name, version in versions.items()), ""]
    lines.append(
        f"core       GIVES WRONG RESULTS with {', '.join(wrong)}: please report this"
        if wrong
        else "core       gives correct results"
    )
    lines += [f"problem    {what}\n           {way_out}" for what, way_out in problems] or [
        "           no problem found"
    ]
    data = {
        "cpu": {k: getattr(info, k) for k in ("brand", "isa", "best_isa", "forced_by", "threads", "available")},
        "missing": dict(info.missing),
        "notes": list(info.notes),
        "versions": versions,
        "works": not wrong,
        "wrong": wrong,
        "problems": [{"problem": what, "way_out": way_out} for what, way_out in problems],
    }
    return "\n".join(lines), data


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "installed, version unknown"


def _problems(info: Any) -> list[tuple[str, str]]:
    """(what, the way out)"""
    found = []
    if info.forced_by:
        found.append((f"{info.forced_by} limits the kernels to {info.isa}", f"unset it to use {info.best_isa}"))
    if info.amx_is_masked and "ONEDNN_MAX_CPU_ISA" not in os.environ:
        found.append(
            (
                "this virtual machine masks the AMX palette: oneDNN inside torch can crash with SIGILL",
                "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 (zeropoint's AMX kernels are not affected)",
            )
        )
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if info.threads > usable:
        found.append(
            (f"{info.threads} threads on {usable} CPUs wait for each other", f"set ZEROPOINT_NUM_THREADS={usable}")
        )
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if busy > usable + 0.5:
        found.append((f"the machine is busy (load {busy:.1f} on {usable} CPUs)", "measure times later"))
    if util.find_spec("torch") is None:
        found.append(
            ("PyTorch is not installed: programs run, but models cannot be quantized", install_command("torch"))
        )
    elif tuple(int(p) for p in metadata.version("torch").split("+")[0].split(".")[:2]) < (2, 6):
        found.append((f"torch {metadata.version('torch')} is older than the tested releases", install_command("torch")))
    if not all(util.find_spec(name) for name in ("typer", "rich")):
        found.append(("of the commands, only doctor works without typer and rich", install_command("cli")))
    if sys.maxsize < 2**32:
        found.append(("this Python is 32-bit", "install a 64-bit Python"))
    return found


def _self_test(isas: tuple[str, ...]) -> list[str]:
    """The instruction sets with which a program, rounding and a linear layer, gives other bytes than it must."""
    import numpy as np
    from safetensors.numpy import save

    from zeropoint import _native
    from zeropoint.cpu import use_isa

    # Scales are powers of two, so that nothing but the last step rounds. Sizes that no kernel's blocks divide.
    x = (np.arange(41 * 150) * 37 % 256).reshape(41, 150)
    weight = (np.arange(35 * 150) * 53 % 255 - 127).astype(np.int8).reshape(35, 150)
    expected = np.clip(np.round((x - 100) @ weight.T.astype(np.int64) / 512) + 128, 0, 255).astype(np.uint8)
    rounded = {"scale": 0.5, "zero_point": 100, "dtype": "uint8", "low": 0, "high": 255}
    layer = {"weight_dtype": "int8", "input_scale": 0.5, "input_zero_point": 100}
    program = {
        "version": 1,
        "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 150], "example": [41, 150]}],
        "outputs": ["y"],
        "result": "",
        "steps": [
            {"op": "quantize", "inputs": ["x"], "outputs": ["q"], "attributes": rounded},
            {
                "op": "linear",
                "inputs": ["q", "weight", "scale", "zero_point", None, None],
                "outputs": ["y"],
                "attributes": {**rounded, **layer, "scale": 64.0, "zero_point": 128},
            },
        ],
    }
    constants: dict[str, Any] = {
        "weight": weight,
        "scale": np.array([0.25], np.float32),
        "zero_point": np.array([0], np.int32),
    }
    file = save(constants, {"zeropoint.program": json.dumps(program)})
    wrong = []
    for isa in isas:
        with use_isa(isa):
            (y,) = _native.Program(file).run([((x - 100) * 0.5).astype(np.float32)])
        if not np.array_equal(y, expected):
            wrong.append(isa)
    return wrong
