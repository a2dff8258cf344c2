"""Messages stay short, however long the names and values of a file are."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import golden_programs
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from typer.testing import CliRunner

import zeropoint
from zeropoint.cli.app import app
from zeropoint.described import described

LONG = "n" * 100_000
MOST = 1100  # characters: room for a path and the sentence around what was shortened

Write = Callable[[Path], None]


def program(edit: Callable[[dict[str, Any]], None]) -> Write:
    header, written, data = golden_programs.parts_of((golden_programs.FOLDER / "image.zpt").read_bytes())
    edit(written)
    return lambda path: path.write_bytes(golden_programs.joined(header, written, data)) and None


def onnx_file(node: onnx.NodeProto, **fields: Any) -> Write:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:], **fields)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return lambda path: path.write_bytes(model.SerializeToString()) and None


def external(location: str) -> Write:
    weight = TensorProto(name="w", data_type=1, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    return onnx_file(helper.make_node("MatMul", ["x", "w"], ["y"]), initializer=[weight])


def archive(content: bytes) -> Write:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", content)
            file.writestr("archive/version", "3\n")

    return write


def named(module: str, name: str) -> bytes:
    """A pickle that calls what has this name."""
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b")R."


def state(name: str) -> bytes:
    """A pickle of a tensor whose storage has this key."""
    text = b"X" + struct.pack("<I", len(name)) + name.encode()
    return (
        b"\x80\x02}X\x01\0\0\0actorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
        + text
        + b"X\x03\0\0\0cpuK\x04tQK\x00(K\x04t(K\x01t\x89ccollections\nOrderedDict\n)RtRs."
    )


def tensors(metadata: dict[str, str], **header: Any) -> Write:
    text = json.dumps({"__metadata__": metadata, **header}).encode()
    return lambda path: path.write_bytes(struct.pack("<Q", len(text)) + text) and None


def saved(value: Any) -> Write:
    return lambda path: torch.save(value, path)


class Named(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_module(LONG, torch.nn.Linear(2, 2))


FILES: dict[str, tuple[str, Write]] = {
    "step": (".zpt", program(lambda p: p["steps"][0].update(op=LONG))),
    "attribute": (".zpt", program(lambda p: p["steps"][0]["attributes"].update({LONG: 1}))),
    "value": (".zpt", program(lambda p: p["steps"][0]["inputs"].__setitem__(0, LONG))),
    "result": (".zpt", program(lambda p: p.update(result=LONG))),
    "dtype": (".zpt", program(lambda p: p["inputs"][0].update(dtype="é" * 100_000))),
    "operator": (".onnx", onnx_file(helper.make_node(LONG, ["x"], ["y"]))),
    "domain": (".onnx", onnx_file(helper.make_node("Relu", ["x"], ["y"], domain=LONG))),
    "input": (".onnx", onnx_file(helper.make_node("Relu", [LONG], ["y"]))),
    "output": (".onnx", onnx_file(helper.make_node("Relu", ["x"], [LONG]))),
    "node attribute": (".onnx", onnx_file(helper.make_node("Relu", ["x"], ["y"], **{LONG: 1}))),
    "mode": (".onnx", onnx_file(helper.make_node("Resize", ["x", "", "x"], ["y"], mode=LONG))),
    "external data": (".onnx", external(LONG)),
    "external data elsewhere": (".onnx", external("../" + LONG)),
    "class": (".pt", archive(named("m", LONG))),
    "module": (".pt", archive(named(LONG, "f"))),
    "storage": (".pt", archive(state(LONG))),
    "persistent": (".pt", archive(b"\x80\x02X\xa0\x86\x01\0" + LONG.encode() + b"Q.")),
    "layer": (".pt", saved(Named())),
    "unknown class": (".pt", archive(named("m" * 200, "f" * 150))),
    "dictionary": (".pt", saved({LONG: object})),
    "plain pickle": (".pt", lambda path: path.write_bytes(pickle.dumps(LONG)) and None),
    "number": (".pt", archive(b"\x80\x02I" + b"9" * 5000 + b"\n.")),
    "text of a float": (".pt", archive(b"\x80\x02F" + LONG.encode() + b"\n.")),
    "text of a number": (".pt", archive(b"\x80\x02L" + LONG.encode() + b"\n.")),
    "text that is none": (".pt", archive(b"\x80\x02X\x04\0\0\0\xff\xff\xff\xff.")),
    "tensor": (".safetensors", tensors({}, **{LONG: {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}})),
    "tensor's dtype": (".safetensors", tensors({}, x={"dtype": LONG, "shape": [1], "data_offsets": [0, 8]})),
    "format": (".safetensors", tensors({"zeropoint": json.dumps({"version": LONG})})),
    "described tensor": (".safetensors", tensors({"zeropoint": json.dumps({"version": 1, "tensors": {LONG: 1}})})),
}  # fmt: skip


def entries(ending: str, path: str) -> Iterator[Callable[[], Any]]:
    if ending == ".zpt":
        yield lambda: zeropoint.runtime.load(path)
    elif ending == ".onnx":
        yield lambda: zeropoint.from_onnx(path)
    elif ending == ".safetensors":
        yield lambda: zeropoint.load_qtensors(path)
        yield lambda: zeropoint.compat.load(path)
    else:
        yield lambda: zeropoint.compat.load(path)
        yield lambda: zeropoint.compat.load_state_dict(path)
        yield lambda: zeropoint.compat.convert(path, path + ".safetensors")


def message(entry: Callable[[], Any]) -> str:
    """Of a refusal; some long names do no harm."""
    try:
        entry()
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", FILES)
def test_a_file_with_a_name_of_100_kb_gives_a_short_message(case: str, tmp_path: Path) -> None:
    ending, write = FILES[case]
    path = tmp_path / f"file{ending}"
    write(path)
    for entry in entries(ending, str(path)):
        said = message(entry)
        assert len(said) < MOST
        assert not case.startswith(("text", "number")) or "damaged" in said


@pytest.mark.parametrize("case", FILES)
def test_the_command_line_says_it_shortly(case: str, tmp_path: Path) -> None:
    ending, write = FILES[case]
    path = tmp_path / f"file{ending}"
    write(path)
    command = ["convert", str(path), str(tmp_path / "new")] if ending == ".pt" else ["inspect", str(path)]
    ran = CliRunner().invoke(app, command)
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    assert len(ran.stderr) < 2 * MOST


def test_a_number_of_thousands_of_digits_is_described() -> None:
    assert described(10**5000) == "a int"
    assert len(described([10**5000])) < 100
