"""Archives with graphs whose names are code: torch.fx would write them into the source that it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import graph_module

import zeropoint.compat


class _Graph:
    """Is pickled as torch.fx pickles a graph module."""

    def __init__(self, code: str, **body: Any) -> None:
        self.body = {
            "training": False, "_parameters": {}, "_buffers": {}, "_modules": {}, "_non_persistent_buffers_set": set(),
            "_code": code, **body,
        }  # fmt: skip

    def __reduce__(self) -> Any:
        return graph_module.reduce_graph_module, (self.body, "")


def _code(line: str) -> str:
    return f"\n\n\ndef forward(self, x):\n    a = {line}\n    add = x + a;  x = a = None\n    return add\n    "


# What would run when the code is made, and what when the model is called.
NAMES = {
    "a line of its own": 'x")\r{code}\rdef g():\r    pass #',
    "an expression": 'x") if {code} else 0 #',
    "a plain quote": 'x"',
    "a backslash": "x\\",
    "a word of Python": "class",
}


def _makes(path: Path) -> str:
    return f"exec(bytes(({','.join(map(str, f'import os; os.mkdir({str(path)!r})'.encode()))},)))"


ENTRIES = {
    "load": lambda path: zeropoint.compat.load(path)(torch.ones(1)),
    "convert": lambda path: zeropoint.compat.convert(path, path.with_suffix(".safetensors")),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("line", ["getattr(self, {name!r})", "getattr(self, {name!r})(x)", "getattr(self.x, {name!r})"])
@pytest.mark.parametrize("kind", NAMES)
def test_a_name_that_is_code_is_refused(kind: str, line: str, entry: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    name = NAMES[kind].format(code=_makes(made))
    held = nn.Linear(1, 1)
    graph = _Graph(_code(line.format(name=name)), _buffers={name: torch.ones(1)}, _modules={"x": held})
    torch.save(graph, tmp_path / "graph.pt")
    with pytest.raises((ValueError, NotImplementedError)):
        ENTRIES[entry](tmp_path / "graph.pt")
    assert not made.exists()


def test_a_module_whose_name_is_code_is_refused(tmp_path: Path) -> None:
    layers = nn.Sequential()
    layers._modules['x") or print("ran") #'] = nn.Linear(1, 1)
    torch.save(layers, tmp_path / "layers.pt")
    with pytest.raises(ValueError, match="become Python code"):
        zeropoint.compat.load(tmp_path / "layers.pt")


def test_numbers_and_names_with_a_hyphen_a_slash_or_a_colon_are_read(tmp_path: Path) -> None:
    graph = _Graph(_code('getattr(self.layers, "0")(x)'), _modules={"layers": nn.Sequential(nn.Identity())})
    torch.save(graph, tmp_path / "graph.pt")
    assert zeropoint.compat.load(tmp_path / "graph.pt")(torch.ones(1)).item() == 2
    for name in ("my-tensor", "block/3", "block: 4"):
        named = _Graph(_code(f'getattr(self, "{name}")'), _buffers={name: torch.ones(1)})
        torch.save(named, tmp_path / "named.pt")
        assert zeropoint.compat.load(tmp_path / "named.pt")(torch.ones(1)).item() == 2
