"""Recurrent layers that eight bits would spoil get float16 weights, the others stay in 8 bits."""

from __future__ import annotations

import pytest
import torch
from graph_models import SpoiledRecurrent
from torch import nn

import zeropoint
from zeropoint.operators.node import arguments


def quantized_and_float(kind, spoiled, policy=None, **options):
    torch.manual_seed(0)
    model, x = SpoiledRecurrent(kind, spoiled, **options).eval(), torch.randn(7, 5, 16)
    x[..., 1] = x[..., 0]
    quantized = zeropoint.to_int8(model, (x,), policy=policy, mode="dynamic", progress=False)
    with torch.no_grad():
        return quantized, quantized(x), model(x)


def ways(quantized) -> list[str]:
    rows = [row for row in quantized.summary().rows if row.operator.startswith("quantized_")]
    return [row.precision for row in rows]


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True}, {"bias": False}], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("spoiled", [0, 1, 2])
def test_only_the_spoiled_layer_has_half_precision_weights(kind, spoiled, options):
    quantized, found, expected = quantized_and_float(kind, spoiled, **options)
    wanted = ["int8, dynamic"] * 3
    wanted[spoiled] = "float16 weights"
    assert ways(quantized) == (wanted if spoiled == 1 else [wanted[0], wanted[2]])
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.shape == other.shape
        assert (one - other).square().mean() < 0.01 * other.square().mean()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_ordinary_layers_stay_one_operator_of_eight_bits(kind):
    quantized, _, _ = quantized_and_float(kind, None)
    assert ways(quantized) == ["int8, dynamic"]


def test_reason_names_layer_and_noise():
    quantized, _, _ = quantized_and_float(nn.LSTM, 0)
    row = quantized.summary().of("quantized_lstm")[0]
    assert row.path == "recurrent"
    assert row.reason.startswith("layer 0: 8 bits would leave a signal only")


def test_a_policy_may_ask_for_eight_bits():
    quantized, _, _ = quantized_and_float(nn.LSTM, 0, policy={"recurrent_weights": "int8"})
    assert ways(quantized) == ["int8, dynamic"]


def test_static_mode_tries_on_the_first_batch():
    torch.manual_seed(0)
    model, x = SpoiledRecurrent(nn.LSTM, 0).eval(), torch.randn(7, 5, 16)
    x[..., 1] = x[..., 0]
    quantized = zeropoint.to_int8(model, (torch.zeros(7, 5, 16),), [x], progress=False)
    assert ways(quantized) == ["float16 weights", "int8, dynamic"]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_activations_have_all_eight_bits_unless_the_qconfig_reduces_their_range(kind):
    torch.manual_seed(0)
    model, x = SpoiledRecurrent(kind, None).eval(), torch.randn(7, 5, 16)
    dynamic = zeropoint.per_token_dynamic_qconfig
    reduced = zeropoint.QConfig(zeropoint.MinMaxObserver.with_args(reduce_range=True), dynamic.weight)
    weights = zeropoint.QConfig(zeropoint.MinMaxObserver, dynamic.weight)
    errors = []
    for qconfig in (weights, reduced):
        quantized = zeropoint.to_int8(model, (x,), [x], qconfig, progress=False)
        assert ways(quantized) == ["int8, dynamic"]
        with torch.no_grad():
            errors.append(float((quantized(x)[0] - model(x)[0]).square().mean()))
    assert errors[1] > 1.5 * errors[0]  # steps of twice the width, next to the same weights


def uneven(*shape: int) -> torch.Tensor:
    """Frames whose sizes differ by a factor of a thousand."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator) * 10 ** torch.linspace(-2, 1, shape[1])[:, None]


def steps_by_row(quantized) -> list[bool]:
    nodes = quantized.graph_module.graph.nodes
    return [bool(arguments(node)["per_token"]) for node in nodes if "zeropoint.quantized_" in str(node.target)]


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_every_row_has_a_range_of_its_own_unless_the_policy_or_the_qconfig_says_otherwise(kind, mode):
    torch.manual_seed(0)
    model, x = SpoiledRecurrent(kind, None).eval(), uneven(7, 5, 16)
    quantized = zeropoint.to_int8(model, (x,), [x] if mode == "static" else None, mode=mode, progress=False)
    assert steps_by_row(quantized) == [True]
    program = zeropoint.compile(quantized, (x,))
    with torch.no_grad():
        rows = quantized(x)
        assert all(map(torch.equal, program(x), rows))
        of_all = zeropoint.to_int8(model, (x,), mode="dynamic", policy={"granularity": "per_tensor"}, progress=False)
        assert steps_by_row(of_all) == [False]
        errors = [(y - model(x)[0]).square().mean() for y in (rows[0], of_all(x)[0])]
    assert errors[1] > 2 * errors[0]
    if mode == "static":
        qconfig = zeropoint.QConfig(
            zeropoint.MinMaxObserver.with_args(reduce_range=True), zeropoint.default_weight_observer
        )
        assert steps_by_row(zeropoint.to_int8(model, (x,), [x], qconfig, progress=False)) == [False]
