"""Programs in processes of their own, and a PyTorch that has lost the old stack."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from forked import run_forked

HERE = Path(__file__).parent

# A PyTorch from which the old stack was removed: names, methods, operators and modules.
WITHOUT_THE_OLD_STACK = """
    import importlib.abc, sys
    import torch

    PATHS = ("torch.ao", "torch.quantization", "torch.nn.quantized", "torch.nn.qat", "torch.nn.intrinsic",
             "torch.nn.quantizable", "torch.backends.quantized")

    class Removed(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if any(name == p or name.startswith(p + ".") for p in PATHS):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for path in [m for m in sys.modules if any(m == p or m.startswith(p + ".") for p in PATHS)]:
        parent, _, name = path.rpartition(".")
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(name, None)
        del sys.modules[path]
    sys.meta_path.insert(0, Removed())
    storages = "QInt8Storage QUInt8Storage QInt32Storage QUInt4x2Storage QUInt2x4Storage".split()
    plain = {k: v for k, v in torch.storage._dtype_to_storage_type_map().items() if v not in storages}
    torch.storage._dtype_to_storage_type_map = lambda: plain
    torch.storage._storage_type_to_dtype_map.cache_clear()
    for name in storages:
        torch._storage_classes.discard(getattr(torch, name))
        delattr(torch, name)
    for name in (
        "qint8 quint8 qint32 quint4x2 quint2x4 per_tensor_affine per_tensor_symmetric per_channel_affine"
        " per_channel_symmetric per_channel_affine_float_qparams qscheme quantize_per_tensor quantize_per_channel"
        " quantize_per_tensor_dynamic dequantize fake_quantize_per_tensor_affine fake_quantize_per_channel_affine"
        " _empty_affine_quantized _empty_per_channel_affine_quantized _make_per_tensor_quantized_tensor"
        " _choose_qparams_per_tensor int_repr q_scale"
    ).split():
        delattr(torch, name)
    assert not hasattr(torch, "ao") and not hasattr(torch.nn, "quantized") and not hasattr(torch, "quint8")
"""


def run(*programs: str, torch_first: bool = True) -> str:
    """What the programs, one after the other, print; they find the modules beside this one.

    PyTorch is imported before them, or, if they import something else first, when they do.
    """
    code = "\n".join(textwrap.dedent(program) for program in programs)
    if torch_first:
        ran = run_forked(code, cwd=HERE)
    else:
        command = [sys.executable, "-W", "ignore", "-c", code]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=HERE)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
