"""Files of every kind that are written to do harm: to run code, to take all memory, or never to end.

Code in them makes the folder `made`, and nothing else.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden_programs
import numpy as np
import onnx
import torch
import torch.fx.graph_module
from onnx import TensorProto, helper, numpy_helper

Files = dict[str, bytes]


class _Code:
    """Makes a folder when it is unpickled."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.made),)


def _line(made: Path) -> str:
    return f"__import__('os').mkdir({str(made)!r})"


def _name(made: Path) -> str:
    """A name that ends the text which it is put into, and goes on as code."""
    return f'x")\r{_line(made)}\rdef g():\r    pass #'


def _saved(value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def _zipped(records: dict[str, bytes], packed: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    return file.getvalue()


def _safetensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


# ---------------------------------------------------------------------------------------------------- ours


def programs(made: Path) -> Files:
    header, program, data = golden_programs.parts_of((golden_programs.FOLDER / "image.zpt").read_bytes())

    def edited(**fields: Any) -> bytes:
        return golden_programs.joined(header, {**program, **fields}, data)

    first = program["steps"][0]["outputs"][0]

    def renamed(old: str) -> bytes:
        text = json.dumps(program).replace(json.dumps(old), json.dumps(_name(made)))
        return golden_programs.joined(header, json.loads(text), data)

    sizes = [{**program["inputs"][0], "example": [2**62, 3, 8, 8]}]
    state = [{"name": "s", "dtype": "float32", "shape": [2**40], "initial": None, "next": first}]
    return {
        "a value that is code": renamed(first),
        "an input that is code": renamed(program["inputs"][0]["name"]),
        "a list": golden_programs.joined(header, [], data),
        "lists without end": _safetensors({"__metadata__": {"zeropoint.program": "[" * 1_000_000}}),
        "huge sizes": edited(inputs=sizes),
        "a huge state": edited(version=2, state=state),
        "a header of all memory": struct.pack("<Q", 2**60) + b"{}",
        "steps without number": edited(steps=program["steps"][:1] * 100_000),
    }


def tensors(made: Path) -> Files:
    view = {"of": "memory::0", "size": [2**40], "stride": [0], "offset": 0}
    repeated = {"version": 1, "quantized": {}, "views": {"v": view}}
    one = {"memory::0": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    return {
        "a name that is code": _safetensors(
            {_name(made): {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)
        ),
        "a header of all memory": struct.pack("<Q", 2**60) + b"{}",
        "lists without end": _safetensors(b'{"x":' + b"[" * 1_000_000),
        "sizes without data": _safetensors({"x": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}),
        "memory that is repeated": _safetensors({"__metadata__": {"zeropoint": json.dumps(repeated)}, **one}, bytes(4)),
    }


# ------------------------------------------------------------------------------------------------ PyTorch's


class _Graph:
    """A graph whose buffer has a name that is code."""

    def __init__(self, made: Path) -> None:
        self.name = _name(made)

    def __reduce__(self) -> Any:
        code = f"def forward(self, x):\n    a = getattr(self, {self.name!r})\n    return x + a\n"
        body = {"training": False, "_parameters": {}, "_modules": {}, "_code": code}
        body |= {"_buffers": {self.name: torch.ones(1), "x": torch.ones(1)}, "_non_persistent_buffers_set": set()}
        return torch.fx.graph_module.reduce_graph_module, (body, "")


def _tensor(size: int, stride: int, count: int) -> bytes:
    """The pickle of one tensor."""

    def number(n: int) -> bytes:
        data = n.to_bytes((n.bit_length() + 8) // 8, "little", signed=True)
        return b"\x8a" + bytes([len(data)]) + data

    return (
        b"\x80\x02}X\x01\0\0\0actorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
        b"X\x01\0\0\x000X\x03\0\0\0cpu" + number(count) + b"tQK\x00(" + number(size) + b"t(" + number(stride)
        + b"t\x89ccollections\nOrderedDict\n)RtRs."
    )  # fmt: skip


def archives(made: Path) -> Files:
    def pickled(data: bytes, **records: bytes) -> bytes:
        return _zipped({"a/data.pkl": data, "a/version": b"3\n", **{f"a/data/{k[1:]}": v for k, v in records.items()}})

    shared = b"\x80\x02]q\x00" + b"".join(b"]q%c(h%ch%ce" % (k, k - 1, k - 1) for k in range(1, 60)) + b"."
    return {
        "a function": _saved({"x": _Code(made)}),
        "a function in an old form": _saved({"x": _Code(made)}, _use_new_zipfile_serialization=False),
        "a plain pickle": pickle.dumps(_Code(made)),
        "a graph that is code": _saved(_Graph(made)),
        "memory that is repeated": pickled(_tensor(2**40, 0, 4), _0=bytes(16)),
        "more than there is": pickled(_tensor(2**60, 1, 2**60), _0=bytes(16)),
        "a packed storage": _zipped(
            {"a/data.pkl": _tensor(2**28, 1, 2**28), "a/version": b"3\n", "a/data/0": bytes(1 << 28)}, packed=True
        ),
        "a packed pickle": _zipped({"a/data.pkl": b"\x80\x02" + b"}0" * (1 << 27) + b"}.", "a/version": b"3\n"}, True),
        "lists without end": pickled(b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b"."),
        "lists that share lists": pickled(shared),
        "a number of five million digits": pickled(b"\x80\x02I" + b"9" * 5_000_000 + b"\n."),
        "a place of the memo": pickled(b"\x80\x02}r\xff\xff\xff\x7f."),
    }


def exported(made: Path) -> Files:
    file = io.BytesIO()
    rows = torch.export.Dim("rows", min=2)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval()
    torch.export.save(torch.export.export(model, (torch.ones(3, 4),), dynamic_shapes=({0: rows},)), file)
    with zipfile.ZipFile(file) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    code = _saved(_Code(made))
    found = {f"code as {name.partition('/')[2]}": _zipped({**records, name: code}) for name in records}
    graph = next(name for name in records if name.endswith("models/model.json"))
    text = records[graph].decode()
    (size,) = set(re.findall(r"Symbol\('\w+'[^)]*\)", text))
    for what, old, new in (
        ("a size that is code", size, _line(made)),
        ("a weight that is code", "0.weight", _line(made)),
        ("a size without end", size, "9**9**9**9"),
    ):
        found[what] = _zipped({**records, graph: text.replace(old, json.dumps(new)[1:-1]).encode()})
    found["lists without end"] = _zipped({**records, graph: b"[" * 1_000_000})
    found["a packed record"] = _zipped({**records, graph: b" " * (1 << 28)}, packed=True)
    return found


def onnx_models(made: Path) -> Files:
    value, float32 = helper.make_tensor_value_info, TensorProto.FLOAT

    def model(nodes: list[onnx.NodeProto], *weights: TensorProto, functions: Any = ()) -> bytes:
        graph = helper.make_graph(nodes, "g", [value("x", float32, [2, 4])], [value("y", float32, [2, 4])], weights)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions).SerializeToString()

    def beside(location: str) -> bytes:
        weight = TensorProto(name="w", data_type=1, dims=[4, 4], data_location=TensorProto.EXTERNAL)
        weight.external_data.add(key="location", value=location)
        return model(product, weight)

    product = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    sizes = numpy_helper.from_array(np.array([2**16, 2**16]), "s")
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    levels = [
        helper.make_function("d", f"F{i}", ["a"], ["b"], [
            helper.make_node(f"F{i + 1}", ["a"], ["t"], domain="d"),
            helper.make_node(f"F{i + 1}", ["t"], ["b"], domain="d"),
        ] if i < 39 else [helper.make_node("Relu", ["a"], ["b"])], imports)
        for i in range(40)
    ]  # fmt: skip
    code = _name(made)
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), code)
    return {
        "a weight that is code": model([helper.make_node("MatMul", ["x", code], ["y"])], weight),
        "a node that is code": model([helper.make_node("Relu", ["x"], ["y"], name=code)]),
        "functions of functions": model([helper.make_node("F0", ["x"], ["y"], domain="d")], functions=levels),
        "a constant that grows": model([helper.make_node("ConstantOfShape", ["s"], ["w"]), *product], sizes),
        "a constant that is repeated": model(
            [helper.make_node("Expand", ["c", "s"], ["w"]), *product],
            sizes,
            numpy_helper.from_array(np.zeros((1, 1), np.float32), "c"),
        ),
        "data elsewhere": beside("/etc/passwd"),
        "data of a device": beside("../../../../../../dev/zero"),
        "more than there is": model(product, TensorProto(name="w", data_type=1, dims=[2**31, 2**31], raw_data=b"1")),
        "no model": b"\x3a\x80\x80\x80\x40" + b"\x0a\xff\xff\xff\x7f" * 1000,
    }


# --------------------------------------------------------------------------------------------------- others


def arrays(made: Path) -> Files:
    def described(shape: Any, descr: str = "<f4") -> bytes:
        text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}}}\n".encode()
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(64)

    pickled = io.BytesIO()
    np.save(pickled, np.array([_Code(made)], dtype=object), allow_pickle=True)
    return {
        "objects": pickled.getvalue(),
        "a pickle": pickle.dumps(_Code(made)),
        "code in the header": b"\x93NUMPY\x01\x00\x40\x00" + _line(made).encode().ljust(64),
        "more than there is": described((2**60,)),
        "sizes that overflow": described((2**40, 2**40)),
        "a negative size": described((-4, 4)),
        "elements without bytes": described((2**62,), "|V0"),
        "nothing": b"",
    }


