"""Channels that are far larger than the others, divided before an input is rounded."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.graph.passes.equalize import ChannelStatistics
from zeropoint.observers import MinMaxObserver

ours = torch.ops.zeropoint


class Outlying(nn.Module):
    """Two linear layers behind a layer norm with two channels that are much larger than the others."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.first, self.second = nn.Linear(64, 48), nn.Linear(64, 48)
        with torch.no_grad():
            self.norm.weight[[5, 40]] = 40.0

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return torch.cat([self.first(x), self.second(x), x], -1)


@pytest.fixture(scope="module")
def outlying():
    torch.manual_seed(0)
    return Outlying().eval(), [torch.randn(8, 16, 64) for _ in range(3)]


def calls(quantized, op) -> int:
    return sum(node.target is op for node in quantized.graph_module.graph.nodes)


def prepared(outlying, equalize_channels: bool):
    model, batches = outlying
    mapping = zeropoint.QConfigMapping().set_global(zeropoint.default_per_channel_qconfig)
    mapping.set_object_type(nn.LayerNorm, None).set_object_type(torch.cat, None)
    made = zeropoint.prepare_graph(model, mapping, (batches[0],), equalize_channels=equalize_channels)
    with torch.no_grad():
        for batch in batches[:2]:
            made(batch)
    return made


def test_equalized_layers_are_nearer_to_float(outlying):
    model, batches = outlying
    with torch.no_grad():
        wanted = model(batches[2])[..., :96]
        plain, equal = (
            (zeropoint.convert_graph(prepared(outlying, on))(batches[2])[..., :96] - wanted).square().mean()
            for on in (False, True)
        )
    assert equal * 8 < plain


def test_division_is_part_of_quantize(outlying):
    model, batches = outlying
    quantized = zeropoint.convert_graph(prepared(outlying, True))
    assert calls(quantized, ours.quantize_per_channel.default) == 1
    assert calls(quantized, ours.quantize_per_tensor.default) == 0
    assert calls(quantized, torch.ops.aten.mul.Tensor) == 0
    assert not any("equalized" in name or "channels" in name for name, _ in quantized.named_parameters())
    with torch.no_grad():
        floats = quantized(batches[2])[..., 96:]
        torch.testing.assert_close(floats, model.norm(batches[2]))  # who reads floats is not divided


def test_reference_rounds_the_same_values(outlying):
    made = prepared(outlying, True)
    x = outlying[1][2]
    with torch.no_grad():
        fused, reference = zeropoint.convert_graph(made)(x), zeropoint.convert_graph(made, debug=True)(x)
    torch.testing.assert_close(fused, reference, rtol=1e-5, atol=1e-4)


def test_without_large_channels_nothing_is_divided():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32)).eval(), torch.randn(64, 32)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert calls(quantized, ours.quantize_per_channel.default) == 0


def test_saved_and_copied_before_conversion(outlying):
    made = prepared(outlying, True)
    x = outlying[1][2]
    with torch.no_grad():
        assert torch.equal(zeropoint.convert_graph(copy.deepcopy(made))(x), zeropoint.convert_graph(made)(x))
    again = prepared(outlying, True)
    again.load_state_dict(made.state_dict())
    with torch.no_grad():
        assert torch.equal(zeropoint.convert_graph(again)(x), zeropoint.convert_graph(made)(x))


def test_never_calibrated_says_so(outlying):
    model, batches = outlying
    mapping = zeropoint.get_default_qconfig_mapping("native")
    made = zeropoint.prepare_graph(model, mapping, (batches[0],), equalize_channels=True)
    with pytest.raises(ValueError, match="saw no data"):
        zeropoint.convert_graph(made)


def test_statistics_do_not_depend_on_batches():
    x = torch.randn(10, 6)
    whole, parts = (ChannelStatistics(MinMaxObserver(), 6) for _ in range(2))
    whole(x)
    for part in (x[:3], x[3:3], x[3:]):
        parts(part)
    for name in ("low", "high", "mean_square", "rows"):
        torch.testing.assert_close(getattr(whole, name), getattr(parts, name))


def test_factors_are_powers_of_two_and_never_enlarge():
    torch.manual_seed(0)
    watched = ChannelStatistics(MinMaxObserver(), 100)
    x = torch.randn(50, 100)
    x[:, 7] *= 60
    watched(x)
    factors = watched.factors([torch.randn(20, 100)])
    assert factors[7] > 8
    assert torch.equal(factors, torch.exp2(torch.log2(factors).round()))
    assert (factors >= 1).all()
    assert (factors > 1).sum() <= 3
