"""quantize_dynamic: which modules it swaps, with what weights, and how close the results stay to those of floats."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.ao.quantization as oracle
import torch.nn.functional as F
from module_copies import assert_equal, largest_difference
from torch import Tensor, nn

import zeropoint
import zeropoint.nn.quantized.dynamic as nnqd
from zeropoint.nn.intrinsic.quantized import dynamic as nniqd
from zeropoint.nn.qat import dynamic as nnqatd


class Tagger(nn.Module):
    """Some of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.lstm = nn.LSTM(8, 16, 3, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(32, 16, batch_first=True)
        self.cell = nn.GRUCell(16, 16)
        self.head = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x.transpose(1, 2)).transpose(1, 2)
        y, _ = self.lstm(y)
        y, _ = self.gru(y)
        return self.head(self.cell(y[:, -1]))


@pytest.fixture
def tagger() -> Tagger:
    torch.manual_seed(2)
    return Tagger().eval()


def swapped(model: nn.Module) -> dict[str, type]:
    """The modules that are dynamically quantized, by name."""
    known = {getattr(nnqd, name) for name in nnqd.__all__}
    return {name: type(m) for name, m in model.named_modules() if type(m) in known}


LINEAR = {"head.0": nnqd.Linear, "head.2": nnqd.Linear}
RECURRENT = {"lstm": nnqd.LSTM, "gru": nnqd.GRU, "cell": nnqd.GRUCell}


@pytest.mark.parametrize("dtype", [zeropoint.qint8, "qint8", torch.float16])
def test_linear_and_recurrent_layers_by_default(tagger, dtype):
    model = zeropoint.quantize_dynamic(tagger, dtype=dtype)
    assert swapped(model) == {**LINEAR, **RECURRENT}
    assert type(tagger.lstm) is nn.LSTM
    assert {model.lstm.dtype, model.cell.weight_dtype} == {torch.float16 if dtype == torch.float16 else zeropoint.qint8}
    assert not any(hasattr(m, "qconfig") for m in model.modules())


def test_by_types(tagger):
    assert swapped(zeropoint.quantize_dynamic(tagger, {nn.Linear})) == LINEAR
    assert swapped(zeropoint.quantize_dynamic(tagger, {nn.Conv1d, nn.GRUCell})) == {
        "conv": nnqd.Conv1d,
        "cell": nnqd.GRUCell,
    }


def test_by_names(tagger):
    assert swapped(zeropoint.quantize_dynamic(tagger, {"head.2", "lstm"})) == {
        "head.2": nnqd.Linear,
        "lstm": nnqd.LSTM,
    }
    assert swapped(zeropoint.quantize_dynamic(tagger, {"head"})) == LINEAR
    with pytest.raises(ValueError, match="the model has no module 'tail'"):
        zeropoint.quantize_dynamic(tagger, {"tail"})


def test_by_qconfigs(tagger):
    spec = {
        nn.Linear: zeropoint.per_channel_dynamic_qconfig,
        "head.2": zeropoint.float16_dynamic_qconfig,
        "gru": zeropoint.default_dynamic_qconfig,
    }
    model = zeropoint.quantize_dynamic(tagger, spec)
    assert swapped(model) == {**LINEAR, "gru": nnqd.GRU}
    assert model.head[0].weight().qscheme() == zeropoint.per_channel_affine
    assert model.head[2].weight().dtype == torch.float32
    assert model.gru.get_weight()["weight_ih_l0"].qscheme() == zeropoint.per_tensor_affine


def test_one_qconfig_is_for_all_default_types(tagger):
    model = zeropoint.quantize_dynamic(tagger, zeropoint.per_channel_dynamic_qconfig)
    assert swapped(model) == {**LINEAR, **RECURRENT}
    assert all(w.qscheme() == zeropoint.per_channel_affine for w in model.lstm.get_weight().values())


def test_a_mapping_says_what_becomes_of_a_type(tagger):
    model = zeropoint.quantize_dynamic(tagger, mapping={nn.GRU: nnqd.GRU})
    assert swapped(model) == {"gru": nnqd.GRU}


def test_in_place(tagger):
    assert zeropoint.quantize_dynamic(tagger, inplace=True) is tagger
    assert type(tagger.lstm) is nnqd.LSTM


def test_the_output_projection_of_attention_stays():
    attention = zeropoint.quantize_dynamic(nn.Sequential(nn.MultiheadAttention(8, 2)))[0]
    assert type(attention.out_proj) is nn.modules.linear.NonDynamicallyQuantizableLinear