def array_archives(made: Path) -> Files:
    inside = arrays(made)
    found = {name: _zipped({"x.npy": data}) for name, data in inside.items()}
    zeros = io.BytesIO()
    np.save(zeros, np.zeros(1 << 26, np.float32))
    return {**found, "a packed array": _zipped({"x.npy": zeros.getvalue()}, packed=True), "no archive": b"PK\x03\x04"}


def sources(made: Path) -> Files:
    return {
        "code": f"import torch.ao.quantization\n{_line(made)}\n".encode(),
        "an encoding": f"# -*- coding: raw_unicode_escape -*-\n#\\u000a{_line(made)}\n".encode(),
        "brackets without end": b"x = " + b"(" * 100_000 + b")" * 100_000,
        "signs without end": b"x = " + b"-" * 100_000 + b"1",
        "a power": b"x = 9**9**9**9\n",
        "no text": b"\0\xff\xfe",
    }


def checkpoints(made: Path) -> Files:
    return {
        **{f"json: {name}": data for name, data in {"lists": b"[" * 1_000_000, "a list": b"[]"}.items()},
        **{f"tensors: {name}": data for name, data in tensors(made).items()},
        "a pickle": pickle.dumps(_Code(made)),
        "an archive": _saved(_Code(made)),
    }


def bodies(made: Path) -> Files:
    """What a server is sent: arrays, and JSON of the Open Inference Protocol."""
    given = {"name": "image", "shape": [1], "datatype": "FP32", "data": [1]}

    def changed(**change: Any) -> bytes:
        return json.dumps({"inputs": [given | change]}).encode()

    wrong = {
        "lists without end": b"[" * 1_000_000,
        "data without end": b'{"inputs": [{"name": "image", "shape": [1], "datatype": "FP32", "data": '
        + b"[" * 500_000,
        "objects": b'{"inputs": [' + b"{}," * 500_000 + b"{}]}",
        "a long number": changed(data=0).replace(b": 0", b": " + b"9" * 100_000),
        "a terabyte": changed(shape=[1 << 19, 1 << 19]),
        "sizes that overflow": changed(shape=[1 << 30] * 60),
        "many values": changed(data=[1] * 1_000_000),
        "long texts": changed(data=["x" * 1_000_000]),
        "texts of different lengths": changed(data=["x" * 100_000] + ["y"] * 100_000),
        "code": changed(name=_line(made), datatype=_line(made)),
    }
    return {**arrays(made), **{f"json: {name}": data for name, data in wrong.items()}}


