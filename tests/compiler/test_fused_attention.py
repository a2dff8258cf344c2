"""Attention as one step gives the bytes of the steps that it replaces, and of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import golden_programs
import pytest
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint import _native
from zeropoint.compiler.compiler import compile_with


class Heads(nn.Module):
    """Attention of some heads; `scores` says what is done to the scores before the softmax."""

    def __init__(self, heads: int, size: int, scores: Callable[..., Tensor], width: int | None = None) -> None:
        super().__init__()
        width = width or size
        self.heads, self.scores = heads, scores
        self.norm = nn.LayerNorm(24)  # models with norms before layers keep what is between the products in float32
        self.q, self.k = nn.Linear(24, heads * size), nn.Linear(24, heads * size)
        self.v, self.last = nn.Linear(24, heads * width), nn.Linear(heads * width, 8)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor, seen: Tensor, mask: Tensor | None = None) -> Any:
        x = self.norm(x)
        q, k, v = self.split(self.q(x)), self.split(self.k(seen)), self.split(self.v(seen))
        scores = torch.matmul(q, k.transpose(-2, -1))
        shares = torch.softmax(self.scores(scores) if mask is None else self.scores(scores, mask), -1)
        return self.last(torch.matmul(shares, v).transpose(1, 2).flatten(2))


def inputs(rows: int, columns: int, batch: int = 2, *, mask: str = "") -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(rows * 1000 + columns)
    x, seen = torch.randn(batch, rows, 24, generator=g), torch.randn(batch, columns, 24, generator=g)
    drop = torch.rand(batch, 1, 1, columns, generator=g) < 0.3
    drop[..., 0] = False
    match mask:
        case "float":
            return x, seen, torch.zeros(drop.shape).masked_fill(drop, -math.inf)
        case "bool":
            return x, seen, drop
        case "rows":
            return x, seen, torch.randn(rows, columns, generator=g)
        case "kept rows":  # all of the first eight
            return x, seen, (torch.arange(rows) // 8 % 2 == 0)[:, None]
    return x, seen


def scaled(scores: Tensor) -> Tensor:
    return scores * 0.3


CASES: dict[str, tuple[Callable[..., Tensor], str]] = {
    "plain": (lambda s: s, ""),
    "scaled": (scaled, ""),
    "divided": (lambda s: s / 5.7, ""),
    "shifted": (lambda s: s + 0.5, ""),
    "a float mask of columns": (lambda s, m: s * 0.3 + m, "float"),
    "a float mask of rows and columns": (lambda s, m: s / 3.0 + m, "rows"),
    "a bool mask": (lambda s, m: torch.where(m, -1e4, s * 0.3), "bool"),
    "a bool mask of what is kept": (lambda s, m: torch.where(m, s * 0.3, -1e4), "bool"),
    "rows that are kept": (lambda s, m: torch.where(m, s * 0.3, -1e4), "kept rows"),
}


def ops_of(program: Any, given: tuple[Tensor, ...]) -> list[str]:
    return [row.op for row in program.profile(*given)]


def both(model: nn.Module, given: tuple[Tensor, ...]) -> tuple[Any, Any, Any]:
    graph = zeropoint.to_int8(model.eval(), given, progress=False)
    return graph, zeropoint.compile(graph, given), compile_with((), graph, given)


@pytest.mark.parametrize("name", CASES)
def test_attention_is_one_step_with_the_bytes_of_the_steps_and_of_the_graph(name: str) -> None:
    torch.manual_seed(0)
    scores, mask = CASES[name]
    graph, fused, plain = both(Heads(3, 8, scores), inputs(7, 5, mask=mask))
    assert ops_of(fused, inputs(7, 5, mask=mask)).count("attention") == 1
    assert "float_softmax" not in ops_of(fused, inputs(7, 5, mask=mask))
    assert "attention" not in ops_of(plain, inputs(7, 5, mask=mask))
    for rows, columns, batch in ((7, 5, 2), (1, 1, 1), (70, 33, 1), (3, 130, 3)):
        given = inputs(rows, columns, batch, mask=mask)
        with torch.no_grad():
            expected = graph(*given)
        assert torch.equal(fused(*given), expected)
        assert torch.equal(plain(*given), expected)


@pytest.mark.parametrize(("heads", "size", "width"), [(1, 1, 1), (2, 3, 5), (4, 32, 32), (1, 70, 17), (5, 16, 40)])
def test_heads_of_any_size_have_the_bytes_of_the_steps(heads: int, size: int, width: int) -> None:
    torch.manual_seed(size)
    graph, fused, plain = both(Heads(heads, size, scaled, width), inputs(9, 20))
    assert "attention" in ops_of(fused, inputs(9, 20))
    for rows, columns in ((9, 20), (4, 64), (65, 17)):
        given = inputs(rows, columns)
        with torch.no_grad():
            assert torch.equal(fused(*given), graph(*given))
        assert torch.equal(fused(*given), plain(*given))


def test_a_causal_mask_goes_into_the_step() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(24)
            self.q, self.k, self.v, self.last = (nn.Linear(24, 24) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(x)
            q, k, v = (layer(x).unflatten(-1, (3, 8)).transpose(1, 2) for layer in (self.q, self.k, self.v))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.last(y.transpose(1, 2).flatten(2))

    torch.manual_seed(0)
    x = torch.randn(2, 11, 24)
    graph, fused, plain = both(Causal(), (x,))
    assert "attention" in ops_of(fused, (x,))
    for shape in ((2, 11, 24), (1, 1, 24), (3, 70, 24)):
        given = torch.randn(shape)
        with torch.no_grad():
            assert torch.equal(fused(given), graph(given))
        assert torch.equal(fused(given), plain(given))


def test_scores_that_somebody_else_reads_stay_steps() -> None:
    class Shown(Heads):
        def forward(self, x: Tensor, seen: Tensor, mask: Tensor | None = None) -> Any:
            x = self.norm(x)
            q, k, v = self.split(self.q(x)), self.split(self.k(seen)), self.split(self.v(seen))
            shares = torch.softmax(torch.matmul(q, k.transpose(-2, -1)), -1)
            return self.last(torch.matmul(shares, v).transpose(1, 2).flatten(2)), shares

    torch.manual_seed(0)
    given = inputs(7, 5)
    graph, fused, _ = both(Shown(2, 8, scaled), given)
    assert "attention" not in ops_of(fused, given)
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(fused(*given), graph(*given)))


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a program with a step of attention."""
    torch.manual_seed(0)
    given, path = inputs(7, 5, mask="float"), tmp_path_factory.mktemp("attention") / "right.zpt"
    graph = zeropoint.to_int8(Heads(3, 8, lambda s, m: s + m).eval(), given, progress=False)
    zeropoint.compile(graph, given).save(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"share_dtype": "float32"}, "share_dtype"),
        ({"share_scale": 0.0}, "share_scale"),
        ({"share_zero_point": -1}, "outside the range of uint8"),
        ({"share_low": 9, "share_high": 3}, "share_high"),
        ({"q_zero_point": -5}, "outside the range of uint8"),
        ({"zero_point": -5}, "outside the range of uint8"),
        ({"operations": [["multiply"]]}, "'multiply' takes one number"),
        ({"operations": [["multiply", "a"]]}, "a number of an operation"),
        ({"operations": [["power", 2.0]]}, "no operation 'power'"),
        ({"operations": [3]}, "must be a list"),
        ({"operations": [["add_mask"], ["add_mask"]]}, "inputs"),
        ({"operations": [["multiply", 1.0]] * 9}, "8 at most"),
        ({"operations": [["keep", 0.0]]}, "a mask must be bool"),
        ({"safe": 1}, "'safe' must be true or false"),
        ({"more": 1}, "more"),
    ],
)
def test_a_wrong_step_is_refused(attributes: dict[str, Any], message: str, right: bytes) -> None:
    header, program, data = golden_programs.parts_of(right)
    next(s for s in program["steps"] if s["op"] == "attention")["attributes"].update(attributes)
    with pytest.raises(zeropoint.FormatError, match=message):
        _native.Program(golden_programs.joined(header, program, data))
