"""Operators that are composed of others: graph and program give what PyTorch gives, with other sizes too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import zeropoint

MATRIX = (6, 4)
CASES: dict[str, Callable[..., Any]] = {
    "hsplit": lambda x, y: (torch.hsplit(x, 2), torch.hsplit(y[..., 0], [1, 2])),
    "vsplit": lambda x, y: torch.vsplit(x, [2]),
    "dsplit": lambda x, y: torch.dsplit(x.reshape(-1, 2, 4), 2),
    "tensor_split": lambda x, y: x.tensor_split([1, 3], 1),
    "copies": lambda x, y: (torch.narrow_copy(x, 1, 1, 2), torch.view_copy(x, (-1, 2))),
    "diag": lambda x, y: (torch.diag(x[0]), torch.diag(x, 1), torch.diagflat(x[:2], -1), torch.linalg.diagonal(y)),
    "diag_embed": lambda x, y: (torch.diag_embed(x), torch.diag_embed(x, 1, 0, 2), torch.diag_embed(x, -2)),
    "diagonal_scatter": lambda x, y: y.diagonal_scatter(x[:, :3], 1, 1, 2),
    "block_diag": lambda x, y: torch.block_diag(x, x[0], y[0]),
    "put": lambda x, y: x.put(torch.tensor([1, -2]), x[0, :2]),
    "index_add": lambda x, y: x.index_add(1, torch.tensor([0, 2]), x[:, :2], alpha=0.5),
    "isin": lambda x, y: (torch.isin(x, x[0]), torch.isin((x * 2).long(), 1, invert=True)),
    "adaptive_max_pool": lambda x, y: (
        F.adaptive_max_pool1d(x[:2, None], 3, return_indices=True),
        F.adaptive_max_pool2d(y[:2, None], (3, 2), return_indices=True),
    ),
    "round": lambda x, y: (x.round(decimals=1), (x * 100).round(decimals=-1)),
    "heaviside": lambda x, y: torch.heaviside(x.round(), x),
    "extremes": lambda x, y: (
        *torch.aminmax(x),
        *torch.aminmax(x, dim=1, keepdim=True),
        torch.fmax(x.long(), x.long()),
    ),
    "prelu": lambda x, y: F.prelu(x, x[0] / 4),
    "diff": lambda x, y: torch.diff(x, 2, 1),
    "cross": lambda x, y: (torch.linalg.cross(x[:, :3], x[:, 1:]), torch.cross(x[:, 1:], x[:, :3], dim=1)),
    "inner": lambda x, y: (torch.inner(x, x), torch.inner(x[0], x)),
    "kron": lambda x, y: torch.kron(x, x[:1, :2]),
    "matrix_power": lambda x, y: torch.linalg.matrix_power(y, 3),
    "matrix_norm": lambda x, y: [torch.linalg.matrix_norm(y, p) for p in ("fro", 1, -1, float("inf"), -float("inf"))],
    "norms": lambda x, y: (
        F.batch_norm(x, x[0], x[1].square(), x[2], x[3]),
        F.group_norm(x, 2, x[0], x[1]),
        F.instance_norm(y, weight=x[0], bias=x[1]),
    ),
    "order": lambda x, y: (x.median(0)[0], x.kthvalue(2, 0)[0], x.median(1, keepdim=True)[0]),
    "conv": lambda x, y: (
        F.conv1d(y, torch.stack([x[0], x[1], x[2]]).reshape(2, 2, 3), x[0, :2], stride=2, padding=1, groups=2),
        F.conv3d(y[None, None], torch.stack([x[0], x[1]]).reshape(1, 1, 2, 2, 2), padding="same"),
        F.conv2d(y[:, None], x[0].reshape(1, 1, 2, 2), dilation=2),
    ),
    "linear": lambda x, y: F.linear(x[0], x[1:3]),
}
FIXED = ("kron", "matrix_norm")  # PyTorch's capture fixes their sizes


class Model(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(4, 4)

    def forward(self, side: Tensor, x: Tensor) -> Any:
        return self.layer(side), self.function(x, torch.stack([x[:, :1] + x, x, x * 2, x.flip(1)], 1))


@pytest.mark.parametrize("name", CASES)
def test_a_composed_operator_gives_what_pytorch_gives(name: str) -> None:
    torch.manual_seed(0)
    model = Model(CASES[name]).eval()
    side, x, more = torch.randn(2, 4), torch.randn(MATRIX), torch.randn(8, 4)
    qconfig = zeropoint.QConfigMapping().set_module_name("layer", zeropoint.get_default_qconfig())
    rows = {"side": {0: Dim.AUTO}, "x": {0: Dim.AUTO}}
    quantized = zeropoint.to_int8(model, (side, x), [(side, x)], qconfig, progress=False, dynamic_shapes=rows)
    program = zeropoint.compile(quantized, (side, x))
    for given in (x,) if name in FIXED else (x, more):
        expected = pytree.tree_leaves(model(side, given)[1])
        graph, compiled = (pytree.tree_leaves(m(side, given)[1]) for m in (quantized, program))
        assert len(expected) == len(graph) == len(compiled)
        for theirs, mine, ours in zip(expected, graph, compiled):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
            assert torch.equal(mine, ours)


def test_a_layer_with_weights_of_its_own_is_not_taken_apart() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.BatchNorm1d(4), nn.PReLU(4), nn.Flatten(), nn.Linear(16, 2)).eval()
    x = torch.randn(2, 4, 6)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert quantized.summary().counts()["int8"] >= 2
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))
