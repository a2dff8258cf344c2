"""Learned and Hessian-based rounding: nearer to the float model than rounding to the nearest, and deployed as it is."""

from __future__ import annotations

import copy
import functools
import importlib

import pytest
import torch
from signal_to_noise import sqnr_of
from torch import nn

import zeropoint
from zeropoint.accuracy import adaround, correct_biases, gptq, layers_of
from zeropoint.accuracy.gptq import _greedy, _Weights, hessian
from zeropoint.accuracy.recipe import Bench, Recipe

gptq_file = importlib.import_module("zeropoint.accuracy.gptq")
ALGORITHMS = (gptq, functools.partial(adaround, steps=400))
NAMES = ("gptq", "adaround")
FOUR_BITS = zeropoint.float_qparams_weight_only_qconfig_4bit
COARSE = zeropoint.QConfig(
    activation=zeropoint.default_histogram_observer,
    # 16 steps for a weight, so that rounding is what loses most
    weight=zeropoint.PerChannelMinMaxObserver.with_args(
        dtype=zeropoint.qint8, qscheme=zeropoint.per_channel_symmetric, quant_min=-8, quant_max=7
    ),
)


def network() -> nn.Module:
    """A convolution, a depthwise one, a pointwise one and a linear layer."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(),
        nn.Conv2d(8, 16, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 16, 10),
    ).eval()  # fmt: skip


def images(count: int = 4, seed: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(8, 3, 6, 6, generator=generator) + 1 for _ in range(count)]


def one_layer(weight: list[float], x: torch.Tensor) -> tuple[nn.Module, zeropoint.graph.workflow.Quantized]:
    """A linear layer with one output and weights of 4 bits whose step is 1."""
    model = nn.Sequential(nn.Linear(len(weight), 1, bias=False)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([weight]))
    return model, zeropoint.to_int8(model, (x,), qconfig=FOUR_BITS, mode="weight_only", progress=False)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=NAMES)
def test_inputs_that_are_the_same_share_what_rounding_loses(algorithm):
    # The range 0 to 15 makes the step 1. The first two inputs are always equal, so only the sum of their weights
    # counts: 0.4 + 0.3 is nearer to 1 + 0 than to 0 + 0.
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1] = x[:, 0]
    model, quantized = one_layer([0.4, 0.3, 15.0], x)
    [nearest] = [layer.integers.clone() for layer in layers_of(model, quantized, [x])]
    assert nearest.tolist() == [[0, 0, 15]]
    [change] = algorithm(model, quantized, [x])
    [found] = [layer.integers for layer in layers_of(model, quantized, [x])]
    assert sorted(found[0, :2].tolist()) == [0, 1]
    assert int(found[0, 2]) == 15
    assert change.what == "1 of 3 weights"
    # The error falls from 0.7 x to 0.3 x, with the same x.
    assert change.after - change.before == pytest.approx(20 * torch.log10(torch.tensor(7 / 3)).item(), abs=1e-3)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=NAMES)
def test_inputs_that_have_nothing_in_common_are_rounded_to_the_nearest(algorithm):
    x = 3 * torch.eye(4)
    model, quantized = one_layer([0.4, 0.6, 7.2, 15.0], x)
    [change] = algorithm(model, quantized, [x])
    assert change.what == "unchanged"
    assert change.before == change.after
    [found] = [layer.integers for layer in layers_of(model, quantized, [x])]
    assert found.tolist() == [[0, 1, 7, 15]]


FITTED = functools.partial(adaround, steps=100), gptq, correct_biases


@pytest.mark.parametrize("rows", [(24,), (6, 6), (16, 16, 16, 16)], ids=str)
@pytest.mark.parametrize("algorithm", FITTED, ids=["adaround", "gptq", "bias"])
def test_few_rows_do_not_spoil_a_layer_for_all_other_data(algorithm, rows):
    # 64 inputs that have nothing in common: rounding to the nearest is the best there is, but with fewer rows than
    # inputs there are always integers that fit these rows better.
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32)).eval()
    batches, others = [torch.randn(count, 64) for count in rows], [torch.randn(256, 64)]
    quantized = zeropoint.to_int8(model, (batches[0],), qconfig=FOUR_BITS, mode="weight_only", progress=False)
    before = sqnr_of(model, quantized, others)
    [change] = algorithm(model, quantized, batches)
    assert change.after >= change.before
    assert sqnr_of(model, quantized, others) > before - 0.1  # dB


def test_a_single_batch_is_cut_where_it_has_more_than_one_row():
    model = nn.Sequential(nn.Linear(4, 2)).eval()
    x = torch.randn(1, 8, 4)
    quantized = zeropoint.to_int8(model, (x,), qconfig=FOUR_BITS, mode="weight_only", progress=False)
    [layer] = layers_of(model, quantized, [x])
    assert torch.equal(layer.to_fit(layer.inputs)[0], x[:, :6])
    assert torch.equal(layer.to_judge(layer.inputs)[0], x[:, 6:])
    [layer] = layers_of(model, quantized, [x[:, :1]])
    assert torch.equal(layer.to_fit(layer.inputs)[0], x[:, :1])
    assert torch.equal(layer.to_judge(layer.inputs)[0], x[:, :1])


def test_inputs_that_are_all_zero_teach_nothing():
    model, quantized = one_layer([0.4, 0.3, 15.0], torch.zeros(8, 3))
    [change] = gptq(model, quantized, [torch.zeros(8, 3)])
    assert change.what == "unchanged"


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=NAMES)
def test_every_layer_comes_nearer_on_data_that_was_not_seen(algorithm):
    model, batches, others = network(), images(16), images(4, seed=2)
    quantized = zeropoint.to_int8(model, (batches[0],), batches, COARSE, progress=False)
    before = sqnr_of(model, quantized, others)
    changes = algorithm(model, quantized, batches)
    assert [change.path for change in changes] == ["0", "3", "5", "8"]
    assert all(change.after > change.before for change in changes)
    after = sqnr_of(model, quantized, others)
    assert after > before + 2  # dB


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=NAMES)
def test_the_program_has_the_tuned_integers_to_the_byte(algorithm, tmp_path):
    model, batches = network(), images()
    quantized = zeropoint.to_int8(model, (batches[0],), batches, COARSE, progress=False)
    plain = copy.deepcopy(quantized)
    algorithm(model, quantized, batches)
    program = zeropoint.compile(quantized, (batches[0],))
    program.save(tmp_path / "tuned.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "tuned.zpt")
    for x in images(2, seed=3):
        assert torch.equal(program(x), quantized(x))
        assert torch.equal(torch.from_numpy(loaded(x.numpy())), quantized(x))
        assert not torch.equal(plain(x), quantized(x))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=NAMES)
def test_modules_of_eager_mode_are_tuned_too(algorithm):
    layers = network()
    model = zeropoint.QuantWrapper(nn.Sequential(layers[0], *layers[2:])).eval()
    batches, others = images(16), images(4, seed=2)
    model.qconfig = COARSE
    prepared = zeropoint.prepare(model)
    for x in batches:
        prepared(x)
    quantized = zeropoint.convert(prepared)
    before = sqnr_of(model, quantized, others)
    changes = algorithm(model, quantized, batches)
    assert [change.path for change in changes] == ["module.0", "module.2", "module.4", "module.7"]
    assert sqnr_of(model, quantized, others) > before + 2


@pytest.mark.parametrize("mode", ["dynamic", "weight_only"])
def test_layers_on_float_activations_are_tuned(mode):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    mixed = torch.randn(6, 24)
    batches = [torch.randn(64, 6) @ mixed for _ in range(4)]
    dynamic = zeropoint.QConfig(zeropoint.per_token_dynamic_qconfig.activation, COARSE.weight)
    qconfig = dynamic if mode == "dynamic" else FOUR_BITS
    quantized = zeropoint.to_int8(model, (batches[0],), qconfig=qconfig, mode=mode, progress=False)
    changes = gptq(model, quantized, batches)
    assert len(changes) == 2
    assert all(change.after > change.before + 1 for change in changes)


def test_smaller_groups_are_nearer_and_gptq_nearer_still():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 16)).eval()
    mixed = torch.randn(32, 256)
    x = torch.randn(256, 32) @ mixed
    found = {}
    for group in (128, 32):
        qconfig = zeropoint.get_weight_only_qconfig_4bit(group)
        quantized = zeropoint.to_int8(model, (x,), qconfig=qconfig, mode="weight_only", progress=False)
        [change] = gptq(model, quantized, [x])
        found[group] = change.before, change.after
        program = zeropoint.compile(quantized, (x,))
        assert torch.equal(program(x), quantized(x))
    assert found[32][0] > found[128][0]
    assert found[128][1] > found[128][0] + 6  # dB: half the error
    assert found[32][1] > found[32][0] + 6


@pytest.mark.parametrize("group", [0, 4, 20])
def test_groups_are_multiples_of_eight(group):
    with pytest.raises(ValueError, match=f"must be a multiple of 8, got {group}"):
        zeropoint.get_weight_only_qconfig_4bit(group).weight()


def test_adaround_leaves_the_layers_to_come_when_time_is_up():
    model, batches = network(), images(1)
    quantized = zeropoint.to_int8(model, (batches[0],), batches, COARSE, progress=False)
    plain = copy.deepcopy(quantized)
    assert adaround(model, quantized, batches, seconds=0.0) == ()
    assert torch.equal(plain(batches[0]), quantized(batches[0]))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], bidirectional: bool, batch_first: bool) -> None:
        super().__init__()
        self.layers = kind(12, 16, num_layers=2, bidirectional=bidirectional, batch_first=batch_first)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
def test_matrices_of_recurrent_layers_come_nearer(kind, bidirectional, batch_first):
    torch.manual_seed(0)
    model = Recurrent(kind, bidirectional, batch_first).eval()
    mixed = torch.randn(4, 12)
    batches = [torch.randn(10, 6, 4) @ mixed for _ in range(4)]
    dynamic = zeropoint.QConfig(zeropoint.per_token_dynamic_qconfig.activation, COARSE.weight)
    policy = {"recurrent_weights": "int8"}
    quantized = zeropoint.to_int8(model, (batches[0],), None, dynamic, "dynamic", policy=policy, progress=False)
    before = sqnr_of(model, quantized, batches)
    changes = gptq(model, quantized, batches)
    assert len(changes) == (8 if bidirectional else 4)
    assert all(change.after >= change.before for change in changes)
    after = sqnr_of(model, quantized, batches)
    assert after > before + 1
    held_out = sqnr_of(model, quantized, batches[3:])
    assert changes[-1].after == pytest.approx(held_out)
    program = zeropoint.compile(quantized, (batches[0],))
    assert torch.equal(program(batches[0]), quantized(batches[0]))


def test_equalized_layers_are_tuned_as_they_are_deployed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    with torch.no_grad():
        model[0].weight[3] = 40.0  # a channel that equalization divides
    batches = [torch.randn(64, 32) for _ in range(4)]
    qconfig = zeropoint.QConfig(zeropoint.MinMaxObserver.with_args(dtype=zeropoint.quint8), COARSE.weight)
    quantized = zeropoint.to_int8(model, (batches[0],), batches, qconfig, policy={"equalize": True}, progress=False)
    layer = next(layers_of(model, quantized, batches))
    assert bool((layer.weight != model[1].weight).any())
    # With the divided inputs and the multiplied weight the float layer is what it was.
    float_result = layer.operation(layer.inputs[0], layer.weight, model[1].bias)
    assert torch.allclose(float_result, layer.wanted[0], atol=0.05 * float(layer.wanted[0].abs().max()))
    assert all(change.after >= change.before for change in gptq(model, quantized, batches))


def test_batches_beyond_the_memory_are_not_used():
    model, batches = network(), images(8)
    quantized = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
    used = iter(batches)
    assert {len(layer.inputs) for layer in layers_of(model, quantized, used, memory=1)} == {1}
    assert len(list(used)) == 7
    assert {len(layer.inputs) for layer in layers_of(model, quantized, batches)} == {8}


def test_without_a_batch_nothing_can_be_tuned():
    model, batches = network(), images(1)
    quantized = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
    with pytest.raises(ValueError, match="is empty"):
        gptq(model, quantized, [])


def test_integers_of_another_model_are_refused():
    batches = [torch.randn(4, 8)]
    first = nn.Sequential(nn.Linear(8, 4)).eval()
    second = nn.Sequential(nn.ReLU(), nn.Linear(8, 4)).eval()
    quantized = zeropoint.to_int8(first, (batches[0],), batches, progress=False)
    with pytest.raises(ValueError, match="the quantized model was made from"):
        gptq(second, quantized, batches)


def test_adaround_needs_a_step():
    model, batches = network(), images(1)
    quantized = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
    with pytest.raises(ValueError, match="steps must be positive, got 0"):
        adaround(model, quantized, batches, steps=0)


class Step(nn.Module):
    """One step of a recurrent layer."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell = kind(16, 16)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        state = self.cell(x, (h, h)) if isinstance(self.cell, nn.LSTMCell) else self.cell(x, h)
        return state[0] if isinstance(self.cell, nn.LSTMCell) else state


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_matrices_of_one_step_come_nearer(kind):
    torch.manual_seed(0)
    model, mixed = Step(kind).eval(), torch.randn(4, 16)
    batches = [(torch.randn(64, 4) @ mixed, torch.tanh(torch.randn(64, 4) @ mixed)) for _ in range(4)]
    dynamic = zeropoint.QConfig(zeropoint.per_token_dynamic_qconfig.activation, COARSE.weight)
    quantized = zeropoint.to_int8(model, batches[0], None, dynamic, "dynamic", progress=False)
    changes = gptq(model, quantized, batches)
    assert len(changes) == 2
    assert all(change.after >= change.before for change in changes)
    assert changes[-1].after > changes[0].before + 1  # dB
    program = zeropoint.compile(quantized, batches[0])
    with torch.no_grad():
        assert torch.equal(program(*batches[1]), quantized(*batches[1]))


