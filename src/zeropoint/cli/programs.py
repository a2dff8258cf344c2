"""Writes quantized models to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zeropoint.atomic_file import replacing


def write_quantized(quantized: Any, batch: Any, path: Path) -> Any:
    """Write what `to_int8` gave: a program that runs without torch (.zpt), or a graph of torch.export (.pt2).

    Returns:
        what the file computes, to be called.
    """
    if path.suffix == ".zpt":
        program = compiled(quantized, batch)
        program.save(path)
        return program
    if path.suffix == ".pt2":
        _export(quantized, batch, path)
        return quantized
    raise ValueError(f"a quantized graph must be saved as .zpt or .pt2, got {path}")


def compiled(quantized: Any, batch: Any) -> Any:
    """The program of a quantized model: tensors in, tensors out."""
    import zeropoint

    return zeropoint.compile(quantized, batch)


def on_tensors(model: Any) -> Any:
    """A model that takes tensors: a module as it is, a program that was read from a file behind a function."""
    if not hasattr(model, "inputs"):
        return model
    import numpy as np
    import torch
    from torch.utils import _pytree as pytree

    def run(*args: Any, **kwargs: Any) -> Any:
        def array(value: Any) -> Any:
            return value.numpy() if isinstance(value, torch.Tensor) else value

        results = model(*map(array, args), **{k: array(v) for k, v in kwargs.items()})
        return pytree.tree_map(lambda v: torch.from_numpy(v) if isinstance(v, np.ndarray) else v, results)

    return run


def _export(quantized: Any, batch: Any, path: Path) -> None:
    import torch
    from torch.export import Dim

    free = tuple({0: Dim.AUTO} if isinstance(v, torch.Tensor) and v.dim() else None for v in batch)
    with torch.no_grad():
        exported = torch.export.export(quantized.graph_module, tuple(batch), dynamic_shapes=free)
    with replacing(path) as new:
        torch.export.save(exported, new)
