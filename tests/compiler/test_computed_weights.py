"""Convolutions whose weights a model computes: in float, in programs too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint


class Computed(nn.Module):
    """Weights of a grouped convolution for each image of a batch, from a linear layer."""

    def __init__(self, bias: bool, options: dict[str, Any]) -> None:
        super().__init__()
        self.make, self.bias, self.options = nn.Linear(5, 6 * 2 * 9), bias, options

    def forward(self, image: Tensor, code: Tensor) -> Tensor:
        n, _, h, w = image.shape
        weight = self.make(code).view(n * 6, 2, 3, 3)
        bias = code.mean(1).repeat_interleave(6) if self.bias else None
        y = F.conv2d(image.reshape(1, n * 2, h, w), weight, bias, groups=n, **self.options)
        return y.reshape(n, 6, y.size(2), y.size(3))


@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"stride": 2, "padding": (0, 1)}], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_with_weights_for_each_image_is_a_product_of_matrices(bias: bool, options: Any) -> None:
    torch.manual_seed(0)
    model = Computed(bias, options).eval()
    inputs = (torch.randn(2, 2, 7, 8), torch.randn(2, 5))
    quantized = zeropoint.to_int8(model, inputs, mode="dynamic", progress=False)
    others = (torch.randn(3, 2, 7, 8), torch.randn(3, 5))
    expected = model(*others)
    # The weights come from a layer of 8 bits: half a step of 1/127 for each of the 18 products, that may all agree.
    assert float((quantized(*others) - expected).detach().abs().max()) < 18 / 127 * float(expected.detach().abs().max())
    assert torch.equal(zeropoint.compile(quantized, inputs)(*others), quantized(*others))