@pytest.mark.parametrize("outputs", [1, 5])
@pytest.mark.parametrize("inputs", [1, 9, 64, 150])
def test_inputs_are_rounded_as_with_the_inverse_of_the_hessian(inputs, outputs):
    # Frantar et al., 2023: an input that is rounded moves all behind it, by its row of the factor of the inverse.
    generator = torch.Generator().manual_seed(inputs)
    x = torch.randn(2 * inputs, inputs, generator=generator, dtype=torch.float64)
    h = x.T @ x + 0.1 * torch.eye(inputs, dtype=torch.float64)
    weight = 3 * torch.randn(inputs, outputs, generator=generator)
    scale, zero_point = torch.rand(inputs, outputs, generator=generator) + 0.5, torch.full((inputs, outputs), 2.0)
    upper = torch.linalg.cholesky(torch.linalg.inv(h), upper=True)
    left, wanted = weight.double().clone(), torch.empty(inputs, outputs)
    for i in range(inputs):
        wanted[i] = (left[i] / scale[i] + zero_point[i]).round().clamp(-8, 7)
        error = (left[i] - (wanted[i] - zero_point[i]) * scale[i]) / upper[i, i]
        left[i:] -= upper[i, i:, None] * error
    one_group = (t[None] for t in (weight, scale, zero_point))
    assert torch.equal(_greedy(h[None], _Weights(*one_group, -8, 7))[0], wanted)


