"""Channels that are divided before layers with the ranges of each call round them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import zeropoint
from zeropoint.accuracy import smooth_layers
from zeropoint.accuracy.recipe import DYNAMIC, Bench, Recipe
from zeropoint.accuracy.smoothing import _factors
from zeropoint.graph.workflow import float_graph


class Outlying(nn.Module):
    """A norm with a few large channels, two layers that read it, and a sum that does, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.a, self.b = nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 16)
        with torch.no_grad():
            self.norm.weight[:2] = 60.0
            self.a.weight[:, :2] *= 0.05

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        return x + self.a(x).relu() * self.b(x)


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(6, 8, 3, padding=1), nn.Tanh(), nn.Conv1d(8, 4, 1)).eval()
    with torch.no_grad():
        model[0].weight[:, 0] *= 0.01
    return model


def rows(count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(32, 16, generator=generator) for _ in range(count)]


def sounds(count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    loud = torch.tensor([100.0, 1, 1, 1, 1, 1])[:, None]
    return [torch.randn(2, 6, 20, generator=generator) * loud for _ in range(count)]


CASES = {"linear": (Outlying().eval(), rows, ("a", "b")), "convolution": (convolutions(), sounds, ("0", "2"))}


@pytest.mark.parametrize(("model", "batches", "paths"), CASES.values(), ids=CASES)
def test_the_float_graph_stays_and_what_is_rounded_comes_nearer(model, batches, paths):
    data = batches()
    graph = float_graph(model, (data[0],))
    changes = smooth_layers(graph, paths, data)
    assert changes[0].what.startswith("strength")
    assert changes[0].after > changes[0].before + 3  # dB
    assert all(change.after >= change.before for change in changes)
    # Factors are powers of two, but the layers add up products of another order of magnitude.
    assert torch.allclose(graph(data[0]), model(data[0]), rtol=1e-5, atol=1e-5)
    factors = [value for name, value in graph.named_parameters() if "divided_by" in name]
    assert factors
    assert all(torch.equal(f.log2(), f.log2().round()) for f in factors)


@pytest.mark.parametrize(("model", "batches", "paths"), CASES.values(), ids=CASES)
def test_a_recipe_with_ranges_of_each_call_is_nearer_with_it_and_deploys_the_same_bytes(model, batches, paths):
    data = batches()
    bench = Bench(model, (data[0],), data[:3])
    ways = tuple((path, DYNAMIC) for path in paths)
    plain, smooth = (bench.make(Recipe(algorithms, ways)) for algorithms in ((), ("smooth",)))
    before, after = (
        zeropoint.compare(made.graph, made.quantized, data[3:], progress=False).sqnr for made in (plain, smooth)
    )
    assert after > before + 1  # dB
    assert {row.precision for row in smooth.quantized.summary().rows if row.path in paths} >= {"int8, dynamic"}
    program = zeropoint.compile(smooth.quantized, (data[0],))
    assert torch.equal(program(data[3]), smooth.quantized(data[3]))


def test_layers_that_take_ranges_of_calibration_are_left_alone():
    data = rows()
    bench = Bench(Outlying().eval(), (data[0],), data)
    plain, smooth = (bench.make(Recipe(algorithms)) for algorithms in ((), ("smooth",)))
    assert smooth.changes == ()
    assert torch.equal(plain.quantized(data[0]), smooth.quantized(data[0]))


def test_other_readers_of_a_value_get_it_undivided():
    data, model = rows(), Outlying().eval()
    graph = float_graph(model, (data[0],))
    [change] = smooth_layers(graph, ("a",), data)
    assert change.path == "a"
    a, b = (node for node in graph.graph.nodes if "linear" in str(node.target))
    assert "mul" in str(a.args[0].target)
    assert "layer_norm" in str(b.args[0].target)
    assert torch.allclose(graph(data[0]), model(data[0]), rtol=1e-5, atol=1e-5)


def test_a_channel_that_is_always_zero_changes_nothing():
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([100.0, 1.0, 1.0, 0.0])
    graph = float_graph(model, (x,))
    smooth_layers(graph, ("0",), [x, x])
    assert torch.allclose(graph(x), model(x), rtol=1e-5, atol=1e-4)


def test_nothing_is_divided_where_it_does_not_help():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8)).eval(), torch.rand(64, 8).round() * 2 - 1  # -1 and 1: rounded exactly
    graph = float_graph(model, (x,))
    [change] = smooth_layers(graph, ("0",), [x, x])
    assert change.what == "unchanged"
    assert torch.equal(graph(x), model(x))


def test_channels_without_values_do_not_make_the_others_large() -> None:
    largest = torch.zeros(16)
    largest[:4] = torch.tensor([1.0, 2.0, 4.0, 1.0])
    factors = _factors(largest, torch.ones(16), 0.5)
    assert torch.equal(factors[4:], torch.ones(12))
    assert float(factors.max()) <= 4
    assert float(factors.min()) >= 0.25
