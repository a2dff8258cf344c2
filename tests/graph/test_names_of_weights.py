"""Models whose layers have names that a graph cannot have: of its own attributes, and words of Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from eight_bit_steps import steps_between
from torch import Tensor, fx, nn

import zeropoint
from zeropoint.graph.frontends.export_names import usable_names
from zeropoint.graph.graph_module import Graph


class _Named(nn.Module):
    def __init__(self, name: str, kind: str) -> None:
        super().__init__()
        self.first, self.name, self.kind = nn.Linear(4, 4), name, kind
        if kind == "module":
            self.add_module(name, nn.Linear(4, 4))
        elif kind == "parameter":
            self.register_parameter(name, nn.Parameter(torch.ones(4)))
        else:
            self.register_buffer(name, torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        named = getattr(self, self.name)
        return named(self.first(x)) if self.kind == "module" else self.first(x) * named


class _Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({"class": nn.Linear(4, 3), "class_": nn.Linear(4, 2), "box head": nn.Linear(4, 4)})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {name: head(x) for name, head in self.heads.items()}


@pytest.mark.parametrize("kind", ["module", "parameter", "buffer"])
@pytest.mark.parametrize(
    "name",
    [
        "code",
        "graph",
        "meta",
        "recompile",
        "_sizes",
        "activation_post_process_0",
        "lambda",
        'a"b',
        "a\\b",
        "a\nb",
        '""") #',
    ],
)
def test_a_layer_may_have_any_name(name: str, kind: str) -> None:
    torch.manual_seed(0)
    model, x = _Named(name, kind).eval(), torch.randn(3, 4)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))
    expected = model(x).detach()
    assert steps_between(quantized(x), expected) <= 4


def test_heads_in_a_dictionary_may_be_called_class() -> None:
    torch.manual_seed(0)
    model, x = _Heads().eval(), torch.randn(3, 4)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    given = zeropoint.compile(quantized, (x,))(x)
    assert list(given) == ["class", "class_", "box head"]
    assert all(torch.equal(given[name], quantized(x)[name]) for name in given)


def test_rules_name_a_layer_as_the_model_does() -> None:
    model, x = _Named("code", "module").eval(), torch.randn(3, 4)
    mapping = zeropoint.get_default_qconfig_mapping().set_module_name("code", None)
    rows = zeropoint.to_int8(model, (x,), [x], mapping, progress=False).summary().rows
    assert {row.path: row.precision for row in rows if row.operator == "linear"} == {"first": "int8", "code": "float32"}


def test_new_names_are_free() -> None:
    assert usable_names(["code", "code_", "a.class", "a.class_"]) == {"code": "code__", "a.class": "a.class__"}
    assert usable_names(["encoder.code", "first.weight"]) == {}
    assert usable_names(['a"', "a'", "a_"]) == {'a"': "a__", "a'": "a___"}


def test_a_graph_with_a_name_that_is_code_is_refused_before_it_runs(tmp_path: Path) -> None:
    made = tmp_path / "made"
    code = f"import os; os.mkdir({str(made)!r})".encode()
    evil = f'x") or exec(bytes({tuple(code)})) #'
    root, graph = nn.Module(), fx.Graph()
    root.register_buffer(evil, torch.ones(1))
    graph.output(graph.get_attr(evil))
    with pytest.raises(ValueError, match="become Python code"):
        Graph(root, graph)()
    assert not made.exists()


@pytest.mark.parametrize("name", ['a"b', "a\nb"])
def test_symbolic_traces_refuse_names_that_would_be_code(name: str) -> None:
    with pytest.raises(ValueError, match="become Python code"):
        zeropoint.fx.prepare_fx(_Named(name, "module"), zeropoint.get_default_qconfig_mapping(), (torch.ones(1, 4),))
