"""Passes of `torch._C` that old code calls by name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import zeropoint


class Adds(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(torch.ops.quantized.add(x, y, 0.1, 60))


class AddsToTwo(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        added = torch.ops.quantized.add(x, y, 0.1, 60)
        return torch.relu(added), added


class AddsInto(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(torch.ops.quantized.add_out(x, y, torch.ops.quantized.add_scalar(x, 1.0)))


@pytest.mark.parametrize(("model", "is_fused"), [(Adds, True), (AddsInto, True), (AddsToTwo, False)])
def test_an_addition_computes_the_relu_that_alone_reads_it(
    installed: None, model: type[nn.Module], is_fused: bool
) -> None:
    values = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    q = zeropoint.quantize_per_tensor(values, 0.05, 60, zeropoint.quint8)
    scripted = torch.jit.script(model())
    before = scripted(q, q)
    torch._C._jit_pass_fuse_quantized_add_relu(scripted.graph)
    kinds = [node.kind() for node in scripted.graph.nodes()]
    assert ("aten::relu" in kinds) is not is_fused
    assert any(kind.endswith(("add_relu", "add_relu_out")) for kind in kinds) is is_fused
    pairs = zip(before, scripted(q, q)) if isinstance(before, tuple) else [(before, scripted(q, q))]
    assert all(torch.equal(a.int_repr(), b.int_repr()) for a, b in pairs)
