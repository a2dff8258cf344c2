"""The records know whatever torch.ao's default mappings know."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.ao.quantization.quantization_mappings as theirs
from torch import nn

import zeropoint
from zeropoint import qconfig_mapping
from zeropoint.context import CONTEXT
from zeropoint.operators import STEPS, Observed, Operator, Output, mapping, module_forms, operators, register, traced
from zeropoint.operators.registry import unregister
from zeropoint.operators.steps import steps
from zeropoint.tensor.elementwise import FIXED_QPARAMS

STATIC = theirs.get_default_static_quant_module_mappings()
TRAINING = theirs.get_embedding_qat_module_mappings()
TABLES = {k: v for k, v in theirs.get_default_dynamic_quant_module_mappings().items() if "Embedding" in k.__name__}


def ours_of(cls: type) -> Any:
    """A class of torch.ao has its twin at the same path of zeropoint, without the package `modules`."""
    module = cls.__module__
    if not module.startswith("torch.ao."):
        return cls
    if module == "torch.ao.quantization.stubs":
        return getattr(zeropoint, cls.__name__)
    found: Any = zeropoint
    for part in module.removeprefix("torch.ao.").split(".modules")[0].split("."):
        found = getattr(found, part)
    return getattr(found, cls.__name__)


@pytest.mark.parametrize("float_module", STATIC, ids=lambda k: f"{k.__module__}.{k.__name__}")
def test_static_form_is_the_one_torch_has(float_module: type) -> None:
    assert mapping("static")[ours_of(float_module)] is ours_of(STATIC[float_module])


@pytest.mark.parametrize("float_module", TRAINING, ids=lambda k: f"{k.__module__}.{k.__name__}")
def test_form_in_training_is_the_one_torch_has(float_module: type) -> None:
    assert mapping("training")[ours_of(float_module)] is ours_of(TRAINING[float_module])


@pytest.mark.parametrize("float_module", TABLES, ids=lambda k: k.__name__)
def test_tables_have_one_form_for_static_and_dynamic(float_module: type) -> None:
    assert mapping("dynamic")[float_module] is mapping("static")[float_module] is ours_of(TABLES[float_module])


def test_default_training_leaves_tables_alone() -> None:
    assert nn.Embedding not in zeropoint.get_default_qat_module_mappings()
    assert nn.Embedding in zeropoint.get_embedding_qat_module_mappings()


def test_each_name_has_one_record() -> None:
    with pytest.raises(ValueError, match="already registered for conv2d"):
        register(Operator("another", ("conv2d.default",)))
    with pytest.raises(ValueError, match="already registered for linear"):
        register(Operator("linear"))
    with pytest.raises(ValueError, match=r"already registered for zeropoint\.linear\.default"):
        register(Operator("another", steps=steps(lambda c, node: "", "linear")))


@pytest.mark.parametrize("record", [record for record in operators() if record.steps], ids=lambda record: record.name)
def test_steps_are_for_calls_that_exist(record: Operator) -> None:
    for call, _ in record.steps:
        namespace, name, overload = call.split(".")
        assert hasattr(getattr(getattr(torch.ops, namespace), name), overload), call


def test_an_operator_that_is_taken_out_leaves_the_steps_of_others() -> None:
    emit = STEPS["zeropoint.stored_max_pool.default"]
    register(Operator("another", steps=steps(emit, "stored_max_pool", "mine.wave.default")))
    assert "mine.wave.default" in STEPS
    unregister("another")
    assert STEPS["zeropoint.stored_max_pool.default"] is emit
    assert "mine.wave.default" not in STEPS


def test_records_are_copied_and_saved_as_themselves() -> None:
    for record in operators():
        assert copy.deepcopy(record) is record
        assert pickle.loads(pickle.dumps(record)) is record


def test_a_saved_operator_that_is_not_registered_is_named() -> None:
    data = pickle.dumps(Operator("of another process"))
    with pytest.raises(ValueError, match="'of another process' is unknown: call register_operator"):
        pickle.loads(data)


def test_fixed_results_are_those_of_torch() -> None:
    fixed = {module for op in operators() if op.output in (Output.UNIT, Output.SYMMETRIC) for module in op.modules}
    assert fixed == set(theirs.DEFAULT_MODULE_TO_ACT_POST_PROCESS)


def test_default_qconfigs_fix_the_results_that_records_fix() -> None:
    fixed = {module for op in operators() if op.output in (Output.UNIT, Output.SYMMETRIC) for module in op.modules}
    assert {kind for kind in qconfig_mapping.FIXED_QPARAMS if isinstance(kind, type)} == fixed


def test_static_forms_have_from_float() -> None:
    for _, forms in module_forms():
        assert forms.static is None or callable(forms.static.from_float)


def test_what_is_annotated_can_be_lowered() -> None:
    for record in operators():
        assert (record.annotate is None) == (record.lower is None), record.name


def test_fx_graph_mode_leaves_out_what_a_record_has_and_nothing_else() -> None:
    for record in traced():
        assert record.traced is not None
        assert set(record.traced.without) <= {*record.modules, *record.functions}, record.name
        assert record.traced_calls, record.name


def test_a_call_belongs_to_one_record_in_fx_graph_mode() -> None:
    calls = [call for record in traced() for call in record.traced_calls]
    assert len(calls) == len(set(calls))
    assert {nn.ReLU, torch.nn.functional.relu, "relu"} <= set(calls)
    assert nn.BatchNorm1d not in calls  # it is left in float, as in torch.ao


def test_fixed_ranges_in_fx_graph_mode_are_those_of_the_records() -> None:
    fixed = {record.name: record.output for record in traced(Observed.FIXED)}
    assert fixed == {
        "sigmoid": Output.UNIT,
        "hardsigmoid": Output.UNIT,
        "softmax": Output.UNIT,
        "tanh": Output.SYMMETRIC,
    }


def test_eager_models_know_what_records_move() -> None:
    moves = CONTEXT.moves_values
    assert all(map(moves, ("relu", "relu_", "max_pool2d", "reshape", "transpose", "split")))
    assert not any(map(moves, ("clamp", "relu6", "mean", "avg_pool2d", "sigmoid", "pad", "cat")))
    register(Operator("another", ("another.default",), output=Output.INPUT))
    assert moves("another")
    unregister("another")
    assert not moves("another")
    assert moves("relu")


def test_quantized_tensors_fix_the_results_that_records_fix() -> None:
    fixed = {name: parameters[zeropoint.quint8].zero_point for name, parameters in FIXED_QPARAMS.items()}
    outputs = {op.name: {Output.UNIT: 0, Output.SYMMETRIC: 128}[op.output] for op in traced(Observed.FIXED)}
    assert fixed == {name: zero_point for name, zero_point in outputs.items() if name != "softmax"}  # has a scale
