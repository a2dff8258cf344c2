"""The numeric suite on traced models, against torch.ao's own on the same model."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.ao.ns._numeric_suite_fx as their_suite
import torch.ao.quantization as theirs
import torch.ao.quantization.quantize_fx as their_fx
from few_layers import Layers
from torch import nn

import zeropoint
import zeropoint.fx
from zeropoint import QTensor
from zeropoint.compat.numeric_suite.graph import compare, loggers, measures
from zeropoint.compat.numeric_suite.graph.matching import GraphMatchingException
from zeropoint.compat.numeric_suite.graph.related import io_types, related_sets, related_types

OURS = SimpleNamespace(
    **{name: getattr(compare, name) for name in compare.__all__}, OutputLogger=loggers.OutputLogger
)  # fmt: skip
# Sums of float32 in another order may move a value over the edge between two steps.
STEPS_APART = 1.01


def both(mapping: Any, fx: Any, suite: Any) -> SimpleNamespace:
    """A network prepared and converted."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 5)).eval()
    x = torch.randn(8, 3, 6, 6)
    prepared = fx.prepare_fx(model, mapping("x86"), (x,))
    prepared(x)
    again = fx.prepare_fx(model, mapping("x86"), (x,))
    again(x)
    return SimpleNamespace(prepared=again, converted=fx.convert_fx(prepared), x=x, suite=suite)


@pytest.fixture
def ours() -> SimpleNamespace:
    return both(zeropoint.get_default_qconfig_mapping, zeropoint.fx, OURS)


@pytest.fixture
def oracle() -> SimpleNamespace:
    return both(theirs.get_default_qconfig_mapping, their_fx, their_suite)


def weights(side: SimpleNamespace) -> dict[str, Any]:
    return side.suite.extract_weights("a", side.prepared, "b", side.converted)


def logged(side: SimpleNamespace, should_log_inputs: bool = False) -> dict[str, Any]:
    logger = side.suite.OutputLogger
    a, b = side.suite.add_loggers("a", side.prepared, "b", side.converted, logger, should_log_inputs)
    a(side.x)
    b(side.x)
    return side.suite.extract_logger_info(a, b, logger, "b")


def shadowed(side: SimpleNamespace, should_log_inputs: bool = False) -> dict[str, Any]:
    logger = side.suite.OutputLogger
    made = side.suite.add_shadow_loggers("a", side.prepared, "b", side.converted, logger, should_log_inputs)
    made(side.x)
    return side.suite.extract_shadow_logger_info(made, logger, "b")


def floats(value: Any) -> torch.Tensor:
    return value.dequantize() if isinstance(value, QTensor) or value.is_quantized else value.detach()


def step_of(value: Any) -> float:
    """The largest step of a quantized tensor; of a float one, what float32 loses in a sum."""
    if not value.is_quantized:
        return 1e-5
    is_whole = value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return value.q_scale() if is_whole else float(value.q_per_channel_scales().max())


def assert_same(found: dict[str, Any], expected: dict[str, Any], apart: float) -> None:
    """The same layers, kinds, models and entries; values within a step, floats within `apart`."""
    assert found.keys() == expected.keys()
    for layer, kinds in expected.items():
        assert found[layer].keys() == kinds.keys()
        for kind, models in kinds.items():
            assert found[layer][kind].keys() == models.keys()
            for model, entries in models.items():
                for mine, entry in zip(found[layer][kind][model], entries, strict=True):
                    for name in ("type", "index_within_arg", "index_of_arg", "fqn"):
                        assert mine[name] == entry[name], (layer, kind, model, name)
                    for value, reference in zip(mine["values"], entry["values"], strict=True):
                        bound = STEPS_APART * max(step_of(reference), 0.0 if reference.is_quantized else apart)
                        torch.testing.assert_close(floats(value), floats(reference), rtol=0, atol=bound)


