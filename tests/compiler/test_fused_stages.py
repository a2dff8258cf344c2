"""Functions in linear layers, sums and bytes of norms: the bytes of the steps that they replace, and of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import golden_programs
import pytest
import torch
import torch.nn.functional as F
from few_layers import FUNCTIONS
from torch import Tensor, nn

import zeropoint
from zeropoint import _native
from zeropoint.compiler.compiler import compile_with


class Block(nn.Module):
    """A norm, a wide layer with a function, and the sum with what went past it."""

    def __init__(self, function: Callable[[Tensor], Tensor], affine: bool = True) -> None:
        super().__init__()
        self.function = function
        self.first, self.last = nn.LayerNorm(24, elementwise_affine=affine), nn.LayerNorm(24)
        self.wide, self.narrow, self.head = nn.Linear(24, 70), nn.Linear(70, 24), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y = y + F.scaled_dot_product_attention(y, y, y)  # models with attention keep functions in float32
        y = self.last(y + self.narrow(self.function(self.wide(y))))
        return self.head(y)


def compiled(model: nn.Module, x: Tensor) -> tuple[Any, Any, Any]:
    graph = zeropoint.to_int8(model.eval(), (x,), progress=False)
    return graph, zeropoint.compile(graph, (x,)), compile_with((), graph, (x,))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_sums_and_norms_have_the_bytes_of_the_steps_and_of_the_graph(name: str, affine: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 7, 24)
    graph, fused, plain = compiled(Block(FUNCTIONS[name], affine), x)
    ops = [row.op for row in fused.profile(x)]
    assert not any(op in ("map", "float_gelu") for op in ops[-5:])
    assert len(ops) < len([row.op for row in plain.profile(x)])
    for shape in ((3, 7, 24), (1, 1, 24), (5, 33, 24)):
        given = torch.randn(shape)
        with torch.no_grad():
            expected = graph(given)
        assert torch.equal(fused(given), expected)
        assert torch.equal(plain(given), expected)


def test_a_sum_that_repeats_one_operand_stays_right_for_other_batches() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.place = nn.Parameter(torch.randn(1, 7, 24))
            self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(x + self.place))

    torch.manual_seed(0)
    graph, fused, plain = compiled(Positions(), torch.randn(2, 7, 24))
    for batch in (1, 2, 9):
        given = torch.randn(batch, 7, 24)
        with torch.no_grad():
            assert torch.equal(fused(given), graph(given))
        assert torch.equal(fused(given), plain(given))


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a program with a function and a norm inside other steps."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("stages") / "right.zpt"
    compiled(Block(F.gelu), torch.randn(2, 7, 24))[1].save(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("linear", {"function": "cosine"}, "no function 'cosine'"),
        ("linear", {"function": 3}, "function"),
        ("float_layer_norm", {"dtype": "float32"}, "dtype"),
        ("float_layer_norm", {"scale": -1.0}, "scale"),
        ("float_layer_norm", {"low": 7, "high": 3}, "high"),
    ],
)
def test_a_wrong_step_is_refused(op: str, attributes: dict[str, Any], message: str, right: bytes) -> None:
    header, program, data = golden_programs.parts_of(right)
    wanted = "function" if op == "linear" else "dtype"
    next(s for s in program["steps"] if s["op"] == op and wanted in s["attributes"])["attributes"].update(attributes)
    with pytest.raises(zeropoint.FormatError, match=message):
        _native.Program(golden_programs.joined(header, program, data))


def test_a_norm_takes_bytes_and_gives_the_sum_that_others_read() -> None:
    class Before(nn.Module):
        """Norms before layers: each sum goes past the next layers, too."""

        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(3))
            self.wide, self.narrow, self.head = nn.Linear(24, 70), nn.Linear(70, 24), nn.Linear(24, 5)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.norms[0](x)
            x = x + F.scaled_dot_product_attention(y, y, y)
            x = x + self.narrow(F.gelu(self.wide(self.norms[1](x))))
            return self.head(self.norms[2](x)), x

    torch.manual_seed(0)
    x = torch.randn(3, 7, 24)
    graph, fused, plain = compiled(Before(), x)
    ops = [row.op for row in fused.profile(x)]
    assert [ops.count(op) for op in ("map", "dequantize")] == [0, 0], ops
    for shape in ((3, 7, 24), (1, 1, 24), (5, 33, 24)):
        given = torch.randn(shape)
        with torch.no_grad():
            expected = graph(given)
        assert all(torch.equal(a, b) for a, b in zip(fused(given), expected))
        assert all(torch.equal(a, b) for a, b in zip(plain(given), expected))
