"""Graphs that are copied and saved."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import warnings
from typing import Any

import pytest
import torch
from few_layers import Layers
from torch import Tensor, fx, nn

import zeropoint
from zeropoint.graph.frontends.export import capture


class Nested(Layers):
    def forward(self, inputs: dict[str, Tensor], more: list[Tensor]) -> dict[str, tuple[Tensor, ...]]:
        return {"sums": (self.layer(inputs["x"]) + more[0], more[1])}


def _saved(quantized: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(quantized, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.deepcopy, _saved, lambda q: pickle.loads(pickle.dumps(q))])
def test_nested_inputs_survive_without_a_warning(again):
    torch.manual_seed(0)
    inputs = {"x": torch.randn(3, 4)}, [torch.randn(3, 4), torch.randn(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        quantized = zeropoint.to_int8(Nested(layer=nn.Linear(4, 4)).eval(), inputs, [inputs], progress=False)
        same = again(quantized)
    with torch.no_grad():
        expected, found = quantized(*inputs), same(*inputs)
    assert found.keys() == {"sums"}
    assert all(torch.equal(a, b) for a, b in zip(expected["sums"], found["sums"], strict=True))


@pytest.mark.parametrize("again", [copy.deepcopy, _saved])
@pytest.mark.parametrize("prepare", [zeropoint.prepare_graph, zeropoint.prepare_qat_graph])
def test_prepared_models_survive(again, prepare):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)).eval(), torch.randn(8, 4)
    mapping = zeropoint.get_default_qat_qconfig_mapping if prepare is zeropoint.prepare_qat_graph else None
    prepared = prepare(model, (mapping or zeropoint.get_default_qconfig_mapping)("native"), (x,))
    prepared(x)
    expected = zeropoint.convert_graph(prepared)(x)
    assert torch.equal(zeropoint.convert_graph(again(prepared))(x), expected)


class Padded(nn.Module):
    """Padding puts a zero point into an ordinary operator."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 8, 3), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.pad(self.conv(x) + 1.5, (1, 1, 1, 1))
        return self.fc(self.norm(torch.nn.functional.max_pool2d(x, 2, padding=1).mean((2, 3))))


def _calibrated(model: nn.Module, scale: float) -> nn.Module:
    batches = [torch.randn(4, 3, 8, 8) * scale + scale for _ in range(2)]
    return zeropoint.to_int8(model, (batches[0],), batches, zeropoint.get_default_qconfig("native"), progress=False)


def _through_files(state: dict[str, Tensor]) -> dict[str, Tensor]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_state_dict_holds_the_scales_of_activations(tmp_path):
    torch.manual_seed(0)
    model, x = Padded().eval(), torch.randn(4, 3, 8, 8)
    saved, other = _calibrated(model, 1.0), _calibrated(model, 20.0)
    with torch.no_grad():
        expected = saved(x)
        assert not torch.equal(other(x), expected)
        other.load_state_dict(_through_files(saved.state_dict()))
        assert torch.equal(other(x), expected)
        for form in (copy.deepcopy(other), _saved(other), torch.export.export(other, (x,)).module()):
            assert torch.equal(form(x), expected)
        assert torch.equal(zeropoint.compile(other, (x,))(x), expected)
    assert all(isinstance(value, Tensor) for value in saved.state_dict().values())
    rows = [zeropoint.compare(model, q, [x], progress=False).rows for q in (saved, other)]
    assert rows[0] == rows[1]


def test_state_of_another_graph_is_refused():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU()]
    one, other = (_calibrated(nn.Sequential(*layers[:count]).eval(), 1.0) for count in (1, 2))
    with pytest.raises(
        ValueError, match=r"belongs to another graph: at .* this graph has zeropoint\.conv2d\.default, the state dict"
    ):
        one.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        one.load_state_dict({k: v for k, v in one.state_dict().items() if "extra" not in k})
    one(x)


def test_the_code_of_a_graph_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = capture(nn.Linear(4, 4).eval(), (torch.ones(2, 4),))
    made: list[fx.Graph] = []
    python_code = fx.Graph.python_code

    def counted(self: fx.Graph, *args: Any, **kwargs: Any) -> Any:
        made.append(self)
        return python_code(self, *args, **kwargs)

    monkeypatch.setattr(fx.Graph, "python_code", counted)
    output = graph.graph.output_node()
    with graph.graph.inserting_before(output):
        relu = graph.graph.call_function(torch.ops.aten.relu.default, (output.args[0][0],))
    output.args = ([relu],)
    for _ in range(3):
        graph.recompile()
    assert not made
    assert "aten.relu.default" in graph.code
    assert (graph(torch.randn(8, 4)) >= 0).all()
    assert len(made) == 1
    graph.recompile()
    assert next(iter(inspect.signature(type(graph).forward).parameters)) == "self"
    assert len(made) == 2
    graph.recompile()
    x = torch.randn(8, 4)
    assert torch.equal(torch.compile(graph, backend="eager", fullgraph=True)(x), graph(x))
