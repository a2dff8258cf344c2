"""Bags of embedding tables that stay float: in programs, with the values of PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import zeropoint


class Bags(nn.Module):
    """Bags of rows that are equally long, and bags that begin where they are told, of which one is empty."""

    def __init__(self, mode: str, padding: int | None, last: bool) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 6, mode=mode, padding_idx=padding, include_last_offset=last)
        self.head = nn.Linear(6, 3)

    def forward(self, words: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        whole = self.bag(words)
        parts = self.bag(words.flatten(), offsets)
        return self.head(whole), whole, parts


@pytest.mark.parametrize("last", [False, True], ids=["begins", "begins and end"])
@pytest.mark.parametrize("padding", [None, 2, -1], ids=["all rows", "without row 2", "without the last row"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_that_stay_float_are_in_programs(mode: str, padding: int | None, last: bool) -> None:
    torch.manual_seed(0)
    model = Bags(mode, padding, last).eval()
    words = torch.randint(0, 20, (3, 5))
    words[1] = 2 if padding == 2 else 19  # nothing but padding
    example = words.int(), torch.tensor([0, 4, 4, 9, *([15] if last else [])], dtype=torch.int32)
    quantized = zeropoint.to_int8(model, example, mode="dynamic", progress=False)
    with torch.no_grad():
        given, expected = quantized(*example), model(*example)
    torch.testing.assert_close(given[1:], expected[1:])
    program = zeropoint.compile(quantized, example)
    assert all(torch.equal(a, b) for a, b in zip(program(*example), given))
    longer = torch.randint(0, 20, (4, 7)).int(), torch.tensor([0, 1, 20, 24, *([28] if last else [])]).int()
    assert all(torch.equal(a, b) for a, b in zip(program(*longer), quantized(*longer)))


def test_rows_have_weights_of_their_own() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.head = nn.EmbeddingBag(20, 6, mode="sum"), nn.Linear(6, 3)

        def forward(self, words: Tensor, weights: Tensor) -> Tensor:
            return self.head(self.bag(words, per_sample_weights=weights))

    torch.manual_seed(0)
    model, example = Weighted().eval(), (torch.randint(0, 20, (3, 5)), torch.rand(3, 5))
    quantized = zeropoint.to_int8(model, example, mode="dynamic", progress=False)
    assert torch.equal(zeropoint.compile(quantized, example)(*example), quantized(*example))
