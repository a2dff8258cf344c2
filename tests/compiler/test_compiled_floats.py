"""Models with float32 functions, norms and attention between their layers, as programs that need no PyTorch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import golden_programs
import pytest
import torch
from few_layers import Layers
from torch import Tensor, nn
from torch.nn import functional as F

import zeropoint
from zeropoint import _native
from zeropoint.compiler.compiler import compile_with


class Attention(nn.Module):
    """An encoder layer whose floats are the ones an int8 model keeps, and some more."""

    def __init__(self, width: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.norm, self.plain = nn.LayerNorm(width), nn.LayerNorm(width, elementwise_affine=False)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        shares = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5, -1)
        x = self.norm(x + torch.matmul(shares, v).transpose(1, 2).flatten(2))
        wide = self.wide(x)
        mixed = F.gelu(wide) + F.gelu(wide, approximate="tanh") + F.silu(wide) * torch.sigmoid(wide)
        return self.plain(x + self.narrow(mixed)) + torch.softmax(torch.tanh(x), 1)


@pytest.mark.parametrize("mode", ["static", "static with float layers between"])
def test_saved_program_gives_the_bytes_of_the_graph(mode: str, isa: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 7, 24)
    default = zeropoint.get_default_qconfig_mapping()
    mapping = default if mode == "static" else default.set_object_type(torch.matmul, None).set_object_type(F.gelu, None)
    graph = zeropoint.to_int8(Attention().eval(), (x,), qconfig=mapping, progress=False)
    program = zeropoint.compile(graph, (x,))
    assert program.computed_by_torch == []
    path = tmp_path / "attention.zpt"
    program.save(path)
    loaded = zeropoint.runtime.load(path)
    for shape in ((2, 7, 24), (1, 19, 24), (3, 1, 24)):
        x = torch.randn(shape)
        with torch.no_grad():
            expected = graph(x)
        assert torch.equal(program(x), expected)
        assert torch.equal(torch.from_numpy(loaded(x.numpy())), expected)


class Masked(Layers):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.first(x)[:, None]
        return self.last(F.scaled_dot_product_attention(y, y, y, attn_mask=mask).squeeze(1))


def test_rows_that_see_nothing_are_zero_in_programs_too() -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(2, 5, 8), torch.zeros(2, 1, 5, 5)
    mask[0, :, 2] = -math.inf
    graph = zeropoint.to_int8(Masked(first=nn.Linear(8, 8), last=nn.Linear(8, 8)).eval(), (x, mask), progress=False)
    program = zeropoint.compile(graph, (x, mask))
    with torch.no_grad():
        expected = graph(x, mask)
    assert expected.isfinite().all()
    assert torch.equal(program(x, mask), expected)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a program with attention in parts."""
    torch.manual_seed(0)
    x, path = torch.randn(2, 7, 24), tmp_path_factory.mktemp("attention") / "right.zpt"
    mapping = zeropoint.get_default_qconfig_mapping().set_object_type(torch.matmul, None)
    graph = zeropoint.to_int8(Attention().eval(), (x,), qconfig=mapping, progress=False)
    compile_with((), graph, (x,)).save(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("op", "fields", "message"),
    [
        ("float_layer_norm", {"attributes": {"eps": -1.0, "axes": 1}}, "'eps' must not be negative"),
        ("float_layer_norm", {"attributes": {"eps": 1e-5, "axes": 0}}, "'axes' must be an integer from 1"),
        ("float_layer_norm", {"attributes": {"eps": 1e-5, "axes": 2}}, "24 numbers for rows of 168"),
        ("float_layer_norm", {"attributes": {"eps": 1e-5, "axes": 4}}, "too few axes"),
        ("float_softmax", {"attributes": {"axis": 7, "safe": False}}, "axis"),
        ("float_softmax", {"attributes": {"axis": 1, "safe": 1}}, "'safe' must be true or false"),
        ("float_matmul", {"inputs": ["x", "x"]}, "cannot multiply"),
        ("map", {"inputs": ["x", "x", "x", "x"]}, "must have the type of each input"),
    ],
)
def test_wrong_steps_are_refused(op: str, fields: dict[str, Any], message: str, right: bytes) -> None:
    header, program, data = golden_programs.parts_of(right)
    step = next(s for s in program["steps"] if s["op"] == op)
    step.update(fields)
    if "inputs" in fields:
        step["inputs"] = [program["inputs"][0]["name"] for _ in fields["inputs"]]
    with pytest.raises(zeropoint.FormatError, match=message):
        _native.Program(golden_programs.joined(header, program, data))


class Pooled(nn.Module):
    """The mean of the words that are there, as sentence encoders take it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        return (self.linear(x) * present[:, :, None]).sum(1) / present.sum(1, keepdim=True)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_sums_over_words_give_the_bytes_of_the_graph(mode: str) -> None:
    torch.manual_seed(0)
    graph = zeropoint.to_int8(Pooled().eval(), (torch.randn(2, 5, 8), torch.ones(2, 5)), mode=mode, progress=False)
    program = zeropoint.compile(graph, (torch.randn(2, 5, 8), torch.ones(2, 5)))
    for n, words in ((2, 5), (1, 33), (3, 1)):
        inputs = torch.randn(n, words, 8), (torch.rand(n, words) > 0.3).float()
        with torch.no_grad():
            assert torch.equal(program(*inputs).nan_to_num(), graph(*inputs).nan_to_num())
