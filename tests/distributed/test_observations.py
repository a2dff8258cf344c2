"""Observations of parts of the data: small, merged in any order, equal to those of one process."""

from __future__ import annotations

import functools
import itertools
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import zeropoint
from bench.calibration_at_scale import Cost, tree
from zeropoint.distributed import Observations, merge_observations, observe

PARTS = torch.randn(4, 3, 16, 8, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 2, 5, 3]).view(
    4, 1, 1, 1
)


def _prepared(observer: Any = zeropoint.HistogramObserver) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    qconfig = zeropoint.QConfig(observer.with_args(dtype=zeropoint.quint8), zeropoint.default_weight_observer)
    return zeropoint.prepare_graph(model, zeropoint.QConfigMapping().set_global(qconfig), (torch.ones(2, 8),))


def _ranges(observations: Observations) -> list[tuple[float, float]]:
    return [(o.min_val.item(), o.max_val.item()) for o in observations.observers.values()]


@pytest.mark.parametrize("observer", [zeropoint.HistogramObserver, zeropoint.MinMaxObserver])
def test_parts_in_every_order_have_the_ranges_of_the_whole(observer: Any) -> None:
    model = _prepared(observer)
    whole = observe(model, PARTS.flatten(0, 1))
    parts = [observe(model, part) for part in PARTS]
    for order in itertools.permutations(parts):
        one, two, three, four = order
        tree = merge_observations(merge_observations(one, two), merge_observations(three, four))
        assert _ranges(tree) == _ranges(whole)
        assert tree.batches == whole.batches == 12


def test_a_thousand_parts_merged_in_a_tree_have_the_ranges_of_the_whole() -> None:
    prepared = _prepared()
    data = [torch.randn(3, 8) * (1 + i % 7) for i in range(1000)]
    whole, leaves = observe(prepared, data), [observe(prepared, [rows]) for rows in data]
    for fan_in in (2, 10, 1000):
        parts, levels = leaves, 0
        while len(parts) > 1:
            parts = [functools.reduce(merge_observations, parts[i : i + fan_in]) for i in range(0, len(parts), fan_in)]
            levels += 1
        assert levels == tree(1000, fan_in, 1.0, 1.0).depth
        assert parts[0].batches == 1000
        assert _ranges(parts[0]) == _ranges(whole)
        for one, two in zip(parts[0].observers.values(), whole.observers.values()):
            # Counts are split between bins, and added in float32.
            assert float(one.histogram.sum()) == pytest.approx(float(two.histogram.sum()), rel=1e-6)


def test_a_tree_costs_what_its_links_and_merges_cost() -> None:
    assert tree(1, 2, 5.0, 1.0) == Cost(0, 0.0, 0.0, 0.0)
    assert tree(8, 2, 10.0, 2.0, link=5.0) == Cost(3, 10.0, 70.0, 3 * (10.0 / 5 + 2))
    assert tree(1000, 10, 10.0, 2.0, link=5.0) == Cost(3, 90.0, 9990.0, 3 * 9 * (10.0 / 5 + 2))
    assert tree(1000, 1000, 10.0, 2.0, link=5.0) == Cost(1, 9990.0, 9990.0, 999 * (10.0 / 5 + 2))


def test_neither_the_model_nor_the_parts_are_changed() -> None:
    model = _prepared()
    one, two = (observe(model, part) for part in PARTS[:2])
    before = _ranges(one), _ranges(two)
    merge_observations(one, two)
    assert (_ranges(one), _ranges(two)) == before
    assert all(o.min_val.item() == float("inf") for o in observe(model, ()).observers.values())


def test_a_model_that_gets_them_is_quantized_as_one_that_saw_the_data() -> None:
    alone, together = _prepared(zeropoint.MinMaxObserver), _prepared(zeropoint.MinMaxObserver)
    for batch in PARTS.flatten(0, 1):
        alone(batch)
    sent = [pickle.loads(pickle.dumps(observe(together, part))) for part in PARTS]
    for part in sent:
        part.put_into(together)
    x = PARTS[0, 0]
    assert torch.equal(zeropoint.convert_graph(together)(x), zeropoint.convert_graph(alone)(x))


def test_another_model_is_refused_and_not_changed() -> None:
    other = zeropoint.prepare_graph(
        nn.Sequential(nn.Conv1d(2, 2, 1), nn.Conv1d(2, 2, 1), nn.Conv1d(2, 2, 1)).eval(),
        zeropoint.get_default_qconfig_mapping("native"),
        (torch.ones(1, 2, 3),),
    )
    found = observe(_prepared(), PARTS[0])
    with pytest.raises(ValueError, match="prepared in different ways"):
        found.put_into(other)
    with pytest.raises(ValueError, match="prepared in different ways"):
        merge_observations(found, observe(other, ()))
    assert all(
        o.min_val.numel() == 0 or o.min_val.item() == float("inf") for o in observe(other, ()).observers.values()
    )


def test_observers_whose_order_matters_are_refused_in_words() -> None:
    with pytest.raises(NotImplementedError, match="depends on the order of batches"):
        observe(_prepared(zeropoint.MovingAverageMinMaxObserver), PARTS[0])
