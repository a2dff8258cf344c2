"""Quantized models into files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["compiled", "write_quantized"]


def write_quantized(quantized: Any, batch: Any, path: Path) -> None:
    """Write what `to_int8` gave: a program that runs without torch (.zpt), or a graph of torch.export (.pt2)."""
    if path.suffix == ".zpt":
        compiled(quantized, batch).save(path)
    elif path.suffix == ".pt2":
        _export(quantized, batch, path)
    else:
        raise ValueError(f"a quantized graph is written as .zpt or .pt2, got {path}")


def compiled(quantized: Any, batch: Any) -> Any:
    """The program of a quantized model."""
    import zeropoint

    if not hasattr(zeropoint, "compile"):
        raise NotImplementedError("this build has no engine: write a .pt2 file instead of a .zpt")
    return zeropoint.compile(quantized, batch)


def _export(quantized: Any, batch: Any, path: Path) -> None:
    import torch
    from torch.export import Dim

    free = tuple({0: Dim.AUTO} if isinstance(v, torch.Tensor) and v.dim() else None for v in batch)
    with torch.no_grad():
        exported = torch.export.export(quantized.graph_module, tuple(batch), dynamic_shapes=free)
    torch.export.save(exported, path)
