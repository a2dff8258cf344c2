"""Whole workflows next to torch.ao's: the same float model, qconfig and data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from eager_models import SIDES, Mlp, seven_bits, trained_bits, twins
from torch import Tensor, nn

from zeropoint.demo_digits import CHAINS, OURS, Cnn, Library

PER_CHANNEL = pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per channel"])


def integers(q: Tensor) -> Tensor:
    return q.int_repr().to(torch.int64)


def observed(model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Name of a module -> scale and zero point of its result."""
    ends = ".activation_post_process"
    return {
        name.removesuffix(ends): m.calculate_qparams()
        for name, m in model.named_modules()
        if name.endswith(ends) and not name.endswith(ends + ends) and "weight_fake_quant" not in name
    }


def calibrated(side: Library, model: nn.Module, per_channel: bool, chains: Any, batches: list[Tensor]) -> Any:
    q = side.quantization
    fused = q.fuse_modules(model.eval(), chains) if chains else model.eval()
    fused.qconfig = seven_bits(side, per_channel)
    prepared = q.prepare(fused)
    for x in batches:
        prepared(x)
    return prepared


@PER_CHANNEL
def test_an_mlp_has_the_same_parameters_and_weights_and_results(per_channel: bool) -> None:
    batches = [torch.randn(64, 32) for _ in range(3)]
    mine, peer = (
        calibrated(side, model, per_channel, None, batches) for side, model in zip(SIDES, twins(Mlp), strict=True)
    )
    torch.testing.assert_close(observed(mine), observed(peer), rtol=0, atol=0)
    mine, peer = (side.quantization.convert(m) for side, m in zip(SIDES, (mine, peer), strict=True))
    for name in ("fc1", "fc2"):
        a, b = getattr(mine, name), getattr(peer, name)
        assert (a.scale, a.zero_point) == (b.scale, b.zero_point)
        assert torch.equal(integers(a.weight()), integers(b.weight()))
        assert torch.equal(a.bias(), b.bias())
    x = torch.randn(256, 32)
    difference = (mine(x) - peer(x)).abs() / mine.fc2.scale
    assert difference.max() < 1.01
    assert (difference < 0.01).float().mean() > 0.99


@PER_CHANNEL
def test_a_fused_cnn_has_the_same_parameters_and_weights_and_results(per_channel: bool) -> None:
    batches = [torch.randn(16, 1, 8, 8) for _ in range(3)]
    mine, peer = (
        calibrated(side, model, per_channel, CHAINS, batches) for side, model in zip(SIDES, twins(Cnn), strict=True)
    )
    torch.testing.assert_close(observed(mine), observed(peer), rtol=0, atol=0)
    mine, peer = (side.quantization.convert(m) for side, m in zip(SIDES, (mine, peer), strict=True))
    peers = dict(peer.named_modules())
    for name, m in mine.named_modules():
        assert type(m).__name__ == type(peers[name]).__name__
        if callable(getattr(m, "weight", None)):
            assert torch.equal(integers(m.weight()), integers(peers[name].weight()))
            assert torch.equal(m.bias(), peers[name].bias())
    x = torch.randn(256, 1, 8, 8)
    steps = (mine(x) - peer(x)).abs() / mine.fc.scale
    assert steps.max() < 1.01
    assert (steps < 0.01).float().mean() > 0.999


class Conv(nn.Module):
    """Convolutions with batch norm and a sum, without an average: there ours is rounded in training, theirs is not."""

    def __init__(self, side: Library) -> None:
        super().__init__()
        self.quant, self.dequant = side.quantization.QuantStub(), side.quantization.DeQuantStub()
        self.conv, self.bn, self.relu = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.add = side.nnq.FloatFunctional()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(8 * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn(self.conv(self.quant(x))))
        x = self.pool(self.add.add_relu(self.bn2(self.conv2(x)), x))
        return self.dequant(self.fc(x.flatten(1)))


@PER_CHANNEL
def test_training_goes_the_same_way(per_channel: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(16, 1, 8, 8, generator=generator), torch.randint(10, (16,), generator=generator)) for _ in range(6)
    ]
    losses, models = [], []
    for side, model in zip(SIDES, twins(Conv), strict=True):
        q = side.quantization
        fused = q.fuse_modules_qat(model.train(), [["conv", "bn", "relu"], ["conv2", "bn2"]])
        fused.qconfig = trained_bits(side, per_channel)
        prepared = q.prepare_qat(fused)
        optimizer = torch.optim.SGD(prepared.parameters(), lr=0.05)
        history = []
        for x, y in data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(prepared(x), y)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        losses.append(history)
        models.append(prepared)
    torch.testing.assert_close(losses[0], losses[1], rtol=2e-3, atol=0)
    torch.testing.assert_close(losses[0][0], losses[1][0], rtol=1e-6, atol=0)
    mine, peer = models
    assert set(mine.state_dict()) == set(peer.state_dict())
    for (scale, zero_point), (other, point) in zip(observed(mine).values(), observed(peer).values(), strict=True):
        torch.testing.assert_close(scale, other, rtol=5e-3, atol=0)
        assert abs(int(zero_point) - int(point)) <= 1


@PER_CHANNEL
def test_a_state_that_torch_trained_is_loaded_and_converted(per_channel: bool) -> None:
    mine, peer = (
        side.quantization.fuse_modules_qat(m.train(), [["conv", "bn", "relu"], ["conv2", "bn2"]])
        for side, m in zip(SIDES, twins(Conv), strict=True)
    )
    mine.qconfig, peer.qconfig = (trained_bits(side, per_channel) for side in SIDES)
    mine, peer = (side.quantization.prepare_qat(m) for side, m in zip(SIDES, (mine, peer), strict=True))
    for _ in range(3):
        peer(torch.randn(16, 1, 8, 8))
    mine.load_state_dict(peer.state_dict())
    x = torch.randn(64, 1, 8, 8)
    expected = peer.eval()(x)
    got = OURS.quantization.convert(mine.eval())(x)
    steps = (got - expected).abs() / float(mine.fc.activation_post_process.scale)
    assert steps.max() < 2.01
