"""scatter_reduce in all its ways: captured, quantized, compiled, equal."""

import pytest
import torch
from torch import nn

import zeropoint
from zeropoint.graph.workflow import float_graph


class Scattered(nn.Module):
    def __init__(self, reduce: str, include_self: bool) -> None:
        super().__init__()
        self.linear, self.reduce, self.include_self = nn.Linear(4, 4), reduce, include_self

    def forward(self, x, index):
        y = self.linear(x)
        places = index.unsqueeze(1).expand_as(y)
        return torch.ones(5, 4).scatter_reduce(0, places, y, self.reduce, include_self=self.include_self)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
def test_scatter_reduce_becomes_a_program(reduce, include_self):
    torch.manual_seed(0)
    model, example = Scattered(reduce, include_self).eval(), (torch.randn(8, 4), torch.tensor([0, 1, 1, 3, 3, 3, 0, 1]))
    with torch.no_grad():
        torch.testing.assert_close(float_graph(model, example)(*example), model(*example))
    quantized = zeropoint.to_int8(model, example, mode="dynamic", progress=False)
    assert torch.equal(zeropoint.compile(quantized, example)(*example), quantized(*example))
