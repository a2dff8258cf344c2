"""Models whose layers take floats (recurrent, dynamic, weight-only, embeddings): the bytes of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from equal_programs import assert_equal, assert_equal_for
from few_layers import Layers
from graph_models import Recurrent
from torch import Tensor, nn

import zeropoint
from zeropoint.compiler import Unsupported

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Example:
    """A model, inputs of a batch size and a length for it, how it is quantized, and a step its program must have."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], Inputs]
    step: str
    options: dict[str, Any] = field(default_factory=dict)


def _sequences(features: int) -> Callable[[int, int], Inputs]:
    return lambda batch, length: (torch.randn(batch, length, features),)


def _rows(features: int) -> Callable[[int, int], Inputs]:
    return lambda batch, length: (torch.randn(batch, features),)


class WithStates(nn.Module):
    """States go in and come out; times come first, both directions, two layers."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.recurrent = kind(12, 20, num_layers=2, bidirectional=True)

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        return self.recurrent(x, states if len(states) == 2 else states[0])


def _with_states(count: int) -> Callable[[int, int], Inputs]:
    return lambda batch, length: (torch.randn(length, batch, 12), *(torch.randn(4, batch, 20) for _ in range(count)))


class Cells(nn.Module):
    """Two steps of each kind of cell."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(8, 20), nn.GRUCell(8, 20, bias=False)
        self.tanh, self.relu = nn.RNNCell(8, 20), nn.RNNCell(8, 20, nonlinearity="relu")

    def forward(self, x: Tensor) -> Any:
        first, second = x[:, 0], x[:, 1]
        others = [cell(second, cell(first)) for cell in (self.gru, self.tanh, self.relu)]
        return self.lstm(second, self.lstm(first)), others


class Voice(nn.Module):
    """Three LSTM layers, a linear layer of the last state."""

    def __init__(self, unit: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(40, 48, 3, batch_first=True)
        self.linear = nn.Linear(48, 32)
        self.unit = unit

    def forward(self, mels: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels)
        y = torch.relu(self.linear(hidden[-1]))
        return F.normalize(y, dim=1) if self.unit else y


class Recommender(nn.Module):
    """Bags of what was seen, weighted ones, a single table, and a tower on top."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.EmbeddingBag(50, 16, mode="mean")
        self.bought = nn.EmbeddingBag(40, 8, mode="sum")
        self.best = nn.EmbeddingBag(30, 8, mode="max")
        self.country = nn.Embedding(12, 8)
        self.tower = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, seen: Tensor, offsets: Tensor, bought: Tensor, weights: Tensor, best: Tensor, at: Tensor) -> Any:
        bags = self.seen(seen, offsets), self.bought(bought, per_sample_weights=weights), self.best(best)
        return bags, self.country(at), self.tower(torch.cat([*bags, self.country(at)], 1))


def _recommended(batch: int, length: int) -> Inputs:
    offsets = torch.arange(batch) * length
    seen = torch.randint(0, 50, (batch * length,))
    bought, weights = torch.randint(0, 40, (batch, length)), torch.rand(batch, length)
    return seen, offsets, bought, weights, torch.randint(0, 30, (batch, length)), torch.randint(0, 12, (batch,))


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 272), nn.ReLU(), nn.Linear(272, 6, bias=False))


class Residual(nn.Module):
    """What is computed between layers stays float: a sum with what goes past, numbers, a part that is repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 24), nn.Linear(24, 24)
        self.scales = nn.Parameter(torch.rand(24))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x) * self.scales + x
        return self.second((y - y[:, :1]) / 3 - 0.25).clamp(-0.5, 0.75) / (x * x + 1.0)


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, groups=2),
        nn.ConvTranspose2d(8, 4, 2, 2, groups=2), nn.Flatten(2), nn.Conv1d(4, 6, 3, bias=False),
    )  # fmt: skip


def _images(batch: int, size: int) -> Inputs:
    return (torch.randn(batch, 3, size + 4, size + 4),)


