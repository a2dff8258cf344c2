"""pad, pixel_shuffle, pixel_unshuffle and channel_shuffle, against PyTorch's quantized tensors."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from places import LAYOUTS, assert_same_layout, images, is_channels_last, twins
from strategies import assert_same, examples, integers
from twins import BYTES, DTYPES, assert_twins, mine

import zeropoint
from zeropoint import qint8, quint2x4, quint4x2, quint8
from zeropoint.tensor import QTensor
from zeropoint.tensor.errors import QTensorError

by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)


@by_dtype
@given(data=st.data())
def test_constant(dtype, data):
    q, oracle = data.draw(images(dtype, data.draw(st.sampled_from([1, 2, 3]))))
    axes = data.draw(st.integers(1, q.dim()))
    pad: list[int] = []
    for n in reversed(q.shape[-axes:]):
        pad += [data.draw(st.integers(-(n - 1) // 2 if n else 0, 3)) for _ in range(2)]
    value = data.draw(
        st.one_of(st.none(), st.just(0.0), st.floats(-300, 300, width=32), st.sampled_from([1e30, -1e30]))
    )
    if value is not None:
        value = min(max(value * q.q_scale(), -3e38), 3e38)
    ours = F.pad(q, pad, value=value)
    # PyTorch pads channels last in 3d wrongly, if at all, and crops it in 2d wrongly.
    plain = min(pad) <= 0 or q.dim() > 4
    expected = F.pad(oracle.contiguous() if plain else oracle, pad, value=value)
    assert_twins(ours, expected)
    if not plain and not (is_channels_last(oracle) and oracle.is_contiguous()):
        assert_same_layout(ours, expected)
    with torch.inference_mode():
        assert_twins(F.pad(q, pad, value=value), expected)


def test_zero_is_the_zero_point():
    q = mine(torch.zeros(1, 2, dtype=torch.uint8), 0.5, 77, quint8)
    assert F.pad(q, (1, 1)).int_repr().tolist() == [[77, 0, 0, 77]]
    assert torch.nn.ConstantPad1d(1, 1e9)(q).int_repr().tolist() == [[255, 0, 0, 255]]
    assert torch.nn.ZeroPad1d(1)(q).dequantize()[0, 0] == 0


def by_index(x: torch.Tensor, pad: tuple[int, ...], mode: str) -> torch.Tensor:
    """Reflection and replication, the long way."""
    for axis in range(len(pad) // 2):
        dim, n = x.dim() - 1 - axis, x.shape[-1 - axis]
        at = torch.arange(-pad[2 * axis], n + pad[2 * axis + 1])
        at = at.clamp(0, n - 1) if mode == "replicate" else (n - 1 - (n - 1 - at.abs()).abs()).abs()
        x = x.index_select(dim, at)
    return x


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("spatial", [1, 2, 3], ids=["1d", "2d", "3d"])
@by_dtype
@examples(25)
@given(data=st.data())
def test_reflect_and_replicate(dtype, spatial, mode, data):
    q, oracle = data.draw(images(dtype, spatial))
    if not q.numel():
        return
    pad: tuple[int, ...] = ()
    for n in reversed(q.shape[-spatial:]):
        pad += tuple(data.draw(st.integers(0, min(n - 1, 3) if mode == "reflect" else 3)) for _ in range(2))
    ours = F.pad(q, pad, mode=mode)
    assert (ours.q_scale(), ours.q_zero_point()) == (q.q_scale(), q.q_zero_point())
    assert_same(ours.int_repr(), by_index(q.int_repr(), pad, mode))
    if mode == "reflect" and spatial < 3:  # the others PyTorch's quantized tensors did not have
        assert_twins(ours, F.pad(oracle, pad, mode=mode))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("factor", [1, 2, 3])
@by_dtype
def test_pixel_shuffle(dtype, factor, layout):
    for shape in ((2, 18 * factor**2, 6, 6), (factor**2, 12, 12), (0, factor**2, 6, 6), (1, factor**2, 1, 6)):
        q, oracle = twins(integers(1, shape, dtype.torch_storage), 0.1, 3, dtype, layout)
        assert_twins(F.pixel_shuffle(q, factor), F.pixel_shuffle(oracle, factor))
        if layout != "sliced" and shape[-2] > 1:
            assert_twins(F.pixel_unshuffle(q, factor), F.pixel_unshuffle(oracle, factor))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", [1, 2, 3, 4, 6, 12])
def test_channel_shuffle(groups, layout):
    for shape in ((2, 24, 5, 4), (1, 12, 1, 1), (3, 96, 7, 7)):
        q, oracle = twins(integers(1, shape, torch.uint8), 0.1, 3, quint8, layout)
        assert_twins(F.channel_shuffle(q, groups), F.channel_shuffle(oracle, groups))
    for dtype in (qint8, quint4x2):  # PyTorch has it for quint8 only
        x = integers(2, (2, 24, 5, 4), torch.uint8) & dtype.qmax
        q = zeropoint.quantize_per_tensor(x.to(torch.float32), 1.0, 0, dtype)
        assert_same(F.channel_shuffle(q, groups).dequantize(), F.channel_shuffle(x.to(torch.float32), groups))


@pytest.mark.parametrize("dtype", [quint4x2, quint2x4], ids=lambda d: d.name)
def test_sub_byte(dtype):
    x = torch.randint(0, dtype.qmax + 1, (2, 4, 5, 5)).to(torch.float32)
    q = zeropoint.quantize_per_tensor(x, 1.0, 0, dtype)
    assert_same(F.pad(q, (1, 2, 0, 1), value=1.0).dequantize(), F.pad(x, (1, 2, 0, 1), value=1.0))
    assert_same(F.pad(q, (1, 2, 0, 1), mode="reflect").dequantize(), F.pad(x, (1, 2, 0, 1), mode="reflect"))
    assert_same(F.pixel_shuffle(q, 2).dequantize(), F.pixel_shuffle(x, 2))


CALLS = {
    "constant_pad_nd": lambda q: F.pad(q, (1, 1)),
    "reflection_pad2d": lambda q: F.pad(q, (1, 1, 1, 1), mode="reflect"),
    "replication_pad2d": lambda q: F.pad(q, (1, 1, 1, 1), mode="replicate"),
    "pixel_shuffle": lambda q: F.pixel_shuffle(q, 2),
    "pixel_unshuffle": lambda q: F.pixel_unshuffle(q, 2),
    "channel_shuffle": lambda q: F.channel_shuffle(q, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_per_channel_is_refused(name):
    x = torch.randn(2, 4, 4, 4)
    q = zeropoint.quantize_per_channel(x, torch.ones(4), torch.zeros(4, dtype=torch.int64), 1, qint8)
    with pytest.raises(QTensorError, match=rf"{name} .*along axis 1.*call \.dequantize\(\) first"):
        CALLS[name](q)


@pytest.mark.parametrize("name", [*CALLS, "filled"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_compiled(name, layout):
    call = CALLS.get(name, lambda q: F.pad(q, (1, 1), value=1.5))
    q, _ = twins(integers(3, (2, 8, 6, 6), torch.uint8), 0.1, 7, quint8, layout)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)(q)
    assert isinstance(compiled, QTensor)
    assert_same(compiled.int_repr(), call(q).int_repr())


@pytest.mark.parametrize("dtype", BYTES, ids=lambda d: d.name)
def test_bad_arguments(dtype):
    q = mine(torch.zeros(1, 3, 3, 3, dtype=dtype.torch_storage), 1.0, 0, dtype)
    with pytest.raises(RuntimeError, match="Padding size should be less than"):
        F.pad(q, (3, 3), mode="reflect") if q.dim() == 3 else F.pad(q, (3, 3, 3, 3), mode="reflect")
    with pytest.raises(ValueError, match="3 channels are not divisible by the square of upscale_factor 2"):
        F.pixel_shuffle(q, 2)
    with pytest.raises(ValueError, match="3 x 3 places are not divisible by downscale_factor 2"):
        F.pixel_unshuffle(q, 2)
    with pytest.raises(ValueError, match="channels divisible by 2 groups"):
        F.channel_shuffle(q, 2)
    for shuffle in (F.pixel_shuffle, F.pixel_unshuffle, F.channel_shuffle):
        with pytest.raises((ValueError, RuntimeError), match=r"at least 3|two dimensions"):
            shuffle(q[0, 0], 1)
