"""Layers round as the engine of PyTorch that old code has set.

Every output channel has a bias that puts one of its results on the border between two integers, where the order of the
operations decides.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint import qfunctions
from zeropoint.compat import surroundings
from zeropoint.ops import rounding

OUTPUTS, X_ZERO_POINT, ZERO_POINT = 2048, 31, 61
X_SCALE, SCALE = torch.tensor([0.0413, 0.0371]).tolist()  # float32, as observers give them


@pytest.fixture
def engine(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch's engine of this name, and our choice of a rounding for it."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = request.param
    monkeypatch.setitem(rounding.CHOICE, "layer", surroundings._rounding_of_engine)
    yield request.param
    torch.backends.quantized.engine = before


def operands(per_channel: bool, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Integers of an input (128, 1), a weight (OUTPUTS, 1), its scales, and a bias that makes borders."""
    random = torch.Generator().manual_seed(seed)
    x = torch.arange(128, dtype=torch.uint8).reshape(-1, 1)
    weight = torch.randint(-127, 128, (OUTPUTS, 1), generator=random).to(torch.int8)
    scales = torch.rand(OUTPUTS if per_channel else 1, generator=random) * 0.002 + 0.001
    acc = (torch.randint(0, 128, (OUTPUTS,), generator=random) - X_ZERO_POINT) * weight[:, 0].long()
    border = torch.randint(-20, 20, (OUTPUTS,), generator=random) + 0.5
    bias = (border * SCALE - acc * X_SCALE * scales.double()).float()
    return x, weight, scales, bias


def old_weight(weight: Tensor, scales: Tensor) -> Tensor:
    if scales.numel() == 1:
        return torch._make_per_tensor_quantized_tensor(weight, float(scales), 0)
    return torch._make_per_channel_quantized_tensor(weight, scales.double(), torch.zeros(OUTPUTS).long(), 0)


def our_weight(weight: Tensor, scales: Tensor) -> zeropoint.QTensor:
    if scales.numel() == 1:
        return zeropoint.make_per_tensor_quantized_tensor(weight, float(scales), 0)
    return zeropoint.make_per_channel_quantized_tensor(weight, scales.double(), torch.zeros(OUTPUTS).long(), 0)


def old_and_new(layer: str, per_channel: bool) -> tuple[Tensor, Tensor]:
    """The integers that PyTorch and ours give."""
    x, weight, scales, bias = operands(per_channel)
    old_x = torch._make_per_tensor_quantized_tensor(x, X_SCALE, X_ZERO_POINT)
    new_x = zeropoint.make_per_tensor_quantized_tensor(x, X_SCALE, X_ZERO_POINT)
    if layer == "linear":
        old = torch.ops.quantized.linear_prepack(old_weight(weight, scales), bias)
        packed = qfunctions.linear_prepack(our_weight(weight, scales), bias)
        was = torch.ops.quantized.linear(old_x, old, SCALE, ZERO_POINT)
        return was.int_repr(), qfunctions.linear(new_x, packed, SCALE, ZERO_POINT).int_repr()
    weight, shape = weight.reshape(-1, 1, 1, 1), ([1, 1], [0, 0], [1, 1], 1)
    old = torch.ops.quantized.conv2d_prepack(old_weight(weight, scales), bias, *shape)
    conv = qfunctions.conv_prepack(our_weight(weight, scales), bias, *shape)
    image = (1, 1, 8, 16)
    was = torch.ops.quantized.conv2d(old_x.reshape(image), old, SCALE, ZERO_POINT)
    return was.int_repr(), qfunctions.packed.conv(new_x.reshape(image), conv, SCALE, ZERO_POINT).int_repr()


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("layer", ["linear", "conv2d"])
@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack", "onednn"], indirect=True)
def test_integers_are_those_of_the_engine(isa: str, engine: str, layer: str, per_channel: bool) -> None:
    was, now = old_and_new(layer, per_channel)
    assert torch.equal(was, now)


def test_without_an_engine_another_order_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The borders are borders: our own rounding gives other integers on some of them, one step away."""
    x, weight, scales, bias = operands(True)
    q = zeropoint.make_per_tensor_quantized_tensor(x, X_SCALE, X_ZERO_POINT)
    made = {}
    for name in rounding.CODES:
        monkeypatch.setitem(rounding.CHOICE, "layer", lambda *_, name=name: name)
        packed = qfunctions.linear_prepack(our_weight(weight, scales), bias)
        made[name] = qfunctions.linear(q, packed, SCALE, ZERO_POINT).int_repr().int()
    for name in ("fbgemm", "qnnpack", "onednn"):
        apart = (made[name] - made["zeropoint"]).abs()
        assert apart.max() == 1
        assert apart.float().mean() < 0.02


@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack", "onednn"], indirect=True)
def test_scripted_and_compiled_layers_round_alike(engine: str) -> None:
    x, weight, scales, bias = operands(True)
    layer = zeropoint.nn.quantized.Conv2d(1, OUTPUTS, 1)
    layer.set_weight_bias(our_weight(weight.reshape(-1, 1, 1, 1), scales), bias)
    layer.scale, layer.zero_point = SCALE, ZERO_POINT
    assert layer._rounding == engine
    q = zeropoint.make_per_tensor_quantized_tensor(x.reshape(1, 1, 8, 16), X_SCALE, X_ZERO_POINT)
    want = layer(q).int_repr()
    assert torch.equal(torch.jit.script(layer)(q).int_repr(), want)
    model = nn.Sequential(
        zeropoint.nn.quantized.Quantize(X_SCALE, X_ZERO_POINT, zeropoint.quint8),
        layer,
        zeropoint.nn.quantized.DeQuantize(),
    ).eval()
    floats = q.dequantize()
    assert torch.equal(zeropoint.compile(model, (floats,))(floats), model(floats))


@pytest.mark.parametrize("engine", ["x86"], indirect=True)
def test_x86_is_fbgemm_and_onednn(engine: str) -> None:
    symmetric, shifted = torch.zeros(2), torch.tensor([0, 1])
    assert rounding.chosen(symmetric) == "fbgemm"  # a linear layer
    assert rounding.chosen(symmetric, 1) == rounding.chosen(symmetric, 100, [0, 0]) == "onednn"
    assert rounding.chosen(symmetric, 101) == rounding.chosen(shifted, 1) == "fbgemm"
    assert rounding.chosen(symmetric, 1, [0, 1]) == "fbgemm"


def test_refuses_a_rounding_that_is_not_there() -> None:
    x, weight, scales, bias = operands(False)
    zero = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="rounding must be one of zeropoint, fbgemm, qnnpack, onednn, got 'gemmlowp'"):
        torch.ops.zeropoint.linear(x, 1.0, 0, weight, scales, zero, bias, 1.0, 0, "gemmlowp")
