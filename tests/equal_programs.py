"""Programs against the graphs that they were compiled from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def assert_equal(found: Any, expected: Any) -> None:
    """The same tensors and numbers, to the bit."""
    for f, e in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        assert torch.equal(torch.as_tensor(f), e)


def assert_equal_for(sizes: Iterable[Any], inputs: Callable[..., Any], program: Any, quantized: Any) -> None:
    """A program gives the bytes of its graph for inputs of these sizes."""
    torch.manual_seed(1)
    for given in sizes:
        example = inputs(*given)
        with torch.no_grad():
            assert_equal(program(*example), quantized(*example))
