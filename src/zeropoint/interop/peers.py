"""What runs 8-bit models on CPUs today, each behind a few functions: a float model and data in, a file and a call out.

The benchmark of this repository and ``zeropoint bench`` compare with those that are installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zeropoint.cpu import cpu_info
from zeropoint.interop import ctranslate2_transformers, onnx_runtime, openvino_nncf, torch_ao, torch_float
from zeropoint.interop.tasks import Arrays, Ready, Task

OURS, FLOAT = "zeropoint", "torch float32"
MASK = "ONEDNN_MAX_CPU_ISA"


@dataclass(frozen=True)
class Peer:
    """A library that quantizes and runs.

    Args:
        write: quantizes, and writes the file that would be deployed into a folder. It raises `Unavailable`, with the
            reason, where packages are missing or cannot take the model.
        load: a call on these inputs, with so many threads, from the file alone, and how it runs in words.
        quantizes: whether the file should be smaller than the float model's.
    """

    write: Callable[[Task, Path], Path]
    load: Callable[[Path, Arrays, int], Ready]
    quantizes: bool = True


def _write_program(task: Task, folder: Path) -> Path:
    import zeropoint

    mode, data = ("dynamic", None) if task.dynamic else ("static", task.calibration)
    config = None
    if task.weight_bits is not None:
        mode, data = "weight_only", None
        config = zeropoint.float_qparams_weight_only_qconfig_4bit if task.weight_bits == 4 else None
    quantized = zeropoint.to_int8(task.model, task.inputs, data, config, mode=mode, progress=False)
    path = folder / "model.zpt"
    zeropoint.compile(quantized, task.inputs).save(path)
    return path


def _load_program(path: Path, inputs: Arrays, threads: int) -> Ready:
    import zeropoint

    zeropoint.set_num_threads(threads)
    program = zeropoint.runtime.load(path)
    return Ready(lambda: program(*inputs), f"a program in zeropoint.runtime, without torch, {zeropoint.cpu_info().isa}")


PEERS: dict[str, Peer] = {
    OURS: Peer(_write_program, _load_program),
    FLOAT: Peer(torch_float.write, torch_float.load, quantizes=False),
    "torch.compile float32": Peer(torch_float.write, torch_float.load_compiled, quantizes=False),
    "torch.ao jit": Peer(torch_ao.write, torch_ao.load),
    "torchao compiled": Peer(torch_float.write_torchao, torch_float.load_torchao, quantizes=False),
    "ONNX Runtime": Peer(onnx_runtime.write, onnx_runtime.load),
    "OpenVINO": Peer(openvino_nncf.write, openvino_nncf.load),
    "CTranslate2": Peer(ctranslate2_transformers.write, ctranslate2_transformers.load),
}
SLOW = ("torch.compile float32", "torchao compiled")  # minutes until they run


def written(name: str, task: Task, folder: Path) -> Path:
    """The file of a peer, in a folder of its own inside `folder`.

    Raises:
        Unavailable: with the reason.
    """
    own = folder / name.replace(" ", "_")
    own.mkdir()
    return PEERS[name].write(task, own)


def file_bytes(path: Path) -> int:
    """Bytes of a file, and of the weights beside it."""
    beside = (path.with_suffix(".bin"), path.with_name(path.name + ".data"))
    return path.stat().st_size + sum(other.stat().st_size for other in beside if other.exists())


def is_quantized(name: str, size: int, float_size: int) -> bool:
    """Whether a file is as small as one with 8-bit weights should be: about a quarter of the float one.

    A third, and 100 kB for what is not weights, are allowed. A peer whose file is larger has left layers in float, and
    a comparison with it says less than it seems to.

    Example:
        >>> is_quantized("ONNX Runtime", 5_600_000, 5_900_000)
        False
    """
    return not PEERS[name].quantizes or size <= float_size / 3 + 100_000


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
