"""Models with parts that are left in float32: programs need no PyTorch, and give the bytes of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import golden_programs
import pytest
import torch
from equal_programs import assert_equal, assert_equal_for
from few_layers import Layers
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import zeropoint
from zeropoint import _native

Inputs = tuple[Tensor, ...]


class Residual(nn.Module):
    """The blocks of a small ResNet, with a batch norm that no layer takes in."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.inner = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.down, self.short = nn.Conv2d(16, 20, 3, 2, 1), nn.Conv2d(16, 20, 1, 2)
        self.norm, self.head = nn.BatchNorm2d(20), nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.first(x), 3, 2, 1)
        x = x + self.inner(x)
        x = F.relu(self.norm(torch.relu(self.down(x) + self.short(x))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Encoder(nn.Module):
    """Words, attention and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 24), nn.Embedding(32, 24)
        self.norm, self.qkv, self.out = nn.LayerNorm(24), nn.Linear(24, 72), nn.Linear(24, 24)
        self.head = nn.Linear(24, 7)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.words(words) + self.places(torch.arange(words.shape[1])))
        q, k, v = (t.unflatten(-1, (3, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return self.head(F.gelu(x)), F.normalize(x.mean(1), dim=-1)


class Listener(nn.Module):
    """Recurrent layers, and steps of them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 12)
        self.lstm = nn.LSTM(12, 20, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(40, 18, bias=False)
        self.lstm_cell, self.gru_cell, self.rnn_cell = nn.LSTMCell(18, 9), nn.GRUCell(9, 9), nn.RNNCell(9, 5)

    def forward(self, x: Tensor) -> Any:
        y, (h, c) = self.lstm(self.linear(x))
        y, last = self.gru(y.transpose(0, 1))
        step, cell = self.lstm_cell(y[-1])
        return y, h, c, last, cell, self.rnn_cell(self.gru_cell(step))


class Shapes(nn.Module):
    """Convolutions over one to three axes, transposed, grouped, dilated and depthwise; norms and pools between them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.line, self.line_up = nn.Conv1d(4, 6, 3, dilation=2, groups=2), nn.ConvTranspose1d(6, 4, 4, 3, 1, 1)
        self.deep, self.deep_up = nn.Conv3d(2, 4, 2, 2, 1), nn.ConvTranspose3d(4, 2, (1, 3, 2), 2, groups=2)
        self.plane, self.plane_up = (
            nn.Conv2d(4, 4, 3, padding="same", groups=4),
            nn.ConvTranspose2d(4, 4, 3, 2, groups=4),
        )
        self.group, self.instance, self.batch = nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Any:
        x = self.linear(x)
        line = self.batch(self.line_up(F.avg_pool1d(self.line(x), 3, 2, 1)))
        plane = self.instance(self.group(self.plane(x.unsqueeze(2).expand(-1, -1, 3, -1))))
        plane = F.avg_pool2d(self.plane_up(F.max_pool2d(plane, 2, ceil_mode=True)), 2)
        deep = self.deep(x.reshape(-1, 2, 2, 2, 4))
        deep = F.adaptive_avg_pool3d(self.deep_up(F.max_pool3d(deep, 2, 1)), (1, 2, 2))
        return line, plane, deep, deep.mean(), plane.mean(1, keepdim=True), self.line(x[0])


def _torso() -> nn.Module:
    layers = [
        nn.Linear(20, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Linear(64, 300),
        nn.ReLU(),
        nn.Linear(300, 3),
    ]
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class Example:
    """A model, inputs of a batch size and a length, and which parts are left in float32."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], Inputs]
    floats: tuple[Any, ...]
    steps: tuple[str, ...]


CONVOLUTIONS = [getattr(nn, f"{name}{d}d") for d in (1, 2, 3) for name in ("Conv", "ConvTranspose")]
EXAMPLES = {
    "first and last": Example(
        Residual, lambda n, size: (torch.randn(n, 3, 4 * size + 9, 4 * size + 9),),
        ("first.0", "head", nn.BatchNorm2d), ("float_conv", "float_linear", "conv", "float_max_pool"),
    ),
    "head": Example(
        Encoder, lambda n, size: (torch.randint(0, 50, (n, size)),), ("head", nn.Embedding, torch.matmul),
        ("float_linear", "index", "float_matmul", "linear", "float_norm"),
    ),
    "recurrent": Example(
        Listener, lambda n, size: (torch.randn(n, size, 12),),
        (nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell), ("recurrent", "linear"),
    ),
    "shapes": Example(
        Shapes, lambda n, size: (torch.randn(n, 4, 8),),
        (*CONVOLUTIONS, nn.GroupNorm, nn.InstanceNorm2d, nn.BatchNorm1d, F.avg_pool2d),
        ("float_conv", "float_layer_norm", "float_average_pool", "float_adaptive_average_pool", "linear"),
    ),
    "one layer": Example(
        _torso, lambda n, size: (torch.randn(n, 20),), ("0", "4", "6"), ("float_linear", "linear"),
    ),
}  # fmt: skip
SIZES = ((3, 4), (1, 5), (4, 7))


def _mapping(floats: tuple[Any, ...]) -> Any:
    mapping = zeropoint.get_default_qconfig_mapping()
    for part in floats:
        mapping = mapping.set_module_name(part, None) if isinstance(part, str) else mapping.set_object_type(part, None)
    return mapping


@functools.cache
def made(name: str) -> tuple[nn.Module, Any, Any]:
    """The float model, the quantized one and its program."""
    torch.manual_seed(0)
    example = EXAMPLES[name]
    inputs, model = example.inputs(*SIZES[0]), example.make().eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
    quantized = zeropoint.to_int8(model, inputs, qconfig=_mapping(example.floats), dynamic_shapes="all", progress=False)
    return model, quantized, zeropoint.compile(quantized, inputs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_program_gives_the_bytes_of_the_graph(name: str, isa: str) -> None:
    _, quantized, program = made(name)
    assert_equal_for(SIZES, EXAMPLES[name].inputs, program, quantized)


@pytest.mark.parametrize("name", EXAMPLES)
def test_file_has_the_steps_and_does_not_depend_on_threads(name: str, tmp_path: Path) -> None:
    _, quantized, program = made(name)
    program.save(tmp_path / "model.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "model.zpt")
    torch.manual_seed(2)
    inputs = EXAMPLES[name].inputs(*SIZES[2])
    arrays = [x.numpy() for x in inputs]
    assert set(EXAMPLES[name].steps) <= {row.op for row in loaded.profile(*arrays)}
    threads = zeropoint.get_num_threads()
    try:
        for n in (1, 2):
            zeropoint.set_num_threads(n)
            with torch.no_grad():
                assert_equal(loaded(*arrays), quantized(*inputs))
    finally:
        zeropoint.set_num_threads(threads)


class Between(nn.Module):
    """A layer that is quantized, whose result counts nothing, beside a model that is not."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.counted = inner, nn.Linear(1, 1)

    def forward(self, *inputs: Tensor) -> Any:
        return self.inner(*inputs), self.counted(inputs[0].reshape(-1, 1)[:1].float() * 0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_graph_is_as_near_to_the_float_model_as_rounding_allows(name: str) -> None:
    """With nothing quantized but one layer beside it."""
    torch.manual_seed(0)
    inputs, model = EXAMPLES[name].inputs(*SIZES[0]), Between(EXAMPLES[name].make()).eval()
    mapping = zeropoint.QConfigMapping().set_module_name("counted", zeropoint.get_default_qconfig())
    quantized = zeropoint.to_int8(model, inputs, qconfig=mapping, progress=False)
    program = zeropoint.compile(quantized, inputs)
    with torch.no_grad():
        expected, found = model(*inputs)[0], quantized(*inputs)
        assert_equal(program(*inputs), found)
    for e, f in zip(pytree.tree_leaves(expected), pytree.tree_leaves(found[0]), strict=True):
        torch.testing.assert_close(f, e, rtol=1e-5, atol=1e-5)


def test_kernels_that_are_computed_are_those_of_the_call() -> None:
    class Computed(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv1d(self.linear(x), x)

    x = torch.randn(4, 4, 4)
    quantized = zeropoint.to_int8(Computed(linear=nn.Linear(4, 4)).eval(), (x,), progress=False)
    program = zeropoint.compile(quantized, (x,))
    other = torch.randn(4, 4, 4)
    assert torch.equal(program(other), quantized(other))


@pytest.mark.parametrize(
    ("name", "op", "fields", "message"),
    [
        ("first and last", "float_linear", {"inputs": ["x", "x", None]}, "must be stored in the file"),
        ("first and last", "float_linear", {"attributes": {"relu": True}}, "'relu' is not known"),
        ("first and last", "float_conv", {"attributes": {"groups": 3}}, "groups do not divide"),
        (
            "first and last",
            "float_max_pool",
            {"attributes": {"spatial": 4}},
            "'spatial' must be an integer from 1 to 3",
        ),
        ("recurrent", "recurrent", {"attributes": {"cell": "gru"}}, "there are 3 outputs, not 2"),
        ("shapes", "float_average_pool", {"inputs": []}, "there are 0 inputs"),
        ("shapes", "float_mean", {"attributes": {"axes": [9], "keepdim": False}}, "axis"),
        ("head", "index", {"attributes": {"axis": 7}}, "more indices than axes"),
        ("head", "float_norm", {"attributes": {"keepdim": 2}}, "'keepdim' must be true or false"),
    ],
)
def test_wrong_steps_are_refused(name: str, op: str, fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.zpt"
    made(name)[2].save(path)
    header, program, data = golden_programs.parts_of(path.read_bytes())
    step = next(s for s in program["steps"] if s["op"] == op)
    step["attributes"] |= fields.get("attributes", {})
    if "inputs" in fields:
        step["inputs"] = [None if i is None else program["inputs"][0]["name"] for i in fields["inputs"]]
    with pytest.raises(zeropoint.FormatError, match=message):
        _native.Program(golden_programs.joined(header, program, data))
