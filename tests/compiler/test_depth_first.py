"""Runs of layers that go through a batch image by image: the bytes stay, the memory shrinks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from few_layers import Layers
from torch import Tensor, nn

import zeropoint

BATCH = 12  # which 1, 2, 3 and 4 threads divide
CHANNELS, SIZE = 64, 48
TOKENS, WIDTH, HEADS = 96, 64, 4


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


class Block(nn.Module):
    """A layer of an encoder: attention with a mask, two sums, two norms, a gelu."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (self.split(layer(x)) for layer in (self.q, self.k, self.v))
        shares = torch.softmax(q @ k.transpose(-2, -1) * 0.25 + mask, -1)
        x = self.norm(x + self.out((shares @ v).transpose(1, 2).flatten(2)))
        return self.last(x + self.narrow(nn.functional.gelu(self.wide(x))))


class Encoder(Layers):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, mask)
        return x


@pytest.mark.parametrize("shared", [False, True], ids=["a mask for each sequence", "one mask"])
def test_sequences_of_an_encoder_go_through_it_one_by_one(shared: bool) -> None:
    torch.manual_seed(2)
    model, x = Encoder(blocks=nn.ModuleList(Block() for _ in range(2))).eval(), torch.randn(BATCH, TOKENS, WIDTH)
    mask = torch.randn(TOKENS, TOKENS) if shared else torch.randn(BATCH, 1, 1, TOKENS)
    quantized = zeropoint.to_int8(model, (x, mask), progress=False)
    program, want = zeropoint.compile(quantized, (x, mask)), quantized(x, mask)
    assert "attention" in [row.op for row in program.profile(x, mask)]
    for threads in (1, 2, 3, 5):
        zeropoint.set_num_threads(threads)
        assert torch.equal(program(x, mask), want)
    zeropoint.set_num_threads(2)
    again = zeropoint.compile(quantized, (x, mask))
    # What lies between two steps, of one sequence in each thread: less than the widest value of the whole batch.
    assert again.memory().arena < BATCH * TOKENS * 4 * WIDTH
    assert torch.equal(again(x, mask), want)
