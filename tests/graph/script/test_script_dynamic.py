"""Ranges found at run time, float16 weights and embedding tables in TorchScript."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from script_graphs import BOTH_WAYS, calls, kinds, reloaded, scripted
from torch import Tensor, nn

import zeropoint
from zeropoint import PlaceholderObserver, QConfig
from zeropoint.nn import quantized as nnq

DYNAMIC = {"": zeropoint.default_dynamic_qconfig}
HALF = {"": zeropoint.float16_dynamic_qconfig}


class FunctionalLinear(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.weight, self.bias = torch.rand(4, 5), torch.rand(4) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


# --------------------------------------------------------------------------------------------------------- linear


@BOTH_WAYS
def test_linear_is_that_of_eager_mode(traced: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)).eval(), torch.randn(3, 5)
    made = zeropoint.quantize_dynamic_jit(scripted(model, traced, x), DYNAMIC)
    assert calls(made) == ["linear_relu_dynamic", "linear_dynamic"]
    assert "aten::linear" not in kinds(made)
    assert torch.equal(made(x), zeropoint.quantize_dynamic(copy.deepcopy(model), {nn.Linear})(x))
    assert torch.equal(reloaded(made)(x), made(x))


@BOTH_WAYS
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
def test_functional_linear(bias: bool, traced: bool) -> None:
    model, x = FunctionalLinear(bias).eval(), torch.randn(3, 5)
    script = scripted(model, traced, x)
    made, debug = (zeropoint.quantize_dynamic_jit(script, DYNAMIC, debug=debug) for debug in (False, True))
    assert calls(made) == ["linear_dynamic"]
    assert (made(x) - model(x)).abs().max() < 0.1
    assert (made(x) - debug(x)).abs().max() < 1e-5


@BOTH_WAYS
def test_what_has_no_dynamic_form_stays_float(traced: bool) -> None:
    class WithSum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(5, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x + 5) * 2

    model, x = WithSum().eval(), torch.randn(4, 5)
    made = zeropoint.quantize_dynamic_jit(scripted(model, traced, x), DYNAMIC)
    assert calls(made) == ["linear_dynamic"]
    assert {"aten::add", "aten::mul"} <= set(kinds(made))
    assert {row.operator for row in zeropoint.summary(made).rows if row.way == "float32"} == {"add", "mul"}


@pytest.mark.parametrize(("path", "count"), [("first", 1), ("", 2)])
def test_a_weight_that_is_shared_is_quantized_where_asked(path: str, count: int) -> None:
    class Inner(nn.Module):
        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 5)
            self.linear.weight = weight

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 5))
            self.first = Inner(self.weight)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(self.first(x), self.weight)

    model, x = Tied().eval(), torch.randn(4, 5)
    qconfigs = {path: zeropoint.default_dynamic_qconfig}
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), qconfigs)
    assert calls(made) == ["linear_dynamic"] * count
    assert kinds(made).count("aten::linear") == 2 - count
    assert (made(x) - model(x)).abs().max() < 0.2
    prepared = zeropoint.prepare_dynamic_jit(torch.jit.script(model), qconfigs)
    prepared(x)
    assert torch.equal(zeropoint.convert_dynamic_jit(prepared)(x), made(x))


@BOTH_WAYS
def test_branches_are_quantized(traced: bool) -> None:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return self.first(x)
            else:
                return self.second(x)

    model, x = Either().eval(), torch.rand(4, 5)
    made = zeropoint.quantize_dynamic_jit(scripted(model, traced, x), DYNAMIC)
    assert calls(made).count("linear_dynamic") == (1 if traced else 2)
    assert "aten::linear" not in kinds(made)
    for data in (x,) if traced else (x, -x):
        assert (made(data) - model(data)).abs().max() < 0.05


def test_a_qconfig_for_calibration_is_taken_as_one_without() -> None:
    model, x = nn.Sequential(nn.Linear(5, 5)).eval(), torch.randn(4, 5)
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), {"": zeropoint.default_qconfig})
    assert calls(made) == ["linear_dynamic"]
    assert (made(x) - model(x)).abs().max() < 0.1


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_have_a_dynamic_form(dims: int) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(getattr(nn, f"Conv{dims}d")(3, 4, 3)).eval(), torch.randn(2, 3, *[5] * dims)
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), DYNAMIC)
    assert calls(made) == [f"conv{dims}d_dynamic"]
    assert (made(x) - model(x)).abs().max() < 0.1


# ------------------------------------------------------------------------------------------------- recurrent layers


class Sequence(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.rnn, self.fc = kind(6, 8, 2, bidirectional=True), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x)[0])


@BOTH_WAYS
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16], ids=["int8", "float16"])
def test_recurrent_layer_is_that_of_eager_mode(kind: type[nn.Module], dtype: Any, traced: bool) -> None:
    torch.manual_seed(0)
    model, x = Sequence(kind).eval(), torch.randn(5, 2, 6)
    made = zeropoint.quantize_dynamic_jit(scripted(model, traced, x), DYNAMIC if dtype == torch.qint8 else HALF)
    assert f"quantized_{kind.__name__.lower()}" in calls(made)
    eager = zeropoint.quantize_dynamic(copy.deepcopy(model), {nn.LSTM, nn.GRU, nn.Linear}, dtype=dtype)
    torch.testing.assert_close(made(x), eager(x), atol=2e-6, rtol=0)


# ---------------------------------------------------------------------------------------------------------- float16


@BOTH_WAYS
def test_float16_weights_are_those_of_eager_mode(traced: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(5, 4)).eval(), torch.randn(3, 5)
    made = zeropoint.quantize_dynamic_jit(scripted(model, traced, x), HALF)
    assert calls(made) == ["linear_dynamic_fp16"]
    assert "aten::linear" not in kinds(made)
    assert torch.equal(made(x), zeropoint.quantize_dynamic(copy.deepcopy(model), dtype=torch.float16)(x))


def test_float16_weights_saturate() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2, bias=False)).eval(), torch.ones(1, 2)
    model[0].weight.data = torch.tensor([[65532.0, 0.0], [-1e6, 1.0]])
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), HALF)
    assert torch.equal(made(x), torch.tensor([[65504.0, -65503.0]]))


# ------------------------------------------------------------------------------------------------- embedding tables


class Bags(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.EmbeddingBag(10, 12, include_last_offset=True, **options)
        self.fc = nn.Linear(12, 5)

    def forward(self, indices: Tensor, offsets: Tensor) -> Tensor:
        return self.fc(self.embedding(indices, offsets))


def table_qconfig(name: str) -> QConfig:
    return QConfig(
        activation=PlaceholderObserver.with_args(dtype=torch.float, custom_op_name=name),
        weight=PlaceholderObserver.with_args(custom_op_name=name),
    )


TABLES = {
    "byte by name": (table_qconfig("embedding_bag_byte"), "embedding_bag_byte_rowwise_offsets"),
    "4 bit by name": (table_qconfig("embedding_bag_4bit"), "embedding_bag_4bit_rowwise_offsets"),
    "byte": (zeropoint.float_qparams_weight_only_qconfig, "embedding_bag_byte_rowwise_offsets"),
    "4 bit": (zeropoint.float_qparams_weight_only_qconfig_4bit, "embedding_bag_4bit_rowwise_offsets"),
}
INDICES, OFFSETS = torch.tensor([1, 1, 2, 9, 4, 0]), torch.tensor([0, 2, 5, 6])


@BOTH_WAYS
@pytest.mark.parametrize("name", TABLES)
def test_bags_are_those_of_the_module_on_bytes(name: str, traced: bool) -> None:
    qconfig, operator = TABLES[name]
    model = Bags(mode="sum").eval()
    prepared = zeropoint.prepare_jit(scripted(model, traced, INDICES, OFFSETS), {"embedding": qconfig})
    prepared(INDICES, OFFSETS)
    made = zeropoint.convert_jit(prepared)
    assert calls(made) == [operator]
    assert "aten::embedding_bag" not in kinds(made)
    table = copy.deepcopy(model.embedding)
    table.qconfig = TABLES["4 bit" if "4" in name else "byte"][0]
    bags = nnq.EmbeddingBag.from_float(table)
    torch.testing.assert_close(made(INDICES, OFFSETS), model.fc(bags(INDICES, OFFSETS)), atol=1e-6, rtol=1e-6)
    assert torch.equal(reloaded(made)(INDICES, OFFSETS), made(INDICES, OFFSETS))


@BOTH_WAYS
@pytest.mark.parametrize("name", TABLES)
def test_padding_has_no_quantized_form_and_that_is_said(name: str, traced: bool) -> None:
    model = Bags(mode="sum", padding_idx=0).eval()
    script = scripted(model, traced, INDICES, OFFSETS)
    prepared = zeropoint.prepare_jit(script, {"embedding": TABLES[name][0]})
    with pytest.raises(NotImplementedError, match="padding_idx input to be None.*qconfig None"):
        zeropoint.convert_jit(prepared)


@pytest.mark.parametrize("name", ["byte", "4 bit"])
def test_lookups_are_quantized(name: str) -> None:
    model, indices = nn.Sequential(nn.Embedding(10, 12), nn.Linear(12, 3)).eval(), torch.tensor([[3, 1], [9, 0]])
    prepared = zeropoint.prepare_jit(torch.jit.script(model), {"0": TABLES[name][0]})
    made = zeropoint.convert_jit(prepared)
    assert calls(made) == ["embedding_4bit" if "4" in name else "embedding_byte"]
    assert (made(indices) - model(indices)).abs().max() < (0.3 if "4" in name else 0.05)
