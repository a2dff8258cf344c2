"""Values without elements, such as what a slice leaves of nothing, pass through calibration."""

import torch
from torch import nn

import zeropoint


class Sliced(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(torch.cat([x, x[:, :0]], 1))


def test_calibration_takes_values_without_elements():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    quantized = zeropoint.to_int8(Sliced().eval(), (x,), [x], progress=False)
    assert quantized(x).shape == (3, 4)
