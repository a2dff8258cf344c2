"""Files of torch.ao that this repository keeps, read without its code; and hostile files, of which nothing is run."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils._pytree import tree_leaves

import zeropoint
from zeropoint.compat.graph_code import graph_module
from zeropoint.compat.pickle_records import Persistent, read_records, write_records

ARCHIVES = Path(__file__).parent / "archives"
EXPECTED = load_file(ARCHIVES / "expected.safetensors")
MODULES = sorted(p.name.removesuffix(".pt") for p in ARCHIVES.glob("*.pt") if p.name.count(".") == 1)
SCRIPTS = sorted(p.name for p in ARCHIVES.glob("*.*.pt") if ".state." not in p.name)
STATES = sorted(p.name for p in ARCHIVES.glob("*.state.pt"))


def inputs_of(name: str) -> list[torch.Tensor]:
    return [EXPECTED[f"{name}.input.{i}"] for i in range(2) if f"{name}.input.{i}" in EXPECTED]


def test_there_are_enough_archives() -> None:
    assert len(list(ARCHIVES.glob("*.pt"))) >= 40


@pytest.mark.parametrize("name", MODULES)
def test_a_module_gives_the_exact_output(name: str) -> None:
    model = zeropoint.compat.load(ARCHIVES / f"{name}.pt")
    assert not [m for m in model.modules() if type(m).__module__.startswith("torch.ao")]
    with torch.no_grad():
        result = tree_leaves(model(*inputs_of(name)))[0]
    assert torch.equal(result, EXPECTED[f"{name}.output"])


@pytest.mark.parametrize("file", SCRIPTS)
def test_torchscript_gives_the_exact_output_and_can_be_saved(file: str) -> None:
    name = file.split(".")[0]
    module = zeropoint.compat.load(ARCHIVES / file)
    saved = io.BytesIO()
    torch.jit.save(module, saved)
    saved.seek(0)
    for loaded in (module, torch.jit.load(saved)):
        graph = str(loaded.inlined_graph)
        assert "quantized::" not in graph
        assert "torch.classes" not in graph
        with torch.no_grad():
            assert torch.equal(tree_leaves(loaded(*inputs_of(name)))[0], EXPECTED[f"{name}.output"])


@pytest.mark.parametrize("file", STATES)
def test_a_state_dict_is_that_of_the_module(file: str) -> None:
    state = zeropoint.compat.load(ARCHIVES / file)
    module = zeropoint.compat.load_state_dict(ARCHIVES / file.replace(".state", ""))
    assert list(state) == list(module)
    mine, of_module = (tree_leaves([v for v in s.values() if isinstance(v, torch.Tensor)]) for s in (state, module))
    for a, b in zip(mine, of_module, strict=True):
        plain = (a.int_repr(), b.int_repr()) if isinstance(a, zeropoint.QTensor) else (a, b)
        assert torch.equal(*plain)


@pytest.mark.parametrize("name", MODULES)
def test_what_was_converted_loads_again(name: str, tmp_path: Path) -> None:
    state = zeropoint.compat.convert(ARCHIVES / f"{name}.pt", tmp_path / "new.safetensors")
    again = zeropoint.compat.load(tmp_path / "new.safetensors")
    assert list(again) == list(state)
    assert [type(v) for v in again.values()] == [type(v) for v in state.values()]


class Mine(nn.Sequential):
    """A class of a user's."""


def test_the_users_classes_are_taken_when_they_are_given(tmp_path: Path) -> None:
    torch.save(Mine(nn.Linear(2, 2)), tmp_path / "mine.pt")
    with pytest.raises(NotImplementedError, match=r"test_archives\.Mine.*classes=\[Mine\]"):
        zeropoint.compat.load(tmp_path / "mine.pt")
    assert isinstance(zeropoint.compat.load(tmp_path / "mine.pt", classes=[Mine]), Mine)
    assert list(zeropoint.compat.load_state_dict(tmp_path / "mine.pt")) == ["0.weight", "0.bias"]


# ------------------------------------------------------------------------------------------------------ hostile files


