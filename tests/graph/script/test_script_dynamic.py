"""Ranges found at run time and embedding tables in TorchScript, beside what eager mode has."""

from __future__ import annotations

import pytest
import torch
from eight_bit_steps import steps_between
from few_layers import Layers
from script_graphs import BOTH_WAYS, calls, kinds, scripted
from torch import Tensor, nn

import zeropoint

DYNAMIC = {"": zeropoint.default_dynamic_qconfig}


@BOTH_WAYS
def test_what_has_no_dynamic_form_stays_float(traced: bool) -> None:
    class WithSum(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x + 5) * 2

    model, x = WithSum(fc=nn.Linear(5, 5)).eval(), torch.randn(4, 5)
    made = zeropoint.quantize_dynamic_jit(scripted(model, traced, x), DYNAMIC)
    assert calls(made) == ["linear_dynamic"]
    assert {"aten::add", "aten::mul"} <= set(kinds(made))
    assert {row.operator for row in zeropoint.summary(made).rows if row.precision == "float32"} == {"add", "mul"}


@BOTH_WAYS
def test_branches_are_quantized(traced: bool) -> None:
    class Either(Layers):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return self.first(x)
            else:
                return self.second(x)

    model, x = Either(first=nn.Linear(5, 5), second=nn.Linear(5, 5)).eval(), torch.rand(4, 5)
    made = zeropoint.quantize_dynamic_jit(scripted(model, traced, x), DYNAMIC)
    assert calls(made).count("linear_dynamic") == (1 if traced else 2)
    assert "aten::linear" not in kinds(made)
    for data in (x,) if traced else (x, -x):
        assert steps_between(made(data), model(data)) <= 4


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_have_a_dynamic_form(dims: int) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(getattr(nn, f"Conv{dims}d")(3, 4, 3)).eval(), torch.randn(2, 3, *[5] * dims)
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), DYNAMIC)
    assert calls(made) == [f"conv{dims}d_dynamic"]
    assert steps_between(made(x), model(x)) <= 3


TABLES = {
    "byte": zeropoint.float_qparams_weight_only_qconfig,
    "4 bit": zeropoint.float_qparams_weight_only_qconfig_4bit,
}


@pytest.mark.parametrize("name", TABLES)
def test_lookups_are_quantized(name: str) -> None:
    model, indices = nn.Sequential(nn.Embedding(10, 12), nn.Linear(12, 3)).eval(), torch.tensor([[3, 1], [9, 0]])
    prepared = zeropoint.prepare_jit(torch.jit.script(model), {"0": TABLES[name]})
    made = zeropoint.convert_jit(prepared)
    assert calls(made) == ["embedding_4bit" if "4" in name else "embedding_byte"]
    assert (made(indices) - model(indices)).abs().max() < (0.3 if "4" in name else 0.05)
