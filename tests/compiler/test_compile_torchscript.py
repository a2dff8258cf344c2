"""TorchScript as programs: the bytes of the quantized ScriptModule."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from few_layers import Layers
from graph_models import Bert, Recurrent, UNet, with_statistics
from operator_cases import CASES, MOVING_CASES, POOLING_CASES, model_of, spelled
from script_graphs import BOTH_WAYS, STATIC, quantized, reloaded, scripted
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import zeropoint
from zeropoint.compiler import Unsupported

DYNAMIC = {"": zeropoint.default_dynamic_qconfig}
TABLES = zeropoint.float_qparams_weight_only_qconfig


def assert_same(program: Any, model: Any, *inputs: Tensor, tolerance: float = 0) -> None:
    with torch.no_grad():
        expected, found = model(*inputs), program(*inputs)
    assert pytree.tree_structure(expected) == pytree.tree_structure(found)
    for e, f in zip(pytree.tree_leaves(expected), pytree.tree_leaves(found)):
        assert e.dtype == f.dtype
        assert torch.equal(e, f) if tolerance == 0 else (e - f).abs().max() < tolerance


# ------------------------------------------------------------------------------------------------------------ models


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + x)


class ResNet(nn.Module):
    """Like ResNet-18, but small, and with a list of blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.fc(torch.flatten(self.pool(x), 1))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.bags = nn.Embedding(50, 12), nn.EmbeddingBag(50, 12, mode="sum")
        self.places, self.out = nn.Embedding(20, 12), nn.Linear(12, 4)

    def forward(self, ids: Tensor) -> Tensor:
        places = self.places(torch.arange(ids.size(1)))
        return self.out(self.words(ids) + places + self.bags(ids).unsqueeze(1))


