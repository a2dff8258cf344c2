"""Every way to copy, save or record a module, and whether what comes out computes the same."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch import Tensor, nn


def tensors(result: Any) -> list[Tensor]:
    """All tensors in a result, packed sequences and nested tuples included."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [t for part in result if part is not None for t in tensors(part)]
    return []


def assert_equal(got: Any, wanted: Any) -> None:
    a, b = tensors(got), tensors(wanted)
    assert len(a) == len(b)
    for x, y in zip(a, b):
        torch.testing.assert_close(x, y, rtol=0, atol=0)


def largest_difference(got: Any, wanted: Any) -> float:
    return max(float((x - y).detach().abs().max()) for x, y in zip(tensors(got), tensors(wanted)))


class Caller(nn.Module):
    """A module around another: overloaded forwards are chosen in scripts only by who calls them."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        return self.inner(x)


def through_file(scripted: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    return torch.jit.load(file)


def assert_copies_compute_the_same(module: nn.Module, blank: nn.Module, args: tuple[Any, ...], script: Any = True):
    """deepcopy, pickle, state_dict through a file into `blank`, torch.jit.script and trace through files, export."""
    wanted = module(*args)
    assert_equal(copy.deepcopy(module)(*args), wanted)
    assert_equal(pickle.loads(pickle.dumps(module))(*args), wanted)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    blank.load_state_dict(torch.load(file, weights_only=True))
    assert_equal(blank(*args), wanted)
    if script:
        assert_equal(through_file(torch.jit.script(Caller(module) if len(args) == 1 else module))(*args), wanted)
    assert_equal(through_file(torch.jit.trace(module, args))(*args), wanted)
    exported = torch.export.export(module, args)
    assert_equal(exported.module()(*args), wanted)
