"""Ranges that few batches have shown leave room for what comes later."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.graph.headroom import headroom_of

STEPS = 255


def layer() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()


def uniform(seed: int, high: float = 1.0) -> Tensor:
    return (torch.rand(64, 8, generator=torch.Generator().manual_seed(seed)) * 2 - 1) * high


def scales(quantized: nn.Module) -> list[float]:
    """Of the input and of the result."""
    found = {node.target: node.args for node in quantized.graph_module.graph.nodes}
    ours = torch.ops.zeropoint
    return [float(found[op.default][1]) for op in (ours.quantize_per_tensor, ours.dequantize_per_tensor)]


def quantized(batches: list[Tensor], **options: object) -> nn.Module:
    return zeropoint.to_int8(layer(), (batches[0],), batches, progress=False, **options)


@pytest.mark.parametrize("batches", [1, 2, 8])
def test_the_fewer_batches_the_more_headroom(batches: int) -> None:
    data = [uniform(seed) for seed in range(batches)]
    exact, wide = scales(quantized(data, policy={"headroom": 0})), scales(quantized(data))
    # An input of both signs grows at both ends, the result of a ReLU at one.
    assert wide[0] / exact[0] == pytest.approx(1 + headroom_of(batches), abs=1.5 / STEPS)
    assert wide[1] / exact[1] == pytest.approx(1 + headroom_of(batches), abs=1.5 / STEPS)


def test_many_batches_leave_none() -> None:
    data = [uniform(seed) for seed in range(41)]
    assert scales(quantized(data)) == scales(quantized(data, policy={"headroom": 0}))


def test_zero_stays_the_low_end_behind_a_relu() -> None:
    model = quantized([uniform(0), uniform(1)])
    (node,) = (n for n in model.graph_module.graph.nodes if n.target is torch.ops.zeropoint.dequantize_per_tensor.default)
    assert node.args[2] == 0


def test_what_is_a_little_larger_than_in_calibration_is_not_cut_off() -> None:
    data = [uniform(0), uniform(1)]
    larger = uniform(2, high=1.15)
    expected = layer()(larger)
    errors = [
        float((quantized(data, **options)(larger) - expected).abs().max())  # type: ignore[arg-type]
        for options in ({"policy": {"headroom": 0}}, {})
    ]
    assert errors[1] < errors[0] / 4


def test_a_given_qconfig_keeps_its_ranges() -> None:
    data = [uniform(0), uniform(1)]
    given = zeropoint.get_default_qconfig("native")
    assert scales(quantized(data, qconfig=given)) == scales(quantized(data, policy={"headroom": 0}))


@pytest.mark.parametrize("headroom", [-0.1, 1.5])
def test_headroom_out_of_range_is_refused(headroom: float) -> None:
    with pytest.raises(ValueError, match="headroom must be None or from 0 to 1"):
        zeropoint.Policy(headroom=headroom)
