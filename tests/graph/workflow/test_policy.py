"""The policy of to_int8: chosen from what a graph shows, shown, changed field by field, and the same everywhere."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from signal_to_noise import sqnr_of
from torch import Tensor, nn

import zeropoint
from zeropoint.graph.policy import choose_policy, evidence_in
from zeropoint.graph.to_int8 import prepare_int8
from zeropoint.graph.workflow import float_graph
from zeropoint.observers import WidenedHistogramObserver


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    """A transformer block whose norms have two large channels."""

    def __init__(self, norm: Any = nn.LayerNorm, fused: bool = True) -> None:
        super().__init__()
        self.first, self.second, self.fused = norm(64), norm(64), fused
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        with torch.no_grad():
            for each in (self.first, self.second):
                each.weight[[5, 40]] = 40.0

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = torch.softmax(q @ k.transpose(-2, -1) / 4, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return self.conv(x) + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


TOKENS = [torch.randn(4, 12, 64, generator=torch.Generator().manual_seed(i)) for i in range(3)]
IMAGES = [torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(i)) for i in range(3)]


def made(kind: Any, *args: Any) -> nn.Module:
    torch.manual_seed(0)
    return kind(*args).eval()


@pytest.mark.parametrize(
    ("model", "x", "norm_to_linear", "attention"),
    [
        (made(Block), TOKENS[0], True, True),
        (made(Block, RMSNorm, False), TOKENS[0], True, True),
        (made(Block, nn.RMSNorm), TOKENS[0], True, True),
        (made(ConvNeXt), IMAGES[0], True, False),
        (nn.Sequential(nn.Conv2d(16, 4, 3), nn.GroupNorm(1, 4), nn.ReLU()).eval(), IMAGES[0], False, False),
        (nn.Sequential(nn.Linear(64, 8), nn.Softmax(-1)).eval(), TOKENS[0], False, False),
        (nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)).eval(), TOKENS[0], False, False),
    ],
    ids=["transformer", "own RMSNorm", "nn.RMSNorm", "ConvNeXt", "ConvNet", "classifier", "norm at the end"],
)
def test_evidence(model, x, norm_to_linear, attention):
    graph = float_graph(model, (x,))
    found = evidence_in(graph)
    assert (found.norm_to_linear, found.attention) == (norm_to_linear, attention)
    policy = choose_policy(graph)
    assert policy.equalize is policy.float_norms is norm_to_linear
    assert ("softmax" in dict(policy.float_operators)) is attention
    assert {"rsqrt", "reciprocal", "exp", "log", "pow"} <= set(dict(policy.float_operators))


def decibels(model: nn.Module, data: list[Tensor], *args: Any, **kwargs: Any) -> float:
    quantized = zeropoint.to_int8(model, (data[0],), data, *args, progress=False, **kwargs)
    return sqnr_of(model, quantized, data)


@pytest.mark.parametrize("norm", [pytest.param(nn.LayerNorm, marks=pytest.mark.thorough), RMSNorm])
def test_policy_does_not_depend_on_how_the_default_was_given(norm):
    model = made(Block, norm)
    best = decibels(model, TOKENS)
    assert best > decibels(model, TOKENS, policy={"equalize": False}) + 3
    for qconfig in (zeropoint.get_default_qconfig("native"), zeropoint.get_default_qconfig_mapping("native")):
        assert decibels(model, TOKENS, qconfig) == best
    kept = zeropoint.get_default_qconfig_mapping("native").set_module_name("out", None)
    assert decibels(model, TOKENS, kept) >= best - 0.5


def test_sensitivity_measures_what_to_int8_makes():
    model = made(Block)
    quantized = zeropoint.to_int8(model, (TOKENS[0],), TOKENS, progress=False)
    found = zeropoint.sensitivity(model, TOKENS, progress=False)
    whole = zeropoint.compare(model, quantized, TOKENS, progress=False).sqnr
    assert found.rows[0].cumulative == pytest.approx(whole, abs=1e-3)


def test_rows_say_why_they_are_float_and_the_summary_shows_the_policy():
    quantized = zeropoint.to_int8(made(Block), (TOKENS[0],), TOKENS, progress=False)
    (first, _), softmax = quantized.summary().of("layer_norm"), quantized.summary().of("softmax")
    assert first.reason.startswith("a norm before linear layers")
    assert softmax[0].reason.startswith("between the layers of a transformer")
    assert "policy: float rsqrt" in str(quantized.summary())
    assert "equalize=True" in str(quantized.summary())


def test_fields_can_be_changed():
    model = made(Block)
    policy = choose_policy(float_graph(model, (TOKENS[0],)))
    whole = dataclasses.replace(policy, float_operators=(), float_norms=False)
    summary = zeropoint.to_int8(model, (TOKENS[0],), TOKENS, policy=whole, progress=False).summary()
    assert summary.of("softmax")[0].precision == summary.of("gelu")[0].precision == "int8"
    assert summary.of("layer_norm")[1].precision == "int8"


@pytest.mark.parametrize(
    ("policy", "error"), [({"equalise": True}, ValueError), (True, TypeError), ({"embedding_bits": 2}, ValueError)]
)
def test_wrong_fields_are_refused(policy, error):
    with pytest.raises(error, match=r"[Pp]olicy"):
        zeropoint.to_int8(made(Block), (TOKENS[0],), TOKENS, policy=policy, progress=False)


def test_a_rule_for_an_operator_is_stronger_than_the_policy():
    rule = zeropoint.get_default_qconfig_mapping("native")
    rule.set_object_type(torch.add, rule.global_qconfig)
    summary = zeropoint.to_int8(made(Block), (TOKENS[0],), TOKENS, rule, progress=False).summary()
    assert not any(row.reason.startswith("between the layers") for row in summary.of("add"))


@pytest.mark.parametrize("after", ["nothing", "log_softmax", "sum", "image"])
def test_results_that_the_model_returns_are_not_rounded(after):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last, self.other = nn.Linear(6, 16), nn.Linear(16, 5), nn.Conv2d(1, 1, 1)

        def forward(self, x, image):
            y = self.last(torch.tanh(self.first(x)))
            if after == "log_softmax":
                return y.view(-1, 5).log_softmax(-1)
            if after == "image":
                return self.other(image) + y[:, None, None]
            return y - y.mean(-1, keepdim=True) if after == "sum" else y

    torch.manual_seed(0)
    model, x, image = Last().eval(), torch.randn(64, 6), torch.randn(64, 1, 3, 5)
    inputs = (x, image)
    given, rounded = (
        zeropoint.to_int8(model, inputs, [inputs], policy={"float_outputs": wanted}, progress=False)
        for wanted in (True, False)
    )
    assert all(row.precision == "int8" for row in given.summary().of("linear"))
    if after == "image":  # a sum of images is quicker on integers
        assert torch.equal(given(*inputs), rounded(*inputs))
        return
    expected = model(*inputs)
    assert (given(*inputs) - expected).norm() < (rounded(*inputs) - expected).norm()
    assert torch.equal(zeropoint.compile(given, inputs)(*inputs), given(*inputs))


class Spectrum(nn.Module):
    """The magnitudes of two filter banks, one on what the other leaves, and a layer behind their logarithm."""

    def __init__(self):
        super().__init__()
        self.filters, self.lower = nn.Conv1d(1, 8, 16, 4), nn.Conv1d(1, 1, 3, stride=2, padding=1)
        self.last = nn.Conv1d(4, 4, 3)

    def forward(self, x):
        low = self.lower(x)
        parts = torch.cat([self.filters(x)[..., :100], self.filters(low)[..., :100] * 0.1], -1)
        return self.last(((parts * parts).unflatten(1, (4, 2)).sum(2) + 1e-6).log())


@pytest.mark.parametrize("loud", [1.0, 0.01])
def test_filters_of_a_spectrum_take_ranges_from_each_input(loud):
    torch.manual_seed(0)
    model, batches = Spectrum().eval(), [torch.randn(2, 1, 1000) for _ in range(4)]
    quantized = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
    ways = {row.path: row.precision for row in quantized.summary().of("conv1d")}
    assert ways == {"filters": "int8, dynamic", "lower": "int8, dynamic", "last": "int8"}
    assert {row.precision for row in quantized.summary().rows if row.operator in ("cat", "mul")} == {"float32"}
    rounded = zeropoint.to_int8(model, (batches[0],), batches, policy={"float_readers": False}, progress=False)
    assert {row.precision for row in rounded.summary().of("conv1d")} == {"int8"}
    x = torch.randn(2, 1, 1000) * loud
    losses = [(made(x) - model(x)).norm() for made in (quantized, rounded)]
    assert losses[0] < losses[1] / 2
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))


def test_a_norm_in_parts_over_any_axis_is_not_rounded_on_the_way():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 1)

        def forward(self, x):
            x = self.first(x)
            mean = x.sum(2, keepdim=True) / x.shape[2]
            spread = (x * x).sum(2, keepdim=True) / x.shape[2] - mean * mean
            return self.last((x - mean) * torch.sqrt(spread + 1e-6).reciprocal())

    torch.manual_seed(0)
    batches = [torch.randn(2, 4, 50) for _ in range(3)]
    summary = zeropoint.to_int8(Normed().eval(), (batches[0],), batches, progress=False).summary()
    assert {row.precision for row in summary.rows if row.operator in ("mul", "add", "div")} == {"float32"}
    assert {row.precision for row in summary.of("conv1d")} == {"int8"}


def test_convolutions_with_layer_norm_keep_their_sums_in_integers():
    summary = zeropoint.to_int8(made(ConvNeXt), (IMAGES[0],), IMAGES, progress=False).summary()
    assert summary.of("layer_norm")[0].precision == "float32"
    assert summary.of("add")[0].precision == "int8"


@pytest.mark.parametrize("weights", ["int8", "float16", "auto"])
def test_recurrent_weights(weights):
    model, x = nn.LSTM(8, 8).eval(), torch.randn(5, 2, 8)
    made = zeropoint.to_int8(model, (x,), mode="dynamic", policy={"recurrent_weights": weights}, progress=False)
    assert made.summary().rows[0].precision == ("float16 weights" if weights == "float16" else "int8, dynamic")


# ------------------------------------------------------------------------------------------------------- calibration


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def test_static_without_calibration_warns():
    with pytest.warns(UserWarning, match=r"no calibration: .* Pass calibration=\[\.\.\.\]"):
        zeropoint.to_int8(layers(), (torch.randn(2, 4),), progress=False)


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_constant_calibration_warns(value):
    batches = [torch.full((2, 4), value)] * 2
    with pytest.warns(UserWarning, match=rf"constant \(input is {value:g} everywhere\)"):
        zeropoint.to_int8(layers(), (batches[0],), batches, progress=False)


def test_usual_calibration_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        zeropoint.to_int8(layers(), (torch.zeros(2, 4),), [torch.randn(2, 4)], progress=False)


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        ((torch.ones(2, 4), torch.tensor([0, 1])), r"it has 2 values, the model takes 1 \(input\).*inputs and labels"),
        (torch.ones(2, 4).numpy(), r"input is a numpy ndarray of shape \(2, 4\), float32: pass torch.from_numpy"),
        (torch.tensor([[1.0, torch.inf, 0, 0]]), "input contains Inf"),
        (torch.tensor([[1.0, -torch.inf, 0, 0]]), "input contains Inf"),
        (torch.tensor([[1.0, torch.nan, 0, 0]]), "input contains NaN"),
    ],
    ids=["label", "numpy", "Inf", "-Inf", "NaN"],
)
def test_what_is_wrong_with_a_batch_is_named(batch, why):
    with pytest.raises(ValueError, match=f"calibration batch 1 does not fit the model: {why}"):
        zeropoint.to_int8(layers(), (torch.ones(2, 4),), [torch.ones(2, 4), batch], progress=False)


def _observers(policy):
    prepared, _ = prepare_int8(nn.Linear(4, 2).eval(), (torch.ones(1, 4),), None, "static", policy)
    return [m for m in prepared.graph_module.modules() if isinstance(m, WidenedHistogramObserver)]


@pytest.mark.parametrize("whole", [True, False])
def test_whole_ranges_reach_the_observers(whole):
    found = _observers({"whole_ranges": whole})
    assert found
    assert all(observer.whole is whole for observer in found)


def test_ranges_that_are_not_widened_are_those_of_the_default_observer():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Linear(4, 2).eval()
    plain = zeropoint.prepare_graph(model, zeropoint.get_default_qconfig_mapping("native"), (x,))
    plain(x)
    expected = zeropoint.convert_graph(plain)
    quantized = zeropoint.to_int8(
        model, (x,), [x], policy={"widen_ranges": False, "float_outputs": False}, progress=False
    )
    assert torch.equal(quantized(x), expected(x))
    assert not _observers({"widen_ranges": False})
    assert all(observer.many == 0 for observer in _observers({"widen_ranges": False, "whole_ranges": True}))


def test_values_beyond_a_small_calibration_are_not_clipped():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
    few, many = [torch.randn(6, 6) for _ in range(2)], torch.randn(500, 6)
    quantized = zeropoint.to_int8(model, (few[0],), few, progress=False)
    with torch.no_grad():
        expected = model(many)
        error = quantized(many) - expected
    # 12 results show less than half of the range of 500: clipped, they would leave 15 dB.
    assert 10 * (expected.square().sum() / error.square().sum()).log10() > 25


@pytest.mark.parametrize("size", [1e-5, 1e-9, 1e-14])
def test_values_that_fade_are_not_rounded_to_zero(size):
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 16, 3, bias=False), nn.Conv2d(16, 16, 3, bias=False), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(*layers, nn.Linear(256, 8, bias=False)).eval()
    x = torch.randn(8, 3, 8, 8) * size
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert (quantized(x) - model(x)).norm() < 0.05 * model(x).norm()
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))