@dataclass(frozen=True)
class Example:
    """A model, a function that makes an input of a batch size and another size, and the sizes that are tried.

    `tolerance`: what stays float32 is computed by operators of ours, not by PyTorch's, and may differ in the last bits.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], Tensor]
    sizes: tuple[tuple[int, int], ...]
    qconfigs: Any = None
    tolerance: float = 0
    ways: tuple[bool, ...] = (False, True)


def _images(batch: int, size: int) -> Tensor:
    return torch.randn(batch, 3, size, size)


def _words(batch: int, length: int) -> Tensor:
    return torch.randint(0, 50, (batch, length))


def _sequences(batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, 20)


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(20, 2, 32, batch_first=True)


_IMAGES, _WORDS = ((2, 32), (1, 32), (3, 48)), ((2, 12), (3, 18))
_MIXED = {**STATIC, "words": TABLES, "bags": TABLES, "places": TABLES}
MODELS = {
    "mlp": Example(
        lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5), nn.Sigmoid()), _sequences, _WORDS
    ),
    "resnet": Example(lambda: with_statistics(ResNet(), _images(4, 32)), _images, _IMAGES),
    "unet": Example(lambda: with_statistics(UNet(), _images(4, 32)), _images, _IMAGES, ways=(True,)),
    "lstm": Example(lambda: Recurrent(nn.LSTM), _sequences, _WORDS),
    "gru": Example(lambda: Recurrent(nn.GRU), _sequences, _WORDS),
    "lstm, dynamic": Example(lambda: Recurrent(nn.LSTM), _sequences, _WORDS, DYNAMIC),
    "gru, dynamic": Example(lambda: Recurrent(nn.GRU), _sequences, _WORDS, DYNAMIC),
    "mlp, dynamic": Example(lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU()), _sequences, _WORDS, DYNAMIC),
    "mlp, float16": Example(
        lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU()), _sequences, _WORDS, {"": zeropoint.float16_dynamic_qconfig}
    ),
    "encoder": Example(_encoder, _sequences, _WORDS, tolerance=2e-2, ways=(True, False)),
    "encoder, dynamic": Example(_encoder, _sequences, _WORDS, DYNAMIC, 1e-5, ways=(True,)),
    "bert": Example(Bert, _words, _WORDS, tolerance=2e-2, ways=(True,)),
    "embeddings": Example(Words, _words, _WORDS, _MIXED),
    "embeddings in float": Example(Words, _words, _WORDS, {**STATIC, "bags": TABLES}),
}
# Scripted and traced models take turns in the quick suite.
EVERY = [
    pytest.param(name, traced, marks=() if traced == example.ways[i % len(example.ways)] else pytest.mark.thorough)
    for i, (name, example) in enumerate(MODELS.items())
    for traced in example.ways
]


@functools.cache
def made(name: str, traced: bool) -> tuple[Any, Any]:
    """The ScriptModule on integers, as it comes from a file, and its program."""
    torch.manual_seed(0)
    example = MODELS[name]
    batch = example.inputs(*example.sizes[0])
    script = scripted(example.make().eval(), traced, batch)
    if "dynamic" in name or "float16" in name:
        model = zeropoint.quantize_dynamic_jit(script, example.qconfigs)
    else:
        model = quantized(script, batch, qconfigs=example.qconfigs or STATIC)
    return model, zeropoint.compile(reloaded(model), (batch,))


@pytest.mark.parametrize(("name", "traced"), EVERY)
def test_program_gives_the_bytes_of_the_script(name: str, traced: bool) -> None:
    model, program = made(name, traced)
    torch.manual_seed(1)
    for sizes in MODELS[name].sizes:
        assert_same(program, model, MODELS[name].inputs(*sizes), tolerance=MODELS[name].tolerance)


@pytest.mark.parametrize(("name", "traced"), EVERY)
def test_saved_program_gives_the_same_without_torch(name: str, traced: bool, tmp_path: Path) -> None:
    _, program = made(name, traced)
    program.save(tmp_path / "model.zpt")
    x = MODELS[name].inputs(*MODELS[name].sizes[-1])
    found = zeropoint.runtime.load(tmp_path / "model.zpt")(x.numpy())
    assert torch.equal(torch.from_numpy(found), program(x))


def test_layers_of_a_transformer_are_computed_on_integers() -> None:
    """Not by the one float operator that PyTorch takes for the whole layer in evaluation."""
    model, _ = made("encoder", False)
    assert zeropoint.summary(model).counts()["int8"] == 7
    assert "_transformer_encoder_layer_fwd" not in str(model.graph)
    float_model = torch.jit.script(MODELS["encoder"].make().eval())
    assert not torch.equal(model(torch.ones(1, 2, 20)), float_model(torch.ones(1, 2, 20)))


# --------------------------------------------------------------------------------------------------------- operators


class Flat(nn.Module):
    """A model whose results are one tuple of tensors, as tracing wants it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return tuple(pytree.tree_leaves(self.inner(x)))


ALONE = {name: rows for name, rows in CASES.items() if name.startswith(("embedding", "quantized_"))}
TOGETHER = {name: rows for name, rows in CASES.items() if name not in ALONE}


def several(cases: dict[str, Any], at_once: int = 12) -> list[Any]:
    """Parameters of a test: as `spelled`, but many rows in one model, which is quicker.

    Past the first model of each shape thorough, and so is what moves values or takes them together: each
    operator's program is compared in `tests/graph/workflow/test_operators.py`, and each is read from TorchScript in
    `tests/graph/script`.
    """
    spellings = sorted(((shape, tried) for rows in cases.values() for shape, tried in rows), key=lambda row: row[0])
    found = []
    for shape, rows in itertools.groupby(spellings, key=lambda row: row[0]):
        tried = [row[1] for row in rows]
        for start in range(0, len(tried), at_once):
            name = f"{len(shape)} axes, {start} and more"
            marks = [pytest.mark.thorough] if start else []
            found.append(pytest.param(name, shape, tried[start : start + at_once], id=name, marks=marks))
    return found


