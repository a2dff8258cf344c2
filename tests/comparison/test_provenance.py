"""Values of a float and a quantized graph are paired by what the model called, not by the names of nodes."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
from zeropoint.graph.provenance import identity, represented
from zeropoint.graph.workflow import float_graph


class Branches(nn.Module):
    """Two layers of the same size, in one order or the other."""

    def __init__(self, right_first: bool) -> None:
        super().__init__()
        self.right_first = right_first
        self.left, self.right = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        if self.right_first:
            right = self.right(x)
            return self.left(x) - right
        return self.left(x) - self.right(x)


def batch() -> Tensor:
    return torch.randn(16, 6, generator=torch.Generator().manual_seed(0))


def compared(float_model: nn.Module, quantized: Any) -> dict[str, float]:
    found = zeropoint.compare(float_model, quantized, [batch()], progress=False)
    return {row.path: row.sqnr for row in found.rows if "linear" in row.operator}


def test_layers_that_are_called_in_another_order_are_paired_by_their_modules() -> None:
    torch.manual_seed(0)
    model = Branches(right_first=False).eval()
    quantized = zeropoint.to_int8(model, (batch(),), [batch()], progress=False)
    other = Branches(right_first=True).eval()
    other.load_state_dict(model.state_dict())
    assert compared(other, quantized) == compared(model, quantized)
    assert min(compared(other, quantized).values()) > 30


def test_modules_that_were_renamed_are_paired_by_position_and_operator() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    quantized = zeropoint.to_int8(model, (batch(),), [batch()], progress=False)

    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.head = model[0], model[2]

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.relu(self.hidden(x)))

    assert compared(Renamed().eval(), quantized) == compared(model, quantized)


def test_another_model_is_refused_with_the_call_that_it_lacks() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    quantized = zeropoint.to_int8(model, (batch(),), [batch()], progress=False)
    with pytest.raises(
        ValueError, match=r"the float model has no operator 'linear.*' in module '2': pass the float model"
    ):
        zeropoint.compare(nn.Sequential(nn.Linear(6, 8), nn.ReLU()).eval(), quantized, [batch()], progress=False)


class Twice(Layers):
    """One module that is called twice, and one operator that one module calls twice."""

    def forward(self, x: Tensor) -> Tensor:
        first = self.shared(x)
        second = self.shared(torch.sigmoid(first))
        return torch.matmul(first, second.t()) + torch.matmul(second, first.t())


def test_calls_of_one_module_are_told_apart() -> None:
    torch.manual_seed(0)
    model = Twice(shared=nn.Linear(6, 6)).eval()
    values = [identity(node) for node in float_graph(model, (batch(),)).graph.nodes]
    assert len(set(values)) == len(values)
    linear = [value for value in values if value.call == "linear"]
    assert [(value.path, value.place) for value in linear] == [("shared", 0), ("shared", 1)]
    assert [value.path for value in values if value.call == "matmul"] == ["", ""]
    found = zeropoint.compare(
        model, zeropoint.to_int8(model, (batch(),), [batch()], progress=False), [batch()], progress=False
    )
    assert all(row.sqnr > 20 for row in found.rows)


def test_captures_give_the_same_identities_whatever_was_captured_before() -> None:
    one, two = Branches(False).eval(), Twice(shared=nn.Linear(6, 6)).eval()
    first = [[identity(n) for n in float_graph(model, (batch(),)).graph.nodes] for model in (one, two)]
    second = [[identity(n) for n in float_graph(model, (batch(),)).graph.nodes] for model in (two, one)]
    assert first == second[::-1]


@pytest.mark.parametrize("how", ["as it is", "copied", "saved"])
def test_what_a_node_holds_stays_with_it(how: str) -> None:
    torch.manual_seed(0)
    model = Twice(shared=nn.Linear(6, 6)).eval()
    quantized: Any = zeropoint.to_int8(model, (batch(),), [batch()], progress=False)
    if how == "copied":
        quantized = copy.deepcopy(quantized)
    elif how == "saved":
        file = io.BytesIO()
        torch.save(quantized, file)
        file.seek(0)
        quantized = torch.load(file, weights_only=False)
    held = [m.value for n in quantized.graph_module.graph.nodes if (m := represented(n)) and n.op == "call_function"]
    assert {("shared", "linear", 0), ("shared", "linear", 1)} <= {(v.path, v.call, v.place) for v in held}
    known = {identity(n) for n in float_graph(model, (batch(),)).graph.nodes}
    assert set(held) <= known


def test_parts_of_attention_are_told_apart() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    values = [identity(node) for node in float_graph(model, (x,)).graph.nodes]
    assert len(set(values)) == len(values)
    found = zeropoint.compare(model, zeropoint.to_int8(model, (x,), [x], progress=False), [x], progress=False)
    assert "self_attn" in {row.path for row in found.rows}