def apart_by_a_step(side: SimpleNamespace) -> float:
    """How far a float layer goes apart when all of its inputs are one step apart."""
    layers = [m for m in side.prepared.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    gain = max(float(layer.weight.detach().flatten(1).abs().sum(1).max()) for layer in layers)
    scales = [float(m.scale) for m in side.converted.modules() if isinstance(getattr(m, "scale", None), float)]
    return gain * max(scales)


def test_weights_are_those_of_torch_ao(ours: SimpleNamespace, oracle: SimpleNamespace) -> None:
    found, expected = weights(ours), weights(oracle)
    assert len(found) == 2
    assert_same(found, expected, apart=0.0)
    for layer in expected:
        mine, theirs_ = (r[layer]["weight"]["b"][0]["values"][0] for r in (found, expected))
        assert torch.equal(mine.int_repr(), theirs_.int_repr())


@pytest.mark.parametrize("should_log_inputs", [False, True])
def test_results_are_those_of_torch_ao(ours: SimpleNamespace, oracle: SimpleNamespace, should_log_inputs: bool) -> None:
    found, expected = logged(ours, should_log_inputs), logged(oracle, should_log_inputs)
    assert_same(found, expected, apart=0.0)
    assert all(("node_input" in kinds) == should_log_inputs for kinds in found.values())


@pytest.mark.parametrize("should_log_inputs", [False, True])
def test_shadows_see_what_those_of_torch_ao_see(
    ours: SimpleNamespace, oracle: SimpleNamespace, should_log_inputs: bool
) -> None:
    apart = apart_by_a_step(ours)
    assert_same(shadowed(ours, should_log_inputs), shadowed(oracle, should_log_inputs), apart)


def test_a_model_with_shadows_computes_what_it_did(ours: SimpleNamespace) -> None:
    expected = ours.converted(ours.x)
    made = compare.add_shadow_loggers("a", ours.prepared, "b", ours.converted, loggers.OutputLogger)
    assert torch.equal(made(ours.x), expected)


def test_comparisons_are_put_into_the_entries_of_the_second_model(ours: SimpleNamespace) -> None:
    found = logged(ours)
    compare.extend_logger_results_with_comparison(found, "a", "b", measures.compute_sqnr, "sqnr")
    for kinds in found.values():
        (entry,) = kinds["node_output"]["b"]
        assert float(entry["sqnr"][0]) > 20


def test_models_with_other_layers_are_refused() -> None:
    with pytest.raises(GraphMatchingException, match="stand at the same place and are not related"):
        compare.extract_weights("a", nn.Sequential(nn.Linear(2, 2)), "b", nn.Sequential(nn.Conv2d(2, 2, 1)))
    with pytest.raises(GraphMatchingException, match="the second graph has no layer for"):
        compare.extract_weights(
            "a", nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), "b", nn.Sequential(nn.Linear(2, 2))
        )


def test_an_input_that_is_given_by_name_gets_a_shadow() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(input=x, weight=self.weight)

    model, x = torch.fx.symbolic_trace(Named()), torch.randn(2, 4)
    shadowed = compare.add_shadow_loggers("a", model, "b", copy.deepcopy(model), loggers.OutputLogger)
    shadowed(x)
    found = compare.extract_shadow_logger_info(shadowed, loggers.OutputLogger, "b")
    values = [found["linear"]["node_output"][name][0]["values"][0] for name in ("a", "b")]
    assert torch.equal(*values)


def test_a_recurrent_layer_with_a_state_gets_a_shadow() -> None:
    class Recurrent(Layers):
        def forward(self, x: torch.Tensor, state: Any) -> Any:
            return self.lstm(x, state)

    x, state = torch.randn(2, 1, 3), (torch.randn(1, 1, 4), torch.randn(1, 1, 4))
    mapping = zeropoint.QConfigMapping().set_object_type(nn.LSTM, zeropoint.default_dynamic_qconfig)
    prepared = zeropoint.compat.fx.prepare_fx(Recurrent(lstm=nn.LSTM(3, 4)).eval(), mapping, (x, state))
    quantized = zeropoint.compat.fx.convert_fx(copy.deepcopy(prepared))
    shadowed = compare.add_shadow_loggers("float", prepared, "int8", quantized, loggers.OutputLogger)
    shadowed(x, state)
    found = compare.extract_shadow_logger_info(shadowed, loggers.OutputLogger, "int8")
    values = {name: found["lstm"]["node_output"][name][0]["values"][0][0] for name in ("float", "int8")}
    assert torch.equal(values["float"], prepared(x, state)[0])
    assert torch.equal(values["int8"], quantized(x, state)[0])


class _Passing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu, self.layer = nn.ReLU(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(nn.functional.relu(self.relu(x))).sigmoid()


def test_what_takes_floats_and_quantized_tensors_alike_gets_no_shadow() -> None:
    x = torch.randn(2, 4)
    prepared = zeropoint.fx.prepare_fx(_Passing().eval(), zeropoint.get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    made = compare.add_shadow_loggers(
        "a", prepared, "b", zeropoint.fx.convert_fx(copy.deepcopy(prepared)), loggers.OutputLogger
    )
    made(x)
    assert list(compare.extract_shadow_logger_info(made, loggers.OutputLogger, "b")) == ["layer"]


def test_all_that_is_swapped_is_related_and_has_its_types() -> None:
    related, io = related_types(related_sets()), io_types()
    for module, made in zeropoint.get_default_static_quant_module_mappings().items():
        assert (module, made) in related
        assert module in io["mods_io_type_fp32"]
        assert made in io["mods_io_type_int8"]
    for function, made in zeropoint.get_default_float_to_quantized_operator_mappings().items():
        assert (function, made) in related
        assert function in io["funs_io_type_fp32"]
        assert made in io["funs_io_type_int8"]
    assert (nn.Softsign, nn.Softshrink) not in related  # though one module stands for both
