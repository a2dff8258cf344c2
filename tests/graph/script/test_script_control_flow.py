"""Control flow, state, containers and other methods of TorchScript models, which stay."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import interface_models
import pytest
import torch
from script_graphs import kinds, reloaded, scripted
from torch import Tensor, nn
from torch.nn import functional as F

import zeropoint

sys.path.insert(0, str(Path(__file__).parents[2]))
import graph_models
from few_layers import Layers

QCONFIG = {"": zeropoint.get_default_qconfig("native")}


def quantized(model: nn.Module, *inputs: object) -> torch.jit.ScriptModule:
    """A scripted model that was calibrated with one call."""
    return zeropoint.quantize_jit(torch.jit.script(model.eval()), QCONFIG, lambda m: m(*inputs), ())


def near(found: Tensor, expected: Tensor, part: float = 0.03) -> bool:
    return bool((found - expected).abs().max() <= part * expected.abs().max())


# ------------------------------------------------------------------------------------------------------------ branches


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor, first: bool, nested: bool) -> Tensor:
        if first:
            if nested:
                y = F.relu(self.conv1(x))
            else:
                y = torch.flip(self.conv2(x), [2])
        else:
            y = self.conv2(x)
        return self.conv3(y)


def test_branches_meet_as_integers_with_one_scale() -> None:
    torch.manual_seed(0)
    model, x = Branches(), torch.randn(2, 3, 5, 5)
    cases = [(True, True), (True, False), (False, False)]

    def run(m: torch.jit.ScriptModule) -> None:
        for first, nested in cases:
            m(x, first, nested)

    made = zeropoint.quantize_jit(torch.jit.script(model), QCONFIG, run, ())
    counts = Counter(kinds(made))
    assert counts["zeropoint::conv2d"] + counts["zeropoint::conv2d_relu"] == 4
    assert counts["zeropoint::dequantize"] == 1
    assert counts["aten::conv2d"] == 0
    for first, nested in cases:
        assert near(made(x, first, nested), model(x, first, nested))
    assert torch.equal(reloaded(made)(x, True, False), made(x, True, False))


def test_a_branch_that_calibration_does_not_take_has_the_scale_of_the_other() -> None:
    torch.manual_seed(0)
    model, x = Branches(), torch.randn(2, 3, 5, 5)
    made = quantized(model, x, True, True)
    assert Counter(kinds(made))["aten::conv2d"] == 0
    assert torch.isfinite(made(x, False, False)).all()
    assert any("the scale of the other branch" in row.reason for row in zeropoint.summary(made).rows)


class Deep(nn.Module):
    """A branch with two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, deep: bool) -> Tensor:
        if deep:
            return self.b(torch.tanh(self.a(x)))
        else:
            return self.c(x)


def test_what_calibration_does_not_reach_stays_float_and_the_summary_says_so() -> None:
    torch.manual_seed(0)
    model, x = Deep(), torch.randn(3, 4)
    made = quantized(model, x, False)
    ways = {row.path: (row.precision, row.reason) for row in zeropoint.summary(made).rows}
    assert ways["c"] == ("int8", "")
    assert ways["a"] == ("float32", "calibration did not reach it")
    assert near(made(x, True), model(x, True))
    assert near(made(x, False), model(x, False))


class Skips(Layers):
    def forward(self, x: Tensor, flat: bool) -> Tensor:
        x = self.conv(x)
        if flat:
            x = torch.flatten(x, 1)
        return F.relu(x)


def test_integers_pass_a_branch_that_only_reshapes() -> None:
    torch.manual_seed(0)
    model, x = Skips(conv=nn.Conv2d(3, 3, 3)), torch.randn(2, 3, 5, 5)
    made = quantized(model, x, True)
    counts = Counter(kinds(made))
    assert (counts["zeropoint::quantize_per_tensor"], counts["zeropoint::dequantize"]) == (1, 1)
    for flat in (True, False):
        assert near(made(x, flat), model(x, flat))


# --------------------------------------------------------------------------------------------------------------- loops


class LoopedLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ih, self.hh, self.out = nn.Linear(8, 64), nn.Linear(16, 64), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        h, c = torch.zeros(x.size(1), 16), torch.zeros(x.size(1), 16)
        for t in range(x.size(0)):
            i, f, o, n = (self.ih(x[t]) + self.hh(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(n)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.out(h)


def test_an_lstm_with_a_loop() -> None:
    torch.manual_seed(0)
    model, x = LoopedLSTM(), torch.randn(5, 2, 8)
    made = quantized(model, x)
    assert "prim::Loop" in kinds(made)
    assert zeropoint.summary(made).counts() == {"int8": 13}
    assert near(made(x), model(x))
    longer = torch.randn(9, 4, 8)
    assert near(made(longer), model(longer), 0.15)
    assert torch.equal(reloaded(made)(longer), made(longer))


# ------------------------------------------------------------------------------------------------- inputs and outputs


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(
        self, named: dict[str, Tensor], listed: list[Tensor], pair: tuple[Tensor, int]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        x = self.a(named["x"]) + named["y"]
        outputs: list[Tensor] = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            outputs.append(x)
        for y in listed:
            outputs.append(self.b(y))
        return {"p": self.b(x) * pair[1], "q": pair[0] + 1}, outputs


def test_dicts_lists_and_tuples_go_in_and_out() -> None:
    torch.manual_seed(0)
    inputs = (
        {"x": torch.randn(2, 4), "y": torch.randn(2, 4)},
        [torch.randn(2, 4), torch.randn(1, 4)],
        (torch.ones(2), 3),
    )
    model = Containers()
    made = quantized(model, *inputs)
    assert zeropoint.summary(made).counts()["int8"] == 7
    named, listed = made(*inputs)
    expected_named, expected_listed = model(*inputs)
    assert torch.equal(named["q"], expected_named["q"])
    assert near(named["p"], expected_named["p"])
    assert all(near(f, e) for f, e in zip(listed, expected_listed, strict=True))


def test_a_traced_resnet_is_what_the_export_view_gives() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 32, 32)
    model = graph_models.with_statistics(graph_models.ResNet((8, 16, 24, 32), 2, 10), x).eval()
    # Histograms count what a max pool chooses in graphs, as in torch.ao FX mode, not in TorchScript; ranges agree.
    qconfig = zeropoint.QConfig(
        activation=zeropoint.MinMaxObserver.with_args(dtype=zeropoint.quint8), weight=QCONFIG[""].weight
    )
    made = zeropoint.quantize_jit(torch.jit.trace(model, x), {"": qconfig}, lambda m: m(x), ())
    prepared = zeropoint.prepare_graph(model, zeropoint.QConfigMapping().set_global(qconfig), (x,))
    prepared(x)
    exported = zeropoint.convert_graph(prepared)
    assert torch.equal(made(x), exported(x))
    assert zeropoint.summary(made).counts() == exported.summary().counts()


# ---------------------------------------------------------------------------------------------------- state, methods


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))
        self.calls = 0
        self.last = torch.zeros(0)

    def forward(self, x: Tensor) -> Tensor:
        if x.size(-1) != 4:
            raise ValueError("four features are needed")
        y = self.fc(x)
        self.calls += 1
        self.last = y
        self.total.add_(y.sum(0))
        return y + self.total

    @torch.jit.export
    def reset(self) -> None:
        self.calls = 0
        self.total.zero_()

    @torch.jit.export
    def twice(self, x: Tensor) -> Tensor:
        return self(self(x))

    @torch.jit.export
    def halved(self, x: Tensor) -> Tensor:
        return self.fc(x) * 0.5


@torch.no_grad()
def test_state_exceptions_and_other_methods_are_kept() -> None:
    torch.manual_seed(0)
    model, x = Stateful().eval(), torch.randn(3, 4)
    prepared = zeropoint.prepare_jit(torch.jit.script(model), QCONFIG)
    for _ in range(2):
        prepared(x)
    prepared.reset()
    prepared.twice(x)
    prepared.halved(x)
    prepared.reset()
    made = zeropoint.convert_jit(prepared, preserved_attrs=["calls", "last"])
    assert "zeropoint::linear" in kinds(made)
    for _ in range(2):  # the second call sees the state of the first
        assert near(made(x), model(x))
    assert made.calls == 2
    assert near(made.last, model.last)
    made.reset()
    model.reset()
    assert near(made.twice(x), model.twice(x), 0.05)
    assert near(made.halved(x), model.halved(x))
    with pytest.raises(torch.jit.Error, match="four features are needed"):
        made(torch.randn(3, 5))
    assert near(reloaded(made).halved(x), model.halved(x))


def test_a_module_that_is_used_twice_has_two_scales() -> None:
    class Twice(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.fc(x) * 100)

    torch.manual_seed(0)
    model, x = Twice(fc=nn.Linear(4, 4)), torch.randn(8, 4)
    made = quantized(model, x)
    assert kinds(made).count("zeropoint::linear") == 2
    assert near(made(x), model(x))


def test_what_is_behind_an_interface_is_quantized() -> None:
    torch.manual_seed(0)
    model, x = interface_models.Through(), torch.randn(3, 4)
    made = quantized(model, x)
    assert {"zeropoint::linear_relu", "zeropoint::linear"} <= set(kinds(made))
    assert {row.path for row in zeropoint.summary(made).rows} == {"step.fc", "last"}
    assert near(reloaded(made)(x), model(x))


class Forked(Layers):
    def forward(self, x: Tensor) -> Tensor:
        future = torch.jit.fork(self.a, x)
        return self.b(x) + torch.jit.wait(future)


@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
def test_forks_are_quantized(traced: bool) -> None:
    torch.manual_seed(0)
    model, x = Forked(a=nn.Linear(4, 4), b=nn.Linear(4, 4)).eval(), torch.randn(3, 4)
    made = zeropoint.quantize_jit(scripted(model, traced, x), QCONFIG, lambda m: m(x), ())
    assert Counter(kinds(made))["zeropoint::linear"] == 2
    assert near(reloaded(made)(x), model(x))


class Views(Layers):
    """Writes into a part of a result, which everything that shares its memory sees."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y[0].mul_(0.0)
        return torch.relu(y)


def test_writes_through_views_are_kept() -> None:
    torch.manual_seed(0)
    model, x = Views(fc=nn.Linear(4, 4)), torch.randn(3, 4)
    made = quantized(model, x)
    assert torch.equal(made(x)[0], torch.zeros(4))
    assert near(made(x), model(x))
    assert any("modified in place" in row.reason for row in zeropoint.summary(made).rows)
