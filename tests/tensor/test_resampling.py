"""interpolate, against PyTorch's quantized tensors, bit for bit."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from places import TORCH_LANES, assert_one_step, assert_same_layout, images, is_channels_last, twins
from strategies import assert_same, examples, integers
from twins import BYTES, DTYPES, assert_twins, mine

import zeropoint
from zeropoint import qint8, qint32, quint4x2, quint8
from zeropoint.nn.quantized import functional
from zeropoint.tensor import QTensor
from zeropoint.tensor.errors import QTensorError

by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
by_spatial = pytest.mark.parametrize("spatial", [1, 2, 3], ids=["1d", "2d", "3d"])


@st.composite
def targets(draw: st.DrawFn, sizes: tuple[int, ...]) -> dict[str, object]:
    """A size, or scale factors that leave something of these sizes."""
    if draw(st.booleans()):
        return {"size": tuple(draw(st.integers(1, 2 * n + 2)) for n in sizes)}
    factor = st.one_of(st.sampled_from([2.0, 2.0, 4.0, 0.5, 1.0, 3.0]), st.floats(0.3, 3.3))
    factors = tuple(draw(factor) for _ in sizes)
    assume(all(n * f >= 1 for n, f in zip(sizes, factors)))
    arguments: dict[str, object] = {"scale_factor": factors}
    if draw(st.integers(0, 3)) == 3:
        arguments["recompute_scale_factor"] = True
    return arguments


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@by_spatial
@by_dtype
@examples(25)
@given(data=st.data())
def test_nearest(dtype, spatial, mode, data):
    q, oracle = data.draw(images(dtype, spatial, batched=True))
    assume(q.numel())
    arguments = data.draw(targets(tuple(q.shape[2:])))
    ours = F.interpolate(q, mode=mode, **arguments)
    with torch.inference_mode():
        assert_same(F.interpolate(q, mode=mode, **arguments).int_repr(), ours.int_repr())
    if spatial == 1:  # PyTorch has no quantized one: the same as a height of 1
        arguments = {k: (1, *v) if isinstance(v, tuple) else v for k, v in arguments.items()}
        oracle = oracle.contiguous().unsqueeze(2)
        expected = F.interpolate(oracle, mode=mode, **arguments)
        ours = ours.unsqueeze(2)
    else:
        expected = F.interpolate(oracle, mode=mode, **arguments)
    if oracle.shape[2:].numel() == 1:
        # In both layouts: PyTorch fills a contiguous result as if it were channels last.
        assert_same(ours.int_repr(), q.int_repr().reshape(oracle.shape).expand(ours.shape))
    elif spatial == 3 and is_channels_last(oracle) and ours.shape == q.shape:
        assert_same(ours.int_repr(), q.int_repr())  # PyTorch copies it as if it were contiguous
    else:
        assert_twins(ours, expected)
        assert_same_layout(ours, expected)


@pytest.mark.parametrize("align_corners", [False, True], ids=["pixels", "corners"])
@by_dtype
@examples(30)
@given(data=st.data())
def test_bilinear(dtype, align_corners, isa, data):
    q, oracle = data.draw(images(dtype, 2, batched=True))
    arguments = data.draw(targets(tuple(q.shape[2:]))) | {"mode": "bilinear", "align_corners": align_corners}
    ours, expected = F.interpolate(q, **arguments), F.interpolate(oracle, **arguments)
    one_place = oracle.shape[2:].numel() == 1
    if one_place:
        # In both layouts: PyTorch fills a contiguous result as if it were channels last.
        assert_same(ours.int_repr(), q.int_repr().expand(ours.shape))
    elif is_channels_last(oracle) and (dtype == qint32 or oracle.shape[1] >= 8):
        # Its compiler fused products and sums differently in vectors, in what is left over of them, and in 32 bits.
        assert_one_step(ours, expected)
        whole = 0 if dtype == qint32 else oracle.shape[1] // TORCH_LANES * TORCH_LANES
        assert_twins(ours[:, :whole], expected[:, :whole])
    else:
        assert_twins(ours, expected)
    if not one_place:
        assert_same_layout(ours, expected)
    with torch.inference_mode():
        assert_same(F.interpolate(q, **arguments).int_repr(), ours.int_repr())


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("dtype", BYTES, ids=lambda d: d.name)
def test_bilinear_of_many(dtype, layout, isa):
    """Enough elements for the one in 20000 that a fused product decides."""
    for seed, factor in ((1, 2.0), (2, 1.7), (3, 0.6)):
        q, oracle = twins(integers(seed, (2, 32, 30, 31), dtype.torch_storage), 0.1, 7, dtype, layout)
        for corners in (False, True):
            arguments = {"scale_factor": factor, "mode": "bilinear", "align_corners": corners}
            assert_twins(F.interpolate(q, **arguments), F.interpolate(oracle, **arguments))


def test_the_detour_over_the_zero_point(isa):
    """rne((v - zero_point) + zero_point): just below a half becomes a half once 100 has been added to it."""
    x = torch.tensor([[0, 1], [0, 1]], dtype=torch.int8).reshape(1, 1, 2, 2)
    q, oracle = twins(x, 1.0, -100, qint8)
    size = (2, 4099)
    assert_twins(F.interpolate(q, size, mode="bilinear"), F.interpolate(oracle, size, mode="bilinear"))


def test_formula_without_kernels():
    """What other devices use agrees with the kernel, where nothing is fused."""
    from zeropoint.ops import resampling

    x = integers(5, (2, 3, 9, 8), torch.uint8)
    for corners in (False, True):
        for size, scales in (((17, 5), (0.0, 0.0)), ((18, 16), (2.0, 2.0)), ((1, 1), (0.0, 0.0))):
            kernel = torch.ops.zeropoint.stored_bilinear(x, size, corners, *scales, 3, 0, 255)
            assert_same(resampling._formula(x, size, corners, scales, 3, 0, 255), kernel)


COMPILED = [(F.interpolate, "nearest"), (functional.interpolate, "nearest"), (functional.interpolate, "bilinear")]


def test_compiled_bilinear_interpolation_of_torch_is_refused():
    q = mine(integers(3, (2, 8, 6, 6), torch.uint8), 0.1, 7, quint8)
    compiled = torch.compile(lambda q: F.interpolate(q, scale_factor=2.0, mode="bilinear"), fullgraph=True)
    with pytest.raises(RuntimeError, match="is not defined for quantized tensors"):
        compiled(q)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize(("interpolate", "mode"), COMPILED)
def test_compiled(interpolate, mode, layout):
    def double(q: QTensor) -> QTensor:
        return interpolate(q, scale_factor=2.0, mode=mode)

    q, _ = twins(integers(3, (2, 8, 6, 6), torch.uint8), 0.1, 7, quint8, layout)
    compiled = torch.compile(double, backend="aot_eager", fullgraph=True)(q)
    assert isinstance(compiled, QTensor)
    assert compiled.stride() == double(q).stride()
    assert_same(compiled.int_repr(), double(q).int_repr())


def test_sub_byte():
    q = zeropoint.quantize_per_tensor(torch.arange(16.0).reshape(1, 1, 4, 4), 1.0, 0, quint4x2)
    assert F.interpolate(q, scale_factor=2).qdtype == quint4x2
    assert F.interpolate(q, size=(1, 1)).item() == 0
    assert F.interpolate(q, size=(1, 7), mode="bilinear", align_corners=True).dequantize().flatten()[-1] == 3


def test_other_modes_are_refused():
    q = mine(torch.zeros(1, 1, 2, 2, 2, dtype=torch.uint8), 1.0, 0, quint8)
    for mode, of in (("trilinear", q), ("bicubic", q[0]), ("linear", q[0, 0])):
        for context in (torch.enable_grad, torch.inference_mode):
            with context(), pytest.raises(NotImplementedError, match=rf"'{mode}'.*call \.dequantize\(\) first"):
                F.interpolate(of, scale_factor=2, mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_per_channel_is_refused(mode):
    x = torch.randn(2, 3, 4, 4)
    q = zeropoint.quantize_per_channel(x, torch.ones(3), torch.zeros(3, dtype=torch.int64), 1, qint8)
    with pytest.raises(QTensorError, match=rf"upsample_{mode}2d .*along axis 1.*call \.dequantize\(\) first"):
        F.interpolate(q, scale_factor=2, mode=mode)


def test_bad_arguments():
    q = mine(torch.zeros(1, 2, 3, 3, dtype=torch.uint8), 1.0, 0, quint8)
    empty = mine(torch.zeros(1, 0, 3, 3, dtype=torch.uint8), 1.0, 0, quint8)
    aten = torch.ops.aten
    for words, call in {
        "must be (N, C, H, W) and not empty, got shape (1, 0, 3, 3)": lambda: aten.upsample_bilinear2d(
            empty, [2, 2], False
        ),
        "(N, C, H, W) and not empty, got shape (2, 3, 3)": lambda: aten.upsample_bilinear2d(q[0], [2, 2], False),
        "output_size must be two positive ints, got [0, 2]": lambda: aten.upsample_bilinear2d(q, [0, 2], False),
        "input must have 4 dimensions, got (2, 3, 3)": lambda: aten.upsample_nearest2d(q[0], [2, 2]),
        "may be empty": lambda: aten.upsample_nearest2d(q, [2, 0]),
    }.items():
        with pytest.raises(ValueError, match=re.escape(words)):
            call()
