"""Packed weights of 8 and 4 bits: quantized from floats, taken from quantized tensors, unpacked, copied, saved."""

from __future__ import annotations

import pytest
import torch
from saving import ways
from strategies import assert_same, generator

import zeropoint
from zeropoint.numerics.packing import unpack
from zeropoint.qfunctions import (
    WeightOnlyPackedParams,
    weight_only_linear,
    weight_only_linear_relu,
    weight_only_prepack,
    weight_only_unpack,
)


def floats(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator(seed))


bits = pytest.mark.parametrize("bits", [8, 4])
symmetric = pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "affine"])
group_sizes = pytest.mark.parametrize("group_size", [0, 8, 32, 64])


@bits
@symmetric
@group_sizes
@pytest.mark.parametrize("k", [1, 63, 64, 65, 200])
def test_quantized_weight_is_within_half_a_step(bits, symmetric, group_size, k):
    weight, bias = floats(0, 5, k), floats(1, 5)
    p = weight_only_prepack(weight, bias, bits, group_size, symmetric)
    back, found = weight_only_unpack(p)
    scale, zero_point = p.qparams()
    size = group_size or k
    groups = -(-k // size) if size < k else 1
    assert scale.shape == (5, groups)
    assert (zero_point is None) == symmetric
    steps = scale.repeat_interleave(size, 1)[:, :k]
    # Symmetric ranges have one step less above 0 than below.
    assert ((back - weight).abs() <= steps * (1.001 if symmetric else 0.501)).all()
    assert torch.equal(found, bias)
    x = floats(2, 3, k)
    want = x.double() @ back.double().t() + bias.double()
    assert ((weight_only_linear(x, p) - want).abs() <= 1e-5 * (x.double().abs() @ back.double().abs().t() + 1)).all()


@bits
def test_stored_integers_are_those_of_the_formula(bits):
    weight = floats(3, 4, 32)
    p = weight_only_prepack(weight, bits=bits, group_size=16)
    parts = weight.reshape(4, 2, 16)
    scale = parts.abs().amax(2) / ((2**bits - 1) / 2)
    assert torch.equal(p.qparams()[0], scale)
    q = torch.round(parts * (1 / scale)[..., None]).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).reshape(4, 32)
    stored = unpack(p.int_repr(), 32, 4).to(torch.int64) - 8 if bits == 4 else p.int_repr()
    assert torch.equal(stored.to(torch.float32), q)


