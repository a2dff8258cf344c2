"""Bias correction: after it, the mean of every channel is that of the float model, up to rounding."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import zeropoint
import zeropoint.nn.quantized as nnq
from zeropoint.compat.numeric_suite import Shadow
from zeropoint.compat.numeric_suite.bias_correction import MeanShadowLogger, bias_correction


def models(bias: bool = True) -> tuple[nn.Module, nn.Module, list[tuple[torch.Tensor, int]]]:
    """A small network, its quantized form with coarse weights, and batches with labels."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 5, bias=bias))
    model = zeropoint.QuantWrapper(layers).eval()
    batches = [(torch.randn(16, 3, 6, 6) + 1, 0) for _ in range(4)]
    model.qconfig = zeropoint.QConfig(
        activation=zeropoint.default_histogram_observer,
        # 16 steps for a weight: enough is lost to be corrected
        weight=zeropoint.MinMaxObserver.with_args(
            dtype=zeropoint.qint8, qscheme=zeropoint.per_tensor_symmetric, quant_min=-8, quant_max=7
        ),
    )
    prepared = zeropoint.prepare(model)
    for x, _ in batches:
        prepared(x)
    return model, zeropoint.convert(prepared), batches


def mean_errors(
    model: nn.Module, quantized: nn.Module, batches: list[tuple[torch.Tensor, int]]
) -> tuple[torch.Tensor, float]:
    """How far the mean of every output is from that of the float model, and the step of the outputs."""
    differences = torch.cat([quantized(x) - model(x).detach() for x, _ in batches])
    layer = quantized.module[3]
    layer = layer.orig_module if isinstance(layer, Shadow) else layer
    return differences.mean(0).abs(), float(layer.scale)


def test_the_mean_error_comes_down_to_rounding() -> None:
    model, quantized, batches = models()
    before, step = mean_errors(model, quantized, batches)
    assert before.max() > step
    bias_correction(model, quantized, batches)
    after, step = mean_errors(model, quantized, batches)
    # Results are rounded to the nearest step; what is not uniform within one step may stay.
    assert after.max() <= 0.5 * step


def test_every_listed_layer_is_corrected_and_no_other() -> None:
    model, quantized, batches = models()
    before = copy.deepcopy(quantized)
    bias_correction(model, quantized, batches, target_modules={nnq.Linear})
    assert torch.equal(quantized.module[0].orig_module.bias(), before.module[0].bias())
    assert not torch.equal(quantized.module[3].orig_module.bias(), before.module[3].bias())


def test_weights_stay_as_they_are() -> None:
    model, quantized, batches = models()
    before = copy.deepcopy(quantized)
    bias_correction(model, quantized, batches)
    for place in (0, 3):
        weight, expected = quantized.module[place].orig_module.weight(), before.module[place].weight()
        assert torch.equal(weight.int_repr(), expected.int_repr())


def test_only_so_many_batches_are_used() -> None:
    model, quantized, batches = models()
    again = copy.deepcopy(quantized)
    bias_correction(model, quantized, batches, neval_batches=1)
    bias_correction(model, again, batches[:1])
    assert torch.equal(quantized.module[3].orig_module.bias(), again.module[3].orig_module.bias())


@pytest.mark.parametrize("of_float", [False, True])
def test_means_are_kept_over_all_calls(of_float: bool) -> None:
    logger, values = MeanShadowLogger(), [torch.full((2, 3), v) for v in (1.0, 2.0, 6.0)]
    for value in values:
        logger(*((torch.zeros(2, 3), value) if of_float else (value, torch.zeros(2, 3))))
    assert torch.equal(logger.stats["float" if of_float else "quantized"], torch.full((2, 3), 3.0))
    logger.clear()
    assert logger.stats["float"] is None
    assert logger.count == 0
