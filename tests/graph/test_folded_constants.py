"""Constants behind a layer: folded into it where they are for all or for a channel, and left where they are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from few_layers import Layers
from torch import Tensor, nn

from zeropoint.graph.workflow import float_graph
from zeropoint.operators.node import aten_name


class Behind(nn.Module):
    """A layer, and a function with a constant behind it."""

    def __init__(self, layer: nn.Module, function: Callable[[Tensor, Tensor], Tensor], *shape: int) -> None:
        super().__init__()
        self.layer, self.function = layer, function
        self.register_buffer("constant", torch.rand(shape) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x), self.constant)


def operators_of(model: nn.Module, x: Tensor) -> tuple[list[str], Any]:
    graph = float_graph(model.eval(), (x,))
    return [str(aten_name(node)) for node in graph.graph.nodes if node.op == "call_function"], graph


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...], tuple[int, ...]]] = {
    "conv2d": (nn.Conv2d(3, 6, 3, bias=False), (2, 3, 8, 8), (6, 1, 1)),
    "conv2d, unbatched": (nn.Conv2d(3, 6, 3), (3, 8, 8), (6, 1, 1)),
    "conv1d, groups": (nn.Conv1d(4, 6, 3, groups=2), (2, 4, 9), (1, 6, 1)),
    "conv_transpose2d, groups": (nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 5, 5), (1, 6, 1, 1)),
    "linear": (nn.Linear(5, 6, bias=False), (2, 3, 5), (6,)),
}
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda y, c: c + y,
    "difference": lambda y, c: y - c,
    "product": lambda y, c: c * y,
    "quotient": lambda y, c: y / c,
    "scaled and shifted": lambda y, c: (y * c + 1.5) * 0.25 - c,
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_constants_become_part_of_the_layer(layer: str, function: str) -> None:
    torch.manual_seed(0)
    made, shape, channels = LAYERS[layer]
    for constant in (channels, ()):
        model, x = Behind(made, FUNCTIONS[function], *constant), torch.randn(shape)
        operators, graph = operators_of(model, x)
        assert len(operators) == 1
        with torch.no_grad():
            torch.testing.assert_close(graph(x), model(x))


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda y, c: y + c, (6, 6)),  # for each pixel
        (lambda y, c: torch.add(y, c, alpha=2), (6, 1, 1)),
        (lambda y, c: c - y, (6, 1, 1)),
        (lambda y, c: c / y, (6, 1, 1)),
        (lambda y, c: y + c, (1, 1, 6, 1, 1)),  # the result has more dimensions
        (lambda y, c: y * c + y, (6, 1, 1)),  # the layer's result is read twice
        (lambda y, c: y / (c * 0.0), (6, 1, 1)),
        (lambda y, c: (y * 1e30) * 1e30, (6, 1, 1)),  # the weights would not be finite
    ],
    ids=[
        "pixels",
        "alpha",
        "reversed difference",
        "reversed quotient",
        "dimensions",
        "read twice",
        "infinite",
        "large",
    ],
)
def test_other_constants_stay(function: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = Behind(nn.Conv2d(3, 6, 3, padding=1), function, *shape), torch.randn(2, 3, 6, 6)
    operators, graph = operators_of(model, x)
    assert len(operators) > 1
    with torch.no_grad():
        torch.testing.assert_close(graph(x), model(x))


def test_the_weights_of_a_layer_that_is_called_twice_stay_those_of_each_call() -> None:
    class Twice(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x) * 3.0) + 2.0

    torch.manual_seed(0)
    model, x = Twice(layer=nn.Linear(4, 4)), torch.randn(3, 4)
    operators, graph = operators_of(model, x)
    assert operators == ["linear.default"] * 2
    with torch.no_grad():
        torch.testing.assert_close(graph(x), model(x))


class Windows(nn.Module):
    """What models with windows do to images: padded to whole windows, with a mask that is written in parts."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        rest = [(self.size - n % self.size) % self.size for n in x.shape[1:3]]
        x = torch.nn.functional.pad(self.linear(x), (0, 0, 0, rest[1], 0, rest[0]))
        mask = x.new_zeros(x.shape[1:3])
        mask[-2:, :] = 1
        mask[:, -2:] = x.new_full((2,), 3.0)
        return x + torch.ones_like(mask)[..., None] + mask[..., None]


def test_nothing_is_padded_where_windows_are_whole_and_masks_are_computed_once() -> None:
    x = torch.randn(1, 6, 6, 4)
    operators, _ = operators_of(Windows(3), x)
    assert operators == ["linear.default", "add.Tensor", "add.Tensor"]
    model = Windows(4).eval()
    padded, other = operators_of(model, x)
    assert padded.count("pad.default") + padded.count("constant_pad_nd.default") == 1
    with torch.no_grad():
        torch.testing.assert_close(other(x), model(x))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
def test_a_pad_of_nothing_gives_its_input(mode: str) -> None:
    class Padded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.pad(x, (0, 0, 0, 0), mode)

    x = torch.randn(1, 2, 3, 4)
    operators, graph = operators_of(Padded(), x)
    assert operators == []
    assert torch.equal(graph(x), x)