@pytest.mark.parametrize("dtype", ["qint8", "quint8"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per channel"])
def test_quantized_tensor_is_taken_as_it_is(dtype, per_channel):
    weight = floats(4, 6, 20)
    kind = getattr(zeropoint, dtype)
    zero = 3 if dtype == "qint8" else 120
    if per_channel:
        scales, zeros = torch.linspace(0.01, 0.03, 6), torch.arange(6) + zero
        q = zeropoint.quantize_per_channel(weight, scales, zeros, 0, kind)
    else:
        q = zeropoint.quantize_per_tensor(weight, 0.02, zero, kind)
    p = weight_only_prepack(q)
    assert_same(p.int_repr(), q.int_repr())
    torch.testing.assert_close(p.unpack()[0], q.dequantize())
    x = floats(5, 3, 20)
    torch.testing.assert_close(weight_only_linear(x, p), x @ q.dequantize().t())


@pytest.mark.parametrize("k", [20, 21])
def test_4bit_tensor_with_float_zero_points_is_taken_as_it_is(k):
    weight = floats(6, 6, k)
    scales, zeros = torch.linspace(0.2, 0.4, 6), torch.linspace(6.5, 8.5, 6)
    q = zeropoint.quantize_per_channel(weight, scales, zeros, 0, zeropoint.quint4x2)
    p = weight_only_prepack(q)
    torch.testing.assert_close(p.unpack()[0], q.dequantize())
    x = floats(7, 3, k)
    torch.testing.assert_close(weight_only_linear(x, p), x @ q.dequantize().t())


@bits
def test_operator_gives_the_same_bytes(bits):
    weight, bias, x = floats(8, 40, 96), floats(9, 40), floats(10, 5, 96)
    p = weight_only_prepack(weight, bias, bits, 32, symmetric=False)
    arguments = x, p.int_repr(), *p.qparams(), bias, 32
    ours = torch.ops.zeropoint
    assert_same(
        weight_only_linear(x, p),
        (ours.weight_only_linear_4bit if bits == 4 else ours.weight_only_linear)(*arguments),
    )


def test_relu_and_bfloat16():
    p = weight_only_prepack(floats(11, 8, 16), floats(12, 8))
    x = floats(13, 4, 16)
    assert torch.equal(weight_only_linear_relu(x, p), weight_only_linear(x, p).relu())
    narrow = x.to(torch.bfloat16)
    assert_same(weight_only_linear(narrow, p), weight_only_linear(narrow.float(), p).to(torch.bfloat16))


@bits
@symmetric
@ways
def test_copy_and_file_give_the_same_bytes(bits, symmetric, way):
    p = weight_only_prepack(floats(14, 9, 21), floats(15, 9), bits, 8, symmetric)
    back, x = way(p), floats(16, 3, 21)
    assert type(back) is WeightOnlyPackedParams
    assert (back.bits, back.inputs, back.group_size) == (bits, 21, 8)
    assert_same(weight_only_linear(x, back), weight_only_linear(x, p))
    assert_same(back.int_repr(), p.int_repr())
    assert back.int_repr().data_ptr() != p.int_repr().data_ptr()


def test_packed_weight_does_not_follow_its_source(isa):
    weight, bias = torch.ones(2, 8, dtype=torch.int8), torch.ones(2)
    p = WeightOnlyPackedParams(weight, torch.ones(1), None, bias)
    weight.zero_()
    bias.zero_()
    assert torch.equal(weight_only_linear(torch.ones(1, 8), p), torch.full((1, 2), 9.0))
    with zeropoint.use_isa("reference"):
        assert torch.equal(weight_only_linear(torch.ones(1, 8), p), torch.full((1, 2), 9.0))


def test_empty_weight():
    assert weight_only_linear(torch.ones(2, 0), weight_only_prepack(torch.ones(3, 0))).shape == (2, 3)
    assert weight_only_linear(torch.ones(2, 4), weight_only_prepack(torch.ones(0, 4), bits=4)).shape == (2, 0)


def test_refuses_what_it_cannot_pack():
    with pytest.raises(TypeError, match=r"float or a quantized tensor, got torch\.int8"):
        weight_only_prepack(torch.zeros(2, 3, dtype=torch.int8))
    with pytest.raises(ValueError, match=r"\(outputs, inputs\), got shape \(3,\)"):
        weight_only_prepack(torch.zeros(3))
    with pytest.raises(ValueError, match="bits must be 8 or 4, got 3"):
        weight_only_prepack(torch.zeros(2, 3), bits=3)
    with pytest.raises(ValueError, match="bits must be 8 or 4, got 2"):
        WeightOnlyPackedParams(torch.zeros(2, 3, dtype=torch.int8), torch.ones(1), bits=2)
    with pytest.raises(ValueError, match="multiple of 8"):
        weight_only_prepack(torch.zeros(2, 64), group_size=12)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="must be finite"):
            weight_only_prepack(torch.tensor([[bad, 1.0]]))
    q = zeropoint.quantize_per_tensor(torch.zeros(2, 8), 0.1, 0, zeropoint.qint8)
    with pytest.raises(ValueError, match="already quantized"):
        weight_only_prepack(q, group_size=8)
    with pytest.raises(TypeError, match="got qint32"):
        weight_only_prepack(zeropoint.quantize_per_tensor(torch.zeros(2, 8), 0.1, 0, zeropoint.qint32))
    columns = zeropoint.quantize_per_channel(
        torch.zeros(2, 8), torch.ones(8), torch.zeros(8, dtype=torch.int64), 1, zeropoint.qint8
    )
    with pytest.raises(ValueError, match="axis 0, got axis 1"):
        weight_only_prepack(columns)
    with pytest.raises(ValueError, match=r"does not fit weight of shape \(2, 8\)"):
        weight_only_linear(torch.zeros(1, 7), weight_only_prepack(torch.zeros(2, 8)))
