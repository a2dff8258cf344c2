"""Runs on every rank: calibrates and trains, and asserts what sync_observers promises."""

from __future__ import annotations

import copy
import sys
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import zeropoint
from zeropoint.distributed import sync_observers
from zeropoint.graph.passes.equalize import ChannelStatistics

BATCHES = 12


def batches() -> list[Tensor]:
    """The same on every rank; later ones are wider, so that ranges grow."""
    g = torch.Generator().manual_seed(7)
    return [torch.randn(16, 8, generator=g) * (1 + 0.3 * i) + 0.1 * i for i in range(BATCHES)]


class Watched(nn.Module):
    """One observer of every kind on the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.minmax = zeropoint.MinMaxObserver()
        self.signed = zeropoint.MinMaxObserver(dtype="qint8", qscheme="per_tensor_symmetric")
        self.channels = zeropoint.PerChannelMinMaxObserver(ch_axis=1)
        self.histogram = zeropoint.HistogramObserver(bins=256)
        self.percentile = zeropoint.PercentileObserver(percentile=99.0)
        self.average = zeropoint.MovingAverageMinMaxObserver(averaging_constant=0.5)
        self.tokens = zeropoint.AffineQuantizedMinMaxObserver(
            zeropoint.MappingType.SYMMETRIC, torch.int8, zeropoint.PerToken()
        )
        self.fake = zeropoint.FakeQuantize(zeropoint.MinMaxObserver)

    def forward(self, x: Tensor) -> Tensor:
        for observer in self.children():
            observer(x)
        return x


def assert_same_on_all_ranks(module: nn.Module) -> None:
    for name, buffer in [*module.named_buffers(), *module.named_parameters()]:
        copies = [torch.empty_like(buffer) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, buffer.detach().contiguous())
        assert all(torch.equal(c, copies[0]) for c in copies), f"{name} differs between the ranks: {copies}"


def calibrate(rank: int, world: int) -> None:
    mine, whole = Watched(), Watched()
    for i, batch in enumerate(batches()):
        whole(batch)
        if i % world == rank:
            mine(batch)
    sync_observers(mine)
    assert_same_on_all_ranks(mine)
    for name in ("minmax", "signed", "channels", "tokens"):
        ours, reference = getattr(mine, name), getattr(whole, name)
        assert torch.equal(ours.min_val, reference.min_val), name
        assert torch.equal(ours.max_val, reference.max_val), name
        for a, b in zip(ours.calculate_qparams(), reference.calculate_qparams()):
            assert torch.equal(a, b), name
    assert torch.equal(mine.fake.scale, whole.fake.scale)
    assert torch.equal(mine.fake.zero_point, whole.fake.zero_point)
    for name in ("histogram", "percentile"):
        ours, reference = getattr(mine, name), getattr(whole, name)
        assert torch.equal(ours.min_val, reference.min_val), name
        assert torch.equal(ours.max_val, reference.max_val), name
        assert abs(ours.histogram.sum().item() - sum(b.numel() for b in batches())) < 0.01, name
        # A value lies at most a bin of the narrowest histogram away: two of the common one hold what one held.
        bins = len(ours.histogram)
        cumulative, expected = ours.histogram.cumsum(0), reference.histogram.cumsum(0)
        assert bool((cumulative[: bins - 2] <= expected[2:] + 1).all()), name
        assert bool((cumulative[2:] + 1 >= expected[: bins - 2]).all()), name
        scale, expected_scale = ours.calculate_qparams()[0], reference.calculate_qparams()[0]
        assert abs(scale / expected_scale - 1).item() < 0.02, (name, scale, expected_scale)
    # One process that keeps the average of the ranks' mean range.
    low = None
    for step in range(0, BATCHES, world):
        now = torch.stack([b.min() for b in batches()[step : step + world]]).mean()
        low = now if low is None else low + 0.5 * (now - low)
    assert torch.allclose(mine.average.min_val, low), (mine.average.min_val, low)


class NormThenLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 4)
        with torch.no_grad():
            self.norm.weight[3] = 40.0  # a channel that is divided before it is rounded

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


def calibrate_a_graph_with_divided_channels(rank: int, world: int) -> None:
    """The last rank sees a channel that is far larger than what the others see: all must divide it alike."""
    qconfig = zeropoint.QConfig(zeropoint.MinMaxObserver, zeropoint.default_per_channel_weight_observer)
    mapping = zeropoint.QConfigMapping().set_object_type(nn.Linear, qconfig)
    example = (batches()[0],)
    mine, whole = (
        zeropoint.prepare_graph(NormThenLinear().eval(), mapping, example, equalize_channels=True) for _ in "ab"
    )
    for i, batch in enumerate(batches()):
        batch = batch if i % world else batch[:, :1].expand(16, 8)  # constant rows: the norm gives zeros
        whole(batch)
        if i % world == rank:
            mine(batch)
    sync_observers(mine)
    assert_same_on_all_ranks(mine)
    ours, expected = zeropoint.convert_graph(mine), zeropoint.convert_graph(whole)
    assert "quantize_per_channel" in str(ours.graph_module.graph)  # channels were divided
    assert torch.equal(ours(batches()[5]), expected(batches()[5]))


def calibrate_with_idle_ranks(rank: int) -> None:
    """Ranks without data take part with nothing."""
    mine, whole = Watched(), Watched()
    for batch in batches()[:3]:
        whole(batch)
        if rank == 0:
            mine(batch)
    sync_observers(mine)
    for name, buffer in mine.named_buffers():
        assert torch.equal(buffer, whole.get_buffer(name)), name
    nothing = Watched()
    sync_observers(nothing)
    assert nothing.minmax.min_val == torch.inf
    assert nothing.channels.min_val.numel() == 0


def differing_models_are_refused(rank: int) -> None:
    model = nn.Sequential(zeropoint.MinMaxObserver() if rank else zeropoint.HistogramObserver())
    model[0](torch.ones(2))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="differ"):
        sync_observers(model)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    with pytest.raises(ValueError, match="differ"):
        sync_observers(nn.Sequential(ChannelStatistics(nn.Identity(), 4)) if rank else nn.Sequential())


def other_modules_with_a_sync_of_their_own_are_left_alone() -> None:
    class Clock(nn.Module):
        def sync(self, group: object) -> None:
            raise AssertionError("called")

    sync_observers(nn.Sequential(Clock()))


class FakeQuantizedLinear(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.weight_fake_quant = zeropoint.default_fused_per_channel_wt_fake_quant()
        self.activation_post_process = zeropoint.default_fused_act_fake_quant()

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.linear(x, self.weight_fake_quant(self.weight), self.bias)
        return self.activation_post_process(y)


def train(rank: int, world: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        zeropoint.FakeQuantize(), FakeQuantizedLinear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), FakeQuantizedLinear(16, 1)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    g = torch.Generator().manual_seed(100 + rank)
    losses = []
    for step in range(30):
        x = torch.randn(32, 8, generator=g)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).tanh())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == 20:
            model.apply(zeropoint.disable_observer)
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5]), losses
    for name, parameter in net.named_parameters():
        copies = [torch.empty_like(parameter) for _ in range(world)]
        dist.all_gather(copies, parameter.detach())
        assert all(torch.equal(c, copies[0]) for c in copies), name
    sync_observers(model)
    for module in net.modules():
        if isinstance(module, zeropoint.FakeQuantize):
            assert_same_on_all_ranks(module.activation_post_process)
            assert torch.isfinite(module.activation_post_process.min_val).all()


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    calibrate(rank, world)
    calibrate_a_graph_with_divided_channels(rank, world)
    calibrate_with_idle_ranks(rank)
    differing_models_are_refused(rank)
    other_modules_with_a_sync_of_their_own_are_left_alone()
    train(rank, world)
    dist.barrier()
    if rank == 0:
        print(f"all promises kept on {world} ranks")
    dist.destroy_process_group()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
