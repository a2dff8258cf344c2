"""nn.Bilinear, whose record says which operators it is made of."""

from __future__ import annotations

import pytest
import torch
from eight_bit_steps import steps_between
from torch import Tensor, nn

import zeropoint
from zeropoint.operators.layers import bilinear

STEPS = 4  # a linear layer, a product of matrices and a sum, each rounded


class Two(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.quant, self.dequant = zeropoint.QuantStub(), zeropoint.DeQuantStub()
        self.left, self.right, self.both = nn.Linear(8, 6), nn.Linear(8, 5), nn.Bilinear(6, 5, 4, bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.quant(x)
        return self.dequant(self.both(self.left(x), self.right(x)))


@pytest.fixture
def x() -> Tensor:
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return Two(request.param).eval()


def test_its_parts_give_what_pytorch_gives(model: nn.Module, x: Tensor) -> None:
    left, right = torch.randn(2, 3, 6), torch.randn(2, 3, 5)
    torch.testing.assert_close(bilinear(left, right, model.both.weight, model.both.bias), model.both(left, right))


def test_its_products_are_computed_on_integers_and_compiled(model: nn.Module, x: Tensor) -> None:
    made = zeropoint.to_int8(model, (x,), [x], progress=False)
    ways = {row.operator: row.precision for row in made.summary().rows if row.path == "both"}
    assert ways == {"linear": "int8", "matmul": "int8"} | ({"add": "int8"} if model.both.bias is not None else {})
    assert steps_between(made(x), model(x)) <= STEPS
    assert torch.equal(zeropoint.compile(made, (x,))(x), made(x))


def test_torchscript_has_the_same_parts(model: nn.Module, x: Tensor) -> None:
    qconfig = {"": zeropoint.get_default_qconfig("native")}
    made = zeropoint.quantize_jit(torch.jit.trace(model, x), qconfig, lambda m, batch: m(batch), [x])
    assert "zeropoint::matmul" in str(made.inlined_graph)
    assert steps_between(made(x), model(x)) <= STEPS


def test_what_is_trained_is_deployed(model: nn.Module, x: Tensor) -> None:
    prepared = zeropoint.prepare_qat_graph(model.train(), zeropoint.get_default_qat_qconfig_mapping("native"), (x,))
    prepared(x).square().mean().backward()
    assert all(parameter.grad is not None for parameter in prepared.parameters())
    prepared.eval().apply(zeropoint.disable_observer)
    assert torch.equal(prepared(x), zeropoint.convert_graph(prepared)(x))


def test_eager_mode_computes_it_on_floats(model: nn.Module, x: Tensor) -> None:
    model.qconfig = zeropoint.get_default_qconfig("native")
    prepared = zeropoint.prepare(model)
    prepared(x)
    assert steps_between(zeropoint.convert(prepared)(x), model(x)) <= STEPS
