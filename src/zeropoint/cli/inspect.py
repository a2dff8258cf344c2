"""zeropoint inspect"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from zeropoint.cli.models import Pickle, is_torchscript, load_exported
from zeropoint.cli.named import existing
from zeropoint.cli.output import AsJson, show, work

__all__ = ["inspect"]


def inspect(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A .zpt, .pt2, TorchScript, .safetensors or checkpoint file.")
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
    from zeropoint.report.table import readable_bytes, rich_table

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
    import json

    from safetensors import safe_open

    tensors, calls = [], Counter[str]()
    sizes = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
    with safe_open(path, framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118  # not a dictionary
            part = file.get_slice(name)
            shape, dtype = part.get_shape(), part.get_dtype()
            count = 1
            for size in shape:
                count *= size
            tensors.append({"name": name, "dtype": dtype.lower(), "shape": shape, "bytes": count * sizes.get(dtype, 1)})
        program = (file.metadata() or {}).get("zeropoint.program")
    if program is not None:
        calls.update(step.get("op", "?") for step in json.loads(program).get("steps", ()))
    return ("zeropoint program" if program is not None else "safetensors"), calls, tensors


def _tensors(state: Any, prefix: str = "") -> list[dict[str, Any]]:
    from torch import Tensor

    if isinstance(state, Tensor):
        dtype = str(state.dtype).removeprefix("torch.")
        return [
            {"name": prefix, "dtype": dtype, "shape": list(state.shape), "bytes": state.numel() * state.element_size()}
        ]
    parts: Any = ()
    if isinstance(state, dict):
        parts = state.items()
    elif isinstance(state, (tuple, list)):
        parts = enumerate(state)
    return [t for k, v in parts for t in _tensors(v, f"{prefix}.{k}" if prefix else str(k))]
