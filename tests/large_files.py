"""Program files of some megabytes that ask for as much memory as such files can."""

from __future__ import annotations

import struct

import golden_programs
import torch
from torch import nn

import zeropoint


def packed_often() -> bytes:
    """A megabyte of weights that a hundred steps read, each of which packs them for itself."""
    x = torch.randn(2, 1024)
    program = zeropoint.compile(zeropoint.to_int8(nn.Linear(1024, 1024).eval(), (x,), [x], progress=False), (x,))
    header, text, data = golden_programs.parts_of(program._native.data())
    one = next(step for step in text["steps"] if step["op"] == "linear")
    text["steps"] += [{**one, "outputs": [f"more{i}"]} for i in range(100)]
    return golden_programs.joined(header, text, data)


def files() -> dict[str, bytes]:
    header, program, data = golden_programs.parts_of((golden_programs.FOLDER / "image.zpt").read_bytes())
    one = next(step for step in program["steps"] if step["op"] == "conv")
    texts = {
        "lists": {**program, "outputs": [[] for _ in range(1 << 19)]},
        "fields": {**program, "steps": [{str(i): 0 for i in range(1 << 17)}]},
        "steps": {**program, "steps": [*program["steps"], *({**one, "outputs": [f"m{i}"]} for i in range(16000))]},
    }
    made = {name: golden_programs.joined(header, text, data) for name, text in texts.items()}
    # A digit and a comma: the least text for a value.
    numbers = b'{"version":1,"inputs":[' + b"0," * (1 << 20) + b"0]}"
    text = b'{"__metadata__":{"zeropoint.program":"' + numbers.replace(b'"', b'\\"') + b'"}}'
    return {**made, "numbers": struct.pack("<Q", len(text)) + text, "packed_often": packed_often()}