# What PyTorch must still compute, all of it in the list of `test_compiled_operators.py` too.
FOREIGN = {
    "aten": (
        "cumsum.default", "gather.default", "index.Tensor", "pad.default", "remainder.Scalar", "sort.default",
        "sort.stable", "rot90.default", "repeat_interleave.self_int", "tensor_split.sections", "to.dtype",
        "topk.default",
    ),
    "zeropoint": ("stored_mean_over.default",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shape", "tried"),
    [
        *spelled(ALONE),
        *several(TOGETHER),
        *(
            pytest.param(*case.values, id=case.id, marks=pytest.mark.thorough)
            for cases in (MOVING_CASES, POOLING_CASES)
            for case in several(cases)
        ),
    ],
)
def test_operator_gives_the_bytes_of_the_script(name: str, shape: tuple[int, ...], tried: list[Any]) -> None:
    model, x = model_of(tried, shape)
    qconfigs = {"": TABLES, "inner.first": STATIC[""]} if name.startswith("embedding") else STATIC
    model = quantized(scripted(Flat(model).eval(), True, x), x, qconfigs=qconfigs)
    program = zeropoint.compile(model, (x,), fallback=True)
    # Traces write cells out in parts, which stay float where they write in place.
    assert_same(program, model, x, tolerance=1e-6 if name.endswith("_cell") else 0)
    assert set(program.computed_by_torch) <= {f"{space}.{op}" for space, ops in FOREIGN.items() for op in ops}


# ---------------------------------------------------------------------------------------------------------- structure


class Nested(Layers):
    def forward(self, x: Tensor) -> dict[str, tuple[Tensor, list[Tensor]]]:
        y = self.layer(x)
        return {"sum": (self.last(torch.tanh(y) + y), [x]), "parts": (y, [y, x])}


def test_results_are_nested_as_the_script_nests_them() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    model = quantized(torch.jit.script(Nested(layer=nn.Linear(6, 6), last=nn.Linear(6, 6)).eval()), x)
    assert_same(zeropoint.compile(model, x), model, x)


class Options(nn.Module):
    """Conditions and a loop that options, ranks and dtypes decide, and inputs that may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.twice = True

    def forward(self, x: Tensor, bias: Tensor | None = None, scale: float = 2.0) -> Tensor:
        if x.dim() == 2:
            x = x.unsqueeze(0)
        assert x.size(-1) == 6, "six"
        results = [self.first(x)]
        for _ in range(3 if self.twice else 1):
            results.append(self.second(results[-1]))
        y = torch.cat(results, -1)
        if bias is not None and y.is_floating_point():
            y = y + bias
        return y * scale


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_known_is_decided(count: int) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(5, 6), torch.randn(24))[:count]
    model = quantized(torch.jit.script(Options().eval()), *inputs)
    program = zeropoint.compile(model, inputs)
    assert_same(program, model, *inputs)
    assert [name for name, _, _ in program.inputs] == ["x", "bias"][:count]
    assert_same(program, model, torch.randn(7, 6), *inputs[1:])


class Forked(Layers):
    def forward(self, x: Tensor) -> Tensor:
        later = torch.jit.fork(self.layer, x)
        return torch.jit.wait(later) + x


def test_what_is_forked_is_computed_in_line() -> None:
    x = torch.randn(4, 6)
    model = quantized(torch.jit.script(Forked(layer=nn.Linear(6, 6)).eval()), x)
    assert_same(zeropoint.compile(model, (x,)), model, x)


# --------------------------------------------------------------------------------------------------- checks of sizes


class Small(Layers):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) > 3:
            raise ValueError("three at most")
        if x.size(0) == 2 or x.size(1) % 2 == 1:
            raise ValueError("not two, and even")
        return self.layer(x)


def test_sizes_that_the_script_refuses_are_refused_by_its_program(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 6)[:, :4]
    model = quantized(torch.jit.script(Small(layer=nn.Linear(6, 6)).eval()), x)
    program = zeropoint.compile(reloaded(model), (x,))
    assert_same(program, model, x)
    assert_same(program, model, torch.randn(1, 8, 6))
    program.save(tmp_path / "model.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "model.zpt")
    for shape, line in (((4, 4, 6), r"x.size\(0\)"), ((2, 4, 6), r"x.size\(0\)"), ((3, 5, 6), r"x.size\(1\)")):
        wrong = torch.randn(shape)
        with pytest.raises(Exception, match=r"three at most|not two, and even"):
            model(wrong)
        with pytest.raises(ValueError, match=rf"the sizes of the inputs do not match.*{line}.*\.py, line \d+"):
            program(wrong)
        with pytest.raises(ValueError, match="the sizes of the inputs do not match"):
            loaded(wrong.numpy())


class Halved(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) / 2 > 3.5:
            raise ValueError("seven at most")
        return x.tanh()


def test_check_that_a_program_cannot_repeat_is_refused() -> None:
    with pytest.raises(
        Unsupported, match=r"if x.size\(0\) / 2 > 3.5.*a check of sizes that a program does not support"
    ):
        zeropoint.compile(torch.jit.script(Halved()), (torch.randn(4, 6),))


class SameNames(nn.Module):
    """Two tensors whose paths differ in a dot only."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Module()
        self.a.register_buffer("b", torch.ones(3))
        self.register_buffer("a_b", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.a.b + self.a_b


def test_tensors_with_nearly_the_same_path_are_two_tensors() -> None:
    x = torch.randn(2, 3)
    model = torch.jit.script(SameNames())
    assert_same(zeropoint.compile(model, (x,)), model, x)


# ------------------------------------------------------------------------------------------------------------ refused


class OnData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if bool(y.sum() > 1000):
            y = y + 1
        return y


class OnSize(Layers):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if x.size(0) > 3:
            y = torch.tanh(y)
        return y


class Steps(Layers):
    def forward(self, x: Tensor) -> Tensor:
        y = x[0]
        for i in range(x.size(0)):
            y = self.layer(y + x[i])
        return y


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x)


class Averaging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.mean(0))
        return self.layer(x) + self.seen


