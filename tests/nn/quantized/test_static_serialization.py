"""Every static module keeps its results however it is copied, saved or compiled."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
import torch.package
from static_cases import CASES, Case
from torch import nn

import zeropoint


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def assert_equal(a: Any, b: Any) -> None:
    assert isinstance(a, zeropoint.QTensor) == isinstance(b, zeropoint.QTensor)
    if isinstance(a, zeropoint.QTensor):
        assert (a.q_scale(), a.q_zero_point(), a._qdtype) == (b.q_scale(), b.q_zero_point(), b._qdtype)
        a, b = a.int_repr(), b.int_repr()
    assert a.dtype == b.dtype
    assert torch.equal(a, b)


class Floats(nn.Module):
    """A module between floats, which every tracer takes: quantizes what goes in, dequantizes what comes out."""

    def __init__(self, module: nn.Module, example: Any) -> None:
        super().__init__()
        self.is_quantized = isinstance(example, zeropoint.QTensor)
        if self.is_quantized:
            self.quant = zeropoint.nn.quantized.Quantize(example.q_scale(), example.q_zero_point(), example._qdtype)
            self.dequant = zeropoint.nn.quantized.DeQuantize()
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        if self.is_quantized:
            return self.dequant(self.module(*(self.quant(x) for x in inputs)))
        return self.module(*inputs)


def between_floats(case: Case) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    inputs = case.inputs()
    floats = tuple(x.dequantize() if isinstance(x, zeropoint.QTensor) else x for x in inputs)
    return Floats(case.make(), inputs[0]).eval(), floats


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copy_gives_the_same(case: Case, copied: Any) -> None:
    module, inputs = case.make(), case.inputs()
    assert_equal(copied(module)(*inputs), module(*inputs))


def test_state_dict_restores_everything(case: Case) -> None:
    module, inputs = case.make(), case.inputs()
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = case.fresh()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_equal(other(*inputs), module(*inputs))


def test_script_saved_and_loaded_gives_the_same(case: Case) -> None:
    module, inputs = case.make(), case.inputs()
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    file.seek(0)
    assert_equal(torch.jit.load(file)(*inputs), module(*inputs))


def test_package_saved_and_loaded_gives_the_same(case: Case) -> None:
    module, inputs = case.make(), case.inputs()
    file = io.BytesIO()
    with torch.package.PackageExporter(file) as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "model.pkl", module)
    file.seek(0)
    assert_equal(torch.package.PackageImporter(file).load_pickle("model", "model.pkl")(*inputs), module(*inputs))


def test_trace_saved_and_loaded_gives_the_same(case: Case) -> None:
    module, inputs = between_floats(case)
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(module, inputs), file)
    file.seek(0)
    assert_equal(torch.jit.load(file)(*inputs), module(*inputs))


def test_exported_program_gives_the_same(case: Case) -> None:
    module, inputs = between_floats(case)
    assert_equal(torch.export.export(module, inputs).module()(*inputs), module(*inputs))


def test_other_float_types_leave_the_numbers_alone(case: Case) -> None:
    module, inputs = case.make(), case.inputs()
    changed = copy.deepcopy(module).double()
    assert_equal(changed(*inputs), module(*inputs))


# These take indices, round many times, or have slopes of the other dtype.
UNSIGNED = [name for name in CASES if name.startswith(("Embedding", "QFunctional", "PReLU"))]


@pytest.mark.parametrize("name", [name for name in CASES if name not in UNSIGNED])
def test_inputs_of_int8_give_the_same_up_to_a_tie(name: str) -> None:
    module, inputs = CASES[name].make(), CASES[name].inputs()
    shifted = [
        zeropoint.quantize_per_tensor(x.dequantize(), x.q_scale(), x.q_zero_point() - 128, zeropoint.qint8)
        for x in inputs
    ]
    other = copy.deepcopy(module)
    if hasattr(other, "zero_point"):
        other.zero_point -= 128
    ours = other(*shifted)
    assert ours._qdtype is zeropoint.qint8
    assert (ours.int_repr().int() + 128 - module(*inputs).int_repr().int()).abs().max() <= 1
