"""TorchScript run node by node in Python gives what TorchScript gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from eight_bit_steps import steps_between
from script_graphs import BOTH_WAYS, quantized, scripted
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import zeropoint
from zeropoint.graph.frontends.script.evaluate import NotStraight, evaluator


class Plain(nn.Module):
    """Lists, dictionaries, tuples, strings, numbers, loops, conditions and the data itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.names = ["a", "b"]
        self.factors = {"a": 2.0, "b": 3.0}

    def forward(self, x: Tensor, times: int = 2, extra: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor], int]:
        found: dict[str, Tensor] = {}
        for i, layer in enumerate(self.layers):
            name = self.names[i]
            found[name] = layer(x) * self.factors[name]
        values = list(found.values())
        values.append(x)
        values.insert(0, -x)
        last = values.pop()
        i = 0
        while bool(last.sum() < 100) and i < 7:
            last = last + x.abs() + float(i % 3)
            i += 1
        if extra is not None:
            last = last + extra
        text = f"{len(values)} values"
        count = int(x.max().item()) if len(text) > 3 and "a" in found else -1
        for _ in range(times):
            last = torch.stack([last, last]).mean(0)[: x.size(0) // 1]
        shape = x.shape
        last = last.reshape(shape[0], -1).to(torch.float64).to(x.dtype)
        values = values[::-1]
        values += [last]
        return torch.cat(values, -1), found, count + min(i, times) + shape[-1]


@pytest.mark.parametrize("extra", [False, True])
def test_script_gives_the_same_in_python(extra: bool) -> None:
    torch.manual_seed(0)
    script = torch.jit.script(Plain().eval())
    x = torch.randn(3, 4)
    given: dict[str, Any] = {"extra": torch.ones(3, 4), "times": 3} if extra else {}
    with torch.no_grad():
        expected, found = script(x, **given), evaluator("test", script)(x, **given)
    assert pytree.tree_structure(expected) == pytree.tree_structure(found)
    for e, f in zip(pytree.tree_leaves(expected), pytree.tree_leaves(found)):
        assert type(e) is type(f)
        assert torch.equal(torch.as_tensor(e), torch.as_tensor(f))


class Sized(nn.Module):
    """Numbers from sizes, which traces write as tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.arange(4))

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[1] // 2
        y = x.reshape(x.shape[0] * 2, half) * 0.5 + half
        return y.sum(-1) + self.steps[: x.shape[0] * 2] * 1.5 + x.new_zeros(x.shape[0] * 2)


@BOTH_WAYS
def test_numbers_from_sizes_are_numbers(traced: bool) -> None:
    x = torch.randn(2, 6)
    script = scripted(Sized().eval(), traced, x)
    for given in (x, torch.randn(2, 10)):
        expected, found = script(given), evaluator("test", script)(given)
        assert expected.dtype == found.dtype
        assert torch.equal(expected, found)


class Checked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError("two axes")
        return x + 1


def test_exceptions_of_the_model_are_raised() -> None:
    run = evaluator("test", torch.jit.script(Checked()))
    assert torch.equal(run(torch.ones(1, 1)), torch.full((1, 1), 2.0))
    with pytest.raises(RuntimeError, match="two axes"):
        run(torch.ones(1))


def test_other_models_are_refused() -> None:
    with pytest.raises(TypeError, match="test takes a ScriptModule, got Linear"):
        evaluator("test", nn.Linear(1, 1))


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        self.last = x
        return x + 1


def test_model_that_assigns_attributes_is_refused() -> None:
    with pytest.raises(NotStraight, match="assigns 'last'"):
        evaluator("test", torch.jit.script(Keeping()))


def test_attention_has_a_branch_that_only_raises() -> None:
    """What stands behind an exception is gone when the prepared model is saved, so it must be when it is planned."""
    torch.manual_seed(0)
    model, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 5, 8)
    made = quantized(torch.jit.script(model), x, x, x)
    assert zeropoint.summary(made).counts()["int8"] > 0
    with torch.no_grad():
        expected, found = model(x, x, x), made(x, x, x)
    assert steps_between(expected[0], found[0]) <= 3
    assert "_native_multi_head_attention" not in str(made.graph)
