"""Runs of layers that go through a batch image by image: the bytes stay, the memory shrinks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import zeropoint

BATCH = 12  # which 1, 2, 3 and 4 threads divide
CHANNELS, SIZE = 64, 48


class Residuals(nn.Module):
    """Inverted residuals; a value from before them is read again behind them."""

    def __init__(self) -> None:
        super().__init__()
        wide = 3 * CHANNELS
        self.stem = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, 2, 1), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(CHANNELS, wide, 1), nn.ReLU(), nn.Conv2d(wide, wide, 3, 1, 1, groups=wide), nn.ReLU(),
                nn.Conv2d(wide, CHANNELS, 1),
            )
            for _ in range(2)
        )  # fmt: skip
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.last = nn.Conv2d(CHANNELS, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(self.pool(torch.sigmoid(x)) + self.pool(first))


class Halves(nn.Module):
    """Parts of a batch meet other parts of it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, CHANNELS, 3, 2, 1), nn.Conv2d(CHANNELS, CHANNELS, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.one(x))
        half = BATCH // 2
        return self.two(self.two(x[:half]) + x[half:]) + self.two(x[3 : 3 + half])


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = zeropoint.cpu_info().threads
    yield
    zeropoint.set_num_threads(before)


def compiled(model: nn.Module) -> tuple[zeropoint.Program, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(BATCH, 3, 2 * SIZE, 2 * SIZE)
    quantized = zeropoint.to_int8(model.eval(), (x,), [x], progress=False)
    return zeropoint.compile(quantized, (x,)), x, quantized(x)


@pytest.mark.parametrize("model", [Residuals, Halves])
def test_batches_give_the_bytes_of_the_graph_with_any_number_of_threads(model: type[nn.Module]) -> None:
    torch.manual_seed(1)
    program, x, want = compiled(model())
    for threads in (1, 2, 3, 5):
        zeropoint.set_num_threads(threads)
        assert torch.equal(program(x), want)


def test_values_inside_a_run_have_memory_for_one_image() -> None:
    zeropoint.set_num_threads(1)
    program, _, _ = compiled(Residuals())
    widest = 3 * CHANNELS * SIZE * SIZE
    memory = program.memory()
    assert memory.arena < BATCH * widest
    assert memory.values > 4 * BATCH * widest
