"""torch.compile with our backend, by its name, as users call it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
from zeropoint.integrations.torch_compile import Statistics, statistics

DYNAMIC = 0.02  # of the largest value: two layers, each rounded to 1/127 of its largest input and weight


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


class Counts:
    """What was counted since it was made."""

    def __init__(self) -> None:
        self._before = dataclasses.astuple(statistics())

    def __call__(self) -> Statistics:
        return Statistics(*(b - a for a, b in zip(self._before, dataclasses.astuple(statistics()))))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.last = nn.Linear(8, 4)
        self.register_buffer("factor", torch.full((4,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x).mean((2, 3)).reshape(x.shape[0], -1)) * self.factor


class Broken(nn.Module):
    """With a graph break in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        torch._dynamo.graph_break()
        return self.last(y)


def _compiled(model: nn.Module, **options: Any) -> Any:
    return torch.compile(model, backend="zeropoint", options=options or None)


def _assert_near(result: Tensor, expected: Tensor) -> None:
    assert (result - expected).abs().max() <= DYNAMIC * expected.abs().max()


def test_other_batch_sizes_run_in_int8_with_two_graphs() -> None:
    model, counts = Convolutional().eval(), Counts()
    fast = _compiled(model)
    for batch in (2, 3, 4, 7):
        x = torch.randn(batch, 3, 8, 8)
        _assert_near(fast(x), model(x))
    assert counts() == Statistics(graphs=2, int8=2)


def test_the_result_is_that_of_the_dynamic_program() -> None:
    model = Broken().eval().first
    x = torch.randn(4, 8)
    program = zeropoint.compile(zeropoint.to_int8(model, (x,), mode="dynamic"), (x,))
    assert torch.equal(_compiled(model)(x), program(x))


def test_static_mode_observes_the_first_calls() -> None:
    model, counts = Convolutional().eval(), Counts()
    fast = _compiled(model, mode="static", calibration=2)
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(fast(x), model(x))
    assert counts().int8 == 0
    assert torch.equal(fast(x), model(x))
    assert counts().int8 == 1
    assert not torch.equal(fast(x), model(x))
    _assert_near(fast(x), model(x))


def test_each_part_between_graph_breaks_is_a_program() -> None:
    model, counts = Broken().eval(), Counts()
    x = torch.randn(4, 8)
    _assert_near(_compiled(model)(x), model(x))
    assert counts() == Statistics(graphs=2, int8=2)


def test_weights_that_change_are_quantized_again() -> None:
    model, counts = Broken().eval().first, Counts()
    fast, x = _compiled(model), torch.randn(4, 8)
    fast(x)
    model.weight.mul_(3)
    _assert_near(fast(x), model(x))
    model.load_state_dict({name: value / 2 for name, value in model.state_dict().items()})
    _assert_near(fast(x), model(x))
    assert counts() == Statistics(graphs=1, int8=3, recompiled=2)


def test_gradients_are_computed_in_float_with_a_warning() -> None:
    model = Broken().first
    fast, x = _compiled(model), torch.randn(4, 8)
    with torch.enable_grad(), pytest.warns(UserWarning, match="computes gradients; use torch.no_grad"):
        fast(x).sum().backward()
    assert model.weight.grad is not None


def test_a_graph_that_writes_to_a_buffer_is_left_to_torch() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.layer(x) * self.calls

    model, counts = Counting().eval(), Counts()
    fast, x = _compiled(model), torch.randn(4, 8)
    with pytest.warns(UserWarning, match="writes to its inputs or buffers"):
        fast(x)
    fast(x)
    assert model.calls == 2
    assert counts() == Statistics(graphs=1, left_to_torch=1)


def test_a_graph_with_nothing_to_quantize_is_a_float_program() -> None:
    counts = Counts()
    fast, x = torch.compile(lambda x: (x * 2).exp(), backend="zeropoint"), torch.randn(4, 8)
    torch.testing.assert_close(fast(x), (x * 2).exp())
    assert counts() == Statistics(graphs=1, float32=1)


def test_what_programs_lack_is_left_to_torch_with_the_reason() -> None:
    model, counts = nn.Linear(8, 8).eval(), Counts()
    fast = torch.compile(lambda x: model(x) + torch.randn(4, 8), backend="zeropoint")
    with pytest.warns(UserWarning, match="PyTorch runs a graph of 3 operators in float"):
        fast(torch.randn(4, 8))
    assert counts() == Statistics(graphs=1, left_to_torch=1)


def test_a_program_inside_a_compiled_model_is_one_call() -> None:
    x = torch.randn(4, 8)
    program = zeropoint.compile(zeropoint.to_int8(nn.Linear(8, 8), (x,), mode="dynamic"), (x,))

    class Mixed(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return program(self.before(x).relu()) + 1

    model = Mixed(before=nn.Linear(8, 8)).eval()
    assert torch.equal(torch.compile(model, backend="eager")(x), model(x))
    assert torch._dynamo.explain(model)(x).graph_break_count == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": {"mode": "fast"}}, "one of dynamic, static, weight_only, got 'fast'"),
        ({"options": {"calibrate": 3}}, "unknown options"),
        ({"options": {"mode": "static", "calibration": []}}, "a number of calls"),
        ({"mode": "max-autotune"}, "for inductor"),
    ],
)
def test_a_wrong_option_is_refused_in_words(given: dict[str, Any], message: str) -> None:
    fast = torch.compile(nn.Linear(8, 8).eval(), backend="zeropoint", **given)
    with warnings.catch_warnings(), pytest.raises(Exception, match=message):
        fast(torch.randn(4, 8))
