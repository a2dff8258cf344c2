"""Quantized graphs without torch's dispatcher: the same results, and not where somebody could tell the difference."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import zeropoint
from zeropoint.graph import direct


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.fc((x + x.sigmoid()).mean((2, 3))).softmax(-1)


@pytest.fixture(params=["static", "dynamic"])
def quantized(request: Any) -> Any:
    return made(request.param)


def made(mode: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    x = torch.randn(2, 3, 8, 8)
    data = [x] if mode == "static" else None
    return zeropoint.to_int8(Small().eval(), (x,), data, mode=mode, progress=False)


def inputs(seed: int = 1) -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def same(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The result of `model`, which is that of its graph through the dispatcher."""
    with torch.no_grad():
        y = model(x)
        assert model._direct is not None
        assert torch.equal(y, model.graph_module(x))
    return y


def test_results_are_those_of_the_dispatcher(quantized: Any) -> None:
    assert not torch.equal(same(quantized, inputs(1)), same(quantized, inputs(2)))


def test_kernels_stand_in_the_place_of_our_operators(quantized: Any) -> None:
    graph = direct.with_kernels(quantized.graph_module.graph)
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    assert not [t for t in targets if isinstance(t, torch._ops.OpOverload) and t.namespace == "zeropoint"]


def test_a_state_that_is_loaded_counts() -> None:
    model, other = made("static"), made("static", seed=7)
    x = inputs()
    before = same(model, x)
    model.load_state_dict(other.state_dict())
    assert torch.equal(same(model, x), same(other, x))
    assert not torch.equal(before, same(model, x))


@pytest.mark.parametrize("how", ["written", "replaced"])
def test_buffers_that_change_count(how: str) -> None:
    model, x = made("static"), inputs()
    before = same(model, x)
    name, weight = next((n, b) for n, b in model.graph_module.named_buffers() if b.dtype == torch.int8)
    if how == "written":
        weight.neg_()
    else:
        model.graph_module.register_buffer(name, weight.neg())
    assert not torch.equal(before, same(model, x))


def test_copies_and_files_begin_anew(quantized: Any) -> None:
    x = inputs()
    before = same(quantized, x)
    file = io.BytesIO()
    torch.save(quantized, file)
    for copied in (copy.deepcopy(quantized), torch.load(io.BytesIO(file.getvalue()), weights_only=False)):
        assert copied._direct is None
        assert torch.equal(same(copied, x), before)
        assert copied._direct.module is copied.graph_module


def test_who_watches_sees_every_operator(quantized: Any) -> None:
    same(quantized, inputs())
    with Seen() as seen, torch.no_grad():
        quantized(inputs())
    assert any(name.startswith("zeropoint::") for name in seen.names)
    with torch.profiler.profile() as profile, torch.no_grad():
        quantized(inputs())
    assert any(event.name.startswith("zeropoint::") for event in profile.events())


def test_hooks_are_called(quantized: Any) -> None:
    same(quantized, inputs())
    calls = []
    handle = quantized.graph_module.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        quantized(inputs())
    handle.remove()
    assert calls == [1]


def test_with_gradients_the_dispatcher_is_asked(quantized: Any) -> None:
    y = quantized(inputs().requires_grad_())
    assert torch.equal(y, quantized.graph_module(inputs().requires_grad_()))


def test_errors_are_the_same(quantized: Any) -> None:
    wrong = torch.randn(2, 4, 8, 8)
    with torch.no_grad():
        with pytest.raises(Exception, match=r".") as ours:
            quantized(wrong)
        with pytest.raises(Exception, match=r".") as theirs:
            quantized.graph_module(wrong)
    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(theirs.value)


def test_vmap_does_not_meet_bare_kernels() -> None:
    """What torch.func makes of tensors has no memory that a kernel could read."""
    model = made("static")
    x = torch.stack([inputs(1), inputs(2)])
    same(model, inputs())
    try:
        expected: Any = torch.func.vmap(model.graph_module)(x)
    except Exception as error:
        with pytest.raises(type(error)):
            torch.func.vmap(model)(x)
    else:
        assert torch.equal(torch.func.vmap(model)(x), expected)


def test_export_and_compile_see_the_operators() -> None:
    model, x = made("static"), inputs()
    expected = same(model, x)
    for strict in (False, True):
        exported = torch.export.export(model, (x,), strict=strict)
        names = [str(node.target) for node in exported.graph.nodes]
        assert any(name.startswith("zeropoint.") for name in names)
        assert torch.equal(exported.module()(x), expected)
    with torch.no_grad():
        assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(x), expected)