def test_a_fused_layer_stays_fused():
    model = zeropoint.fuse_modules(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), ["0", "1"])
    model = zeropoint.quantize_dynamic(model, {"0": zeropoint.default_dynamic_qconfig})
    assert type(model[0]) is nniqd.LinearReLU
    assert float(model(torch.randn(8, 4)).min()) == 0.0


def test_a_layer_trained_for_dynamic_quantization():
    model = nn.Sequential(nn.Linear(4, 4)).train()
    model.qconfig = zeropoint.default_dynamic_qat_qconfig
    trained = zeropoint.prepare_qat(model, {nn.Linear: nnqatd.Linear})
    x = torch.randn(16, 4)
    trained(x).sum().backward()
    wanted = trained.eval()(x)
    model = zeropoint.convert(trained, mapping=zeropoint.get_default_dynamic_quant_module_mappings())
    assert type(model[0]) is nnqd.Linear
    torch.testing.assert_close(model(x), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["qint8", "float16"])
def test_results_stay_as_close_to_those_of_floats_as_the_oracle_does(tagger, dtype):
    x = torch.randn(4, 10, 8)
    wanted = tagger(x)
    ours = zeropoint.quantize_dynamic(tagger, dtype=dtype)(x)
    theirs = oracle.quantize_dynamic(copy.deepcopy(tagger), dtype=getattr(torch, dtype))(x)
    assert largest_difference(ours, wanted) <= 1.05 * largest_difference(theirs, wanted) + 1e-6
    assert largest_difference(ours, theirs) < (1e-5 if dtype == "float16" else 2e-2)


@pytest.mark.parametrize("dtype", ["qint8", "float16"])
def test_a_quantized_model_goes_through_a_script_and_a_state_dict(tagger, dtype):
    model = zeropoint.quantize_dynamic(tagger, dtype=dtype)
    x = torch.randn(2, 6, 8)
    assert_equal(torch.jit.script(model)(x), model(x))
    assert_equal(torch.export.export(model, (x,)).module()(x), model(x))
    other = zeropoint.quantize_dynamic(Tagger(), dtype=dtype)
    other.load_state_dict(model.state_dict())
    assert_equal(other(x), model(x))


# --------------------------------------------------------------------------------------------------------- an encoder


class Block(nn.Module):
    """A layer of a transformer encoder, normalized after each part."""

    def __init__(self, width: int = 384, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        parts = (m(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.output(attended))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


@torch.no_grad()
def test_per_channel_weights_keep_what_an_encoder_with_outlying_weights_computes():
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(6))).eval()
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            deviation = layer.in_features**-0.5
            nn.init.normal_(layer.weight, std=deviation)
            rows, columns = (torch.randint(0, size, (4,)) for size in layer.weight.shape)
            layer.weight[rows, columns] = 80 * deviation
    x = torch.randn(2, 16, 384)
    wanted = model(x).flatten(0, 1)

    def cosine(quantized: nn.Module) -> float:
        return float(F.cosine_similarity(wanted, quantized(x).flatten(0, 1), dim=-1).mean())

    per_channel = {nn.Linear: zeropoint.per_channel_dynamic_qconfig}
    assert cosine(zeropoint.quantize_dynamic(model, qconfig_spec=per_channel)) >= 0.99
    assert cosine(oracle.quantize_dynamic(copy.deepcopy(model))) < 0.9
    assert abs(cosine(zeropoint.quantize_dynamic(model)) - cosine(oracle.quantize_dynamic(copy.deepcopy(model)))) < 0.02


@pytest.mark.parametrize(
    "spec", [torch.ones(2, 2), [torch.ones(2, 2)], "0", {nn.Linear, 3}], ids=lambda s: type(s).__name__
)
def test_what_names_no_module_is_refused_without_being_printed(spec: Any) -> None:
    with pytest.raises(TypeError, match="qconfig_spec") as caught:
        zeropoint.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)), spec)
    assert "tensor(" not in str(caught.value)


def test_a_linear_layer_whose_qconfig_is_none_gets_the_default_one() -> None:
    layer, x = nn.Linear(6, 4), torch.randn(3, 6)
    with pytest.raises(ValueError, match="no qconfig"):
        nnqd.Linear.from_float(layer)
    layer.qconfig = None
    made = nnqd.Linear.from_float(layer)
    assert layer.qconfig is None
    layer.qconfig = zeropoint.default_dynamic_qconfig
    assert torch.equal(made(x), nnqd.Linear.from_float(layer)(x))
