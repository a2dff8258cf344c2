"""Values without elements, such as what a slice leaves of nothing, pass through calibration."""

import pytest
import torch
from few_layers import Layers
from torch import nn

import zeropoint


class Sliced(Layers):
    def forward(self, x):
        return self.linear(torch.cat([x, x[:, :0]], 1))


def test_calibration_takes_values_without_elements():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    quantized = zeropoint.to_int8(Sliced(linear=nn.Linear(4, 4)).eval(), (x,), [x], progress=False)
    assert quantized(x).shape == (3, 4)


class LogSumExp(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, 1), x.sum(1)


def test_a_size_of_no_elements_is_not_taken_for_other_sizes():
    x = torch.zeros(2, 0, 4)
    with pytest.warns(UserWarning, match="size 0 of x along axis 1 is fixed"):
        program = zeropoint.compile(LogSumExp().eval(), (x,))
    assert [v.tolist() for v in program(x)] == [v.tolist() for v in LogSumExp()(x)]
    with pytest.raises(ValueError, match=r"needs \(x.size\(0\), 0, x.size\(2\)\)"):
        program(torch.zeros(2, 3, 4))