_DYNAMIC = {"mode": "dynamic"}
_HALF = {"mode": "dynamic", "qconfig": zeropoint.float16_dynamic_qconfig}
_FOUR = {"mode": "weight_only", "qconfig": zeropoint.float_qparams_weight_only_qconfig_4bit}
EXAMPLES = {
    "lstm": Example(lambda: Recurrent(nn.LSTM), _sequences(20), "recurrent"),
    "gru": Example(lambda: Recurrent(nn.GRU), _sequences(20), "recurrent"),
    "lstm-dynamic": Example(lambda: Recurrent(nn.LSTM), _sequences(20), "recurrent", _DYNAMIC),
    "lstm-float16": Example(lambda: Recurrent(nn.LSTM), _sequences(20), "recurrent", _HALF),
    "gru-float16": Example(lambda: Recurrent(nn.GRU), _sequences(20), "recurrent", _HALF),
    "lstm-states": Example(lambda: WithStates(nn.LSTM), _with_states(2), "recurrent", _DYNAMIC),
    "gru-states": Example(lambda: WithStates(nn.GRU), _with_states(1), "recurrent", _DYNAMIC),
    "cells": Example(Cells, _sequences(8), "recurrent", _DYNAMIC),
    "voice": Example(lambda: Voice(False), _sequences(40), "recurrent"),
    "recommender": Example(Recommender, _recommended, "embedding_bags"),
    "recommender-4bit": Example(Recommender, _recommended, "embedding_bags", _FOUR),
    "mlp-dynamic": Example(_mlp, _rows(40), "linear_dynamic", _DYNAMIC),
    "mlp-per-token": Example(
        _mlp, _rows(40), "linear_dynamic", {**_DYNAMIC, "qconfig": zeropoint.per_token_dynamic_qconfig}
    ),
    "mlp-float16": Example(_mlp, _rows(40), "weight_only_linear", _HALF),
    "mlp-int8-weights": Example(_mlp, _rows(40), "weight_only_linear", {"mode": "weight_only"}),
    "mlp-int4-weights": Example(_mlp, _rows(40), "weight_only_linear", _FOUR),
    "residual": Example(Residual, _rows(24), "map", _DYNAMIC),
    "convolutions": Example(_convolutions, _images, "conv_dynamic", _DYNAMIC),
}
SIZES = ((3, 4), (1, 4), (4, 7))


