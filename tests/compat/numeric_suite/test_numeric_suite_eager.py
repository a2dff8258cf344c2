"""The numeric suite in eager mode, against torch.ao's own on the same model."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.ao.ns._numeric_suite as their_suite
import torch.ao.quantization as theirs
from torch import nn

import zeropoint
from zeropoint import QTensor, numeric_suite

# Sums of float32 in another order may move a value over the edge between two steps.
STEPS_APART = 1.01


def network(tq: Any) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 5))
    model = tq.QuantWrapper(layers).eval()
    model.qconfig = tq.get_default_qconfig("x86")
    return tq.fuse_modules(model, ["module.0", "module.1"])


def both(tq: Any, suite: Any) -> SimpleNamespace:
    model = network(tq)
    torch.manual_seed(1)
    x = torch.randn(8, 3, 6, 6)
    prepared = tq.prepare(model)
    prepared(x)
    return SimpleNamespace(model=model, quantized=tq.convert(prepared), x=x, suite=suite)


@pytest.fixture
def ours() -> SimpleNamespace:
    return both(zeropoint, numeric_suite)


@pytest.fixture
def oracle() -> SimpleNamespace:
    return both(theirs, their_suite)


def weights(side: SimpleNamespace) -> dict[str, Any]:
    return side.suite.compare_weights(side.model.state_dict(), side.quantized.state_dict())


def shadows(side: SimpleNamespace) -> dict[str, Any]:
    swapped = {type(side.model.module[0]), nn.Linear}
    # One image: of a batch, torch.ao's logger keeps the first.
    return side.suite.compare_model_stub(side.model, side.quantized, swapped, side.x[:1])


def outputs(side: SimpleNamespace) -> dict[str, Any]:
    return side.suite.compare_model_outputs(side.model, side.quantized, side.x)


def assert_close(found: Any, expected: Any) -> None:
    """Floats as far as float32 goes, quantized tensors within one step of the same scale and zero point."""
    assert type(found) in (torch.Tensor, nn.Parameter, QTensor)
    assert isinstance(found, QTensor) == expected.is_quantized
    if not isinstance(found, QTensor):
        torch.testing.assert_close(found, expected)
        return
    if expected.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
        torch.testing.assert_close(found.q_per_channel_scales(), expected.q_per_channel_scales())
        assert torch.equal(found.int_repr(), expected.int_repr())
        return
    assert found.q_scale() == pytest.approx(expected.q_scale(), rel=1e-6)
    assert found.q_zero_point() == expected.q_zero_point()
    assert (found.int_repr().int() - expected.int_repr().int()).abs().max() <= STEPS_APART


def test_weights_are_those_of_torch_ao(ours: SimpleNamespace, oracle: SimpleNamespace) -> None:
    found, expected = weights(ours), weights(oracle)
    assert list(found) == list(expected) == ["module.0.weight", "module.3._packed_params._packed_params"]
    for key, pair in expected.items():
        assert found[key].keys() == pair.keys()
        for kind, value in pair.items():
            assert_close(found[key][kind], value)


def test_every_module_on_the_same_inputs_is_as_in_torch_ao(ours: SimpleNamespace, oracle: SimpleNamespace) -> None:
    found, expected = shadows(ours), shadows(oracle)
    assert sorted(found) == sorted(expected) == ["module.0.stats", "module.3.stats"]
    for key, pair in expected.items():
        assert len(found[key]["float"]) == len(pair["float"]) == 1
        assert_close(found[key]["quantized"][0], pair["quantized"][0])
    # The float layers of the shadows get what the quantized ones got, which may be a step apart in the second.
    torch.testing.assert_close(found["module.0.stats"]["float"][0], expected["module.0.stats"]["float"][0])
    step = oracle.quantized.module[0].orig_module.scale * float(ours.model.module[3].weight.detach().abs().sum(1).max())
    torch.testing.assert_close(
        found["module.3.stats"]["float"][0], expected["module.3.stats"]["float"][0], rtol=0, atol=STEPS_APART * step
    )


def test_results_of_both_models_are_as_in_torch_ao(ours: SimpleNamespace, oracle: SimpleNamespace) -> None:
    found, expected = outputs(ours), outputs(oracle)
    assert sorted(found) == sorted(expected)
    assert {"module.0.stats", "module.3.stats"} <= set(found)
    for key, pair in expected.items():
        for kind, values in pair.items():
            assert len(found[key][kind]) == len(values)
            assert_close(found[key][kind][0], values[0])


def test_shadows_stay_in_the_model_and_it_computes_what_it_did(ours: SimpleNamespace) -> None:
    before = copy.deepcopy(ours.quantized)(ours.x)
    shadows(ours)
    assert isinstance(ours.quantized.module[3], numeric_suite.Shadow)
    assert torch.equal(ours.quantized(ours.x), before)


def test_what_was_not_quantized_gets_no_shadow(ours: SimpleNamespace) -> None:
    found = numeric_suite.compare_model_stub(ours.model, copy.deepcopy(ours.model), {nn.Linear}, ours.x)
    assert found == {}


class Residual(nn.Module):
    """A sum, and a layer after it."""

    def __init__(self, functional: Any) -> None:
        super().__init__()
        self.first, self.last, self.sum = nn.Linear(6, 6), nn.Linear(6, 3), functional()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.sum.add(x, self.first(x)))


def test_a_sum_of_the_float_model_may_be_watched() -> None:
    found = {}
    for tq, functional, suite in (
        (zeropoint, zeropoint.nn.quantized.FloatFunctional, numeric_suite),
        (theirs, torch.ao.nn.quantized.FloatFunctional, their_suite),
    ):
        torch.manual_seed(0)
        model, x = tq.QuantWrapper(Residual(functional)).eval(), torch.randn(8, 6)
        model.qconfig = tq.get_default_qconfig("x86")
        prepared = tq.prepare(model)
        prepared(x)
        found[suite] = suite.compare_model_outputs(model, tq.convert(prepared), x)
    assert sorted(found[numeric_suite]) == sorted(found[their_suite])
    for key, pair in found[their_suite].items():
        assert_close(found[numeric_suite][key]["float"][0], pair["float"][0])
        assert_close(found[numeric_suite][key]["quantized"][0], pair["quantized"][0])


def test_only_listed_modules_are_watched(ours: SimpleNamespace) -> None:
    listed = {nn.Linear, zeropoint.nn.quantized.Linear}
    found = numeric_suite.compare_model_outputs(ours.model, ours.quantized, ours.x, allow_list=listed)
    assert "module.3.stats" in found
    assert "quant.stats" not in found
