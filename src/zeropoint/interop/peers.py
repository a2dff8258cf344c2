"""What runs 8-bit models on CPUs today, each behind a few functions: a float model and data in, a file and a call out.

The benchmark of this repository and ``zeropoint bench`` compare with those that are installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zeropoint.cpu import cpu_info
from zeropoint.interop import onnx_runtime, openvino_nncf, torch_ao, torch_float
from zeropoint.interop.tasks import Arrays, Call, Task, Unavailable

__all__ = ["OURS", "PEERS", "SLOW", "Peer", "file_bytes", "keep_from_masked_amx", "ready", "written"]

OURS = "zeropoint"
MASK = "ONEDNN_MAX_CPU_ISA"


@dataclass(frozen=True)
class Peer:
    """A library that quantizes and runs.

    Args:
        write: quantizes, and writes the file that would be deployed into a folder. It raises `Unavailable`, with the
            reason, where packages are missing or cannot take the model.
        load: a call on these inputs, with so many threads, from the file alone.
        make: a call from the task, where no file is deployed, or something else is quicker than what is in it.
    """

    write: Callable[[Task, Path], Path] | None = None
    load: Callable[[Path, Arrays, int], Call] | None = None
    make: Callable[[Task], Call] | None = None


def _write_program(task: Task, folder: Path) -> Path:
    import zeropoint

    mode, data = ("dynamic", None) if task.dynamic else ("static", task.calibration)
    quantized = zeropoint.to_int8(task.model, task.inputs, data, mode=mode, progress=False)
    path = folder / "model.zpt"
    zeropoint.compile(quantized, task.inputs).save(path)
    return path


def _load_program(path: Path, inputs: Arrays, threads: int) -> Call:
    import zeropoint

    zeropoint.set_num_threads(threads)
    program = zeropoint.runtime.load(path)
    return lambda: program(*inputs)


PEERS: dict[str, Peer] = {
    OURS: Peer(_write_program, _load_program),
    "torch float32": Peer(torch_float.write, torch_float.load, torch_float.eager),
    "torch.compile float32": Peer(make=torch_float.compiled),
    "torch.ao jit": Peer(torch_ao.write, torch_ao.load),
    "torchao compiled": Peer(make=torch_float.torchao),
    "ONNX Runtime": Peer(onnx_runtime.write, onnx_runtime.load),
    "OpenVINO": Peer(openvino_nncf.write, openvino_nncf.load),
}
SLOW = ("torch.compile float32", "torchao compiled")  # minutes until they run


def written(name: str, task: Task, folder: Path) -> Path | None:
    """The file of a peer, in a folder of its own inside `folder`; None if it has none.

    Raises:
        Unavailable: with the reason.
    """
    write = PEERS[name].write
    if write is None:
        return None
    own = folder / name.replace(" ", "_")
    own.mkdir()
    return write(task, own)


def ready(name: str, task: Task, path: Path | None, threads: int) -> Call:
    """A peer that can be called, from what `written` gave; threads of torch must be set already.

    Raises:
        Unavailable: with the reason.
    """
    peer = PEERS[name]
    if peer.make is not None:
        return peer.make(task)
    if peer.load is None or path is None:
        raise Unavailable(f"{name} has nothing to run")
    return peer.load(path, task.arrays, threads)


def file_bytes(path: Path) -> int:
    """Bytes of a file, and of the weights beside it."""
    beside = path.with_suffix(".bin")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)


def keep_from_masked_amx() -> str:
    """Where a virtual machine masks AMX, oneDNN (in torch, OpenVINO) must be told, or it dies: what was set, in words.

    To be called before torch is imported.
    """
    if MASK in os.environ:
        return f"{MASK}={os.environ[MASK]} is set, for torch and OpenVINO"
    if not cpu_info().amx_is_masked:
        return ""
    os.environ[MASK] = "AVX512_CORE_FP16"
    return f"this machine masks AMX: {MASK}=AVX512_CORE_FP16 was set, without which torch and OpenVINO die here"
