"""`.half()` and relatives do not change what quantized layers compute."""

import pytest
import torch
from torch import nn

import zeropoint


def _eager(float_model: nn.Module, x: torch.Tensor) -> nn.Module:
    model = nn.Sequential(zeropoint.QuantStub(), float_model, zeropoint.DeQuantStub()).eval()
    model.qconfig = zeropoint.default_qconfig
    prepared = zeropoint.prepare(model)
    prepared(x)
    return zeropoint.convert(prepared)[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_stored_weights_and_biases_keep_their_dtype(dtype):
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8)
    layers = {
        "dynamic": zeropoint.quantize_dynamic(nn.Sequential(nn.Linear(8, 8), nn.LSTM(8, 8))),
        "float16": zeropoint.quantize_dynamic(nn.Sequential(nn.Linear(8, 8)), dtype=torch.float16),
        "static": _eager(nn.Linear(8, 8), x),
    }
    inputs = {"static": zeropoint.quantize_per_tensor(x, 0.05, 64, zeropoint.quint8)}
    for name, layer in layers.items():
        given = inputs.get(name, x)
        before = layer(given)
        after = layer.to(dtype)(given)
        for a, b in zip(_tensors(before), _tensors(after), strict=True):
            assert torch.equal(a, b), name


def _tensors(result):
    if isinstance(result, tuple):
        return [t for part in result for t in _tensors(part)]
    return [result.dequantize() if isinstance(result, zeropoint.QTensor) else result]


@pytest.mark.parametrize("convert", ["half", "bfloat16", "double"])
def test_a_quantized_graph_is_not_converted_to_another_dtype(convert):
    x = torch.randn(4, 8)
    graph = zeropoint.to_int8(nn.Linear(8, 8).eval(), (x,), [x], progress=False)
    before = graph(x)
    with pytest.raises(NotImplementedError, match="float32 inputs"):
        getattr(nn.Sequential(graph), convert)()
    assert torch.equal(graph.float().to("cpu")(x), before)
