"""Models that write to their inputs are refused in words, and nothing changes the tensors of the caller."""

import pytest
import torch
from torch import Tensor, nn

import zeropoint


class Writes(nn.Module):
    """A layer after something that writes to the input."""

    def __init__(self, write):
        super().__init__()
        self.layer, self.write = nn.Linear(4, 4), write

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.write(x))


def _to_a_part(x: Tensor) -> Tensor:
    x[:, 1:] = 0
    return x


def _through_a_view(x: Tensor) -> Tensor:
    x.view(-1).add_(1)
    return x


WRITES = {
    "mul_": lambda x: x.mul_(2),
    "relu(inplace=True)": nn.ReLU(inplace=True),
    "x[:, 1:] = 0": _to_a_part,
    "x.view(-1).add_(1)": _through_a_view,
    "torch.add(out=x)": lambda x: torch.add(x, 1, out=x),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_model_that_writes_to_its_input_is_refused_and_the_example_is_kept(name):
    model, example, batch = Writes(WRITES[name]).eval(), torch.ones(3, 4), torch.ones(3, 4)
    with pytest.raises(NotImplementedError, match=r"input.*clone\(\)"):
        zeropoint.to_int8(model, (example,), [batch], progress=False)
    assert torch.equal(example, torch.ones(3, 4))
    assert torch.equal(batch, torch.ones(3, 4))


def test_a_model_that_is_given_a_copy_may_write_to_it():
    model, x = Writes(lambda x: x.clone().mul_(2)).eval(), torch.ones(3, 4)
    graph = zeropoint.to_int8(model, (x,), [x], progress=False)
    torch.testing.assert_close(graph(x), model(x), rtol=0, atol=0.1)
    torch.testing.assert_close(zeropoint.compile(graph, (x,))(x), graph(x), rtol=0, atol=0)


def test_an_exported_model_that_writes_to_its_input_is_refused():
    exported = torch.export.export(Writes(lambda x: x.mul_(2)).eval(), (torch.ones(3, 4),)).module()
    with pytest.raises(NotImplementedError, match="input"):
        zeropoint.to_int8(exported, (torch.ones(3, 4),), [torch.ones(3, 4)], progress=False)


def _sum_into(x: Tensor) -> Tensor:
    into = torch.zeros_like(x)
    torch.add(x, x, out=into)
    return into


def test_what_is_written_to_an_out_argument_is_read_later():
    model, x = nn.Sequential(nn.Linear(4, 4), Writes(_sum_into)).eval().requires_grad_(False), torch.randn(3, 4)
    graph = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert (graph(x) - model(x)).abs().max() < 0.05
    torch.testing.assert_close(zeropoint.compile(graph, (x,))(x), graph(x), rtol=0, atol=0)