def test_a_layer_with_many_inputs_is_rounded_in_parts(monkeypatch):
    # A window of 64 of 128 channels has 8192 inputs: their Hessian has 512 MB, and its factor takes minutes.
    torch.manual_seed(0)
    monkeypatch.setattr(gptq_file, "_WIDEST", 48)
    model = nn.Sequential(nn.Conv1d(8, 4, 16)).eval()
    data = [torch.randn(8, 8, 60).cumsum(-1) for _ in range(4)]
    quantized = zeropoint.to_int8(model, (data[0],), data, qconfig=COARSE, progress=False)
    [wide] = layers_of(model, quantized, data)
    assert [tuple(h.shape) for h in hessian(wide, wide.inputs)] == [(1, 43, 43), (1, 43, 43), (1, 42, 42)]
    [change] = gptq(model, quantized, data)
    assert change.after > change.before + 3  # dB


def test_groups_of_a_convolution_are_rounded_together(monkeypatch):
    # One group after the other took most of the time: a depthwise layer has hundreds.
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(64, 64, 9, groups=64)).eval()
    data = [torch.randn(8, 64, 40).cumsum(-1) for _ in range(4)]
    quantized = zeropoint.to_int8(model, (data[0],), data, qconfig=COARSE, progress=False)
    calls = []
    monkeypatch.setattr(gptq_file, "_greedy", lambda *given: calls.append(given) or _greedy(*given))
    [change] = gptq(model, quantized, data)
    assert change.after > change.before + 3
    assert 1 <= len(calls) <= 3  # once for each damping, not for each group


def test_biases_are_corrected_for_the_integers_that_are_deployed():
    # `tune` tries the cheap `bias` first; weights that `gptq` changes after it would leave it with what is no more.
    batches = images()
    bench = Bench(network(), (batches[0],), batches)
    first, last = (bench.make(Recipe(names)) for names in (("bias", "gptq"), ("gptq", "bias")))
    names = [change.algorithm for change in first.changes]
    assert names == sorted(names, reverse=True)  # gptq, then bias
    assert torch.equal(first.quantized(batches[0]), last.quantized(batches[0]))
