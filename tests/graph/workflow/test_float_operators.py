"""What stays float32 in a graph on integers is computed by operators that programs have too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from graph_values import values_of
from torch import Tensor, nn
from torch.nn import functional as F

import zeropoint
from zeropoint.operators import operators


class Between(nn.Module):
    """A function between two layers."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.first, self.last = function, nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.last(self.norm(y) if self.function is nn.LayerNorm else self.function(y))


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "layer norm": (nn.LayerNorm, "float_layer_norm"),
    "softmax": (lambda x: torch.softmax(x, 1), "float_softmax"),
    "gelu": (F.gelu, "float_gelu"),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), "float_gelu"),
    "tanh": (torch.tanh, "float_tanh"),
    "sigmoid": (torch.sigmoid, "float_sigmoid"),
    "silu": (F.silu, "float_silu"),
    "matmul": (lambda x: x @ x.transpose(-1, -2) @ x, "float_matmul"),
    "bmm": (lambda x: torch.bmm(x, x.transpose(-1, -2)).bmm(x), "float_matmul"),
}


# Operators that one of ours computes on floats.
WHOLE = {"layer_norm", "softmax", "gelu", "tanh", "sigmoid", "silu", "matmul", "bmm", "linear"}


def converted(function: Callable[..., Tensor]) -> tuple[nn.Module, nn.Module, Tensor]:
    torch.manual_seed(0)
    model, x = Between(function).eval(), torch.randn(2, 5, 8)
    return model, zeropoint.to_int8(model, (x,), mode="dynamic", progress=False).graph_module, x


def targets(graph: nn.Module) -> set[str]:
    return {str(node.target) for node in graph.graph.nodes}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float_operator_is_ours_and_gives_what_torch_gives(name: str) -> None:
    function, ours = FUNCTIONS[name]
    _, graph, x = converted(function)
    assert f"zeropoint.{ours}.default" in targets(graph)
    old = {f"aten.{name}" for operator in operators() if operator.name in WHOLE for name in operator.aten}
    assert not old & targets(graph)
    linears = [node for node in graph.graph.nodes if "linear_dynamic" in str(node.target)]
    seen = values_of(graph, x)
    with torch.no_grad():
        first, last = (seen[node] for node in (linears[0], linears[1].args[0]))
        expected = F.layer_norm(first, [8]) if function is nn.LayerNorm else function(first)
    torch.testing.assert_close(last, expected, rtol=2e-6, atol=2e-6)


def test_other_dtypes_stay_as_they_are() -> None:
    _, graph, x = converted(lambda x: torch.tanh(x.double()).float())
    assert not any("float_" in target for target in targets(graph))
    assert graph(x).shape == x.shape


def test_product_with_a_vector_is_one_of_matrices() -> None:
    _, graph, x = converted(lambda x: x + (x @ x[0, 0]).unsqueeze(-1))
    assert any("float_matmul" in target for target in targets(graph))
    assert graph(x).shape == x.shape
