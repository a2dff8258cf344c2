"""Branches within branches, loops, modules in lists, and branches that raise."""

from __future__ import annotations

import pytest
import torch
from eight_bit_steps import steps_between
from script_graphs import BOTH_WAYS, STATIC, calls, kinds, quantized, reloaded
from torch import Tensor, nn

import zeropoint

X = (2, 3, 6, 6)


class Either(nn.Module):
    """One of two convolutions, by an attribute that the model sets itself, so that nothing is known beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.first = True

    def forward(self, x: Tensor, first: bool) -> Tensor:
        self.first = first
        if self.first:
            return self.conv1(x)
        else:
            return self.conv2(x)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = Either(), Either()

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x, True), False)


def test_both_branches_are_quantized_and_share_a_scale() -> None:
    model, x = torch.jit.script(Twice().eval()), torch.rand(X)
    made = quantized(model, x)
    found = calls(made)
    assert found.count("conv2d") == 4
    assert found.count("quantize_per_tensor") == 2  # in each branch of the first
    assert found.count("dequantize") == 1
    assert kinds(made).count("prim::If") == 2
    assert steps_between(made(x), model(x)) <= 4


class Branches(nn.Module):
    """Branches within branches, all of which compute something."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.last = nn.Conv2d(3, 2, 1)

    def forward(self, x: Tensor, a: bool, b: bool) -> Tensor:
        if a:
            if b:
                y = self.conv1(x)
            else:
                y = torch.relu(self.conv2(x))
        else:
            y = self.conv3(x).flip(2)
        return self.last(y)


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_branches_that_calibration_took_are_quantized(a: bool, b: bool) -> None:
    model, x = torch.jit.script(Branches().eval()), torch.rand(X)
    prepared = zeropoint.prepare_jit(model, STATIC)
    for first in (False, True):
        for second in (False, True):
            prepared(x, first, second)
    made = zeropoint.convert_jit(prepared)
    layers = ["conv2d", "conv2d", "conv2d", "conv2d_relu"]
    assert sorted(calls(made)) == [*layers, "dequantize", *["quantize_per_tensor"] * 3]
    assert not {"aten::conv2d", "aten::relu"} & set(kinds(made))
    assert steps_between(made(x, a, b), model(x, a, b)) <= 4
    assert torch.equal(reloaded(made)(x, a, b), made(x, a, b))


class Partly(nn.Module):
    """A branch that passes on what the other one changes."""

    def __init__(self, computes: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.conv2, self.computes = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1), computes

    def forward(self, x: Tensor, changed: bool) -> Tensor:
        x = self.conv1(x)
        if changed:
            x = self.conv2(x) if self.computes else torch.flatten(x, 1)
        return x


@pytest.mark.parametrize("computes", [False, True], ids=["passes on", "computes"])
@pytest.mark.parametrize("changed", [False, True], ids=["as it was", "changed"])
def test_a_branch_that_only_passes_values_on(computes: bool, changed: bool) -> None:
    model, x = torch.jit.script(Partly(computes).eval()), torch.rand(X)
    prepared = zeropoint.prepare_jit(model, STATIC)
    prepared(x, True)
    prepared(x, False)
    made = zeropoint.convert_jit(prepared)
    assert calls(made).count("conv2d") == (2 if computes else 1)
    if not computes:
        assert calls(made).count("dequantize") == 1  # integers leave either branch
    assert steps_between(made(x, changed), model(x, changed)) <= 4


def test_branches_without_data_stay_float_and_say_so() -> None:
    model, x = torch.jit.script(Branches().eval()), torch.rand(X)
    prepared = zeropoint.prepare_jit(model, {"conv1": STATIC[""], "conv2": STATIC[""], "conv3": STATIC[""]})
    prepared(x, False, False)
    made = zeropoint.convert_jit(prepared)
    assert steps_between(made(x, False, False), model(x, False, False)) <= 3
    for a, b in ((False, True), (True, False), (True, True)):  # results may leave the ranges that were seen
        assert steps_between(made(x, a, b), model(x, a, b)) <= 32


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))

    def forward(self, x: Tensor) -> list[Tensor]:
        states = []
        for layer in self.layers:
            states.append(layer(x))
        return states


@BOTH_WAYS
def test_modules_in_a_list(traced: bool) -> None:
    model, x = Listed().eval(), torch.randn(4, 5)
    script = torch.jit.trace(model, x, strict=False) if traced else torch.jit.script(model)
    made = quantized(script, x)
    assert calls(made).count("linear") == 3
    assert calls(made).count("quantize_per_tensor") == 1
    for found, expected in zip(made(x), model(x), strict=True):
        assert steps_between(found, expected) <= 4


class Stepping(nn.Module):
    """A loop over the steps of a sequence, as many as there are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(8, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.zeros(x.size(0), 4)
        results: list[Tensor] = []
        for t in range(x.size(1)):
            state = torch.tanh(self.inner(torch.cat([x[:, t], state], 1)))
            results.append(self.outer(state))
        return torch.stack(results, 1), state


def test_a_loop_over_steps() -> None:
    model, x = Stepping().eval(), torch.randn(3, 5, 4)
    made = quantized(torch.jit.script(model), x)
    assert "prim::Loop" in kinds(made)
    assert calls(made).count("linear") == 2
    assert "aten::linear" not in kinds(made)
    longer = torch.randn(2, 9, 4)
    for data in (x, longer):
        for found, expected in zip(made(data), model(data), strict=True):
            assert steps_between(found, expected) <= 4


def test_branches_with_an_exception_hold_integers() -> None:
    class Guarded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv1, self.conv2 = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor, mode: str) -> Tensor:
            y = self.conv1(x)
            if mode == "flip":
                z = y.flip(2)
            elif mode == "same":
                z = y
            else:
                raise ValueError("no such mode")
            return self.conv2(z)

    model, x = torch.jit.script(Guarded().eval()), torch.rand(X)
    made = quantized(model, x, "flip")
    assert calls(made) == ["quantize_per_tensor", "conv2d", "conv2d", "dequantize"]
    for mode in ("flip", "same"):
        assert steps_between(made(x, mode), model(x, mode)) <= 4
    with pytest.raises(Exception, match="no such mode"):
        made(x, "other")
