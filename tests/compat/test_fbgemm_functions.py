"""Functions of `torch` on weights that FBGEMM packed, and the state of packed weights, against PyTorch's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import zeropoint
import zeropoint.compat
from zeropoint import qfunctions
from zeropoint.compat import fbgemm


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 10), (2, 3, 10)])
def test_linear_layers_with_float16_weights(shape: tuple[int, ...]) -> None:
    weight, x, bias = random(6, 10), random(*shape, seed=1), random(6, seed=2)
    for name in ("fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation"):
        was = getattr(torch, name)(x, torch.fbgemm_pack_gemm_matrix_fp16(weight), bias)
        now = fbgemm.fbgemm_linear_fp16_weight(x, fbgemm.fbgemm_pack_gemm_matrix_fp16(weight), bias)
        torch.testing.assert_close(now, was)


@pytest.mark.parametrize("shape", [(3, 10), (2, 3, 10)])
def test_linear_layers_with_int8_weights(shape: tuple[int, ...]) -> None:
    weight, x, bias = random(6, 10), random(*shape, seed=1), random(6, seed=2)
    old, new = torch.fbgemm_linear_quantize_weight(weight), fbgemm.fbgemm_linear_quantize_weight(weight)
    assert torch.equal(new[0], old[0])
    assert torch.equal(new[1], old[1])
    assert new[2] == pytest.approx(old[2], rel=2**-23)  # ours is a float32
    assert new[3] == old[3]
    for name in ("fbgemm_linear_int8_weight", "fbgemm_linear_int8_weight_fp32_activation"):
        was = getattr(torch, name)(x, old[0], torch.fbgemm_pack_quantized_matrix(old[0]), *old[1:], bias)
        now = fbgemm.fbgemm_linear_int8_weight(x, new[0], fbgemm.fbgemm_pack_quantized_matrix(new[0]), *new[1:], bias)
        torch.testing.assert_close(now, was)


GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


@pytest.mark.parametrize("kind", GATES)
def test_cells(kind: str) -> None:
    gates, x, hidden = GATES[kind], random(3, 5), random(3, 4, seed=1)
    biases = random(gates * 4, seed=4), random(gates * 4, seed=5)
    states = [hidden, random(3, 4, seed=2)] if kind == "lstm" else hidden

    def step(quantize: Any, pack: Any, cell: Any) -> Any:
        parts = [quantize(random(gates * 4, inputs, seed=inputs)) for inputs in (5, 4)]
        integers, sums, scales, zero_points = zip(*parts)
        packed = [pack(weight) for weight in integers]
        return cell(x, states, *integers, *biases, *packed, *sums, *scales, *zero_points)

    name = f"quantized_{kind}_cell"
    was = step(torch.fbgemm_linear_quantize_weight, torch.fbgemm_pack_quantized_matrix, getattr(torch, name))
    now = step(fbgemm.fbgemm_linear_quantize_weight, fbgemm.fbgemm_pack_quantized_matrix, getattr(fbgemm, name))
    torch.testing.assert_close(now, was)


def test_refuses_weights_that_were_not_packed() -> None:
    with pytest.raises(TypeError, match=r"takes what torch\.fbgemm_pack_gemm_matrix_fp16 gives.*got torch\.float32"):
        fbgemm.fbgemm_linear_fp16_weight(random(1, 2), random(1, 2), random(1))
    with pytest.raises(TypeError, match=r"takes what torch\.fbgemm_pack_quantized_matrix gives.*got NoneType"):
        fbgemm.fbgemm_linear_int8_weight(random(1, 2), random(1, 2), None, random(1), 1.0, 0, random(1))  # type: ignore[arg-type]


def test_refuses_sizes_that_are_not_those_of_the_weight() -> None:
    integers = fbgemm.fbgemm_linear_quantize_weight(random(6, 10))[0]
    assert fbgemm.fbgemm_pack_quantized_matrix(integers, 10, 6) is integers
    with pytest.raises(ValueError, match=r"input has shape \(6, 10\), got K=5, N=6"):
        fbgemm.fbgemm_pack_quantized_matrix(integers, 5, 6)


def test_packed_weights_tell_their_state_as_those_of_torch_ao() -> None:
    weight, bias = random(4, 1), random(4, seed=1)
    old = SimpleNamespace(ops=torch.ops.quantized, weight=torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8))
    new = SimpleNamespace(ops=qfunctions, weight=zeropoint.quantize_per_tensor(weight, 0.1, 0, zeropoint.qint8))
    found = {}
    for side in (old, new):
        ops = side.ops
        int8, half = ops.linear_prepack(side.weight, bias), ops.linear_prepack_fp16(weight, bias)
        cells = ops.make_quantized_cell_params_dynamic(int8, int8, bias, bias, True)
        halves = ops.make_quantized_cell_params_fp16(half, half)
        states = [packed.__getstate__()[0] for packed in (int8, half, cells, halves)]
        kinds = [(kind, [b.tolist() for b in biases], a, b) for kind, biases, a, b, _ in states[2:]]
        inner = [w.__getstate__()[0][0] for *_, weights in states[2:] for w in weights]
        values = [t.dequantize().tolist() for t in (states[0][0], states[1][0], *inner)]
        found[side.ops] = values, [s[1].tolist() for s in states[:2]], kinds
    assert found[qfunctions] == found[torch.ops.quantized]


def test_wrapped_linear_layers_are_those_of_the_parts(installed: None) -> None:
    x, weight, bias = random(3, 10), random(6, 10, seed=1), random(6, seed=2)
    x_qparams = torch.tensor(0.05), torch.tensor(7)
    w_qparams = torch.tensor(0.02), torch.tensor(-3)
    y_qparams = torch.tensor(0.1), torch.tensor(60)
    ops = torch.ops._quantized
    now = ops.wrapped_quantized_linear(x, *x_qparams, weight, *w_qparams, bias, *y_qparams, 6)
    packed = ops._wrapped_linear_prepack(weight, *w_qparams, bias)
    assert torch.equal(ops._wrapped_quantized_linear_prepacked(x, *x_qparams, packed, *y_qparams, 6), now)
    qx = zeropoint.quantize_per_tensor(x, *x_qparams, zeropoint.quint8)
    qw = zeropoint.quantize_per_tensor(weight, *w_qparams, zeropoint.qint8)
    expected = torch.ops.quantized.linear(qx, torch.ops.quantized.linear_prepack(qw, bias), *y_qparams)
    assert torch.equal(now, expected.dequantize())
    with pytest.raises(ValueError, match="out_channel is 5, the weight has 6"):
        ops._wrapped_quantized_linear_prepacked(x, *x_qparams, packed, *y_qparams, 5)
    with pytest.raises(ValueError, match="are no weight of"):
        ops._wrapped_quantized_linear_prepacked(x, *x_qparams, packed[:-1], *y_qparams, 6)


@pytest.mark.parametrize("bias", [None, random(6, seed=2)], ids=["no bias", "bias"])
def test_wrapped_float16_weights_compute_in_float32_and_have_shapes_for_compilers(
    installed: None, bias: Tensor | None
) -> None:
    x, weight, ops = random(3, 10), random(6, 10, seed=1), torch.ops._quantized
    packed = ops.wrapped_fbgemm_pack_gemm_matrix_fp16(weight)
    expected = torch.nn.functional.linear(x, weight.half().float(), bias)
    torch.testing.assert_close(ops.wrapped_fbgemm_linear_fp16_weight(x, packed, bias, 6), expected)
    unpacked = torch.ops.quantized.linear_dynamic_fp16_unpacked_weight
    torch.testing.assert_close(unpacked.default(x, weight, bias), expected)
    assert unpacked.default(x.to("meta"), weight.to("meta"), None).shape == expected.shape
    assert ops.wrapped_fbgemm_pack_gemm_matrix_fp16(weight.to("meta")).shape == packed.shape


@pytest.mark.oracle  # what is there again is PyTorch's
def test_private_operators_are_pytorchs_again_after_uninstall() -> None:
    weight = random(2, 3)
    was = torch.ops.aten._saturate_weight_to_fp16(weight * 1e6)
    zeropoint.compat.install()
    assert torch.equal(torch.ops.aten._saturate_weight_to_fp16(weight * 1e6), was)
    shape = torch.ops._quantized.wrapped_fbgemm_pack_gemm_matrix_fp16(weight).shape
    zeropoint.compat.uninstall()
    assert shape == (2, 3)
    assert torch.ops._quantized.wrapped_fbgemm_pack_gemm_matrix_fp16(weight).shape != (2, 3)
