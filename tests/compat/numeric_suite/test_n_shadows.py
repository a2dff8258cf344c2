"""Several qconfigs for each layer in one model: shadows, their loggers, and what they show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint
from zeropoint.compat.fx import convert_fx, get_native_backend_config, prepare_fx, prepare_qat_fx
from zeropoint.compat.numeric_suite.graph.multi_mapping import QConfigMultiMapping
from zeropoint.compat.numeric_suite.graph.n_shadows import (
    convert_n_shadows_model,
    loggers_set_enabled,
    loggers_set_save_activations,
    prepare_n_shadows_model,
    prepare_shadow_network,
)
from zeropoint.compat.numeric_suite.graph.n_shadows_results import (
    extract_results_n_shadows_model,
    n_shadows_compare_weights,
    print_comparisons_n_shadows_model,
    summarized,
)

BACKEND = get_native_backend_config()
STATIC, DYNAMIC = zeropoint.default_qconfig, zeropoint.default_dynamic_qconfig


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.weight, self.fc = nn.Parameter(torch.randn(5, 4)), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn(self.conv(x))).mean((2, 3))
        x = F.linear(x, self.weight)
        return self.fc(torch.cat([x, x])) + x.sum()


@pytest.fixture
def case() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Network().eval(), torch.randn(2, 3, 6, 6)


def run(prepared: Any, x: Tensor) -> Any:
    prepared(x)
    made = convert_n_shadows_model(prepared)
    loggers_set_enabled(made, True)
    return made, made(x)


def test_the_model_computes_what_it_did(case: tuple[nn.Module, Tensor]) -> None:
    model, x = case
    expected = model(x)
    _, result = run(prepare_n_shadows_model(model, (x,), QConfigMultiMapping().set_global([STATIC]), BACKEND), x)
    assert torch.equal(result, expected)


def test_every_qconfig_has_a_shadow_on_the_input_of_its_layer() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval(), torch.randn(8, 4)
    mappings = QConfigMultiMapping().set_global([STATIC, DYNAMIC]).set_module_name("2", [STATIC])
    made, _ = run(prepare_n_shadows_model(model, (x,), mappings, BACKEND), x)
    assert type(made.shadow_wrapper_0_1.mod_0) is zeropoint.nn.intrinsic.quantized.LinearReLU
    assert type(made.shadow_wrapper_0_2.mod_0) is zeropoint.nn.intrinsic.quantized.dynamic.LinearReLU
    assert not hasattr(made, "shadow_wrapper_1_2")
    found = extract_results_n_shadows_model(made)["model"]["node_output"]
    assert list(found) == ["subgraph_0_0", "subgraph_0_1", "subgraph_0_2", "subgraph_1_0", "subgraph_1_1"]
    hidden = torch.relu(model[0](x))
    assert torch.equal(found["subgraph_0_0"][0]["values"][0], hidden)
    layer = nn.Sequential(model[2])
    prepared = prepare_fx(layer, zeropoint.QConfigMapping().set_global(STATIC), (hidden,))
    prepared(hidden)
    assert torch.equal(found["subgraph_1_1"][0]["values"][0], convert_fx(prepared)(hidden))


def test_a_network_of_shadows_computes_what_the_quantized_model_does() -> None:
    torch.manual_seed(0)
    layers = nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.Hardswish(), nn.Linear(6, 2)
    model, x = nn.Sequential(*layers).eval(), torch.randn(8, 4)
    mapping = zeropoint.get_default_qconfig_mapping("x86").set_module_name("2", None)
    prepared = prepare_fx(model, mapping, (x,))
    prepared(x)
    expected = convert_fx(prepared)(x)
    made, result = run(prepare_shadow_network(model, (x,), mapping, BACKEND), x)
    assert torch.equal(result, model(x))
    found = extract_results_n_shadows_model(made)["model"]["node_output"]
    last = found[list(found)[-1]][0]["values"][-1]
    assert torch.equal(last, expected)


def test_loggers_are_off_until_they_are_wanted_and_keep_what_is_asked_for() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4)).eval(), torch.randn(8, 4)
    made = prepare_n_shadows_model(model, (x,), QConfigMultiMapping().set_global([STATIC]), BACKEND)
    made(x)
    assert made.shadow_0_1.stats == made.shadow_0_1.comparisons == []
    made = convert_n_shadows_model(made)
    loggers_set_enabled(made, True)
    loggers_set_save_activations(made, False)
    made(x)
    assert made.shadow_0_1.stats == []
    assert len(made.shadow_0_1.comparisons) == 1


def test_shadows_can_be_prepared_and_converted_by_others() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4)).eval(), torch.randn(8, 4)
    seen = []

    def convert(shadow: Any, word: str) -> Any:
        seen.append(word)
        return convert_fx(shadow)

    mappings = QConfigMultiMapping().set_global([zeropoint.default_qat_qconfig])
    made = prepare_n_shadows_model(model, (x,), mappings, BACKEND, custom_prepare_fn=prepare_qat_fx)
    made(x)
    made = convert_n_shadows_model(made, convert, {"word": "here"})
    assert seen == ["here"]
    assert type(made.shadow_wrapper_0_1.mod_0) is zeropoint.nn.quantized.Linear
    with pytest.raises(ValueError, match="qconfig_mapping, which"):
        prepare_n_shadows_model(
            model,
            (x,),
            mappings,
            BACKEND,
            custom_prepare_fn=prepare_qat_fx,
            custom_prepare_kwargs={"qconfig_mapping": 1},
        )


def test_weights_are_compared(case: tuple[nn.Module, Tensor]) -> None:
    model, x = case
    mapping = zeropoint.QConfigMapping().set_global(STATIC)
    found = n_shadows_compare_weights(model, (x,), mapping, BACKEND)["model"]["weight"]
    by_path = {entry["fqn"]: entry for name, (entry,) in found.items() if name.endswith("_1")}
    assert {"conv", "", "fc"} <= set(by_path)
    # A weight of n values, rounded to steps of s: the noise is below s / 2 in each.
    weight = by_path["fc"]["values"][0]
    error = weight.dequantize() - model.fc.weight  # type: ignore[union-attr]
    assert error.abs().max() <= weight.q_scale() / 2 + 1e-6
    assert by_path["fc"]["comparisons"][0] > 30


def test_the_table_has_a_column_for_each_qconfig(capsys: pytest.CaptureFixture[str]) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).eval(), torch.randn(8, 4)
    mappings = QConfigMultiMapping().set_global([STATIC, DYNAMIC]).set_module_name("1", [STATIC])
    made, _ = run(prepare_n_shadows_model(model, (x,), mappings, BACKEND), x)
    results = extract_results_n_shadows_model(made)
    rows = summarized(results)
    assert [len(row) for row in rows] == [5, 4]
    print_comparisons_n_shadows_model(results)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["node_name", "node_type", "fqn", "0", "1"]
    assert len(lines) == 3
