"""Dynamic, float16 and weight-only layers, recurrent networks, functions; programs; reference models."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint
from zeropoint import fx
from zeropoint.compat.fx.quantize_fx import convert_to_reference_decomposed_fx
from zeropoint.nn import quantized as nnq
from zeropoint.nn.quantized import dynamic as nnqd, reference as nnqr


class Functions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))
        self.kernel = nn.Parameter(torch.randn(4, 4, 3))

    def forward(self, x):
        x = F.relu(F.linear(x, self.weight, self.bias))
        return F.conv1d(x.unsqueeze(2), self.kernel, padding=1).squeeze(2)


def quantize(model: nn.Module, qconfig: Any, x: Tensor) -> Any:
    mapping = zeropoint.QConfigMapping().set_global(qconfig)
    prepared = fx.prepare_fx(model.eval(), mapping, (x,))
    prepared(x)
    return fx.convert_fx(prepared)


def data(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("qconfig", ["default_dynamic_qconfig", "float16_dynamic_qconfig"])
def test_dynamic_layers(qconfig: str) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), data(8, 4)
    made = quantize(copy.deepcopy(model), getattr(zeropoint, qconfig), x)
    assert isinstance(made.get_submodule("0"), nnqd.Linear)
    assert not any("quantize" in node.name for node in made.graph.nodes)
    torch.testing.assert_close(made(x), model.eval()(x), atol=0.05, rtol=0.05)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_networks_are_dynamic(kind: Any) -> None:
    model = nn.Sequential(kind(4, 4))
    mapping = zeropoint.QConfigMapping().set_object_type(kind, zeropoint.default_dynamic_qconfig)
    made = fx.convert_fx(fx.prepare_fx(model.eval(), mapping, (data(3, 2, 4),)))
    assert type(made.get_submodule("0")) is getattr(nnqd, kind.__name__)


def test_embeddings_are_weight_only() -> None:
    model = nn.Sequential(nn.Embedding(10, 12))
    mapping = zeropoint.QConfigMapping().set_object_type(nn.Embedding, zeropoint.float_qparams_weight_only_qconfig)
    made = fx.convert_fx(fx.prepare_fx(model.eval(), mapping, (torch.arange(3),)))
    assert type(made.get_submodule("0")) is nnq.Embedding
    assert made(torch.arange(3)).shape == (3, 12)


def test_weights_of_functions_are_packed_and_saved() -> None:
    model, x = Functions(), data(8, 4)
    made = quantize(copy.deepcopy(model), zeropoint.default_qconfig, x)
    assert {"_packed_weight_0", "_packed_weight_1"} <= set(made.state_dict())
    again = quantize(Functions(), zeropoint.default_qconfig, x)
    again.load_state_dict(made.state_dict())
    assert torch.equal(again(x), made(x))
    assert torch.nn.functional.cosine_similarity(made(x).flatten(), model(x).flatten(), dim=0) > 0.99


def test_a_reference_model_has_float_layers_that_know_their_scales() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), data(2, 3, 8, 8)
    mapping = zeropoint.get_default_qconfig_mapping("fbgemm")
    prepared = fx.prepare_fx(model.eval(), mapping, (x,))
    prepared(x)
    reference = fx.convert_to_reference_fx(copy.deepcopy(prepared))
    assert type(reference.get_submodule("0")[0]) is nnqr.Conv2d
    lowered = fx.convert_fx(prepared)
    steps = (reference(x) - lowered(x)).abs() / lowered.get_submodule("0").scale
    assert steps.max() < 1.5


def test_a_decomposed_reference_model_has_no_quantized_tensors() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4)), data(8, 4)
    prepared = fx.prepare_fx(model.eval(), zeropoint.get_default_qconfig_mapping(), (x,))
    prepared(x)
    made = convert_to_reference_decomposed_fx(prepared)
    called = {str(node.target) for node in made.graph.nodes if node.op == "call_function"}
    assert called == {"zeropoint.quantize_per_tensor.default", "zeropoint.dequantize_per_tensor.default"}
    assert made(x).shape == (8, 4)


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2), nn.Linear(4, 3)

    def forward(self, x):
        y = self.pool(self.conv(x))
        y = F.relu(y + y * 2)
        y = torch.cat([F.hardswish(y), torch.sigmoid(y)], 1)[:, :4]
        return self.fc(y.mean([2, 3]))


def test_a_converted_graph_compiles_to_a_program_with_the_same_bytes() -> None:
    model, x = Mixed(), data(2, 3, 8, 8)
    prepared = fx.prepare_fx(model.eval(), zeropoint.get_default_qconfig_mapping(), (x,))
    prepared(x)
    made = fx.convert_fx(prepared)
    program = zeropoint.compile(made, (x,))
    assert torch.equal(program(x), made(x))


def test_convert_leaves_float_what_its_mapping_leaves_float() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), data(8, 4)
    mapping = zeropoint.QConfigMapping().set_global(zeropoint.default_qconfig)
    prepared = fx.prepare_fx(model.eval(), mapping, (x,))
    prepared(x)
    later = zeropoint.QConfigMapping().set_global(zeropoint.default_qconfig).set_module_name("1", None)
    made = fx.convert_fx(copy.deepcopy(prepared), qconfig_mapping=later)
    assert type(made.get_submodule("0")) is nnq.Linear
    assert type(made.get_submodule("1")) is nn.Linear
    other = zeropoint.QConfigMapping().set_global(zeropoint.default_per_channel_qconfig)
    with pytest.raises(ValueError, match="global"):
        fx.convert_fx(prepared, qconfig_mapping=other)
