"""Operators of floats, integers and bools in programs: each against the quantized graph, and that against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from few_layers import Layers
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import zeropoint

Values = tuple[Tensor, Tensor, Tensor]  # floats (2, 6, 8), integers (2, 6) of 0..11, bools (2, 6)
Function = Callable[[Tensor, Tensor, Tensor], Any]


class Model(nn.Module):
    """A quantized layer, and functions of values that stay as they are."""

    def __init__(self, functions: list[Function]) -> None:
        super().__init__()
        self.layer, self.functions = nn.Linear(8, 8), functions

    def forward(self, x: Tensor, numbers: Tensor, mask: Tensor) -> Any:
        return self.layer(x), [function(x, numbers, mask) for function in self.functions]


def _inputs() -> Values:
    torch.manual_seed(0)
    numbers = (torch.arange(12).reshape(2, 6) * 7 + 3) % 12
    return torch.randn(2, 6, 8), numbers, numbers % 3 == 0


def _image(x: Tensor) -> Tensor:
    """(1, 1, 6, 8), whatever the sizes of `x` are."""
    return (x[0, 0, 0] * torch.linspace(-3, 3, 48).sin()).reshape(1, 1, 6, 8)


CASES: dict[str, list[Function]] = {
    "arithmetic of integers": [
        lambda x, n, m: (n + 5, n - 20, 3 - n, n * n, -n, n.abs(), (n - 6).sign(), n**2, n.square()),
        lambda x, n, m: (n + n.int(), n.int() * 3, n.to(torch.uint8) - 5, n.to(torch.int8) * 100),
        lambda x, n, m: (n // 4, (n - 7) // 3, (n - 7) // -3, torch.div(n - 7, 3, rounding_mode="trunc")),
        lambda x, n, m: ((n - 7) % 4, (n - 7) % -4, torch.fmod(n - 7, 4), n / 4, n.float() // 2.5),
        lambda x, n, m: (n & 6, n | 1, n ^ 3, ~n, n << 2, (n - 7) >> 1),
        lambda x, n, m: (torch.add(n, n, alpha=3), torch.sub(n, n + 1, alpha=2), torch.rsub(n, 4, alpha=2)),
        lambda x, n, m: (n.clamp(3, 7), n.clamp(min=4), torch.minimum(n, 11 - n), torch.maximum(n, 5 - n), n.relu()),
    ],
    "floats and integers": [
        lambda x, n, m: (x[..., 0] + n, x[..., 0] * n, n / (n + 1), n * 0.5, 2.5 + n, x + 1, x[..., 0] - m.float()),
        lambda x, n, m: (n.to(torch.float32), (x * 9).to(torch.int64), (x * 9).int(), x.bool(), m.long(), m.float()),
        lambda x, n, m: (torch.round(x * 3), x.floor(), x.ceil(), x.trunc(), x.abs(), x.sign(), -x, 1 / (x + 9)),
        lambda x, n, m: ((x * 5) % 2, torch.fmod(x * 5, 2), (x * 5) // 1.5, torch.div(x, 0.7, rounding_mode="trunc")),
    ],
    "comparisons": [
        lambda x, n, m: (n == 3, n != 3, n > 5, n >= 5, n < 5, n <= 5, n > 2.5, x[..., 0] > n - 6, x > 0, x[0] == x[1]),
        lambda x, n, m: (m & (n > 5), m | (n > 5), m ^ (n > 5), ~m, torch.logical_and(n, m), torch.logical_not(n)),
        lambda x, n, m: (m + (n > 5), m * (n > 5), m == (n > 5), torch.isnan(x), torch.isinf(x / 0), torch.isfinite(x)),
    ],
    "choices": [
        lambda x, n, m: (torch.where(m, n, -n), torch.where(m[..., None], x, 0.0), torch.where(n > 5, 1.5, n)),
        lambda x, n, m: (x.masked_fill(m[..., None], float("-inf")), n.masked_fill(m, 7), torch.nan_to_num(x / 0)),
        lambda x, n, m: (x.clamp(-0.5, 0.5), F.threshold(x, 0.1, 20.0), F.relu(x), x.clamp(max=torch.zeros(8))),
    ],
    "functions": [
        lambda x, n, m: (x.exp(), x.abs().log(), x.abs().sqrt(), x.abs().rsqrt(), x.expm1(), x.abs().log1p()),
        lambda x, n, m: (x.sin(), x.cos(), x.tan(), (x * 1e8).sin(), x.atan(), (x / 9).asin(), (x / 9).acos()),
        lambda x, n, m: (x.sinh(), x.cosh(), x.asinh(), (x.abs() + 1).acosh(), (x / 9).atanh(), x.erf(), torch.erfc(x)),
        lambda x, n, m: (torch.log2(x.abs()), torch.log10(x.abs()), torch.exp2(x), n.sqrt(), n.exp(), n.sin()),
        lambda x, n, m: (
            x**2,
            x**3,
            x.abs() ** 0.5,
            x.abs() ** -0.5,
            1 / x,
            x**-2,
            x.abs() ** 1.7,
            2.0**x,
            x.abs() ** x,
        ),
        lambda x, n, m: (torch.atan2(x, x.flip(0)), F.softplus(x * 9), F.logsigmoid(x), torch.hypot(x, x + 1)),
        lambda x, n, m: (torch.addcmul(x, x, x, value=0.5), torch.addcdiv(x, x, x + 9), torch.lerp(x, x + 1, 0.3)),
        lambda x, n, m: (torch.tanh(x) * 2 + F.silu(x) * x, F.gelu(x) + torch.sigmoid(x), torch.logit(x.sigmoid())),
    ],
    "over axes": [
        lambda x, n, m: (x.sum(), x.sum(1), x.mean(), x.mean((0, 2), keepdim=True), n.sum(), n.sum(1), m.sum(1)),
        lambda x, n, m: (x.prod(1), n.prod(1), x.var(1), x.std(-1), x.var((0, 1), unbiased=False), x.std()),
        lambda x, n, m: (m.any(), m.any(1), m.all(), m.all(1, keepdim=True), n.any(1), x.amax((0, 1)), n.amin(1)),
        lambda x, n, m: (x.argmax(-1), x.argmin(1, keepdim=True), n.argmax(), n.max(1), n.cumsum(1), m.cumsum(1)),
        lambda x, n, m: (x.norm(), x.norm(dim=1), x.norm(p=1, dim=1), x.norm(p=float("inf")), x.norm(p=3, dim=-1)),
        lambda x, n, m: (
            x.logsumexp(-1),
            torch.var_mean(x, 1),
            torch.linalg.vector_norm(x, dim=(1, 2)),
            n.diff(),
            x.diff(dim=1),
        ),
    ],
    "made": [
        lambda x, n, m: (
            torch.arange(n.shape[0]),
            torch.arange(n.shape[1], -1, -2),
            torch.arange(n.shape[1], dtype=torch.float32) * 0.5,
            n.new_ones(3),
        ),
        lambda x, n, m: (
            x.new_zeros(x.shape[0], 2),
            torch.full((n.shape[0],), 3),
            torch.ones_like(m),
            x.new_full((2,), 7),
        ),
        lambda x, n, m: (torch.full(n.shape, float("-inf")).triu(1), x.tril(), x.triu(-1), torch.eye(n.shape[0])),
        lambda x, n, m: (
            torch.ones(n.shape, dtype=torch.bool).tril(),
            F.one_hot(n, 12),
            torch.zeros(2, dtype=torch.int32),
        ),
        lambda x, n, m: (
            torch.meshgrid(torch.arange(n.shape[0]), n[0], indexing="ij"),
            torch.linspace(0, 1, 5) + x[0, 0, 0],
        ),
        lambda x, n, m: (torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), torch.full_like(x, 2.0) + x.shape[0]),
    ],
    "chosen": [
        lambda x, n, m: (x[:, n[0] % 6], x[n % 2, n % 6], x.gather(1, n[..., None].expand(2, 6, 8) % 6), n.topk(3)),
        lambda x, n, m: (x.unfold(1, 3, 2), x.diagonal(0, 1, 2), F.unfold(x[:, None], (2, 3), padding=1), n.argsort(1)),
        lambda x, n, m: (
            x.index_select(1, n[0] % 6),
            x.index_select(1, (n[0] % 6).int()),
            F.embedding(n % 8, x[0].T.contiguous()),
            n.sort(1, descending=True),
        ),
    ],
    "written": [
        lambda x, n, m: (x.scatter(1, n[..., None] % 6, 9.0), x.scatter_add(1, n[..., None].expand(2, 6, 8) % 6, x)),
        lambda x, n, m: (
            x.index_add(1, n[0] % 6, x),
            x.index_copy(0, n[0, :2] % 2, x),
            x.index_fill(1, n[0, :2] % 6, 4.0),
        ),
        lambda x, n, m: (
            x.index_put((n[0] % 2, n[1] % 6), x[0, 0], accumulate=True),
            x.index_put((m,), x.new_tensor(0.0)),
        ),
        lambda x, n, m: (torch.slice_scatter(x, x[:, :2] * 2, 1, 2, 4), torch.select_scatter(x, x[:, 0] * 3, 1, -1)),
        lambda x, n, m: (n.scatter(1, n % 6, n), n.scatter_reduce(1, n % 6, n, "amax"), torch.fill(x, 3.0)),
        lambda x, n, m: (torch.cat([n, x[..., 0]], 1), torch.cat([n.int(), n, n > 2]), torch.stack([x[..., 0], n])),
    ],
    "distances and images": [
        lambda x, n, m: (F.pairwise_distance(x[0], x[1]), F.cosine_similarity(x, x + 1, dim=-1)),
        lambda x, n, m: [
            F.grid_sample(_image(x), x[:1, :, :4].reshape(1, -1, 2, 2), mode, padding, align)
            for mode in ("bilinear", "nearest")
            for padding in ("zeros", "border")
            for align in (True, False)
        ],
        lambda x, n, m: F.affine_grid(x[:, :2, :3], [x.shape[0], 1, 3, 4], align_corners=False),
        lambda x, n, m: (F.pad(x, (1, 2), value=-torch.inf), F.pad(_image(x), (0, 0, 3, 0), value=torch.inf)),
        lambda x, n, m: (F.pad(m, (1, 2)), F.pad(m, (2, 0), value=True), F.pad(n, (0, 1), value=-1)),
        lambda x, n, m: F.adaptive_max_pool2d(_image(x), (3, 2)),
        lambda x, n, m: (F.adaptive_max_pool2d(_image(x), (5, 3)), F.adaptive_max_pool1d(_image(x)[0], 5)),
        lambda x, n, m: (
            F.interpolate(_image(x), (9, 5), mode="bicubic"),
            F.interpolate(_image(x), scale_factor=1.5, mode="bicubic"),
        ),
        lambda x, n, m: F.interpolate(_image(x)[0], 13, mode="linear", align_corners=True),
        lambda x, n, m: F.interpolate(x.mT, scale_factor=2.5, mode="linear"),
        lambda x, n, m: [
            F.interpolate(_image(x), (4, 5), mode=mode, antialias=True) for mode in ("bilinear", "bicubic")
        ],
    ],
    "matrices": [
        lambda x, n, m: (
            torch.einsum("bij,bkj->bik", x, x),
            torch.einsum("bij,bij->bi", x, x),
            torch.einsum("bij->ji", x),
        ),
        lambda x, n, m: (torch.einsum("...ij,...kj->...ik", x, x), torch.einsum("bij,ckj->bcik", x, x)),
        lambda x, n, m: (torch.einsum("bij,j,bkj->bik", x, x[0, 0], x), torch.einsum("ij,kl->ikjl", x[0], x[1])),
        lambda x, n, m: (x @ x[0, 0], x[0, 0] @ x[0].T, torch.mv(x[0], x[1, 0]), torch.dot(x[0, 0], x[0, 1])),
        lambda x, n, m: (torch.outer(x[0, 0], x[0, 1]), torch.baddbmm(x[:, :, :6], x, x.mT, beta=0.5, alpha=2.0)),
        lambda x, n, m: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True),
        lambda x, n, m: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=m[:, None, None]),
        lambda x, n, m: F.scaled_dot_product_attention(
            x.view(2, 6, 4, 2).transpose(1, 2),
            x.view(2, 6, 4, 2)[:, :, :2].transpose(1, 2),
            x.view(2, 6, 4, 2)[:, :, :2].transpose(1, 2),
            enable_gqa=True,
        ),
        lambda x, n, m: (torch.tensordot(x, x, dims=([1, 2], [1, 2])), torch.linalg.multi_dot([x[0], x[0].T, x[1]])),
        lambda x, n, m: (
            torch.einsum("bii->bi", x[..., :6]),
            torch.einsum("ii", x[0, :, :6]),
            torch.einsum("...ii,...ij->...j", x[..., :6], x),
        ),
    ],
    "scans and order": [
        lambda x, n, m: (torch.cumprod(_image(x), 2), torch.cumprod(x, -1), torch.logcumsumexp(_image(x) * 9, 2)),
        lambda x, n, m: (*_image(x).median(2), x.median(-1, keepdim=True).values, _image(x).median()),
        lambda x, n, m: (*x.kthvalue(2, -1), x.quantile(0.3, -1, keepdim=True), _image(x).quantile(0.6, 2)),
        lambda x, n, m: (
            torch.searchsorted(torch.linspace(-1, 1, 9), x),
            x[0].new_zeros(12, 8).index_reduce(0, n[0], x[0], "amax", include_self=False),
        ),
    ],
    "composed by PyTorch": [
        lambda x, n, m: (F.mse_loss(x, x.flip(0)), F.smooth_l1_loss(x, x.flip(0)), F.huber_loss(x, x.flip(0))),
        lambda x, n, m: F.binary_cross_entropy(x.sigmoid(), m[..., None].float().expand(x.shape), reduction="none"),
        lambda x, n, m: F.binary_cross_entropy_with_logits(x, m[..., None].float().expand(x.shape)),
        lambda x, n, m: F.kl_div(x.log_softmax(-1), x.flip(0).softmax(-1), reduction="batchmean"),
        lambda x, n, m: (torch.logaddexp(x, x.flip(0)), torch.xlogy(x.abs(), x.abs()), (x * 3).frac(), torch.sinc(x)),
        lambda x, n, m: (torch.isin(n, torch.tensor([2, 5])), n.count_nonzero(), torch.take(x, n), x[0].trace()),
        lambda x, n, m: (F.softshrink(x, 0.3), F.hardshrink(x), torch.dist(x, x.flip(0)), torch.diag_embed(x)),
        lambda x, n, m: (
            torch.addr(x[0], x[0, :, 0], x[0, 0]),
            torch.linalg.cross(x[..., :3], x[..., 3:6]),
            x.nansum(1),
        ),
        lambda x, n, m: F.interpolate(_image(x).reshape(1, 1, 2, 4, 6), (3, 5, 7), mode="trilinear"),
        lambda x, n, m: F.interpolate(_image(x), (9, 5), mode="nearest-exact"),
        lambda x, n, m: torch.take_along_dim(x, n[..., None] % 8, -1),
        lambda x, n, m: (x.nanmean(1), torch.isclose(x, x.round(), atol=0.1), torch.isclose(x, x)),
        lambda x, n, m: F.cosine_embedding_loss(x[0], x[1], 2 * m[0].float() - 1),
    ],
    "signs and extremes without NaN": [
        lambda x, n, m: (torch.signbit(x * m[..., None]), torch.copysign(x, -0.0 * x.flip(0)), torch.copysign(x, -x)),
        lambda x, n, m: (torch.fmin(x, (x - 1).sqrt()), torch.fmax((x - 1).sqrt(), x)),
    ],
    "products of integers": [
        lambda x, n, m: (n @ n.T, torch.bmm(n[:, :, None], n[:, None]), torch.mm(n.T, n)),
        lambda x, n, m: (torch.einsum("bi,bj->bij", n, m.long()), torch.einsum("bi,ci->bc", n, n)),
    ],
    "places beyond images and in volumes": [
        lambda x, n, m: [
            F.grid_sample(_image(x), 3 * x[:1, :, :4].reshape(1, -1, 2, 2), mode, "reflection", align)
            for mode in ("bilinear", "nearest")
            for align in (True, False)
        ],
        lambda x, n, m: [
            F.grid_sample(_image(x).reshape(1, 2, 2, 3, 4), x[:1, :, :6].reshape(1, -1, 2, 1, 3), mode, padding, align)
            for mode, padding, align in (
                ("bilinear", "zeros", True),
                ("bilinear", "border", False),
                ("nearest", "reflection", False),
            )
        ],
        lambda x, n, m: [F.affine_grid(x[:1, :3, :4], [1, 1, 2, 3, 4], align_corners=align) for align in (True, False)],
    ],
    "places by strides and masks": [
        lambda x, n, m: (x.as_strided((2, 3, 4), (48, 8, 2)), x.contiguous().as_strided((5, 4), (4, 1), 3)),
        lambda x, n, m: x.as_strided((x.shape[0], 3, 16), (x.stride(0), 16, 1)),
        lambda x, n, m: (x.masked_scatter(x > 0.5, x.flip(1) * 2), x.masked_scatter(m[..., None], x[:, :, :4] + 1)),
        lambda x, n, m: (n.masked_scatter(m, n + 100), torch.column_stack([n[:, 0], n, n[:, 1]])),
        lambda x, n, m: torch.column_stack([x[:, :2], x]),
    ],
}


@pytest.mark.parametrize("functions", CASES.values(), ids=CASES)
def test_operators_give_the_bytes_of_the_graph_and_nearly_the_values_of_pytorch(functions: list[Function]) -> None:
    x = _inputs()
    model = Model(functions).eval()
    layer = zeropoint.QConfigMapping().set_module_name("layer", zeropoint.get_default_qconfig())
    quantized = zeropoint.to_int8(model, x, [x], qconfig=layer, progress=False)
    program = zeropoint.compile(quantized, x)
    with torch.no_grad():
        results = [pytree.tree_leaves(called(*x)[1]) for called in (model, quantized, program)]
    for number, (exact, graph, found) in enumerate(zip(*results, strict=True)):
        assert graph.dtype == found.dtype == exact.dtype, number
        assert graph.shape == found.shape == exact.shape, number
        assert torch.equal(graph.nan_to_num(nan=77.0), found.nan_to_num(nan=77.0)), number
        torch.testing.assert_close(graph, exact, rtol=2e-6, atol=2e-6, equal_nan=True, msg=f"result {number}")


def test_what_pytorch_composes_otherwise_for_other_sizes_has_a_step() -> None:
    """PyTorch takes a product over an axis apart into one call for each value: of one size, and of no other."""
    x = torch.randn(2, 6, 8)
    model = Model([lambda x, n, m: x.cumprod(1)]).eval()
    inputs = (x, torch.zeros(2, 6, dtype=torch.int64), torch.zeros(2, 6, dtype=torch.bool))
    quantized = zeropoint.to_int8(model, inputs, mode="dynamic", progress=False)
    longer = (torch.randn(3, 9, 8), torch.zeros(3, 9, dtype=torch.int64), torch.zeros(3, 9, dtype=torch.bool))
    for made in (quantized, zeropoint.compile(quantized, inputs)):
        assert torch.equal(made(*longer)[1][0], longer[0].cumprod(1))


def test_the_parts_of_what_pytorch_composes_stay_float() -> None:
    """They were one operator of floats: each part rounded to 8 bits would lose what the operator did not."""
    torch.manual_seed(0)
    inputs = _inputs()
    model = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2, mode="trilinear")
    ).eval()
    x = inputs[0].reshape(1, 1, 4, 4, 6)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    found = {row.operator: row.precision for row in quantized.summary().rows}
    assert {way for operator, way in found.items() if operator != "conv3d"} == {"float32"}
    assert found["conv3d"] == "int8"
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))


def test_a_bilinear_layer_is_products_of_matrices() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Bilinear(6, 5, 4).eval(), torch.randn(7, 6), torch.randn(7, 5)
    quantized = zeropoint.to_int8(model, (x, y), mode="dynamic", progress=False)
    program = zeropoint.compile(quantized, (x, y))
    given, expected = quantized(x, y), model(x, y)
    assert torch.equal(program(x, y), given)
    # Weights of 8 bits: half a step of each of the 30 products, at most, and rounded inputs.
    assert (given - expected).abs().max() < 0.02 * expected.abs().max()


def test_an_instance_norm_with_the_statistics_of_training_is_a_part_of_the_layer_before_it() -> None:
    torch.manual_seed(0)
    norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
    norm.running_mean, norm.running_var = torch.randn(4), torch.rand(4) + 0.5
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU()).eval(), torch.randn(2, 3, 8, 8)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    assert [row.operator for row in quantized.summary().rows] == ["conv2d"]
    # Half a step of 27 products of weights and inputs, and of the result.
    assert float((quantized(x) - model(x).detach()).abs().max()) < 0.05 * float(model(x).detach().abs().max())
    assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))


def test_branches_that_data_decides_are_both_computed() -> None:
    class Branches(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v * 2, (self.layer(x),))

    torch.manual_seed(0)
    model, x = Branches(layer=nn.Linear(8, 8)).eval(), torch.randn(3, 8)
    quantized = zeropoint.to_int8(model, (x,), [x, -x], progress=False)
    program = zeropoint.compile(quantized, (x,))
    for batch in (x, -x):
        assert torch.equal(program(batch), quantized(batch))
        given = model.layer(batch)
        step = 2 * (given.max() - given.min()) / 255  # of the layer: ranges of few values are widened, at most twice
        assert (quantized(batch) - model(batch)).abs().max() < 2 * 2 * step  # a branch doubles what it gives