@functools.cache
def made(name: str) -> tuple[Any, Any]:
    """The quantized model and its program."""
    torch.manual_seed(0)
    example = EXAMPLES[name]
    inputs = example.inputs(*SIZES[0])
    quantized = zeropoint.to_int8(
        example.make().eval(), inputs, dynamic_shapes="all", progress=False, **example.options
    )
    return quantized, zeropoint.compile(quantized, inputs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_program_gives_the_bytes_of_the_graph(name: str, isa: str) -> None:
    quantized, program = made(name)
    assert_equal_for(SIZES, EXAMPLES[name].inputs, program, quantized)


@pytest.mark.parametrize("name", EXAMPLES)
def test_file_gives_the_same_for_any_number_of_threads(name: str, tmp_path: Path) -> None:
    quantized, program = made(name)
    program.save(tmp_path / "model.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "model.zpt")
    torch.manual_seed(2)
    inputs = EXAMPLES[name].inputs(*SIZES[0])
    assert EXAMPLES[name].step in {row.op for row in loaded.profile(*(x.numpy() for x in inputs))}
    threads = zeropoint.get_num_threads()
    try:
        for n in (1, 2):
            zeropoint.set_num_threads(n)
            with torch.no_grad():
                assert_equal(loaded(*(x.numpy() for x in inputs)), quantized(*inputs))
    finally:
        zeropoint.set_num_threads(threads)


# -------------------------------------------------------------------------------------------------------------- errors


def test_index_without_a_row_is_an_error_of_its_call() -> None:
    _, program = made("recommender")
    inputs = [x.numpy() for x in _recommended(3, 4)]
    expected = program(*inputs)
    for number, bad in ((0, 50), (0, -1), (5, 12), (2, 1 << 40)):
        wrong = [x.copy() for x in inputs]
        wrong[number].flat[-1] = bad
        with pytest.raises(ValueError, match=f"index {bad} is out of range"):
            program(*wrong)
    assert np.array_equal(program(*inputs)[2], expected[2])


def test_offsets_that_cut_no_bags_are_refused() -> None:
    _, program = made("recommender")
    inputs = [x.numpy() for x in _recommended(3, 4)]
    for offsets in ([1, 4, 8], [0, 8, 4], [0, 4, 13]):
        with pytest.raises(ValueError, match="offsets"):
            program(inputs[0], np.array(offsets), *inputs[2:])


@pytest.mark.parametrize("name", ["lstm-dynamic", "mlp-dynamic", "mlp-per-token", "convolutions"])
def test_input_that_cannot_be_quantized_is_refused(name: str) -> None:
    quantized, program = made(name)
    torch.manual_seed(0)
    inputs = EXAMPLES[name].inputs(*SIZES[0])
    bad = inputs[0].clone()
    bad.view(-1)[3] = torch.nan
    with pytest.raises(ValueError, match="finite"):
        program(bad)
    with torch.no_grad():
        assert_equal(program(*inputs), quantized(*inputs))


def test_sequence_without_steps_is_refused() -> None:
    _, program = made("lstm-states")
    with pytest.raises(ValueError, match="0 steps"):
        program(torch.randn(0, 2, 12), torch.randn(4, 2, 20), torch.randn(4, 2, 20))


def test_state_must_fit_the_batch() -> None:
    _, program = made("gru-states")
    with pytest.raises(ValueError, match=r"\(4, 3, 20\)|shape"):
        program(torch.randn(5, 2, 12), torch.randn(4, 3, 20))


def test_empty_batches_give_empty_results() -> None:
    for name in ("lstm", "mlp-dynamic", "mlp-int4-weights"):
        quantized, program = made(name)
        inputs = EXAMPLES[name].inputs(0, 4)
        with torch.no_grad():
            assert program(*inputs).shape == quantized(*inputs).shape


# ----------------------------------------------------------------------------------------------------------- operators


class Indices(nn.Module):
    """int32 indices, and offsets whose last one ends the last bag."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.bags = nn.Embedding(9, 6), nn.EmbeddingBag(9, 6, mode="sum", include_last_offset=True)

    def forward(self, indices: Tensor, offsets: Tensor) -> Any:
        return self.table(indices), self.bags(indices, offsets)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_indices_of_either_width(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    indices, offsets = torch.tensor([0, 8, 3, 3], dtype=dtype), torch.tensor([0, 1, 1, 4], dtype=dtype)
    quantized = zeropoint.to_int8(Indices(), (indices, offsets), mode="weight_only", progress=False)
    program = zeropoint.compile(quantized, (indices, offsets))
    with torch.no_grad():
        assert_equal(program(indices, offsets), quantized(indices, offsets))


def test_bounds_keep_nan() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 40)
    quantized = zeropoint.to_int8(_mlp(), (x,), mode="weight_only", progress=False)
    x[1, 2] = torch.nan
    found = zeropoint.compile(quantized, (x,))(x)
    with torch.no_grad():
        assert torch.equal(found.isnan(), quantized(x).isnan())
    assert found[1].isnan().all()


def test_pruned_tables_are_named() -> None:
    table = torch.ops.zeropoint.embedding_bag_byte_prepack(torch.randn(3, 4))

    class Pruned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", table)
            self.register_buffer("mapping", torch.tensor([0, -1, 2], dtype=torch.int32))

        def forward(self, indices: Tensor) -> Tensor:
            bags = torch.ops.zeropoint.embedding_bag_byte_rowwise_offsets
            return bags(self.table, indices, None, False, 0, True, None, self.mapping)

    graph = torch.fx.symbolic_trace(Pruned())
    for node in graph.graph.nodes:
        if node.op == "call_function":
            node.target = node.target.default
    with pytest.raises(Unsupported, match="pruned"):
        zeropoint.compile(graph, (torch.tensor([[0, 1]]),))


@pytest.mark.parametrize("dim", [0, 1])
def test_unit_vectors_have_the_bytes_of_the_graph(dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 40)

    class Unit(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return F.normalize(torch.relu(self.linear(x)), dim=dim)

    quantized = zeropoint.to_int8(Unit(linear=nn.Linear(40, 32)).eval(), (x,), mode="dynamic", progress=False)
    with torch.no_grad():
        assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))
        torch.testing.assert_close(quantized(x).norm(dim=dim).amax(), torch.tensor(1.0))