class Calls:
    """An object that a pickle makes by a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.parts = function, args

    def __reduce__(self) -> Any:
        return self.parts


def hostile(marker: Path) -> dict[str, Any]:
    command = f"touch {marker}"
    write = f"open({str(marker)!r}, 'w').close()"
    return {
        "os.system": Calls(os.system, command),
        "subprocess.call": Calls(subprocess.call, command.split()),
        "builtins.eval": Calls(builtins.eval, write),
        "builtins.exec": Calls(builtins.exec, write),
        "builtins.open": Calls(builtins.open, str(marker), "w"),
        "builtins.getattr": Calls(builtins.getattr, os.system, "__call__"),
        "builtins.__import__": Calls(builtins.__import__, "antigravity"),
        "torch.load": Calls(torch.load, str(marker)),
        "torch.hub.load": Calls(torch.hub.load, "a/b", "c"),
        "nested": OrderedDict(a=[{"b": (Calls(os.system, command),)}]),
        "as a key": {("x", Calls(os.system, command)): 1},
    }


@pytest.mark.parametrize("name", list(hostile(Path("x"))))
def test_a_hostile_file_is_refused_and_nothing_is_run(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "run"
    torch.save(hostile(marker)[name], tmp_path / "hostile.pt")
    for read in (zeropoint.compat.load, zeropoint.compat.load_state_dict):
        with pytest.raises(NotImplementedError, match="this could execute code"):
            read(tmp_path / "hostile.pt")
    assert not marker.exists()


def test_a_hook_of_the_users_is_refused(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(print)
    torch.save(layer, tmp_path / "hook.pt")
    with pytest.raises(NotImplementedError, match=r"has a hook, __builtin__\.print"):
        zeropoint.compat.load(tmp_path / "hook.pt")
    assert list(zeropoint.compat.load_state_dict(tmp_path / "hook.pt")) == ["weight", "bias"]


@pytest.mark.parametrize(
    "code",
    [
        "def forward(self, x):\n    return __import__('os').system('true')",
        "def forward(self, x):\n    y = torch.load('file')\n    return y",
        "def forward(self, x):\n    y = torch.hub.load('a', 'b')\n    return y",
        "def forward(self, x):\n    y = torch.ops.load_library('a.so')\n    return y",
        "def forward(self, x):\n    y = x.apply_(x)\n    return y",
        "def forward(self, x):\n    y = x.__class__\n    return y",
        "def forward(self, x):\n    y = getattr(x, '__class__')\n    return y",
        "def forward(self, x):\n    import os\n    return x",
        "def forward(self, x):\n    return [y for y in x]",
        "def forward(self, x):\n    return (lambda: x)()",
    ],
)
def test_code_of_a_graph_that_is_no_graph_is_refused(code: str) -> None:
    with pytest.raises(NotImplementedError, match="a graph in the file"):
        graph_module({"_code": code})


def test_code_of_a_graph_is_read() -> None:
    code = (
        "def forward(self, x, y = None):\n    w = self.w\n"
        "    a = torch.nn.functional.relu(x, inplace = False);  x = None\n"
        "    b = a + 2\n    c = b[(slice(None, 1, None), 0)]\n    d = torch.cat([c, c], dim = 0)\n"
        "    e = d.flatten(0, -1)\n    return {'out': (e, w)}"
    )
    graph = graph_module({"_code": code, "_buffers": {"w": torch.ones(1)}})
    out, w = graph(torch.tensor([[-1.0, 3.0]]))["out"]
    assert out.tolist() == [2.0, 2.0]
    assert w.tolist() == [1.0]


# ------------------------------------------------------------------------------------------------------ damaged files


def rewritten(name: str | Path, change: Any) -> io.BytesIO:
    """An archive with its pickle or one of its memories changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(ARCHIVES / name) as old, zipfile.ZipFile(made, "w") as new:
        for record in old.namelist():
            content = change(record, old.read(record))
            if content is not None:
                new.writestr(record, content)
    made.seek(0)
    return made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record, data: None if record.endswith("data/0") else data, "is missing"),
        (lambda record, data: data[:1] if "/data/" in record else data, "elements"),
        (lambda record, data: data[:-20] if record.endswith(".pkl") else data, "pickle"),
        (lambda record, data: b"\x80\x02." if record.endswith(".pkl") else data, "pickle"),
        (lambda record, data: None if record.endswith(".pkl") else data, r"no data\.pkl"),
    ],
)
def test_a_damaged_file_is_refused(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        zeropoint.compat.load(rewritten("linear.pt", change))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.pt is not a torch\.save"):
        zeropoint.compat.load(tmp_path / "text.pt")


def test_a_tensor_outside_of_its_memory_is_refused(tmp_path: Path) -> None:
    torch.save(torch.ones(4), tmp_path / "t.pt")
    with zipfile.ZipFile(tmp_path / "t.pt") as old:
        records = {n: old.read(n) for n in old.namelist()}
    with zipfile.ZipFile(tmp_path / "t.pt", "w") as new:
        for n, data in records.items():
            new.writestr(n, data.replace(b"K\x04\x85", b"K\x09\x85") if n.endswith("data.pkl") else data)
    with pytest.raises(ValueError, match=r"shape \(9,\) exceeds its storage of 16 bytes"):
        zeropoint.compat.load(tmp_path / "t.pt")


def test_deep_nesting_and_shared_parts_are_no_danger(tmp_path: Path) -> None:
    shared: Any = [1]
    for _ in range(60):  # 2**60 elements, if parts were not made once
        shared = [shared, shared]
    torch.save(shared, tmp_path / "shared.pt")
    assert zeropoint.compat.load(tmp_path / "shared.pt")[0][0] is not None
    deep = b"\x80\x02" + b"(" * 100_000 + b"l" * 100_000 + b"."
    with pytest.raises(ValueError, match="too deeply"):
        zeropoint.compat.load(rewritten("linear.pt", lambda r, data: deep if r.endswith(".pkl") else data))


def test_files_of_before_pytorch_1_6_are_read(tmp_path: Path) -> None:
    state = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([1, 2])}
    torch.save(state, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    loaded = zeropoint.compat.load(tmp_path / "legacy.pt")
    assert all(torch.equal(loaded[k], v) for k, v in state.items())
    data = (tmp_path / "legacy.pt").read_bytes()
    with pytest.raises(ValueError, match=r"truncated|damaged|pickle"):
        zeropoint.compat.load(io.BytesIO(data[:-5]))


def test_pickle_protocols_of_torch_are_read() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        buffer = io.BytesIO()
        torch.save({"x": torch.ones(2)}, buffer, pickle_protocol=protocol)
        buffer.seek(0)
        assert zeropoint.compat.load(buffer)["x"].tolist() == [1.0, 1.0]


# ---------------------------------------------------------------------------------------- files that ask for too much


def with_pickle(data: bytes) -> io.BytesIO:
    return rewritten("linear.pt", lambda record, old: data if record.endswith("data.pkl") else old)


def shared_tuples() -> bytes:
    """A tuple of two of the one before, 60 times: hashing it would visit 2**60 parts."""
    twice = b"".join(b"q%ch%c\x86" % (i, i) for i in range(60))
    return b"\x80\x02}N" + twice + b"Ns."


# A pickle, and a word of what is said about it.
TOO_MUCH = {
    "deep key": (b"\x80\x02}N" + b"\x85" * 1_000_000 + b"Ns.", "nested too deeply"),
    "shared key": (shared_tuples(), "nested too deeply"),
    "deep member": (b"\x80\x04\x8f(N" + b"\x85" * 1_000_000 + b"\x90.", "nested too deeply"),
    "bytearray": (b"\x80\x05\x96" + struct.pack("<Q", 1 << 32) + b".", "bytearray"),
    # A place in the memo, of which pickle in C makes as many as the file claims: this file is in order.
    "memo": (b"\x80\x02}r" + struct.pack("<I", 1 << 28) + b".", "read"),
}


def test_pickles_that_would_end_the_process_do_not(tmp_path: Path) -> None:
    """In a process of their own, that has 2 GB more than it began with."""
    for name, (data, _) in TOO_MUCH.items():
        (tmp_path / f"{name}.pt").write_bytes(with_pickle(data).getvalue())
    code = f"""
import resource, sys, zeropoint.compat
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (2 << 30),) * 2)
for name in {list(TOO_MUCH)}:
    try:
        zeropoint.compat.load(f"{tmp_path}/{{name}}.pt")
        print("read")
    except ValueError as error:
        print(error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-500:]
    for (name, (_, message)), line in zip(TOO_MUCH.items(), ended.stdout.splitlines(), strict=True):
        assert message in line, name


def packed_zeros(names: list[str], count: int) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for name in names:
            new.writestr(name, bytes(count))
    return made.getvalue()


@pytest.mark.parametrize("names", [["a/data.pkl"], ["a/constants.pkl", "a/code/model.py"]], ids=["pickle", "script"])
def test_an_archive_that_unpacks_to_gigabytes_is_refused(names: list[str]) -> None:
    bomb = packed_zeros(names, 400_000_000)
    assert len(bomb) < 1_000_000
    with pytest.raises(ValueError, match="out of proportion to the file"):
        zeropoint.compat.load(io.BytesIO(bomb))


def with_size(size: tuple[int, ...], stride: tuple[int, ...], **options: Any) -> io.BytesIO:
    """A file of a tensor whose sizes and strides are other ones."""
    made = io.BytesIO()
    torch.save({f"t{i}": torch.ones(4, 4) for i in range(options.pop("count", 1))}, made, **options)
    old = b"K\x04K\x04\x86", b"K\x04K\x01\x86"
    new = [b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", n) for n in numbers) + b"t" for numbers in (size, stride)]
    data = made.getvalue()
    if not zipfile.is_zipfile(made):
        return io.BytesIO(data.replace(old[0], new[0]).replace(old[1], new[1]))
    changed = io.BytesIO()
    with zipfile.ZipFile(made) as archive, zipfile.ZipFile(changed, "w") as out:
        for name in archive.namelist():
            record = archive.read(name)
            out.writestr(
                name, record.replace(old[0], new[0]).replace(old[1], new[1]) if name.endswith("pkl") else record
            )
    return changed


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_tensor_that_repeats_its_memory_takes_no_more_than_a_file_of_its_size_may(is_zip: bool) -> None:
    options = {"_use_new_zipfile_serialization": is_zip}
    small = zeropoint.compat.load(with_size((1000, 4), (0, 1), **options))["t0"]
    assert small.tolist() == [[1.0] * 4] * 1000
    for size, stride, count in (((1 << 30,), (0,), 1), ((1 << 31, 1 << 31), (0, 0), 1), ((1 << 22,), (0,), 40)):
        with pytest.raises(ValueError, match="out of proportion to the file"):
            zeropoint.compat.load(with_size(size, stride, count=count, **options))


def test_compressed_records_of_an_honest_file_are_read(tmp_path: Path) -> None:
    torch.save({"x": torch.zeros(1000)}, tmp_path / "x.pt")
    made = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "x.pt") as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for record in old.namelist():
            new.writestr(record, old.read(record))
    assert zeropoint.compat.load(made)["x"].tolist() == [0.0] * 1000


def test_damaged_compression_is_refused() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr("a/data.pkl", bytes(range(256)) * 20)
    data = bytearray(made.getvalue())
    start = data.index(b"a/data.pkl") + len(b"a/data.pkl")
    data[start : start + 40] = b"\xff" * 40
    with pytest.raises(ValueError, match=r"the file is damaged: cannot read a/data\.pkl"):
        zeropoint.compat.load(io.BytesIO(bytes(data)))


@pytest.mark.parametrize("size", [-5, 1 << 70])
def test_an_empty_tensor_of_impossible_sizes_is_refused(size: int, tmp_path: Path) -> None:
    torch.save(torch.ones(4), tmp_path / "t.pt")

    def changed(record: str, data: bytes) -> bytes:
        if not record.endswith("data.pkl"):
            return data
        content = read_records(data, Persistent)
        content.args = (content.args[0], 0, (0, size), (1, 1), *content.args[4:])
        return write_records(content)

    with pytest.raises(ValueError, match=r"exceeds its storage of 16 bytes"):
        zeropoint.compat.load(rewritten(tmp_path / "t.pt", changed))


def with_random_bytes(data: bytes, rnd: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rnd.choice([1, 1, 2, 4])):
        place, removed = rnd.randrange(len(changed)), rnd.randrange(3)
        changed[place : place + removed] = rnd.choices(b"\0\xff\x80.Rbct(09q", k=rnd.choice([0, 1, 2, 8]))
    return bytes(changed)


@pytest.mark.parametrize("entry", ["load", "load_state_dict"])
def test_an_archive_with_random_bytes_is_read_or_refused(entry: str, tmp_path: Path) -> None:
    rnd, path, refused = random.Random(0), tmp_path / "file.pt", 0
    for _ in range(400):
        name = rnd.choice([*STATES, *(f"{module}.pt" for module in MODULES)])
        data = rewritten(name, lambda record, data: with_random_bytes(data, rnd) if record.endswith(".pkl") else data)
        path.write_bytes(data.getvalue() if rnd.random() < 0.75 else with_random_bytes(data.getvalue(), rnd))
        try:
            getattr(zeropoint.compat, entry)(path)
        except (ValueError, NotImplementedError) as error:
            refused += not isinstance(error, UnicodeDecodeError)
    assert refused > 200
