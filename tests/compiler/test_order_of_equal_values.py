"""Sorts of equal values: quantized graphs and programs keep their order, which PyTorch leaves open."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from few_layers import Beside
from torch import Tensor

import zeropoint

SORTS: dict[str, Callable[[Tensor], Tensor]] = {
    "sort": lambda x: x.sort()[1],
    "sort descending": lambda x: x.sort(descending=True)[1],
    "argsort": lambda x: x.argsort(),
    "argsort along an axis": lambda x: x.view(20, 15).argsort(0, descending=True),
    "stable": lambda x: torch.sort(x, stable=True)[1],
    "topk": lambda x: x.topk(7)[1],
    "least": lambda x: x.topk(7, largest=False)[1],
    "median": lambda x: x.median(0)[1],
    "kthvalue": lambda x: x.kthvalue(9)[1],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", SORTS)
def test_graph_and_program_give_equal_values_the_same_order(name: str, dtype: torch.dtype) -> None:
    x = torch.randint(0, 5, (300,), generator=torch.Generator().manual_seed(0)).to(dtype)
    example = (torch.randn(3, 4), x)
    model = Beside(SORTS[name]).eval()
    free = {"side": None, "others": (None,)}
    graph = zeropoint.to_int8(model, example, [example], progress=False, dynamic_shapes=free)
    program = zeropoint.compile(graph, example)
    found = graph(*example)[1]
    assert torch.equal(program(*example)[1], found)
    if "sort" in name and "along" not in name:
        expected = torch.sort(x, stable=True, descending="descending" in name)[1]
        assert torch.equal(found, expected)
