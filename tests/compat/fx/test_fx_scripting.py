"""Converted graphs through torch.jit.script, without zeropoint.compat."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
from zeropoint import fx


class Block(nn.Module):
    """Layers, a sum, a product, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.swish, self.pool, self.last = nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x)))
        x = x + self.second(x)
        x = self.swish(x) * x
        x = F.max_pool2d(x, 2)
        return self.last(torch.flatten(self.pool(x), 1))


class Functions(nn.Module):
    """Layers whose weights are arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.weight = nn.Parameter(torch.randn(4, 3, 3, 3)), nn.Parameter(torch.randn(5, 4))
        self.bias, self.norm = nn.Parameter(torch.randn(5)), nn.LayerNorm(5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.conv2d(x, self.kernel, None, (2, 2), (1, 1)))
        x = F.linear(x.mean([2, 3]), self.weight, self.bias)
        return F.elu(F.leaky_relu(self.norm(x), 0.1))


def converted(model: nn.Module, qconfigs: Any, x: Tensor) -> torch.fx.GraphModule:
    prepared = fx.prepare_fx(model.eval(), qconfigs, (x,))
    prepared(x)
    return fx.convert_fx(prepared)


@pytest.mark.parametrize("model", [Block, Functions])
def test_gives_what_the_graph_gives(model: type[nn.Module]) -> None:
    x = torch.randn(2, 3, 8, 8)
    made = converted(model(), zeropoint.get_default_qconfig_mapping("x86"), x)
    want, code = made(x), made.code
    scripted = torch.jit.script(made)
    assert torch.equal(scripted(x), want)
    assert made.code == code
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    assert torch.equal(torch.jit.load(file)(x), want)


@pytest.mark.parametrize("qconfig", [zeropoint.default_dynamic_qconfig, zeropoint.float16_dynamic_qconfig])
def test_dynamic_layers(qconfig: Any) -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.weight = nn.Linear(6, 5), nn.Parameter(torch.randn(4, 5))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(F.linear(self.first(x), self.weight))

    x = torch.randn(3, 6)
    made = converted(Layers(), zeropoint.QConfigMapping().set_global(qconfig), x)
    assert torch.equal(torch.jit.script(made)(x), made(x))


@pytest.mark.parametrize(
    ("prepare", "convert"),
    [(fx.prepare_fx, fx.convert_to_reference_fx), (zeropoint.prepare_graph, zeropoint.convert_graph)],
    ids=["reference graphs", "graphs of to_int8"],
)
def test_graphs_can_be_scripted(prepare: Any, convert: Any) -> None:
    x = torch.randn(2, 3, 8, 8)
    prepared = prepare(Block().eval(), zeropoint.get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    made = convert(prepared)
    assert torch.equal(torch.jit.script(made)(x), made(x))


def test_scripted_graphs_of_to_int8_check_sizes() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 5), nn.Linear(6, 5)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.first(x) + self.second(y)

    x, y = torch.randn(3, 6), torch.randn(3, 6)
    made = zeropoint.to_int8(Two().eval(), (x, y), [(x, y)], progress=False)
    scripted = torch.jit.script(made)
    assert torch.equal(scripted(x[:2], y[:2]), made(x[:2], y[:2]))
    with pytest.raises(Exception, match="y has size 2 along axis 0, but the model needs 3 there"):
        scripted(x, y[:2])
    with pytest.raises(Exception, match="x has size 5 along axis 1, but the model needs 6"):
        scripted(x[:, :5], y)
    with pytest.raises(Exception, match="captured with x of 2 dimensions, got 3"):
        scripted(x[None], y)


def test_scripted_graphs_check_what_the_model_asked_about_sizes() -> None:
    class Asking(Layers):
        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x) if x.size(0) > 3 else self.layer(x) * 2
            return y + y if (x.size(0) * 3 + 1) // 2 > 8 else y

    x = torch.randn(6, 6)
    made = zeropoint.to_int8(Asking(layer=nn.Linear(6, 5)).eval(), (x,), [x], progress=False)
    scripted = torch.jit.script(made)
    for rows in (6, 9):
        assert torch.equal(scripted(x[:1].repeat(rows, 1)), made(x[:1].repeat(rows, 1)))
    for rows in (3, 5):
        for refusing in (made, scripted):
            with pytest.raises(Exception, match="the sizes of the inputs do not match"):
                refusing(torch.randn(rows, 6))


def test_names_what_cannot_be_scripted() -> None:
    class Shifted(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) + 3

    x = torch.randn(1, 3, 4, 4)
    made = converted(Shifted(conv=nn.Conv2d(3, 4, 1)), zeropoint.get_default_qconfig_mapping("x86"), x)
    with pytest.raises(NotImplementedError, match=r"add with a number in a converted graph .* use torch.jit.trace"):
        torch.jit.script(made)
