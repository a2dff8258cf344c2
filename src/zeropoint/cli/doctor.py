"""zeropoint doctor"""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata, util
from typing import Any

import typer

from zeropoint.cli.output import AsJson, show

__all__ = ["doctor"]

PACKAGES = ("torch", "numpy", "safetensors", "onnx", "onnxruntime", "openvino")


def doctor(as_json: AsJson = False) -> None:
    """Show the CPU, instruction sets, versions and known problems. Exit code 1 if the native core does not work."""
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
    show("\n".join(lines), data, as_json)
    if wrong:
        raise typer.Exit(1)


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
            ("PyTorch is not installed: programs run, but models cannot be quantized", "pip install 'zeropoint[torch]'")
        )
    elif tuple(int(p) for p in metadata.version("torch").split("+")[0].split(".")[:2]) < (2, 6):
        found.append(
            (f"torch {metadata.version('torch')} is older than the tested releases", "pip install 'torch>=2.6'")
        )
    if sys.maxsize < 2**32:
        found.append(("this Python is 32-bit", "install a 64-bit Python"))
    return found


def _self_test(isas: tuple[str, ...]) -> list[str]:
    """The instruction sets that give other integers than they must, for a tensor rounded and a linear layer."""
    if util.find_spec("torch") is None:
        return []  # the core was loaded, or `cpu_info` had failed
    import torch

    import zeropoint

    # Scales are powers of two, so that nothing but the last step rounds. Sizes that no kernel's blocks divide.
    x = (torch.arange(41 * 150) * 37 % 256).to(torch.uint8).reshape(41, 150)
    w = (torch.arange(35 * 150) * 53 % 255 - 127).to(torch.int8).reshape(35, 150)
    sums = (x.double() - 100) @ w.double().T
    expected = (sums / 512).round().add(128).clamp(0, 255).to(torch.uint8)
    wrong = []
    for isa in isas:
        with zeropoint.use_isa(isa):
            rounded = zeropoint.quantize_per_tensor(torch.tensor([-27.5, 0.2, 0.3, 100.0]), 0.5, 55, zeropoint.quint8)
            y = torch.ops.zeropoint.linear(
                x, 0.5, 100, w.clone(), torch.tensor([0.25]), torch.tensor([0]), None, 64.0, 128
            )
        if rounded.int_repr().tolist() != [0, 55, 56, 255] or not torch.equal(y, expected):
            wrong.append(isa)
    return wrong
