"""Branches, loops, modules in lists and behind interfaces, functions, tasks, state and other methods."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from script_graphs import BOTH_WAYS, STATIC, calls, kinds, quantized, reloaded, scripted
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
    assert (made(x) - model(x)).abs().max() < 0.03


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
    assert (made(x, a, b) - model(x, a, b)).abs().max() < 0.03
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
    assert (made(x, changed) - model(x, changed)).abs().max() < 0.03


def test_branches_without_data_stay_float_and_say_so() -> None:
    model, x = torch.jit.script(Branches().eval()), torch.rand(X)
    prepared = zeropoint.prepare_jit(model, {"conv1": STATIC[""], "conv2": STATIC[""], "conv3": STATIC[""]})
    prepared(x, False, False)
    made = zeropoint.convert_jit(prepared)
    for a in (False, True):
        for b in (False, True):
            assert (made(x, a, b) - model(x, a, b)).abs().max() < 0.1


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
        assert (found - expected).abs().max() < 0.03


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
            assert (found - expected).abs().max() < 0.08


@BOTH_WAYS
def test_a_module_that_is_used_twice_has_a_scale_for_each_use(traced: bool) -> None:
    class Reused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.relu = nn.Linear(5, 5), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.fc(100 * self.relu(self.fc(x))))

    model, x = Reused().eval(), torch.randn(16, 5)
    made = quantized(scripted(model, traced, x), x)
    assert calls(made).count("linear_relu") == 2
    assert (made(x) - model(x)).abs().max() < 0.03 * model(x).abs().max()


@torch.jit.interface
class Operation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Affine(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self.fc = factor, nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.factor


class Behind(nn.Module):
    def __init__(self, operation: nn.Module) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        return self.operation.forward(x)


Behind.__annotations__ = {"operation": Operation}  # which TorchScript cannot look up by its name


class Interfaces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = Behind(Affine(1.0)), Behind(Affine(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


def test_modules_behind_interfaces_are_told_apart() -> None:
    model, x = Interfaces().eval(), torch.randn(4, 5)
    made = quantized(torch.jit.script(model), x)
    assert calls(made).count("linear") == 2
    assert (made(x) - model(x)).abs().max() < 0.1
    made = quantized(torch.jit.script(model), x, qconfigs={"": STATIC[""], "a": None})
    assert calls(made).count("linear") == 1


class Forked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        task = torch.jit.fork(self.fc, x)
        return torch.jit.wait(task) + 1


def test_tasks_are_quantized() -> None:
    model, x = Forked().eval(), torch.randn(4, 5)
    made = zeropoint.quantize_dynamic_jit(torch.jit.script(model), {"": zeropoint.default_dynamic_qconfig})
    assert calls(made) == ["linear_dynamic"]
    assert (made(x) - model(x)).abs().max() < 0.05
    assert torch.equal(reloaded(made)(x), made(x))


class Stateful(nn.Module):
    """State, an exception and a method besides forward."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(5, 5)
        self.register_buffer("total", torch.zeros(5))
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        if x.size(1) != 5:
            raise ValueError("five columns, please")
        self.count += 1
        y = self.fc(x)
        self.total += y.sum(0)
        return y

    @torch.jit.export
    def reset(self) -> int:
        before = self.count
        self.count = 0
        self.total = torch.zeros(5)
        return before

    @torch.jit.export
    def embed(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x))


def test_state_exceptions_and_other_methods_stay() -> None:
    model, x = Stateful().eval(), torch.randn(4, 5)
    prepared = zeropoint.prepare_jit(torch.jit.script(model), STATIC)
    prepared(x)
    prepared.embed(x)
    prepared.reset()
    made = reloaded(zeropoint.convert_jit(prepared))
    assert "linear" in calls(made)
    first = made(x)
    assert torch.allclose(made.total, first.sum(0))
    made(x)
    assert torch.allclose(made.total, 2 * first.sum(0))
    with pytest.raises(Exception, match="five columns, please"):
        made(torch.randn(4, 6))
    assert made.reset() == 2
    assert made.reset() == 0
    assert not made.total.any()
    assert (made.embed(x) - F.relu(model.fc(x))).abs().max() < 0.03


class Nested(nn.Module):
    """Dictionaries, lists and tuples in and out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(
        self, named: dict[str, Tensor], listed: list[Tensor], pair: tuple[Tensor, int]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        x = self.fc1(named["x"] + listed[0])
        y = self.fc2(x * pair[0] * pair[1])
        return {"x": x, "y": y}, [y, x]


def test_nested_inputs_and_outputs() -> None:
    model = Nested().eval()
    inputs = ({"x": torch.randn(4, 5)}, [torch.randn(4, 5)], (torch.rand(4, 5), 2))
    made = quantized(torch.jit.script(model), *inputs)
    assert calls(made).count("linear") == 2
    (named, listed), (expected, expected_list) = made(*inputs), model(*inputs)
    assert named.keys() == expected.keys()
    for found, wanted in zip([*named.values(), *listed], [*expected.values(), *expected_list], strict=True):
        assert (found - wanted).abs().max() < 0.05


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
        assert (made(x, mode) - model(x, mode)).abs().max() < 0.03
    with pytest.raises(Exception, match="no such mode"):
        made(x, "other")
