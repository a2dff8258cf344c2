"""Linear layers, convolutions, pools and means of float32 against PyTorch's in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.nn import functional as F

import zeropoint
from zeropoint.ops import float_functions, float_layers, float_pooling, shuffling

ROUNDING = 4e-7


def assert_near(found: Tensor, exact: Tensor, size: float) -> None:
    """Sums grow as the root of the number of products, and so does what each addition may lose of them."""
    assert found.shape == exact.shape
    assert found.dtype == torch.float32
    assert float((found.double() - exact).abs().max()) <= ROUNDING * (10 + size**2)


@given(st.integers(1, 130), st.integers(0, 600), st.integers(1, 70), st.booleans())
def test_linear_is_that_of_torch(rows: int, inputs: int, outputs: int, has_bias: bool) -> None:
    g = torch.Generator().manual_seed(rows * inputs + outputs)
    x, w = torch.randn(rows, inputs, generator=g), torch.randn(outputs, inputs, generator=g)
    bias = torch.randn(outputs, generator=g) if has_bias else None
    exact = F.linear(x.double(), w.double(), None if bias is None else bias.double())
    assert_near(float_layers.float_linear(x, w, bias), exact, inputs**0.5)


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    dims, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4, 20]))
    made = {"dims": dims, "groups": groups, "bias": draw(st.booleans()), "images": draw(st.integers(1, 3))}
    made["inputs"], made["outputs"] = (groups * draw(st.sampled_from([1, 1, 3, 17])) for _ in range(2))
    for name, values in (("kernel", (1, 2, 3)), ("stride", (1, 2, 3)), ("padding", (0, 1, 2)), ("dilation", (1, 2))):
        made[name] = [draw(st.sampled_from(values)) for _ in range(dims)]
    made["output_padding"] = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(made["stride"], made["dilation"])]
    made["size"] = [draw(st.integers(5, 8)) for _ in range(dims)]
    made["layout"] = draw(st.sampled_from(["contiguous", "channels inside", "cut"]))
    return made


def _input(c: dict[str, Any], g: torch.Generator) -> Tensor:
    shape = (c["images"], c["inputs"], *c["size"])
    if c["layout"] == "channels inside":
        return torch.randn(shape[0], *shape[2:], shape[1], generator=g).movedim(-1, 1)
    x = torch.randn(*shape[:-1], shape[-1] + 1, generator=g)[..., 1:]
    return x if c["layout"] == "cut" else x.contiguous()


@given(convolutions(), st.booleans())
def test_convolution_is_that_of_torch(c: dict[str, Any], transposed: bool) -> None:
    g = torch.Generator().manual_seed(sum(c["size"]) + c["inputs"])
    x, bias = _input(c, g), torch.randn(c["outputs"], generator=g) if c["bias"] else None
    channels = (c["inputs"], c["outputs"] // c["groups"]) if transposed else (c["outputs"], c["inputs"] // c["groups"])
    weight = torch.randn(*channels, *c["kernel"], generator=g)
    exact_bias = None if bias is None else bias.double()
    if transposed:
        function = getattr(F, f"conv_transpose{c['dims']}d")
        rest = c["stride"], c["padding"], c["output_padding"], c["groups"], c["dilation"]
        ours: Any = float_layers.float_conv_transpose
        if any((n - 1) * s - 2 * p + d * (k - 1) + o + 1 < 1 for n, s, p, d, k, o in
               zip(c["size"], c["stride"], c["padding"], c["dilation"], c["kernel"], c["output_padding"])):  # fmt: skip
            return
    else:
        function = getattr(F, f"conv{c['dims']}d")
        rest = c["stride"], c["padding"], c["dilation"], c["groups"]
        ours = float_layers.float_conv
    exact = function(x.double(), weight.double(), exact_bias, *rest)
    found = ours(x, weight, bias, *rest)
    assert_near(found, exact, (weight[0].numel() * weight.shape[0]) ** 0.5)
    assert torch.equal(ours(x[0], weight, bias, *rest), found[0])


def test_results_do_not_depend_on_threads() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 32, 20, 20), torch.randn(70, 32, 3, 3)
    rows, matrix = torch.randn(5, 700), torch.randn(300, 700)
    before, found = zeropoint.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            zeropoint.set_num_threads(threads)
            found.append((float_layers.float_conv(x, weight, None, [1], [1]), float_layers.float_linear(rows, matrix)))
    finally:
        zeropoint.set_num_threads(before)
    assert all(torch.equal(a, b) for several in zip(*found) for a in several for b in several)


def test_weight_that_changes_is_packed_again() -> None:
    x, weight = torch.randn(2, 4), torch.randn(3, 4)
    float_layers.float_linear(x, weight)
    weight.mul_(2)
    torch.testing.assert_close(float_layers.float_linear(x, weight), x @ weight.t())


def test_inference_tensor_that_changes_is_packed_again() -> None:
    """Inference tensors do not count how often they are written to."""
    with torch.inference_mode():
        x, weight, bias = torch.randn(2, 4), torch.randn(3, 4), torch.randn(3)
        float_layers.float_linear(x, weight, bias)
        weight.mul_(2)
        torch.testing.assert_close(float_layers.float_linear(x, weight, bias), x @ weight.t() + bias)
        bias.mul_(2)
        torch.testing.assert_close(float_layers.float_linear(x, weight, bias), x @ weight.t() + bias)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("layout", ["contiguous", "channels inside"])
def test_pools_are_those_of_torch(dims: int, layout: str) -> None:
    torch.manual_seed(0)
    x = _input({"images": 2, "inputs": 9, "size": [9, 8, 7][:dims], "layout": layout}, torch.Generator().manual_seed(0))
    for options in ({}, {"ceil_mode": True}, {"count_include_pad": False}, {"divisor_override": 5}):
        if dims == 1 and "divisor_override" in options:
            continue
        exact = getattr(F, f"avg_pool{dims}d")(x.double(), 3, 2, 1, **options)
        assert_near(getattr(float_pooling, f"float_avg_pool{dims}d")(x, [3], [2], [1], **options), exact, 1)
    size = [3, 1, 7][:dims]
    exact = getattr(F, f"adaptive_avg_pool{dims}d")(x.double(), size)
    found = getattr(float_pooling, f"float_adaptive_avg_pool{dims}d")(x, size)
    assert_near(found, exact, 1)
    assert_near(getattr(float_pooling, f"float_adaptive_avg_pool{dims}d")(x[0], size), exact[0], 1)


@pytest.mark.parametrize("dim", [[0], [1], [-1], [0, 2], None, []])
@pytest.mark.parametrize("keepdim", [False, True])
def test_mean_and_norm_are_those_of_torch(dim: list[int] | None, keepdim: bool) -> None:
    x = torch.randn(4, 5, 600).transpose(0, 1)
    axes = dim or None
    assert_near(float_pooling.float_mean(x, dim, keepdim), x.double().mean(axes or [0, 1, 2], keepdim), 0)
    assert_near(float_pooling.float_sum(x, dim, keepdim), x.double().sum(axes or [0, 1, 2], keepdim), 0)
    exact = torch.linalg.vector_norm(x.double(), 2, axes, keepdim)
    assert_near(float_pooling.float_norm(x, dim, keepdim), exact, 100)


def test_norms_of_channels_are_those_of_torch() -> None:
    torch.manual_seed(0)
    for x in (torch.randn(3, 6, 5, 4), torch.randn(3, 6), torch.randn(2, 6, 40) + 3):
        numbers = torch.randn(6), torch.randn(6)
        mean, var = torch.randn(6), torch.rand(6) + 0.1
        exact = F.batch_norm(x.double(), mean.double(), var.double(), *(n.double() for n in numbers))
        assert_near(float_functions.float_batch_norm(x, *numbers, mean, var), exact, 30)
        exact = F.group_norm(x.double(), 3, *(n.double() for n in numbers))
        torch.testing.assert_close(
            float_functions.float_group_norm(x, 3, *numbers).double(), exact, rtol=3e-5, atol=3e-5
        )


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("layout", ["contiguous", "channels inside"])
def test_bilinear_images_are_those_of_torch(align: bool, layout: str) -> None:
    x = _input({"images": 2, "inputs": 5, "size": [9, 8], "layout": layout}, torch.Generator().manual_seed(0))
    for size, factors in (((13, 3), None), (None, (1.7, 2.0)), ((1, 1), None), ((9, 8), None)):
        exact = F.interpolate(x.double(), size, factors, "bilinear", align)
        assert_near(float_pooling.float_bilinear(x, size, align, factors), exact, 1)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_log_softmax_is_that_of_torch(dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 40, 3) * 20
    x[1, 2] = -torch.inf
    exact = torch.log_softmax(x.double(), dim)
    torch.testing.assert_close(
        float_functions.float_log_softmax(x, dim).double(), exact, rtol=2e-6, atol=2e-6, equal_nan=True
    )
    assert float_functions.float_log_softmax(torch.tensor([0.0, torch.nan]), 0).isnan().all()


def test_top_takes_the_first_of_equal_values() -> None:
    x = torch.tensor([[1, 3, 3, 2], [5, 5, 5, 5]], dtype=torch.uint8)
    values, places = shuffling.top(x, 2)
    assert values.tolist() == [[3, 3], [5, 5]]
    assert places.tolist() == [[1, 2], [0, 1]]
    assert shuffling.top(x, 2, 0, False)[1].tolist() == [[0, 0, 0, 0], [1, 1, 1, 1]]
    with pytest.raises(ValueError, match="k is 5"):
        shuffling.top(x, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: float_layers.float_linear(x, x[:, 1:]), r"does not fit weight of shape \(3, 3\)"),
        (lambda x: float_layers.float_linear(x, x.t(), x[0]), r"does not fit|bias has shape"),
        (lambda x: float_layers.float_linear(x, torch.ones(5, 4), x[0]), "bias has shape"),
        (lambda x: float_layers.float_conv(x[None], torch.ones(2, 2, 3)), "does not fit weight"),
        (lambda x: float_layers.float_conv(x[None], torch.ones(2, 3, 9)), "smaller than the kernel"),
        (lambda x: float_layers.float_conv(x, torch.ones(2, 3)), "3 to 5 dimensions"),
        (lambda x: float_layers.float_conv(x[None], torch.ones(2, 3, 3), stride=[0]), "stride must have"),
        (lambda x: float_pooling.float_avg_pool1d(x, [9]), "avg_pool1d"),
        (lambda x: float_pooling.float_adaptive_avg_pool1d(x, [0]), "positive sizes"),
        (lambda x: float_functions.float_batch_norm(x, None, None, x[0, :2], x[0, :2]), "one number for each channel"),
        (lambda x: float_functions.float_group_norm(x, 3), "must divide the channels"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(torch.ones(3, 4))
    with pytest.raises(TypeError, match="float"):
        float_layers.float_linear(torch.ones(3, 4, dtype=torch.int32), torch.ones(2, 4))
