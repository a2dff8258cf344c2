"""The layer that went wrong is found in TorchScript, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from damaged_models import BAD, assert_outliers_found, batches, clipped, net, per_tensor, with_outliers
from few_layers import Layers
from graph_models import Bert, Recurrent
from script_graphs import STATIC, reloaded, scripted
from torch import Tensor, nn

import zeropoint
from zeropoint.comparison.sizes import model_bytes
from zeropoint.graph.frontends.script.evaluate import NotStraight
from zeropoint.report.html import write_report


class Net(nn.Module):
    """`damaged.Net` without a module for its sum, which TorchScript does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.relu, self.relu2 = nn.ReLU(), nn.ReLU()
        self.second, self.third = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.first(x)))
        y = self.third(self.relu2(self.second(x)))
        return self.last(torch.relu(x + y).mean((2, 3)))


def _both_ways(quick: bool) -> pytest.MarkDecorator:
    """Scripted and traced: both are read in tests/graph/script; here they take turns in the quick suite."""
    ways = [pytest.param(traced, marks=[pytest.mark.thorough] * (traced != quick)) for traced in (False, True)]
    return pytest.mark.parametrize("traced", ways, ids=["scripted", "traced"])


def quantized(script: Any, qconfigs: Any, data: list[Any]) -> Any:
    prepared = zeropoint.prepare_jit(script, qconfigs)
    for batch in data:
        prepared(batch)
    return reloaded(zeropoint.convert_jit(prepared))


@_both_ways(quick=False)
def test_outliers_in_a_weight_are_found(traced: bool) -> None:
    script = scripted(with_outliers(net(Net)), traced, batches()[0])
    found = zeropoint.compare(script, quantized(script, {"": per_tensor()}, batches()), batches())
    assert_outliers_found(found.rows)
    [third] = [row for row in found.rows if row.path == "third"]
    assert third.sqnr < 20
    assert third.alone > 30


@_both_ways(quick=True)
def test_a_clipped_range_is_found(traced: bool) -> None:
    script = scripted(net(Net), traced, batches()[0])
    found = zeropoint.compare(script, quantized(script, STATIC | {BAD: clipped()}, batches()), batches())
    assert found.rows[0].path == BAD
    assert found.rows[0].clipped > 0.1


@_both_ways(quick=False)
def test_rows_are_those_of_the_graph(traced: bool) -> None:
    """The numbers of the same layers, quantized from the same ranges by torch.export, are nearly the same."""
    model = net(Net)
    script = scripted(model, traced, batches()[0])
    found = zeropoint.compare(script, quantized(script, STATIC, batches()), batches())
    mapping = zeropoint.QConfigMapping().set_global(STATIC[""])
    prepared = zeropoint.prepare_graph(model, mapping, (batches()[0],))  # to_int8 would widen the ranges of few values
    for batch in batches():
        prepared(batch)
    expected = zeropoint.compare(model, zeropoint.convert_graph(prepared), batches())
    layers = ("conv", "linear", "add", "mean")
    rows, wanted = (
        {(row.path, row.operator): row for row in c.in_order() if row.operator.startswith(layers)}
        for c in (found, expected)
    )
    assert [path for path, operator in rows if operator.startswith(("conv", "linear"))] == [
        "first", "second", "third", "last"
    ]  # fmt: skip
    assert set(rows) & set(wanted) >= {("first", "conv2d_relu"), ("second", "conv2d_relu"), ("third", "conv2d")}
    for key in set(rows) & set(wanted):
        assert rows[key].sqnr == pytest.approx(wanted[key].sqnr, abs=0.5)
        assert rows[key].weight_sqnr == wanted[key].weight_sqnr
    assert found.sqnr == pytest.approx(expected.sqnr, abs=1.5)


