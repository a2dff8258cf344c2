"""End to end: a network with residual blocks, trained on digits, quantized after training and in training."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import zeropoint
from zeropoint import demo_digits
from zeropoint.demo_digits import accuracy, digits, train

POINTS = 0.005  # of accuracy that quantization may cost


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    model = demo_digits.trained()
    assert accuracy(model) > 0.97, "the network should have learned its task"
    return model


@pytest.mark.parametrize("engine", ["native", "fbgemm", "qnnpack"])
def test_calibration_keeps_the_accuracy(trained: nn.Module, engine: str) -> None:
    images = digits()[0]
    model = zeropoint.auto_fuse(trained, (images[:2],))
    model.qconfig = zeropoint.get_default_qconfig(engine)
    prepared = zeropoint.prepare(model, example_inputs=(images[:2],))
    with torch.no_grad():
        for batch in images[:512].split(128):
            prepared(batch)
    assert accuracy(zeropoint.convert(prepared)) >= accuracy(trained) - POINTS


# A float sum that lies on the border between two steps may fall to the other side than the exact sum of integers. With
# scales for each channel and 7 bits, one such value of an early layer can move a logit by two steps.
@pytest.mark.parametrize(("engine", "steps"), [("native", 1), ("fbgemm", 2), ("qnnpack", 1)])
def test_what_was_trained_is_what_is_deployed(trained: nn.Module, engine: str, steps: int) -> None:
    images = digits()[2]
    model = zeropoint.auto_fuse(copy.deepcopy(trained).train(), (images[:2],))
    model.qconfig = zeropoint.get_default_qat_qconfig(engine)
    prepared = zeropoint.prepare_qat(model)
    train(prepared, epochs=1, rate=0.001)
    prepared.eval().apply(zeropoint.disable_observer)
    converted = zeropoint.convert(prepared)
    assert accuracy(converted) >= accuracy(trained) - POINTS
    with torch.no_grad():
        simulated, deployed = prepared(images), converted(images)
    apart = ((simulated - deployed).abs() / converted.fc.scale).round()
    assert apart.max() <= steps
    assert (apart == 0).float().mean() >= 0.99
    assert torch.equal(simulated.argmax(1), deployed.argmax(1))
