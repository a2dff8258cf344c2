"""nn.RMSNorm: float32 in graphs on integers, from steps that programs have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from eight_bit_steps import steps_between
from graph_values import values_of
from torch import Tensor, nn

import zeropoint

ROUNDING = 1e-5  # of float32, over some hundred values


class Block(nn.Module):
    def __init__(self, shape: tuple[int, ...], **options: Any) -> None:
        super().__init__()
        self.norm, self.last = nn.RMSNorm(shape, **options), nn.Linear(shape[-1], 8)
        if self.norm.weight is not None:
            self.norm.weight.data = torch.rand(shape) + 0.5

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(x))


CASES = [
    ((16,), {}),
    ((16,), {"eps": 0.1}),
    ((16,), {"elementwise_affine": False}),
    ((5, 16), {}),
]


@pytest.mark.parametrize(("shape", "options"), CASES)
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_computes_what_torch_does(shape: tuple[int, ...], options: dict[str, Any], size: float) -> None:
    torch.manual_seed(0)
    model, x = Block(shape, **options).eval(), torch.randn(3, 5, 16) * size
    mapping = zeropoint.QConfigMapping().set_global(None).set_object_type(nn.Linear, zeropoint.default_dynamic_qconfig)
    made = zeropoint.to_int8(model, (x,), qconfig=mapping, mode="dynamic", progress=False)
    graph = made.graph_module
    calls = [node for node in graph.graph.nodes if "linear_dynamic" in str(node.target)]
    seen = values_of(graph, x)
    with torch.no_grad():
        expected = model.norm(x)
    assert (seen[calls[0].args[0]] - expected).abs().max() < ROUNDING * expected.abs().max()
    assert not any("rms_norm" in str(node.target) for node in graph.graph.nodes)


@pytest.mark.parametrize(("shape", "options"), CASES)
def test_program_gives_the_bytes_of_the_graph(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = Block(shape, **options).eval(), torch.randn(3, 5, 16)
    made = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert made.summary().of("rms_norm")[0].precision == "float32"
    assert torch.equal(zeropoint.compile(made, (x,))(x), made(x))


@pytest.mark.parametrize("traced", [False, True])
def test_torchscript_and_its_program(traced: bool) -> None:
    torch.manual_seed(0)
    model, x = Block((16,)).eval(), torch.randn(3, 5, 16)
    script = torch.jit.trace(model, x) if traced else torch.jit.script(model)
    made = zeropoint.quantize_jit(script, {"": zeropoint.get_default_qconfig("native")}, lambda m, d: m(d), [x])
    with torch.no_grad():
        assert steps_between(made(x), model(x)) <= 4
        assert steps_between(zeropoint.compile(made, (x,))(x), model(x)) <= 4
