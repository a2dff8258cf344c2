"""Values that are put together have one observer, as in PyTorch's FX mode: then cat copies bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from few_layers import Layers
from torch import Tensor, nn

import zeropoint

CATS = (torch.ops.zeropoint.cat.default, torch.ops.zeropoint.cat_relu.default)


class Joined(nn.Module):
    """Two layers, joined by `join`, and a layer behind them."""

    def __init__(self, join: Any, channels: int = 8) -> None:
        super().__init__()
        self.join = join
        self.left, self.right = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.right.weight.data *= 4
        self.last = nn.Conv2d(channels, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.join(self.left(x), self.right(x)))


def images() -> Tensor:
    return torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def converted(model: nn.Module, mapping: Any = None) -> Any:
    torch.manual_seed(0)
    prepared = zeropoint.prepare_graph(
        model.eval(), mapping or zeropoint.get_default_qconfig_mapping("native"), (images(),)
    )
    prepared(images())
    return zeropoint.convert_graph(prepared)


def parameters_of_cat(model: Any) -> list[set[tuple[float, int]]]:
    """For each cat: scales and zero points of its inputs and of its result."""
    found = []
    for node in model.graph_module.graph.nodes:
        if node.target in CATS:
            _, scales, zero_points, _, scale, zero_point = node.args
            found.append({*zip(scales, zero_points), (scale, zero_point)})
    return found


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: torch.cat([a, b], 1),
        lambda a, b: torch.cat([F.relu(a), b.flip(2)], 1),
        lambda a, b: F.relu(torch.cat([a, b], 1)),
        lambda a, b: torch.cat([torch.cat([a, b[:, :2]], 1), b[:, 2:]], 1),
        lambda a, b: torch.stack([a, b], 1).flatten(1, 2),
        lambda a, b: torch.cat([F.max_pool2d(a, 3, 1, 1), F.relu6(b)], 1),
    ],
    ids=["plain", "behind relu and flip", "before relu", "in a row", "stack", "behind pools"],
)
def test_everything_that_is_joined_has_one_scale_and_is_copied(join: Any) -> None:
    model = converted(Joined(join))
    found = parameters_of_cat(model)
    assert found
    assert len(set.union(*found)) == 1
    program = zeropoint.compile(model, (images(),))
    assert torch.equal(program(images()), model(images()))


def test_a_part_with_fixed_parameters_keeps_them() -> None:
    (found,) = parameters_of_cat(converted(Joined(lambda a, b: torch.cat([torch.sigmoid(a), b], 1))))
    assert len(found) == 2
    assert (1 / 256, 0) in found or (1 / 256, -128) in found


def test_a_part_with_another_kind_of_observer_keeps_its_own() -> None:
    mapping = zeropoint.get_default_qconfig_mapping("native").set_module_name("left", zeropoint.default_qconfig)
    (found,) = parameters_of_cat(converted(Joined(lambda a, b: torch.cat([a, b], 1)), mapping))
    assert len(found) == 2


def test_a_part_that_a_number_was_added_to_keeps_the_scale_that_follows_from_it() -> None:
    (found,) = parameters_of_cat(converted(Joined(lambda a, b: torch.cat([torch.relu(a) + 0.5, b], 1))))
    assert len(found) == 2


def test_training_rounds_what_is_joined_with_one_scale() -> None:
    torch.manual_seed(0)
    model = Joined(lambda a, b: torch.cat([a, b], 1)).train()
    prepared = zeropoint.prepare_qat_graph(model, zeropoint.get_default_qat_qconfig_mapping("native"), (images(),))
    prepared(images()).square().mean().backward()
    prepared.eval().apply(zeropoint.disable_observer)
    deployed = zeropoint.convert_graph(prepared)
    (found,) = parameters_of_cat(deployed)
    assert len(found) == 1
    assert torch.equal(prepared(images()), deployed(images()))


def test_prepared_models_with_shared_observers_are_saved_once() -> None:
    prepared = zeropoint.prepare_graph(
        Joined(lambda a, b: torch.cat([a, b], 1)).eval(), zeropoint.get_default_qconfig_mapping("native"), (images(),)
    )
    modules = [m for m in prepared.graph_module.modules() if zeropoint.observers.is_observer(m)]
    assert len(modules) == 3  # of the input, of what is joined, of the result


def _pooled(function: Any) -> nn.Module:
    class Pooled(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return self.last(function(self.first(x)))

    return Pooled(first=nn.Conv2d(3, 4, 1), last=nn.Conv2d(4, 2, 1)).eval()


@pytest.mark.parametrize(
    ("function", "seen"),
    [(lambda x: F.max_pool2d(x, 2), 36 + 9), (lambda x: F.max_pool2d(x.flip(2), 3), 36 + 4), (torch.flip, 36)],
    ids=["pool", "pool of a view", "view"],
)
def test_a_histogram_counts_what_a_max_pool_chooses_once_more(function: Any, seen: int) -> None:
    torch.manual_seed(0)
    model = _pooled((lambda x: torch.flip(x, [2])) if function is torch.flip else function)
    prepared = zeropoint.prepare_graph(model, zeropoint.get_default_qconfig_mapping("native"), (images(),))
    prepared(images())
    counted = [int(m.histogram.sum()) for m in prepared.graph_module.modules() if hasattr(m, "histogram")]
    assert counted[1] == seen * 4 * 4  # of images and of channels
