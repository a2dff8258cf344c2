"""Files of torch.export that would run code, or take all memory, when PyTorch reads them."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.interop.exported_file import load_exported

SIZE = "Symbol('s77', positive=True, integer=True)"


class _Rows(nn.Module):
    """A layer, a buffer, several results, and a size that is free."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x: Tensor) -> Any:
        return self.first(x).split(2, 1), {"sum": self.offset + x.shape[0]}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The records of a file that torch.export wrote, without the name of its folder."""
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    rows = torch.export.Dim("rows", min=2)
    torch.export.save(torch.export.export(_Rows().eval(), (torch.ones(3, 4),), dynamic_shapes=({0: rows},)), path)
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def written(path: Path, records: dict[str, bytes], **changed: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**records, **changed}.items():
            archive.writestr(f"model/{name}", data)
    return path


class _Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def _pickled(path: Path) -> bytes:
    made = io.BytesIO()
    torch.save(_Touch(path), made)
    return made.getvalue()


MODEL, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"


def in_model(old: str, new: Callable[[str], str]) -> Callable[[dict[str, bytes], Path], dict[str, bytes]]:
    """Puts a string that would make a folder into the place of `old`."""

    def changed(records: dict[str, bytes], path: Path) -> dict[str, bytes]:
        text = records[MODEL].decode()
        code = new(f"__import__('os').mkdir({str(path)!r})")
        found = json.dumps(old)[1:-1]
        assert found in text
        return {MODEL: text.replace(found, json.dumps(code)[1:-1]).encode()}

    return changed


def _unpickled_weight(records: dict[str, bytes], path: Path) -> dict[str, bytes]:
    config = records[WEIGHTS].replace(b'"use_pickle": false', b'"use_pickle": true', 1)
    return {"data/weights/weight_0": _pickled(path), WEIGHTS: config}


def _huge_weight(records: dict[str, bytes], path: Path) -> dict[str, bytes]:
    config = json.loads(records[WEIGHTS])
    config["config"]["first.weight"]["tensor_meta"]["sizes"] = [{"as_int": 1 << 40}]
    return {"data/weights/weight_0": b"", WEIGHTS: json.dumps(config).encode()}


REFUSED: dict[str, Callable[[dict[str, bytes], Path], dict[str, bytes]]] = {
    "a size that is code": in_model(SIZE, lambda code: code),
    "a size that is a power of powers": in_model(SIZE, lambda code: "9**9**9**9"),
    "a size with an attribute": in_model(SIZE, lambda code: "Symbol.__class__"),
    "a function of the system": in_model("torch.ops.aten.linear.default", lambda code: "torch.os.mkdir"),
    "a method of a class": in_model("torch.ops.aten.linear.default", lambda code: "torch.ops.aten.__class__.mro"),
    "an operator that reads files": in_model("torch.ops.aten.linear.default", lambda code: "torch.ops.aten.from_file"),
    "an input that is code": in_model("p_first_weight", lambda code: f"x={code}"),
    "a weight that is code": in_model("first.weight", lambda code: f'x") or {code} #'),
    "an enumeration of another module": in_model(
        '"context": "null"', lambda code: f'"context": {json.dumps(json.dumps({"__enum__": True, "fqn": "this:d"}))}'
    ),
    "an example that is a pickle": lambda records, path: {"data/sample_inputs/model.pt": _pickled(path)},
    "a weight that is a pickle": _unpickled_weight,
    "a weight that takes all memory": _huge_weight,
    "text that is no JSON": lambda records, path: {MODEL: b"{"},
    "a list in the place of a model": lambda records, path: {MODEL: b"[]"},
    "lists without end": lambda records, path: {MODEL: b"[" * 100_000},
}


def test_a_file_that_torch_export_wrote_gives_the_same_results(records: dict[str, bytes], tmp_path: Path) -> None:
    path = written(tmp_path / "model.pt2", records)
    x = torch.randn(5, 4)
    ours, theirs = load_exported(path).module()(x), torch.export.load(path).module()(x)
    assert torch.equal(ours[0][1], theirs[0][1])
    assert torch.equal(ours[1]["sum"], theirs[1]["sum"])


@pytest.mark.parametrize("what", REFUSED)
def test_a_file_that_could_run_code_is_refused(what: str, records: dict[str, bytes], tmp_path: Path) -> None:
    made = tmp_path / "made"
    path = written(tmp_path / "model.pt2", records, **REFUSED[what](records, made))
    with pytest.raises(ValueError, match=r"model\.pt2|elements"):
        load_exported(path).module()(torch.ones(3, 4))
    assert not made.exists()


def test_guards_and_source_lines_are_not_executed(records: dict[str, bytes], tmp_path: Path) -> None:
    made = tmp_path / "made"
    code = f"__import__('os').mkdir({str(made)!r})"
    model = json.loads(records[MODEL])
    model["guards_code"] = [code]
    for node in model["graph_module"]["graph"]["nodes"]:
        node["metadata"]["stack_trace"] = f"x\n    {code}\n{code}"
        node["metadata"]["nn_module_stack"] = f"x\n    {code}\n{code}"
    path = written(tmp_path / "model.pt2", records, **{MODEL: json.dumps(model).encode()})
    load_exported(path).module()(torch.ones(3, 4))
    assert not made.exists()


def test_compiled_code_beside_a_model_is_left_out(records: dict[str, bytes], tmp_path: Path) -> None:
    path = written(tmp_path / "model.pt2", records, **{"data/aotinductor/model/model.so": b"\x7fELF"})
    assert load_exported(path).module()(torch.ones(3, 4))[0][0].shape == (3, 2)


def test_a_quantized_graph_that_we_saved_is_read(tmp_path: Path) -> None:
    layers, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval(), torch.randn(2, 4)
    quantized = zeropoint.to_int8(layers, (x,), [x], progress=False)
    torch.export.save(torch.export.export(quantized, (x,)), tmp_path / "int8.pt2")
    assert torch.equal(load_exported(tmp_path / "int8.pt2").module()(x), quantized(x))


def test_a_file_that_was_cut_off_is_refused(records: dict[str, bytes], tmp_path: Path) -> None:
    path = written(tmp_path / "model.pt2", records)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="cut off"):
        load_exported(path)


def test_records_that_unpack_to_far_more_than_the_file_are_refused(records: dict[str, bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/models/model.json", b" " * (80 << 20))
    with pytest.raises(ValueError, match="far more memory"):
        load_exported(tmp_path / "bomb.pt2")
