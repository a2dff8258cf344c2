"""Programs with steps that PyTorch runs: what it refuses, and results whose sizes depend on the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from few_layers import Beside
from torch import Tensor

import zeropoint


def _made(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Any, Any]:
    inputs = (torch.randn(3, 4), x)
    graph = zeropoint.to_int8(Beside(function).eval(), inputs, [inputs], progress=False)
    return graph, zeropoint.compile(graph, inputs, fallback=True)


SIZED_BY_DATA: dict[str, Callable[[Tensor], Tensor]] = {
    "nonzero": torch.nonzero, "a mask": lambda x: x[x > 0], "unique": torch.unique,
    "masked_select": lambda x: x.masked_select(x > 0),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZED_BY_DATA)
def test_a_size_that_depends_on_data_is_refused_also_with_fallback(name: str) -> None:
    with pytest.raises(NotImplementedError, match="depends on the data"):
        _made(SIZED_BY_DATA[name], torch.tensor([0.0, 0.0, 3.0, 0.0]))


def test_pytorch_computes_singular_vectors_with_fallback() -> None:
    def largest(x: Tensor) -> Tensor:
        return torch.linalg.svd(x)[0][:, 0]

    side, x = torch.randn(3, 4), torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    graph, program = _made(largest, x)
    assert torch.equal(program(side, x)[1], graph(side, x)[1])
    with pytest.raises(ValueError, match=r"PyTorch, which runs aten.linalg_svd.*, refuses inputs of \[2, 2\]"):
        program(side, x * float("nan"))
