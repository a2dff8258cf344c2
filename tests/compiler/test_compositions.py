"""Operators that are composed of others: graph and program give what PyTorch gives, with other sizes too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from few_layers import Layers
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
    "matrix_power": lambda x, y: (torch.linalg.matrix_power(y, 3), torch.linalg.matrix_power(y, 0)),
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
    "conv_transpose": lambda x, y: (
        F.conv_transpose1d(y, torch.stack([x[0], x[1], x[2]]).reshape(4, 1, 3), stride=2, padding=1, groups=2),
        F.conv_transpose2d(y[:, None], x[0].reshape(1, 1, 2, 2), x[1, :1], stride=(2, 1), output_padding=(1, 0)),
        F.conv_transpose3d(y[None, None, :, :2], torch.stack([x[0], x[1]]).reshape(1, 1, 2, 2, 2), dilation=2),
    ),
    "max_pool": lambda x, y: F.max_pool3d(y[:, None, None], (1, 2, 3), 1, (0, 1, 1), return_indices=True),
    "max_unpool": lambda x, y: F.max_unpool2d(*F.max_pool2d(y[:, None], 2, return_indices=True), 2),
    "unfold": lambda x, y: F.unfold(y[:, None], (2, 3), dilation=(2, 1), padding=1, stride=2),
    "layer_norm": lambda x, y: (
        F.layer_norm(x, (4,), x[0], x[1]),
        torch.native_layer_norm(x, (4,), x[0], None, 1e-5),
        torch.native_batch_norm(x, x[0], x[1], None, None, True, 0.1, 1e-5),
    ),
    "nanmedian": lambda x, y: (torch.where(x > 0, x, torch.nan).nanmedian(1)[0], x.nanmedian()),
    "mode": lambda x, y: (x.round().mode(1)[0], (x > 0).mode(0, keepdim=True)[0]),
    "quantile": lambda x, y: (
        torch.quantile(x, torch.tensor([0.2, 0.9]), 1, interpolation="midpoint"),
        torch.quantile(x, 0.3, 0, keepdim=True),
        torch.nanquantile(torch.where(x > 0, x, torch.nan), 0.4, 1),
    ),
    "running": lambda x, y: (x.cumprod(0), (x * 2).long().cumprod(1), x.logcumsumexp(0), (x > 0).cummax(1)),
    "scatter_reduce": lambda x, y: [
        (x * 4).long().scatter_reduce(1, (x > 0).long(), (x * 3).long(), kind, include_self=False)
        for kind in ("sum", "prod", "mean", "amax", "amin")
    ],
    "index_reduce": lambda x, y: (
        x.index_reduce(1, torch.tensor([0, 0, 3, 0]), x * 2, "mean", include_self=False),
        (x > 0).scatter_reduce(1, (x > 0).long(), x > 1, "sum", include_self=False),
    ),
    "nonzero_static": lambda x, y: torch.nonzero_static(x[0] > 0, size=5),
    "cartesian_prod": lambda x, y: torch.cartesian_prod(x[0], x[1]),
    "histc": lambda x, y: torch.histc(x, 5, -1, 2),
    "pdist": lambda x, y: F.pdist(torch.stack([x[0], x[1], x[2]])),
    "losses": lambda x, y: (
        F.margin_ranking_loss(x, x.flip(1), x.sign(), 0.5),
        F.hinge_embedding_loss(x, x.sign(), reduction="none"),
        F.multi_margin_loss(x, (x[:, 0] > 0).long(), 2, 0.5, x[0].abs()),
        F.multilabel_margin_loss(
            x,
            torch.stack(
                [(x[:, 0] > 0).long(), (x[:, 1] > 1).long() * -4 + 3, x.long()[:, 0] * 0, x.long()[:, 1] * 0 - 1], 1
            ),
            reduction="none",
        ),
    ),
    "areas": lambda x, y: (torch.trapezoid(x, x[0], dim=1), torch.cumulative_trapezoid(x, dx=0.5, dim=0)),
    "of integers": lambda x, y: (
        torch.angle(x.long()),
        x.long().tanh(),
        (x > 0).logsumexp(1),
        F.relu6((x * 9).long()),
        torch.signbit(x.long()),
        x.long().softmax(1, dtype=torch.float32),
        x.long().sum(1, dtype=torch.float32),
        torch.addmm(x.long(), x.long(), y[0].long(), beta=2, alpha=3),
    ),
    "numbers": lambda x, y: (
        x[0, 0].index_copy(0, torch.tensor([0]), x[1, 1]),
        x[0, 0].index_fill(0, torch.tensor([0]), 2.0),
        x[0, 0].index_add(0, torch.tensor([0]), x[1, 1], alpha=2),
        x[0, 0].kthvalue(1),
    ),
    "tensordot": lambda x, y: torch.tensordot(x[:, :1], y, dims=([1], [2])),
    "substitution": lambda x, y: [
        torch.linalg.solve_triangular(y + 3 * torch.eye(4), y, upper=upper, left=left, unitriangular=not left)
        for upper in (True, False)
        for left in (True, False)
    ],
    "factored": lambda x, y: (
        torch.cholesky_solve(y, y + 3 * torch.eye(4)),
        torch.cholesky_inverse(y + 3 * torch.eye(4), True),
        torch.linalg.lu_solve(
            y + 3 * torch.eye(4), torch.tensor([[2, 4, 3, 4]]).int() + 0 * y[:, 0].int(), y, adjoint=True
        ),
        torch.lu_unpack(y, torch.tensor([[2, 4, 3, 4]]).int() + 0 * y[:, 0].int()),
    ),
    "reflections": lambda x, y: (
        torch.linalg.householder_product(y, x[:, :3]),
        torch.ormqr(y, x, y, False, True),
    ),
    "gradient": lambda x, y: (torch.gradient(x, spacing=0.5, dim=1), torch.gradient(x, spacing=(x[0],), dim=1)),
    "grid_sample": lambda x, y: [
        F.grid_sample(y[:, None], torch.stack([y, y.flip(1)], -1) * 0.7, "bicubic", padding, corners)
        for padding, corners in (("zeros", True), ("reflection", False))
    ],
    "dropouts": lambda x, y: (F.dropout2d(y[None], 0.0, True), F.alpha_dropout(x, 0.0, True)),
}
FIXED = ("kron", "matrix_norm", "gradient")  # PyTorch's capture fixes their sizes


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
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)
            torch.testing.assert_close(ours, mine, rtol=0, atol=0, equal_nan=True)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, side: Tensor, x: Tensor, weight: Tensor) -> Any:
        return self.layer(side), F.conv1d(x, weight)


def test_a_computed_weight_of_another_size_than_the_example_is_refused() -> None:
    side, x, weight = torch.randn(2, 4), torch.randn(2, 3, 8), torch.randn(5, 3, 3)
    free = {"side": {0: Dim.AUTO}, "x": {0: Dim.AUTO, 2: Dim.AUTO}, "weight": {0: Dim.AUTO, 2: Dim.AUTO}}
    inputs = (side, x, weight)
    quantized = zeropoint.to_int8(Convolution().eval(), inputs, [inputs], progress=False, dynamic_shapes=free)
    program = zeropoint.compile(quantized, inputs)
    longer = torch.randn(3, 3, 11)
    for model in (quantized, program):
        torch.testing.assert_close(model(side, longer, weight)[1], F.conv1d(longer, weight), rtol=0.1, atol=0.3)
        for other in (torch.randn(5, 3, 4), torch.randn(5, 3, 2)):
            with pytest.raises(ValueError, match="weight"):
                model(side, x, other)


class Projected(nn.Module):
    def __init__(self, bidirectional: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 12, 2, proj_size=5, batch_first=True, bidirectional=bidirectional)

    def forward(self, x: Tensor) -> Any:
        return self.lstm(x)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_lstm_with_a_projected_state_of_a_fixed_length_is_a_program(bidirectional: bool) -> None:
    torch.manual_seed(0)
    model, x = Projected(bidirectional).eval(), torch.randn(4, 7, 8)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False, dynamic_shapes={"x": {0: Dim.AUTO}})
    program = zeropoint.compile(quantized, (x,))
    for given in (x, torch.randn(6, 7, 8)):
        parts = (pytree.tree_leaves(m(given)) for m in (model, quantized, program))
        for theirs, mine, ours in zip(*parts):
            torch.testing.assert_close(mine, theirs, rtol=0.1, atol=0.03)
            assert torch.equal(mine, ours)


def test_a_condition_on_sizes_chooses_in_graph_and_program() -> None:
    class Conditional(Layers):
        def forward(self, x: Tensor) -> Any:
            return self.layer(x), torch.cond(x.shape[0] > 5, lambda x: x.cos(), lambda x: x.sin(), [x])

    model, x = Conditional(layer=nn.Linear(4, 4)).eval(), torch.randn(4, 4)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False, dynamic_shapes={"x": {0: Dim.AUTO}})
    program = zeropoint.compile(quantized, (x,))
    for given in (x, torch.randn(8, 4)):
        expected = given.cos() if given.shape[0] > 5 else given.sin()
        torch.testing.assert_close(quantized(given)[1], expected)
        assert torch.equal(program(given)[1], quantized(given)[1])


def test_a_layer_with_weights_of_its_own_is_not_taken_apart() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.BatchNorm1d(4), nn.PReLU(4), nn.Flatten(), nn.Linear(16, 2)).eval()
    x = torch.randn(2, 4, 6)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert quantized.summary().counts()["int8"] >= 2
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))
