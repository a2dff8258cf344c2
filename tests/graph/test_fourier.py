"""Real parts of Fourier transforms in graphs and programs: products with cosines and sines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zeropoint


class Mixed(nn.Module):
    def __init__(self, transform: Any) -> None:
        super().__init__()
        self.transform, self.last = transform, nn.Linear(12, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mixed = self.transform(x).real
        return mixed, self.last(mixed)


TRANSFORMS = {
    "fft": torch.fft.fft,
    "fft of another axis": lambda x: torch.fft.fft(x, dim=0),
    "fft2": torch.fft.fft2,
    "fftn": lambda x: torch.fft.fftn(x, dim=(1, 2)),
    "fftn of outer axes": lambda x: torch.fft.fftn(x, dim=(0, 2)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_program_computes_the_real_part(name: str) -> None:
    torch.manual_seed(0)
    model, x = Mixed(TRANSFORMS[name]).eval(), torch.randn(3, 10, 12)
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    program = zeropoint.compile(quantized, (x,))
    for given in (x, torch.randn(2, 7, 12)):  # of another length
        expected = model(given)[0]
        # 84 products at most, each within a few units of float32 of the largest.
        assert torch.allclose(quantized(given)[0], expected, rtol=0, atol=84 * 2**-22 * float(expected.abs().max()))
        assert all(torch.equal(a, b) for a, b in zip(program(given), quantized(given), strict=True))


def test_a_transform_with_another_norm_is_left_to_pytorch() -> None:
    x = torch.randn(3, 10, 12)
    model = Mixed(lambda x: torch.fft.fft(x, norm="ortho")).eval()
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    assert torch.equal(quantized(x)[0], model(x)[0])
    with pytest.raises(NotImplementedError, match="fft"):
        zeropoint.compile(quantized, (x,))