class NoStep(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return torch.matrix_exp(self.layer(x))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (OnData(), r"aten::Bool \(File .*, line \d+: if bool\(y.sum\(\) > 1000\):\) reads the value of a tensor"),
        (OnSize(layer=nn.Linear(6, 6)), r"prim::If \(File .*if x.size\(0\) > 3.*a condition on a dynamic size"),
        (Steps(layer=nn.Linear(6, 6)), r"prim::Loop \(File .*for i in range.*a loop over a dynamic size"),
        (Counting(), r"prim::SetAttr assigns 'calls': the model changes"),
        (Averaging(), r"'seen', which is written to"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_is_no_straight_line_is_named_with_its_line_and_a_way_out(model: nn.Module, said: str) -> None:
    x = torch.randn(4, 6)
    made = quantized(torch.jit.script(model.eval()), x)
    with pytest.raises(Unsupported, match=said) as caught:
        zeropoint.compile(reloaded(made), (x,))
    assert "to_int8" in str(caught.value)


def test_operator_without_a_step_is_named_with_its_line_or_computed_by_torch() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 6)
    model = quantized(torch.jit.script(NoStep(layer=nn.Linear(6, 6)).eval()), x)
    with pytest.raises(
        Unsupported, match=r"aten.linalg_matrix_exp.default \(File .*line \d+: return torch.matrix_exp.*fallback=True"
    ):
        zeropoint.compile(model, (x,))
    assert_same(zeropoint.compile(model, (x,), fallback=True), model, x)


def test_inputs_that_the_script_does_not_take_are_refused() -> None:
    x = torch.randn(6, 6)
    model = quantized(torch.jit.script(NoStep(layer=nn.Linear(6, 6)).eval()), x)
    with pytest.raises(ValueError, match="does not run on the example inputs"):
        zeropoint.compile(model, (torch.randn(6, 5),))


@BOTH_WAYS
def test_model_that_zeropoint_did_not_quantize_is_compiled_as_far_as_it_goes(traced: bool) -> None:
    x = torch.randn(4, 6)
    program = zeropoint.compile(scripted(nn.Sequential(nn.Flatten(0), nn.Tanh()).eval(), traced, x), (x,))
    assert torch.allclose(program(x), x.flatten().tanh(), atol=1e-6)
