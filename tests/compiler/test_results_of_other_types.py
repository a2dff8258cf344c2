"""Results of types that no step has: programs give them as the model does, with PyTorch and without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import zeropoint
from zeropoint import runtime

CASES: dict[str, Callable[[Tensor], Any]] = {
    "fft": lambda x: {"a": torch.fft.fft(x), "b": [torch.fft.rfft(x), torch.fft.ihfft(x)]},
    "fft of integers": lambda x: torch.fft.fft2((x * 4).long()),
    "back": lambda x: (torch.fft.hfft(x), torch.fft.irfft2(x, norm="ortho"), torch.fft.hfftn(x, (5, 4))),
    "images": lambda x: torch.fft.fftn(x[None, None], dim=(2, 3)),
    "shifts": lambda x: (torch.fft.fftshift(x), torch.fft.ifftshift(x, dim=0)),
    "complex": lambda x: (torch.polar(x, x), torch.complex(x, x[:1]), x.cfloat()),
    "complex128": lambda x: (x.cdouble(), torch.fft.fft(x).to(torch.complex128)),
    "float64": lambda x: (x.double(), x.long().double(), torch.zeros_like(x, dtype=torch.float64)),
    "int16": lambda x: ((x * 100).short(), (x * 1e5).long().short()),
    "size": lambda x: (x, x.shape[0] * 2),
    "item": lambda x: (x.sum().item(), x[0, 0].long().item()),
}


class Model(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x), self.function(x)


@pytest.mark.parametrize("name", CASES)
def test_a_program_gives_the_type_that_the_model_gives(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model(CASES[name]).eval()
    x = torch.randn(6, 4)
    qconfig = zeropoint.QConfigMapping().set_module_name("layer", zeropoint.get_default_qconfig())
    quantized = zeropoint.to_int8(model, (x,), [x], qconfig, progress=False, dynamic_shapes={"x": {0: Dim.AUTO}})
    program = zeropoint.compile(quantized, (x,))
    program.save(tmp_path / "model.zpt")
    alone = runtime.load(tmp_path / "model.zpt")
    for given in (x, torch.randn(9, 4)):
        expected, tree = pytree.tree_flatten(model(given)[1])
        graph, compiled = quantized(given)[1], program(given)[1]
        assert pytree.tree_structure(graph) == pytree.tree_structure(compiled) == tree
        arrays = pytree.tree_leaves(alone(given.numpy())[1])
        leaves = zip(expected, pytree.tree_leaves(graph), pytree.tree_leaves(compiled), arrays)
        for theirs, mine, ours, array in leaves:
            if isinstance(theirs, (int, float)):
                assert theirs == pytest.approx(mine)
                assert mine == ours == array
                continue
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
            assert torch.equal(mine, ours)
            assert mine.dtype == ours.dtype
            assert np.array_equal(array, ours.numpy())
            assert array.dtype == ours.numpy().dtype


def test_a_long_spectrum_is_left_to_pytorch() -> None:
    """As a product, a transform of 20000 values would take gigabytes."""
    model, x = Model(lambda x: torch.fft.rfft(x.repeat(1, 5000))).eval(), torch.randn(2, 4)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert torch.equal(quantized(x)[1], model(x)[1])
    with pytest.raises(NotImplementedError, match="complex"):
        zeropoint.compile(quantized, (x,))