def test_transformers_and_embeddings() -> None:
    torch.manual_seed(0)
    model, ids = Bert().eval(), torch.randint(0, 50, (2, 12))
    script = scripted(model, True, ids)
    tables = zeropoint.float_qparams_weight_only_qconfig
    made = quantized(script, STATIC | {"words": tables, "positions": tables}, [ids])
    found = zeropoint.compare(script, made, [ids])
    counted = zeropoint.summary(made).counts()
    assert sum(row.computed == "int8" and row.operator != "quantize" for row in found.rows) == counted["int8"]
    assert sum(row.computed == "int8 weights" for row in found.rows) == 2
    assert {row.path for row in found.rows if row.operator == "linear"} >= {"layers.0.query", "layers.1.dense"}
    assert all(row.alone > 25 for row in found.rows)


@pytest.mark.parametrize(("kind", "traced"), [(nn.LSTM, True), (nn.GRU, False)])
def test_recurrent_layers(kind: Any, traced: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 9, 20)
    script = scripted(Recurrent(kind).eval(), traced, x)
    made = zeropoint.quantize_dynamic_jit(script, {"": zeropoint.default_dynamic_qconfig})
    found = zeropoint.compare(script, made, [x])
    assert [row.path for row in found.in_order() if row.computed == "int8 dynamic"] == [
        "inputs",
        "recurrent",
        "outputs",
    ]


def test_the_float_model_may_be_a_module() -> None:
    model = net(Net)
    script = scripted(model, False, batches()[0])
    made = quantized(script, STATIC, batches())
    by_module, by_script = (zeropoint.compare(source, made, batches()) for source in (model, script))
    assert [row.sqnr for row in by_module.rows] == [row.sqnr for row in by_script.rows]


class OnData(Layers):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y if bool(y.sum() > 0) else -y


def test_what_depends_on_data_is_named() -> None:
    script, x = torch.jit.script(OnData(layer=nn.Linear(4, 4)).eval()), torch.randn(3, 4)
    with pytest.raises(NotStraight, match="reads the value of a tensor"):
        zeropoint.compare(script, quantized(script, STATIC, [x]), [x])


def test_another_model_is_refused() -> None:
    script, x = torch.jit.script(OnData(layer=nn.Linear(4, 4)).eval().layer), torch.randn(3, 4)
    other = torch.jit.script(nn.Sequential(nn.Linear(4, 5), nn.ReLU()).eval())
    with pytest.raises(ValueError, match="the quantized model was made from"):
        zeropoint.compare(other, quantized(script, STATIC, [x]), [x])


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_the_most_sensitive_layer_is_found(mode: str) -> None:
    script = scripted(with_outliers(net(Net)), True, batches()[0])
    if mode == "static":
        found = zeropoint.sensitivity(script, batches(), qconfig=per_tensor(), progress=False)
        assert found.rows[0].path == BAD
        assert found.rows[0].alone < found.rows[1].alone - 5
        assert found.rows[0].cumulative == min(row.cumulative for row in found.rows if row.cumulative is not None)
    else:
        found = zeropoint.sensitivity(script, batches(), mode=mode, cumulative=False, progress=False)
    assert {row.path for row in found.rows} >= {"first", "second", "third", "last"}


def test_sensitivity_says_what_it_does_not_take() -> None:
    script = torch.jit.script(nn.Linear(4, 4).eval())
    with pytest.raises(ValueError, match="static or dynamic"):
        zeropoint.sensitivity(script, [torch.ones(1, 4)], mode="weight_only")
    with pytest.raises(TypeError, match="QConfigMapping"):
        zeropoint.sensitivity(script, [torch.ones(1, 4)], qconfig=zeropoint.QConfigMapping())


def test_report_has_times_and_sizes(tmp_path: Path) -> None:
    script = scripted(net(Net), True, batches()[0])
    made = quantized(script, STATIC, batches())
    findings = write_report(tmp_path / "report.html", script, made, batches())
    assert findings.runs_as == "as a program"
    # A layer whose result is added to something is part of the step of that sum.
    assert {"first", "second", "last"} <= {step.path for step in findings.steps}
    assert 3 < findings.float_nbytes / findings.nbytes < 4.5
    assert findings.nbytes == model_bytes(made)
