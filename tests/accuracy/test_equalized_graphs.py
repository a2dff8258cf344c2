"""Cross-layer equalization, bias correction and batch norms of graphs."""

from __future__ import annotations

import copy

import pytest
import torch
from few_layers import Layers
from torch import nn

import zeropoint
from zeropoint.accuracy import correct_biases, equalize_layers, layer_pairs, reestimate_batch_norms
from zeropoint.comparison.layers import compare_outputs
from zeropoint.graph.workflow import float_graph, prepare_captured


def spread_network(factors: torch.Tensor) -> nn.Module:
    """A convolution, a depthwise one and a pointwise one; the channels between the first two scaled by `factors`."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 4, 5),
    ).eval()  # fmt: skip
    with torch.no_grad():
        model[0].weight *= factors[:, None, None, None]
        model[0].bias *= factors
        model[2].weight /= factors[:, None, None, None]
    return model


def images(count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 3, 6, 6, generator=generator) for _ in range(count)]


FACTORS = 10.0 ** torch.linspace(-1.5, 1.5, 8)


def test_pairs_are_found_through_relu_pools_and_flatten():
    graph = float_graph(spread_network(FACTORS), (images()[0],))
    pairs = layer_pairs(graph)
    assert [(p.first.name, p.second.name, p.repeat) for p in pairs] == [
        ("conv2d", "conv2d_1", 1),
        ("conv2d_1", "conv2d_2", 1),
        ("conv2d_2", "linear", 4),
    ]


@pytest.mark.parametrize("between", [nn.ReLU6(), nn.Sigmoid(), nn.GELU()])
def test_functions_that_do_not_scale_stop_a_pair(between):
    model = nn.Sequential(nn.Linear(4, 4), between, nn.Linear(4, 4)).eval()
    assert layer_pairs(float_graph(model, (torch.randn(2, 4),))) == ()


def test_pairs_are_found_through_means_of_whole_channels():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
    x = torch.randn(2, 3, 5, 5)
    graph = float_graph(model, (x,))
    [change] = equalize_layers(graph, [x])
    assert change.what.startswith("4 channels")
    assert torch.allclose(graph(x), model(x), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.randn(4)),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)), torch.randn(3, 5, 5)),
        (nn.Sequential(nn.Conv1d(3, 4, 3), nn.LeakyReLU(), nn.Conv1d(4, 4, 3, groups=2)), torch.randn(2, 3, 9)),
    ],
    ids=["one row", "one image", "groups"],
)
def test_inputs_without_a_batch_and_groups_are_equalized(model, x):
    graph = float_graph(model.eval(), (x,))
    wanted = model(x)
    [change] = equalize_layers(graph, [x])
    assert "channels divided" in change.what
    assert torch.allclose(graph(x), wanted, atol=1e-5)


def test_a_value_that_somebody_else_reads_stops_a_pair():
    class Residual(Layers):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x).relu()
            return y + self.b(y)

    assert layer_pairs(float_graph(Residual(a=nn.Linear(4, 4), b=nn.Linear(4, 4)).eval(), (torch.randn(2, 4),))) == ()


def test_ranges_become_equal_and_the_float_model_stays():
    model, batches = spread_network(FACTORS), images()
    graph = float_graph(model, (batches[0],))
    wanted = model(batches[0]).detach()
    changes = equalize_layers(graph, batches)
    # Each value is a product of sums of at most 64 terms: a few roundings of float32.
    assert torch.allclose(graph(batches[0]), wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))
    first, second = (p for p in layer_pairs(graph)[:2])
    given = graph.get_parameter(str(first.first.args[1].target)).flatten(1).abs().amax(1)
    taken = graph.get_parameter(str(first.second.args[1].target)).flatten(1).abs().amax(1)
    assert torch.allclose(given, taken, rtol=1e-2)
    assert changes[0].after > changes[0].before + 20  # channels 1000 times apart had left the small ones no steps
    assert second.first is first.second


def quantized_form(graph, batches):
    prepared = prepare_captured(copy.deepcopy(graph), zeropoint.get_default_qconfig_mapping("native"), False, ())
    for batch in batches:
        prepared(batch)
    return zeropoint.convert_graph(prepared)


def test_int8_gets_back_what_spread_ranges_lost():
    batches = images(8)
    model = spread_network(FACTORS)
    plain = zeropoint.to_int8(model, (batches[0],), batches, progress=False)
    even = zeropoint.to_int8(spread_network(torch.ones(8)), (batches[0],), batches, progress=False)
    graph = float_graph(model, (batches[0],))
    equalize_layers(graph, batches)
    restored = quantized_form(graph, batches)

    def sqnr(quantized) -> float:
        return compare_outputs(model, quantized, batches).sqnr

    assert sqnr(plain) < sqnr(even) - 10
    assert sqnr(restored) > sqnr(even) - 3


def test_biases_that_no_relu_cuts_are_absorbed_exactly():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(3, 4))
        model[2].weight.copy_(torch.ones(2, 3))
        model[0].bias.copy_(torch.tensor([8.0, 0.0, -8.0]))
        model[2].bias.zero_()
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [-1.0, -2.0, -3.0, -4.0]])
    graph = float_graph(model, (x,))
    [change] = equalize_layers(graph, [x])
    # The smallest value of the first channel is 8 - 1 = 7: it moves into the next bias. All ranges are 1 already.
    assert "1 high biases absorbed" in change.what
    [pair] = layer_pairs(graph)
    assert graph.get_parameter(str(pair.first.args[2].target)).tolist() == [1.0, 0.0, -8.0]
    assert graph.get_parameter(str(pair.second.args[2].target)).tolist() == [7.0, 7.0]
    assert torch.equal(graph(x), model(x))


def test_padding_keeps_high_biases_where_they_are():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 1, 3, padding=1)).eval()
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.fill_(50.0)
    x = torch.randn(2, 1, 4, 4)
    graph = float_graph(model, (x,))
    [change] = equalize_layers(graph, [x])
    assert "absorbed" not in change.what


def test_the_mean_of_every_channel_comes_back():
    model, batches = spread_network(torch.ones(8)), images(8)
    coarse = zeropoint.QConfig(
        zeropoint.default_histogram_observer,
        zeropoint.MinMaxObserver.with_args(
            dtype=zeropoint.qint8, qscheme=zeropoint.per_tensor_symmetric, quant_min=-8, quant_max=7
        ),
    )
    quantized = zeropoint.to_int8(model, (batches[0],), batches, coarse, progress=False)

    def off() -> float:
        return float((torch.cat([quantized(x) - model(x) for x in batches]).mean(0)).abs().max())

    before = off()
    changes = correct_biases(model, quantized, batches)
    assert len(changes) == 4
    assert all(change.after >= change.before for change in changes)
    assert any(change.after > change.before for change in changes)
    assert off() < before / 4
    program = zeropoint.compile(quantized, (batches[0],))
    assert torch.equal(program(batches[0]), quantized(batches[0]))


def test_a_layer_without_a_bias_gets_one():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4, bias=False)).eval()
    batches = [torch.randn(64, 8) + 2 for _ in range(2)]
    qconfig = zeropoint.float_qparams_weight_only_qconfig_4bit
    quantized = zeropoint.to_int8(model, (batches[0],), qconfig=qconfig, mode="weight_only", progress=False)
    [change] = correct_biases(model, quantized, batches)
    assert change.after > change.before  # on the second batch
    off = (quantized(batches[0]) - model(batches[0])).mean(0)  # on the first, which it was fitted to
    assert float(off.abs().max()) < 1e-5
    program = zeropoint.compile(quantized, (batches[0],))
    assert torch.equal(program(batches[0]), quantized(batches[0]))


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_batch_norms_have_the_statistics_of_the_trained_network(mode):
    torch.manual_seed(0)
    float_model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train()
    batches = images(4)
    if mode == "graph":
        mapping = zeropoint.get_default_qat_qconfig_mapping("native")
        model = zeropoint.prepare_qat_graph(float_model, mapping, (batches[0],))
    else:
        wrapped = zeropoint.QuantWrapper(float_model)
        wrapped.qconfig = zeropoint.get_default_qat_qconfig("native")
        model = zeropoint.prepare_qat(zeropoint.auto_fuse(wrapped, (batches[0],)))
    model(batches[0])
    model.eval().apply(zeropoint.disable_observer)
    names = [name for name in model.state_dict() if name.endswith("running_mean")]
    before = model.state_dict()[names[0]].clone()
    modes = [module.training for module in model.modules()]
    assert reestimate_batch_norms(model, batches) == 1
    after = model.state_dict()[names[0]]
    assert not torch.equal(before, after)
    assert [module.training for module in model.modules()] == modes
    # The mean over all batches of what the convolution gives, without its bias or with it, up to 8 bits of its input.
    convolution = float_model[0]
    wanted = torch.stack([convolution(x).mean((0, 2, 3)) for x in batches]).mean(0)
    step = float(torch.cat(batches).abs().max()) / 127
    assert torch.allclose(after, wanted, atol=step * float(convolution.weight.abs().sum((1, 2, 3)).max()))
    # A second time gives the same, but for the weight that is rounded with the new variance.
    reestimate_batch_norms(model, batches)
    assert torch.allclose(model.state_dict()[names[0]], after, atol=step)


def test_batch_norms_need_a_batch():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    with pytest.raises(ValueError, match="is empty"):
        reestimate_batch_norms(model, [])
