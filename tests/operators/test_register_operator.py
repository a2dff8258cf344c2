"""An activation of a user, in all five ways: eager, export, TorchScript, training and programs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from converted_models import assert_close, converted_eagerly
from torch import Tensor, nn

import zeropoint
from zeropoint.operators import BY_NAME, registry

LIBRARY = torch.library.Library("zeropoint_test", "DEF")
LIBRARY.define("wave(Tensor x) -> Tensor")


def wave(x: Tensor) -> Tensor:
    return torch.sin(x) * 2 + x / 2


LIBRARY.impl("wave", wave, "CompositeExplicitAutograd")
torch.library.register_fake("zeropoint_test::wave", lambda x: torch.empty_like(x), lib=LIBRARY)
torch.library.register_autograd(
    "zeropoint_test::wave",
    lambda ctx, grad: grad * (torch.cos(ctx.saved_tensors[0]) * 2 + 0.5),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    lib=LIBRARY,
)


class Wave(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.zeropoint_test.wave(x)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    zeropoint.register_operator("wave", wave, ops=[torch.ops.zeropoint_test.wave.default], modules=[Wave])
    yield
    registry.unregister("wave")


def model_and_data() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), Wave(), nn.Linear(16, 4)).eval(), torch.randn(64, 8)


def targets(graph: Any) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def test_eager_mode() -> None:
    model, x = model_and_data()
    made = converted_eagerly(model, x)
    assert type(made.module[1]) is zeropoint.nn.quantized.Function
    assert_close(made, model, x)


def test_export_and_program() -> None:
    model, x = model_and_data()
    made = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert "zeropoint.lookup.default" in targets(made.graph_module)
    assert made.summary().of("wave")[0].precision == "int8"
    assert_close(made, model, x)
    program = zeropoint.compile(made, (x,))
    assert torch.equal(program(x), made(x))


@pytest.mark.parametrize("traced", [False, True])
def test_torchscript_and_program(traced: bool) -> None:
    model, x = model_and_data()
    script = torch.jit.trace(model, x) if traced else torch.jit.script(model)
    made = zeropoint.quantize_jit(script, {"": zeropoint.get_default_qconfig("native")}, lambda m, d: m(d), [x])
    assert "zeropoint::lookup" in str(made.inlined_graph)
    assert_close(made, model, x)
    program = zeropoint.compile(made, (x,))
    assert torch.equal(program(x), made(x))


def test_training() -> None:
    model, x = model_and_data()
    mapping = zeropoint.get_default_qat_qconfig_mapping("native")
    prepared = zeropoint.prepare_qat_graph(model.train(), mapping, (x,))
    prepared(x).square().mean().backward()
    prepared.eval()
    prepared(x)
    made = zeropoint.convert_graph(prepared)
    assert "zeropoint.lookup.default" in targets(made.graph_module)
    assert_close(made, model.eval(), x)


def test_stays_float_where_its_qconfig_is_none() -> None:
    model, x = model_and_data()
    mapping = zeropoint.get_default_qconfig_mapping("native").set_object_type(Wave, None)
    made = zeropoint.to_int8(model, (x,), [x], qconfig=mapping, progress=False)
    assert "zeropoint_test.wave.default" in targets(made.graph_module)


def test_a_name_is_registered_once() -> None:
    for ops, modules in itertools.product(((), [torch.ops.zeropoint_test.wave.default]), ((), [Wave])):
        with pytest.raises(ValueError, match="already registered for wave"):
            zeropoint.register_operator("wave", wave, ops=ops, modules=modules)
    assert BY_NAME["wave"].modules == (Wave,)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"output": "half"}, ValueError),
        ({"ops": ["mine::wave"]}, TypeError),
        ({"modules": [Wave()]}, TypeError),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="register_operator: "):
        zeropoint.register_operator("another", wave, **arguments)
