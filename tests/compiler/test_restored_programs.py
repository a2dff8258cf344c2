"""Programs as quantized graphs again: fused steps in parts, and graphs that give the bytes of the program."""

from __future__ import annotations

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import golden_programs
import numpy as np
import pytest
import torch
from few_layers import Layers
from torch import nn

import zeropoint
from zeropoint import _native, runtime
from zeropoint.compiler.fusion import FUSIONS, split
from zeropoint.compiler.program_builder import Step
from zeropoint.compiler.restore import restore
from zeropoint.compiler.sizes import RESTORED_SIZES
from zeropoint.context import CONTEXT
from zeropoint.operators import RESTORES
from zeropoint.ops import rounding

# Steps that are split before, that no operator of graphs is, or that check sizes; kept programs with such, or state.
WITHOUT_CALL = {
    "attention", "cache_attention", "channel_lookup", "foreign", "group_embedding", "group_linear", "require",
}  # fmt: skip
REFUSED = {
    "decoder": "has state", "normed": "channel_lookup",
    "remembering": r"has state \(last\)", "written": "index_put.*'multiply'",
}  # fmt: skip


def name_of(path: Path) -> str:
    return path.stem


def assert_kept(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted):
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))


def test_every_kind_of_step_is_restored_or_listed_here() -> None:
    assert set(_native.engine_steps()) == set(RESTORES) | set(RESTORED_SIZES) | WITHOUT_CALL


@pytest.mark.parametrize("path", [p for p in golden_programs.paths() if p.stem not in REFUSED], ids=name_of)
def test_a_restored_graph_gives_the_kept_bytes(path: Path) -> None:
    graph, example = restore(runtime.load(path))
    inputs, outputs = golden_programs.arrays_of(path)
    assert [tuple(x.shape) for x in example] == [x.shape for x in inputs]
    found = graph(*(torch.from_numpy(x) for x in inputs))
    assert_kept([found] if torch.is_tensor(found) else list(found), outputs)


@pytest.mark.parametrize("name", REFUSED)
def test_what_graphs_have_not_is_named(name: str) -> None:
    with pytest.raises(zeropoint.Unsupported, match=REFUSED[name]):
        restore(runtime.load(golden_programs.FOLDER / f"{name}.zpt"))


@pytest.mark.parametrize("path", golden_programs.paths(), ids=name_of)
def test_split_steps_compute_the_same_bytes(path: Path) -> None:
    header, program, data = golden_programs.parts_of(path.read_bytes())
    numbers = itertools.count()
    steps = split([Step(**step) for step in program["steps"]], lambda name: f"{name}_part_{next(numbers)}")
    layers = [step.attributes for step in steps if step.op.startswith("linear")]
    assert not any("function" in numbers for numbers in layers)
    assert not any("then" in step.attributes or step.op == "attention" for step in steps)
    again = _native.Program(golden_programs.joined(header, program | {"steps": [vars(s) for s in steps]}, data))
    inputs, outputs = golden_programs.arrays_of(path)
    assert_kept(again.run(inputs, state=again.new_state()), outputs)


def test_every_fusion_that_makes_another_step_can_be_split() -> None:
    assert {fusion.by for fusion in FUSIONS if fusion.split is None} == {
        "a table", "linear_dynamic with a function", "moves behind it", "one map",
    }  # fmt: skip


def test_free_sizes_stay_free_and_fixed_ones_fixed() -> None:
    class Model(Layers):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).reshape(x.shape[0], -1, 4)

    torch.manual_seed(0)
    x, other = torch.randn(3, 8), torch.randn(5, 8)
    program = zeropoint.compile(zeropoint.to_int8(Model(layer=nn.Linear(8, 8)).eval(), (x,), [x], progress=False), (x,))
    graph, _ = restore(program)
    assert torch.equal(graph(other), program(other))
    with pytest.raises(ValueError, match="needs 8 there"):
        graph(torch.randn(5, 9))


class _Alike(nn.Module):
    """Two layers with the same integers, and other scales."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1, 4, bias=False), nn.Linear(1, 4, bias=False)
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[0.5], [-0.25], [2.0], [1.0]]))
            self.second.weight.copy_(torch.tensor([[3.0], [-1.5], [0.125], [7.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) + self.second(x)


@pytest.mark.parametrize("mode", ["static", "dynamic", "weight_only"])
def test_layers_with_the_same_integers_keep_their_own_scales(mode: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 1)
    data = {"calibration": [(x,)]} if mode == "static" else {}
    quantized = zeropoint.to_int8(_Alike().eval(), (x,), mode=mode, progress=False, **data)
    program = zeropoint.compile(quantized, (x,))
    graph, _ = restore(program)
    assert torch.equal(graph(x), program(x))


def test_a_table_does_not_give_its_scale_to_what_it_reads(tmp_path: Path) -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.hardswish(self.layer(x))
            return self.last(torch.sigmoid(y) * y)

    torch.manual_seed(0)
    x = torch.randn(16, 8) * 3
    program = zeropoint.compile(zeropoint.to_int8(Gated().eval(), (x,), [(x,)], progress=False), (x,))
    zeropoint.export_onnx(program, None, tmp_path / "model.onnx")
    again = zeropoint.from_onnx(tmp_path / "model.onnx", (x,))
    assert torch.equal(again(x), program(x))
    assert [row.precision for row in again.summary().of("linear")] == ["int8", "int8"]  # what a table gives is rounded
    assert torch.equal(zeropoint.compile(again, (x,))(x), program(x))


class WithItself(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


@pytest.mark.parametrize("layers", [WithItself(), nn.AvgPool2d(2)], ids=["sum", "mean"])
def test_rounding_that_graphs_have_not_is_refused(layers: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(1, 4, 6, 6)
    graph = zeropoint.to_int8(
        nn.Sequential(nn.Conv2d(4, 4, 1), layers, nn.Conv2d(4, 4, 1)).eval(), (x,), [x], progress=False
    )
    monkeypatch.setattr(CONTEXT, "rounding_of_values", lambda: rounding.QNNPACK)
    program = zeropoint.compile(graph, (x,))
    with pytest.raises(zeropoint.Unsupported, match="graph operators have no counterpart for rounding = 2"):
        restore(program)


def test_the_name_of_an_input_is_no_code_in_a_restored_graph(tmp_path: Path) -> None:
    """Names of a program are any text; torch.fx would write them into source as they are."""
    made = tmp_path / "made"
    evil = f"x=__import__('os').mkdir({str(made)!r})"
    x = torch.randn(2, 4)
    layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    program = zeropoint.compile(zeropoint.to_int8(layers, (x,), [x], progress=False), (x,))
    program.save(tmp_path / "plain.zpt")
    data = (tmp_path / "plain.zpt").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    described = json.loads(header["__metadata__"]["zeropoint.program"])
    (old,) = (given["name"] for given in described["inputs"])
    header["__metadata__"]["zeropoint.program"] = json.dumps(described).replace(json.dumps(old), json.dumps(evil))
    text = json.dumps(header).encode()
    (tmp_path / "evil.zpt").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    graph, _ = restore(runtime.load(tmp_path / "evil.zpt"))
    assert torch.equal(graph(x), program(x))
    assert not made.exists()
