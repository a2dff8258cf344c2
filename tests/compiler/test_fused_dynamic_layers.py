"""Dynamic layers that share their input, or have a function behind them: the bytes of the steps that they replace."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from few_layers import FUNCTIONS
from torch import Tensor, nn

import zeropoint
from zeropoint.compiler.compiler import compile_with


class Branches(nn.Module):
    """Three layers of one input, one of them without a bias, and one with a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.query, self.key, self.value = nn.Linear(24, 20), nn.Linear(24, 20, bias=False), nn.Linear(24, 37)
        self.wide, self.narrow = nn.Linear(37, 150), nn.Linear(150, 5)

    def forward(self, x: Tensor) -> Tensor:
        shares = torch.softmax(self.query(x) @ self.key(x).transpose(-2, -1), -1)
        return self.narrow(self.function(self.wide(shares @ self.value(x))))


def ops(program: object, x: Tensor) -> list[str]:
    return [row.op for row in program.profile(x)]  # type: ignore[attr-defined]


PER_TOKEN = zeropoint.QConfigMapping().set_global(zeropoint.per_token_dynamic_qconfig)


@pytest.mark.parametrize("config", [None, PER_TOKEN], ids=["one range", "a range for each token"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_layers_of_one_input_and_functions_behind_layers_give_the_bytes_of_the_graph(
    name: str, config: zeropoint.QConfigMapping | None
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 9, 24)
    graph = zeropoint.to_int8(Branches(FUNCTIONS[name]).eval(), (x,), None, config, mode="dynamic", progress=False)
    fused, plain = zeropoint.compile(graph, (x,)), compile_with((), graph, (x,))
    assert ops(plain, x).count("linear_dynamic") == 5
    assert ops(fused, x).count("linear_dynamic") == 3
    for shape in ((2, 9, 24), (1, 1, 24), (3, 33, 24)):
        given = torch.randn(shape)
        with torch.no_grad():
            expected = graph(given)
        assert torch.equal(fused(given), plain(given))
        assert torch.equal(fused(given), expected)


def test_layers_of_different_inputs_and_with_a_relu_stay_apart() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)

        def forward(self, x: Tensor) -> Tensor:
            return self.third(F.relu(self.first(x))) + self.second(x)

    torch.manual_seed(0)
    x = torch.randn(4, 24)
    graph = zeropoint.to_int8(Chain().eval(), (x,), mode="dynamic", progress=False)
    fused = zeropoint.compile(graph, (x,))
    assert ops(fused, x).count("linear_dynamic") == 3
    with torch.no_grad():
        assert torch.equal(fused(x), graph(x))


def test_an_input_that_is_not_finite_is_refused_by_joined_layers() -> None:
    x = torch.randn(2, 9, 24)
    graph = zeropoint.to_int8(Branches(F.gelu).eval(), (x,), mode="dynamic", progress=False)
    program = zeropoint.compile(graph, (x,))
    with pytest.raises(ValueError, match="must be finite"):
        program(torch.full((2, 9, 24), float("nan")))
