"""Inputs of other sizes than the example's, for which PyTorch raises: programs raise a ValueError."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from few_layers import Behind
from torch import Tensor
from torch.nn import functional as F

import zeropoint

# An operator, the rows of the example, rows that do not do, and what the message says.
CASES: dict[str, tuple[Callable[[Tensor], Tensor], int, int, str]] = {
    "narrow": (lambda x: x.narrow(0, 1, 3), 5, 2, "narrow: axis 0 is shorter than start 1 and length 3"),
    "narrow from the end": (lambda x: x.narrow(0, -3, 2), 5, 2, "narrow: start -3 is outside of axis 0"),
    "topk": (lambda x: x.topk(3, 0)[0], 5, 2, "topk: axis 0 has fewer than k=3"),
    "select": (lambda x: x.select(0, 4), 5, 4, "index 4 is outside an axis of 4"),
    "select_scatter": (lambda x: x.select_scatter(torch.zeros(4), 0, 4), 5, 4, "select_scatter: index 4 is outside"),
    "select_scatter from the end": (lambda x: x.select_scatter(torch.zeros(4), 0, -4), 5, 3, "index -4 is outside"),
    "slice_scatter": (lambda x: x.slice_scatter(torch.zeros(2, 4), 0, 3, 5), 5, 4, "cannot become"),
    "gather": (lambda x: x.gather(0, torch.tensor([[4, 0, 1, 2]])), 5, 3, "index 4 is outside an axis of 3"),
    "index": (lambda x: x[torch.tensor([4, 1])], 5, 3, "index 4 is outside an axis of 3"),
    "index_select": (lambda x: x.index_select(0, torch.tensor([4])), 5, 3, "index 4 is outside an axis of 3"),
    "expand": (lambda x: x.expand(5, 4), 1, 3, "do not fit"),
    "view": (lambda x: x.view(-1, 10), 5, 3, "12 elements cannot be shared"),
    "unfold": (lambda x: x.unfold(0, 4, 1), 5, 3, "windows of 4 do not fit an axis of 3"),
    "max_pool": (lambda x: F.max_pool2d(x[None, None], (4, 2)), 5, 3, "too small"),
    "bmm": (lambda x: torch.bmm(x[:, None], torch.ones(1, 4, 2)), 1, 3, "bmm: both tensors must have the same number"),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_pytorch_refuses_are_refused(name: str) -> None:
    function, rows, other, message = CASES[name]
    model, x, wrong = Behind(function).eval(), torch.randn(rows, 4), torch.randn(other, 4)
    graph = zeropoint.to_int8(model, (x,), [x], progress=False)
    program = zeropoint.compile(graph, (x,))
    assert torch.equal(program(x), graph(x))
    for refused in (model, graph):
        with pytest.raises((RuntimeError, ValueError, IndexError)):
            refused(wrong)
    with pytest.raises(ValueError, match=f"{message}|the sizes of the inputs do not match"):
        program(wrong)
