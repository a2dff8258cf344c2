"""zeropoint inspect"""

from __future__ import annotations

import json
from collections import Counter
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from zeropoint.cli.data import load_arrays
from zeropoint.cli.models import Pickle, is_torchscript, load_exported
from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.paths import existing
from zeropoint.installation import install_command
from zeropoint.safetensors_header import read_header


def inspect(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A .zpt, .pt2, TorchScript, ONNX, .safetensors, .npy, .npz or checkpoint file."
        ),
    ],
    as_json: AsJson = False,
    pickle: Pickle = False,
) -> None:
    """List the operators and tensors of a file, with dtypes and sizes."""
    path = existing(file)
    with work(as_json):
        kind, operators, tensors = _contents(path, pickle)
        data = {
            "file": str(path),
            "kind": kind,
            "bytes": path.stat().st_size,
            "operators": dict(operators),
            "tensors": tensors,
        }
        show(_shown(path, kind, operators, tensors), data, as_json)


def _shown(path: Path, kind: str, operators: Counter[str], tensors: list[dict[str, Any]]) -> Any:
    from zeropoint.table import readable_bytes, rich_table

    parts: list[Any] = [f"{path}: {kind}, {readable_bytes(path.stat().st_size)}"]
    if operators:
        parts.append(rich_table(("operator", "count"), [(name, str(n)) for name, n in operators.most_common()]))
    rows = [(t["name"], t["dtype"], "x".join(map(str, t["shape"])), readable_bytes(t["bytes"])) for t in tensors]
    if rows:
        parts.append(rich_table(("tensor", "dtype", "shape", "size"), rows))
    by_dtype: Counter[str] = Counter()
    for t in tensors:
        by_dtype[t["dtype"]] += t["bytes"]
    parts.append("in tensors: " + ", ".join(f"{readable_bytes(n)} {dtype}" for dtype, n in by_dtype.most_common()))
    return Group(*parts)


def _contents(path: Path, pickle: bool) -> tuple[str, Counter[str], list[dict[str, Any]]]:
    if path.suffix in (".zpt", ".safetensors"):
        return _safetensors(path)
    if path.suffix in (".npy", ".npz"):
        return "arrays", Counter(), _arrays(load_arrays(str(path)))
    if path.suffix == ".onnx":
        return _onnx(path)
    from pickle import UnpicklingError

    import torch

    import zeropoint.ops  # noqa: F401  # operators that a quantized file calls

    if path.suffix == ".pt2":
        exported = load_exported(path, pickle)
        calls = Counter(_short(str(n.target)) for n in exported.graph.nodes if n.op == "call_function")
        return "torch.export", calls, _tensors({**exported.state_dict, **exported.constants})
    if is_torchscript(path):
        script = torch.jit.load(str(path))
        calls = Counter(node.kind() for node in script.inlined_graph.nodes() if not node.kind().startswith("prim::"))
        return "TorchScript", calls, _tensors(script.state_dict())
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except UnpicklingError as error:
        raise ValueError(
            f"{path} contains more than tensors. Loading it could execute code, so zeropoint does not load it"
        ) from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    return "checkpoint", Counter(), _tensors(state)


def _short(target: str) -> str:
    return target.removesuffix(".default")


def _safetensors(path: Path) -> tuple[str, Counter[str], list[dict[str, Any]]]:
    header = read_header(path)
    program = header.pop("__metadata__", {}).get("zeropoint.program")
    tensors = []
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors.append({"name": name, "dtype": entry["dtype"].lower(), "shape": entry["shape"], "bytes": end - begin})
    if program is None:
        return "safetensors", Counter(), tensors
    try:
        calls = Counter(str(step["op"]) for step in json.loads(program)["steps"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: its steps cannot be read ({type(error).__name__})") from error
    return "zeropoint program", calls, tensors


def _onnx(path: Path) -> tuple[str, Counter[str], list[dict[str, Any]]]:
    try:
        from onnx import helper

        from zeropoint.interop.onnx.files import read_model
    except ImportError as error:
        raise ImportError(f"ONNX files need onnx: {install_command('onnx')}") from error
    graph = read_model(path).graph
    tensors = [
        {
            "name": tensor.name,
            "dtype": str(helper.tensor_dtype_to_np_dtype(tensor.data_type)),
            "shape": list(tensor.dims),
            "bytes": prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize,
        }
        for tensor in graph.initializer
    ]
    return "ONNX", Counter(node.op_type for node in graph.node), tensors


def _arrays(arrays: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name or "array", "dtype": str(array.dtype), "shape": list(array.shape), "bytes": array.nbytes}
        for name, array in arrays.items()
    ]


def _tensors(state: Any, prefix: str = "", seen: set[int] | None = None) -> list[dict[str, Any]]:
    """The tensors of a state. What it holds in several places, itself included, is listed once."""
    from torch import Tensor

    seen = set() if seen is None else seen
    if isinstance(state, Tensor):
        dtype = str(state.dtype).removeprefix("torch.")
        return [
            {"name": prefix, "dtype": dtype, "shape": list(state.shape), "bytes": state.numel() * state.element_size()}
        ]
    if not isinstance(state, (dict, tuple, list)) or id(state) in seen:
        return []
    seen.add(id(state))
    parts = state.items() if isinstance(state, dict) else enumerate(state)
    return [t for k, v in parts for t in _tensors(v, f"{prefix}.{k}" if prefix else str(k), seen)]