# The kinds of SECURITY.md, the ending of their files, and what makes them.
def language_models(made: Path) -> Files:
    """Counts and sizes that no file has, code in templates and names, tokenizers that take long."""
    from itertools import product

    import gguf_files

    with tempfile.TemporaryDirectory() as folder:
        plain = gguf_files.decoder_file(Path(folder) / "a.gguf").read_bytes()
        entries = {"tokenizer.chat_template": "{% set x = ''.__class__.__mro__ %}" + _line(made)}
        template = gguf_files.decoder_file(Path(folder) / "b.gguf", entries=entries).read_bytes()
        pieces = ["".join(letters) for n in range(1, 15) for letters in product("ab", repeat=n)]
        words = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": pieces,
            "tokenizer.ggml.token_type": [1] * len(pieces),
            "tokenizer.ggml.scores": [-float(n) for n in range(len(pieces))],
        }
        pairs = gguf_files.decoder_file(Path(folder) / "c.gguf", entries=words).read_bytes()
        long = ["a" * 1_000_000, "a" * 999_999, _name(made)]
        words |= {"tokenizer.ggml.tokens": long, "tokenizer.ggml.token_type": [1] * 3}
        words |= {"tokenizer.ggml.scores": [0.0, 0.0, 0.0]}
        longest = gguf_files.decoder_file(Path(folder) / "d.gguf", entries=words).read_bytes()
    many = {f"entry {n}": n for n in range(60_000)}
    return {
        "cut": plain[: len(plain) // 2],
        "a template": template,
        "many pairs": pairs,
        "long tokens": longest,
        "entries": gguf_files.gguf_bytes(many, {}),
        "names": gguf_files.gguf_bytes({"general.architecture": _name(made)}, {_name(made): ("F32", (1,), bytes(4))}),
        "a long text": plain[:24] + struct.pack("<Q", 1 << 62) + plain[32:],
        "a long list": plain[:8] + struct.pack("<QQQ", 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 8, 1 << 61),
        "numbers": plain[:8] + struct.pack("<QQQ", 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 10, 1 << 61),
        "counts": plain[:8] + struct.pack("<QQ", 1 << 63, 1 << 63) + bytes(64),
        "zeros": b"GGUF" + struct.pack("<IQQ", 3, 60_000, 60_000) + bytes(3_000_000),
    }


KINDS: dict[str, tuple[str, Callable[[Path], Files]]] = {
    "programs (`.zpt`)": (".zpt", programs),
    "tensors (`.safetensors`)": (".safetensors", tensors),
    "old files of torch.ao (`.pt`, `.pth`)": (".pt", archives),
    "TorchScript (`.pt`)": (".pt", archives),
    "torch.export models (`.pt2`)": (".pt2", exported),
    "ONNX models (`.onnx`)": (".onnx", onnx_models),
    "language models (`.gguf`)": (".gguf", language_models),
    "arrays (`.npy`)": (".npy", arrays),
    "arrays (`.npz`)": (".npz", array_archives),
    "Python source": (".py", sources),
    "checkpoints of calibration and tuning": (".json", checkpoints),
    "request bodies": (".npy", bodies),
}
