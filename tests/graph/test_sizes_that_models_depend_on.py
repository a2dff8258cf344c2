"""Sizes that decide what a graph is: on others it gives PyTorch's answer, or refuses; never that of the example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from few_layers import Behind
from torch import Tensor, nn

import zeropoint

# Rows of the example, of another input, and what depends on them.
DEPENDING: dict[str, tuple[int, int, Callable[[Tensor], Any]]] = {
    "split": (6, 9, lambda x: sum(part.sum(0) for part in x.split(3))),
    "split, fewer": (5, 1, lambda x: torch.stack([part.sum() for part in x.split(2)])),
    "unbind one": (1, 3, lambda x: sum(x.unbind(0))),
    "unbind": (3, 5, lambda x: torch.stack(x.unbind(0)[::2])),
    "squeeze": (1, 3, lambda x: x.squeeze(0)),
    "squeeze all": (1, 3, lambda x: x.squeeze()),
    "iteration": (4, 8, lambda x: sum(row for row in x)),
    "chunk": (8, 9, lambda x: torch.cat([part.flip(0) for part in x.chunk(4)])),
    "a list of rows": (3, 4, lambda x: torch.stack([x[i] * i for i in range(len(x))])),
    "the number of parts": (4, 6, lambda x: x * len(x.split(2))),
    "a number": (8, 5, lambda x: x[: int(len(x) / 2)]),
    "a power": (4, 6, lambda x: x * 2.0 ** len(x)),
    "a condition": (4, 9, lambda x: x * 2 if len(x) < 8 else x),
    "a condition of several sizes": (4, 9, lambda x: x * 2 if min(len(x), 7) * 2 < 10 else x),
    "a string": (4, 9, lambda x: x * len(str(len(x) * 3))),
    "tensor_split": (5, 10, lambda x: torch.stack([part.sum() for part in x.tensor_split(3)])),
    "repeat": (2, 3, lambda x: x.repeat(len(x), 1)),
    "arange": (2, 5, lambda x: x * torch.arange(len(x))[:, None]),
    "roll": (4, 6, lambda x: x.roll(len(x) // 2, 0)),
    "unfold": (6, 9, lambda x: x.unfold(0, 3, 3).sum(-1)),
}


@pytest.mark.parametrize("name", DEPENDING)
def test_another_size_gives_what_torch_gives_or_is_refused(name: str) -> None:
    torch.manual_seed(0)
    rows, others, function = DEPENDING[name]
    model, x, y = Behind(function).eval(), torch.randn(rows, 4), torch.randn(others, 4)
    quantized = zeropoint.to_int8(model, (x,), [x, 2 * torch.randn(rows, 4)], progress=False)
    program = zeropoint.compile(quantized, (x,))
    assert torch.equal(program(x), quantized(x))
    expected = model(y)
    for run in (quantized, program):
        try:
            found = run(y)
        except ValueError:
            continue
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, atol=0.1 * expected.abs().max().item())


def test_a_model_that_was_captured_with_a_batch_of_one_takes_others() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    quantized = zeropoint.to_int8(model, (torch.randn(1, 5, 16),), [torch.randn(4, 5, 16)], progress=False)
    for shape in ((1, 5, 16), (3, 7, 16)):
        x = torch.randn(shape)
        assert (quantized(x) - model(x)).abs().max() < 0.2
