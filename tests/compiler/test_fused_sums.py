"""Sums and products that are part of a layer: the bytes of the graph, which rounds twice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import golden_programs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint


class Around(nn.Module):
    """``function(layers, x)`` between two layers, so that everything in it has 8 bits and its channels innermost."""

    def __init__(self, layers: list[nn.Module], function: Callable[..., Any], channels: int = 20) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, channels, 3, padding=1), nn.Conv2d(channels, 5, 1)
        self.layers, self.function = nn.ModuleList(layers), function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.layers, F.relu(self.first(x))))


class Rows(nn.Module):
    """Linear layers past which something goes."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second, self.past = nn.Linear(width, 33), nn.Linear(33, outputs), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.past(x) + self.second(F.relu(self.first(x))))


class Signal(nn.Module):
    """One axis."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 6, 3, padding=1), nn.Conv1d(6, 6, 5, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return F.relu(x + self.second(x))


class AsItCame(nn.Module):
    """What is added has its channels outermost, and decides how the sum lies."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.conv, self.is_first = nn.Conv2d(3, 3, 3, padding=1), first

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return (x + y if self.is_first else y + x).mean([2, 3])


def conv(inputs: int = 20, outputs: int = 20, kernel: int = 3, **options: Any) -> nn.Module:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **options)


def _downsampled(layers: Any, x: Tensor) -> Tensor:
    y = layers[1](F.relu(layers[0](x)))
    return F.relu(y + layers[2](x))


def _past_a_pool(layers: Any, x: Tensor) -> Tensor:
    y = layers[0](x)
    return y + F.max_pool2d(x, 3, 1, 1)


@dataclass(frozen=True)
class Example:
    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    gone: int = 1  # sums and products that are part of layers
    alone: int = 0  # those that are not


_IMAGES = ((2, 3, 9, 11), (1, 3, 5, 5), (3, 3, 25, 27))


def _around(layers: list[nn.Module], function: Callable[..., Any], **more: int) -> Example:
    return Example(lambda: Around(layers, function), _IMAGES, **more)


EXAMPLES = {
    "first": _around([conv()], lambda m, x: m[0](x) + x),
    "second": _around([conv()], lambda m, x: x + m[0](x)),
    "relu": _around([conv()], lambda m, x: F.relu(x + m[0](x))),
    "pointwise": _around([conv(kernel=1)], lambda m, x: F.relu(m[0](x) + x)),
    "two in a row": _around([conv(), conv()], lambda m, x: F.relu(x + m[1](F.relu(m[0](x)))) + x, gone=1, alone=1),
    "downsampled": _around([conv(stride=2), conv(), conv(kernel=1, stride=2)], _downsampled),
    "depthwise": _around([conv(groups=20)], lambda m, x: x + m[0](x)),
    "grouped": _around([conv(groups=4)], lambda m, x: x + m[0](x)),
    "many channels": Example(
        lambda: Around([conv(48, 48)], lambda m, x: F.relu(x + m[0](x)), 48), ((2, 3, 9, 11), (1, 3, 16, 16))
    ),
    "groups of panels": Example(
        lambda: Around([conv(68, 68, groups=2)], lambda m, x: x + m[0](x), 68), ((2, 3, 9, 11), (1, 3, 5, 6))
    ),
    "transposed": _around([conv(stride=2), nn.ConvTranspose2d(20, 20, 3, 2, 1)], lambda m, x: m[1](m[0](x)) + x),
    "function before": _around([conv()], lambda m, x: x + F.hardswish(m[0](x))),
    "product": _around([conv(), conv()], lambda m, x: m[0](x) * torch.sigmoid(m[1](x))),
    "computed later": _around([conv()], _past_a_pool),
    "one value for each channel": _around(
        [conv(), conv(kernel=1)], lambda m, x: m[0](x) + m[1](F.adaptive_avg_pool2d(x, 1))
    ),
    "read by others": _around([conv()], lambda m, x: (lambda y: F.relu(y + x) + y)(m[0](x)), gone=0, alone=2),
    "with itself": _around([conv()], lambda m, x: (lambda y: y + y)(m[0](x)), gone=0, alone=1),
    "rows": Example(lambda: Rows(24, 20), ((3, 24), (300, 24))),
    "long rows": Example(lambda: Rows(32, 300), ((1, 32), (250, 32))),
    "signal": Example(Signal, ((2, 2, 12), (1, 2, 300))),
    "as it came, first": Example(lambda: AsItCame(True), ((2, 3, 7, 5), (1, 3, 1, 6))),
    "as it came, second": Example(lambda: AsItCame(False), ((2, 3, 7, 5), (1, 3, 1, 6))),
}  # fmt: skip


@functools.cache
def made(name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    example = EXAMPLES[name]
    inputs = (torch.randn(example.shapes[0]),)
    quantized = zeropoint.to_int8(example.make().eval(), inputs, dynamic_shapes="all", progress=False)
    return quantized, zeropoint.compile(quantized, inputs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_sums_are_part_of_layers(name: str) -> None:
    _, program = made(name)
    steps = golden_programs.text_of(program._native.data())["steps"]
    assert sum("then" in step["attributes"] for step in steps) == EXAMPLES[name].gone
    assert sum(step["op"] in ("add", "multiply") for step in steps) == EXAMPLES[name].alone


@pytest.mark.parametrize("name", EXAMPLES)
def test_program_gives_the_bytes_of_the_graph(name: str, isa: str) -> None:
    quantized, program = made(name)
    torch.manual_seed(1)
    for shape in EXAMPLES[name].shapes:
        x = torch.randn(shape) * 2
        with torch.no_grad():
            expected = quantized(x)
        for threads in (1, 2):
            zeropoint.set_num_threads(threads)
            found = program(x)
            assert torch.equal(found, expected)
            assert found.stride() == expected.stride()


@pytest.mark.parametrize("name", ["second", "two in a row", "downsampled", "rows"])
def test_an_empty_batch(name: str) -> None:
    _, program = made(name)
    assert program(torch.zeros(0, *EXAMPLES[name].shapes[0][1:])).shape[0] == 0


def instructions(program: Any, shape: tuple[int, ...]) -> list[str]:
    return [row.op for row in program.profile(torch.zeros(shape), runs=1)]


def test_what_is_repeated_or_lies_otherwise_is_added_on_its_own() -> None:
    """It is still one step: of a layer, of a copy in the layout of the result, and of a sum."""
    for name, extra in (("second", 0), ("one value for each channel", 2), ("as it came, first", 2)):
        _, program = made(name)
        shape = EXAMPLES[name].shapes[0]
        steps = len(golden_programs.text_of(program._native.data())["steps"])
        assert len(instructions(program, shape)) == steps + extra


def test_a_sum_is_where_its_operand_was() -> None:
    """Activations of one size: what comes in, what the inner layer makes, and the sum in the place of the first."""
    inner = lambda m, x: x + m[1](m[0](x))  # noqa: E731
    model, x = Around([conv(32, 32), conv(32, 32)], inner, 32), torch.randn(1, 3, 16, 16)
    program = zeropoint.compile(zeropoint.to_int8(model.eval(), (x,), dynamic_shapes="all", progress=False), (x,))
    assert program.memory().arena == 2 * 32 * 16 * 16
