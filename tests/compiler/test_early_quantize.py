"""Values are quantized before they are moved: fewer floats, the same bytes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.compiler.compiler import compile_with


class Windows(nn.Module):
    """Attention in windows that are rolled, with a bias for all windows and a mask of each, as in Swin."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm, self.qkv, self.last = nn.LayerNorm(12), nn.Linear(12, 36), nn.Linear(12, 12)
        self.bias = nn.Parameter(torch.randn(1, 3, 4, 4))
        self.register_buffer("mask", torch.where(torch.rand(4, 4, 4) < 0.3, -100.0, 0.0))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(x.shape[0], 2, 2, 2, 2, 12).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 12)
        q, k, v = self.qkv(y).view(-1, 4, 3, 3, 4).permute(2, 0, 3, 1, 4)
        scores = q * 0.5 @ k.transpose(-2, -1) + self.bias
        scores = scores.view(x.shape[0], 4, 3, 4, 4) + self.mask[:, None][None]
        y = self.last((scores.view(-1, 3, 4, 4).softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = y.view(x.shape[0], 2, 2, 2, 2, 12).permute(0, 1, 3, 2, 4, 5).reshape(x.shape[0], 4, 4, 12)
        return x + torch.roll(y, (self.shift, self.shift), (1, 2))


def programs(model: nn.Module, x: Tensor) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    graph = zeropoint.to_int8(model.eval(), (x,), [x], progress=False)
    return graph, zeropoint.compile(graph, (x,)), compile_with((), graph, (x,))


def test_windows_that_are_rolled_are_moved_as_bytes_and_attend_in_one_step() -> None:
    torch.manual_seed(0)
    graph, program, plain = programs(Windows(1), torch.randn(2, 4, 4, 12))
    rows = program.profile(torch.randn(2, 4, 4, 12))
    assert [row.op for row in rows].count("attention") == 1
    assert all(row.dtype_in == "uint8" for row in rows if row.op in ("cat", "reshape"))
    assert [row.dtype_out for row in rows if row.op == "float_layer_norm"] == ["uint8"]
    for batch in (2, 1, 5):
        x = torch.randn(batch, 4, 4, 12)
        with torch.no_grad():
            expected = graph(x)
        assert torch.equal(program(x), expected)
        assert torch.equal(plain(x), expected)


def test_floats_that_others_read_are_moved_as_floats() -> None:
    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.last = nn.LayerNorm(12), nn.Linear(12, 12)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            moved = self.norm(x).transpose(0, 1).flatten(1, 1)
            return self.last(moved), moved * 2

    graph, program, _ = programs(Read(), torch.randn(2, 4, 12))
    x = torch.randn(2, 4, 12)
    with torch.no_grad():
        expected = graph(x)
    assert all(torch.equal(a, b) for a, b in zip(program(x), expected))


def test_a_part_of_a_value_is_taken_before_it_is_quantized() -> None:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.last = nn.LayerNorm(12), nn.Linear(12, 12)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.norm(x)[:, 0])

    graph, program, _ = programs(Part(), torch.randn(2, 4, 12))
    x = torch.randn(2, 4, 12)
    assert next(row.shape for row in program.profile(x) if row.dtype_out == "uint8") != (2, 4, 12)
    with torch.no_grad():
        assert torch.equal(program(x), graph(x))
