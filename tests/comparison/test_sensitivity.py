"""The layer that costs most is ranked first."""

from __future__ import annotations

import json
import math

import pytest
import torch
from damaged_models import BAD, batches, clipped, net, per_tensor, with_outliers
from torch import nn

import zeropoint


def test_outliers_in_a_weight_cost_most() -> None:
    found = zeropoint.sensitivity(with_outliers(net()), batches(), qconfig=per_tensor(), progress=False)
    assert found.rows[0].path == BAD
    assert found.rows[0].alone < found.rows[1].alone - 5
    assert found.float_metric == math.inf


def test_a_clipped_range_costs_most() -> None:
    mapping = zeropoint.get_default_qconfig_mapping("native").set_module_name(BAD, clipped())
    found = zeropoint.sensitivity(net(), batches(), qconfig=mapping, progress=False)
    assert {row.path for row in found.rows[:2]} == {BAD, "third"}  # which reads what was clipped


def test_everything_together_is_the_whole_quantized_model() -> None:
    model = net()
    found = zeropoint.sensitivity(model, batches(), progress=False)
    whole = zeropoint.to_int8(model, (batches()[0],), batches(), progress=False)
    assert found.rows[0].cumulative == pytest.approx(zeropoint.compare(model, whole, batches()).sqnr)
    assert found.rows[-1].cumulative == found.rows[-1].alone


@pytest.mark.parametrize("mode", ["dynamic", "weight_only"])
def test_other_modes(mode: str) -> None:
    found = zeropoint.sensitivity(net(), batches(1), mode=mode, progress=False)
    assert "last" in {row.path for row in found.rows}


def test_a_metric_of_ones_own() -> None:
    seen = []

    def norm(model: nn.Module) -> float:
        seen.append(model)
        return float(model(batches()[0]).norm())

    found = zeropoint.sensitivity(net(), batches(), norm, progress=False, cumulative=False)
    assert found.metric == "norm"
    assert len(seen) == len(found.rows) + 1
    assert all(row.cumulative is None for row in found.rows)


@pytest.mark.parametrize(("metric", "best"), [("cosine", 1.0), ("agreement", 1.0)])
def test_metrics_by_name(metric: str, best: float) -> None:
    found = zeropoint.sensitivity(net(), batches(), metric, progress=False, cumulative=False)
    assert found.float_metric == pytest.approx(best)
    assert all(0.7 < row.alone <= best for row in found.rows)


def test_layers_to_leave_in_float() -> None:
    found = zeropoint.sensitivity(with_outliers(net()), batches(), qconfig=per_tensor(), progress=False)
    assert found.keep_in_float(found.rows[1].cumulative or 0.0) == (BAD,)
    assert found.keep_in_float(-100.0) == ()


def test_it_prints_as_a_table_and_as_json() -> None:
    found = zeropoint.sensitivity(net(), batches(1), progress=False)
    assert str(found).splitlines()[-1] == "in float: sqnr inf"
    assert len(json.loads(found.to_json())["rows"]) == len(found.rows)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="data is empty"):
        zeropoint.sensitivity(net(), [])
    with pytest.raises(ValueError, match="'accuracy'"):
        zeropoint.sensitivity(net(), batches(), "accuracy", progress=False)
    with pytest.raises(ValueError, match="mode must be"):
        zeropoint.sensitivity(net(), batches(), mode="fast", progress=False)
    with pytest.raises(ValueError, match="tuple of arguments"):
        zeropoint.sensitivity(net(), [{"x": torch.zeros(1, 3, 8, 8)}], progress=False)
