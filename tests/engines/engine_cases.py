"""The model, the data and the ranges that every engine has to find."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import nn

import zeropoint
from zeropoint.distributed import Observations, merge_observations, observe

ROWS = np.random.default_rng(0).standard_normal((96, 8)).astype(np.float32)
ROWS[77] *= 9  # the largest value is in one part of the data alone


def prepared(observer: Any = None) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    mapping = zeropoint.get_default_qconfig_mapping("native")
    if observer is not None:
        qconfig = zeropoint.QConfig(observer.with_args(dtype=zeropoint.quint8), zeropoint.default_weight_observer)
        mapping = zeropoint.QConfigMapping().set_global(qconfig)
    return zeropoint.prepare_graph(model, mapping, (torch.ones(2, 8),))


@functools.cache
def expected(observer: Any = None, batch: int = 8) -> Observations:
    parts = [torch.from_numpy(ROWS[i : i + batch]) for i in range(0, len(ROWS), batch)]
    return observe(prepared(observer), parts)


def assert_ranges_are_those_of_one_process(model: Any, observer: Any = None) -> None:
    found = {name: (module.min_val, module.max_val) for name, module in observe(model, ()).observers.items()}
    wanted = {name: (module.min_val, module.max_val) for name, module in expected(observer).observers.items()}
    assert found.keys() == wanted.keys()
    assert len(found) >= 2
    for name, pair in wanted.items():
        assert all(map(torch.equal, found[name], pair)), name


def merged(parts: list[Observations]) -> Observations:
    return functools.reduce(merge_observations, parts)
