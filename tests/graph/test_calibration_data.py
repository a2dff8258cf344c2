"""Calibration data: any iterable, one batch in memory at a time, however many there are."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import zeropoint

SAMPLES = torch.randn(48, 16, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()


def test_a_loader_a_generator_and_a_list_find_the_same() -> None:
    batches = list(SAMPLES.split(8))
    loader = DataLoader(TensorDataset(SAMPLES), batch_size=8)  # its batches are lists of one tensor
    found = [
        zeropoint.to_int8(network(), (SAMPLES[:2],), data, progress=False)(SAMPLES)
        for data in (batches, iter(batches), (x for x in batches), loader)
    ]
    assert all(torch.equal(y, found[0]) for y in found[1:])


@pytest.mark.parametrize("empty", [[], iter([])])
def test_data_without_batches_is_refused(empty: Iterable[Tensor]) -> None:
    with pytest.raises(ValueError, match="to_int8: calibration has no batches: pass at least one"):
        zeropoint.to_int8(network(), (SAMPLES[:2],), empty, progress=False)


class Watched:
    """Batches of which it is known how many are still held by somebody."""

    def __init__(self, count: int) -> None:
        self.count, self.most = count, 0
        self._alive: list[weakref.ref[Tensor]] = []

    def __iter__(self) -> Iterator[Tensor]:
        for seed in range(self.count):
            batch = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))
            self._alive.append(weakref.ref(batch))
            self.most = max(self.most, sum(kept() is not None for kept in self._alive))
            yield batch


def test_no_more_than_three_batches_are_held_at_a_time() -> None:
    # The one in use, the first, with which it is asked what 8 bits lose, and the one that a loop variable still has.
    data = Watched(40)
    zeropoint.to_int8(network(), (SAMPLES[:2],), data, progress=False)
    assert data.most <= 3
    data = Watched(40)
    zeropoint.calibration_advice(network(), (SAMPLES[:2],), data)
    assert data.most <= 3
