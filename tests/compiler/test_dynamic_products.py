"""The products of attention in dynamic mode: float by default, on 8 bits where the policy says so."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint
from zeropoint.graph.policy import Policy


class Attention(nn.Module):
    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.inputs, self.output, self.spelling = nn.Linear(32, 96), nn.Linear(32, 32), spelling

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inputs(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        if self.spelling == "scaled_dot_product_attention":
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.spelling == "matmul":
            seen = (q @ k.mT / 8**0.5).softmax(-1) @ v
        elif self.spelling == "bmm":
            q, k, v = (t.flatten(0, 1) for t in (q, k, v))
            seen = torch.bmm(torch.bmm(q, k.mT).softmax(-1), v).unflatten(0, (-1, 4))
        else:
            seen = torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1), v)
        return self.output(seen.transpose(1, 2).flatten(2))


SPELLINGS = ("scaled_dot_product_attention", "matmul", "bmm", "einsum")


def _products(quantized: nn.Module) -> list[str]:
    named = [str(node.target) for node in quantized.graph_module.graph.nodes]
    return [name for name in named if "matmul" in name]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_both_products_of_attention_are_computed_on_integers(spelling: str) -> None:
    torch.manual_seed(0)
    model, x = Attention(spelling).eval(), torch.randn(2, 10, 32)
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", policy=Policy(products="int8"), progress=False)
    assert _products(quantized) == ["zeropoint.matmul_dynamic.default"] * 2
    ways = [row.precision for row in quantized.summary().rows if row.operator in ("matmul", "bmm")]
    assert ways == ["int8, dynamic"] * 2
    program = zeropoint.compile(quantized, (x,))
    for given in (x, torch.randn(3, 17, 32)):
        assert torch.equal(program(given), quantized(given))
        expected = model(given)
        # Four stages, each rounded to 127 steps of its rows: a hundredth of the largest is ten times what is seen.
        assert (quantized(given) - expected).abs().max() < 0.03 * expected.abs().max()


def test_products_stay_float_by_default_and_the_summary_says_why() -> None:
    model, x = Attention("matmul").eval(), torch.randn(2, 10, 32)
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    assert _products(quantized) == ["zeropoint.float_matmul.default"] * 2
    rows = [row for row in quantized.summary().rows if row.operator == "matmul"]
    assert all("stay in float in dynamic mode" in row.reason for row in rows)


def test_a_rule_of_a_mapping_asks_for_it_too() -> None:
    model, x = Attention("matmul").eval(), torch.randn(2, 10, 32)
    dynamic = zeropoint.per_channel_dynamic_qconfig
    mapping = zeropoint.QConfigMapping().set_global(dynamic).set_object_type(torch.matmul, dynamic)
    quantized = zeropoint.convert_graph(zeropoint.prepare_graph(model, mapping, (x,)))
    assert _products(quantized) == ["zeropoint.matmul_dynamic.default"] * 2


def test_products_has_two_values() -> None:
    assert dataclasses.replace(Policy(), products="int8").products == "int8"
    with pytest.raises(ValueError, match="products"):
        Policy(products="int4")
