"""Every kernel in the native lists gives the bytes of its operation's reference, through the Python API.

`test_kernel_check.py` runs the thorough comparison in C++; this one sees what Python adds: grids of real tensors, the
choice of kernel at run time, and the threads.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf_files import decoder_file

import zeropoint
import zeropoint.tensor  # registers every operator
from zeropoint import _native, generation, runtime
from zeropoint.compiler.program_builder import Input, ProgramBuilder
from zeropoint.numerics.affine import (
    Beyond,
    RoundingVariant,
    WayBack,
    dequantize,
    fake_quantize,
    mask_gradient,
    minmax,
    quantize,
    quantize_tensor,
)
from zeropoint.numerics.blocks import blocks_along, per_channel, per_group, per_tensor, per_token
from zeropoint.numerics.packing import pack, unpack
from zeropoint.ops.float_maps import BINARY, UNARY, float_binary, float_unary

ops = torch.ops.zeropoint
LISTED = _native.kernel_list()
OPERATIONS = sorted({operation for operation, _ in LISTED})
AVAILABLE = zeropoint.cpu_info().available

# Every operation is written for these. Eight lanes are part of quantization_loss's contract: no AVX512 kernel.
NEEDED = {"reference", "portable", "avx2", "avx512"}
# Bytes are multiplied with VNNI or AMX, not with plain AVX512.
FEWER = {
    "quantization_loss": {"avx512"},
    "interleave": {"avx512"},  # 16 bytes at a time are enough: memory is what limits it
    **{name: {"avx512"} for name in ("attention", "cache_attention", "gemm", "group_gemm", "narrow_gemm", "depthwise")},
}
MORE = {
    **{name: {"vnni"} for name in ("attention", "cache_attention", "group_gemm")},
    "gemm": {"avx_vnni", "vnni", "amx"},
    "narrow_gemm": {"vnni", "amx"},
    "depthwise": {"vnni"},
}
FOUNDATION = {
    "dequantize",
    "fake_quantize",
    "mask_gradient",
    "minmax",
    "pack",
    "quantization_loss",
    "quantize",
    "unpack",
}

INTEGERS = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-32768, 32767),
    torch.int32: (-(2**31), 2**31 - 1),
}
EXTREMES = [0.0, -0.0, 0.5, -0.5, 2.5, 1e-45, -1e-40, 3e38, -3e38, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 8388607.5]
SPECIALS = torch.tensor([*EXTREMES, float("nan"), float("inf"), -float("inf")])

Outputs = list[torch.Tensor]


def floats(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Ties at multiples of 1/8, ordinary numbers, and everything in SPECIALS."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator) * 20
    ties = torch.randint(-400, 400, shape, generator=generator) / 8 + 1 / 16
    special = SPECIALS[torch.randint(len(SPECIALS), shape, generator=generator)]
    kind = torch.randint(0, 10, shape, generator=generator)
    return torch.where(kind < 5, x, torch.where(kind < 9, ties, special))


def integers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    low, high = INTEGERS[dtype]
    q = torch.randint(low, high + 1, shape, generator=torch.Generator().manual_seed(1), dtype=torch.int64)
    q.view(-1)[:4] = torch.tensor([low, high, 0, 1])[: q.numel()]
    return q.to(dtype)


def layouts() -> Iterator[tuple[torch.Tensor, tuple[int, ...]]]:
    """(tensor, block): per tensor, channel, token, group and block, contiguous and channels-last, odd sizes."""
    for n in (0, 1, 7, 31, 64, 65, 130, 1000):
        yield floats((n,), n), per_tensor((n,))
    image = floats((3, 5, 7, 9))
    for x, axis in itertools.product((image, image.contiguous(memory_format=torch.channels_last)), (0, 1, 3)):
        if axis == 1 or x is image:
            yield x, per_channel(x.shape, axis)
    matrix = floats((6, 96))
    yield matrix, per_channel(matrix.shape, 1)
    yield matrix, per_token(matrix.shape)
    yield matrix, per_group(matrix.shape, 32)
    yield matrix, (2, 3)


def parameters(x: torch.Tensor, block: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    count = 1
    for n in blocks_along(x.shape, block):
        count *= n
    generator = torch.Generator().manual_seed(2)
    scale = torch.where(torch.arange(count) % 2 == 0, 0.125, torch.rand(count, generator=generator) + 0.01)
    return scale, torch.randint(-9, 10, (count,), generator=generator)


def quantize_case() -> Outputs:
    outputs = []
    for x, block in layouts():
        scale, zero_point = parameters(x, block)
        for dtype, (qmin, qmax) in INTEGERS.items():
            for variant in RoundingVariant:
                limits = {"qmin": qmin, "qmax": qmax, "dtype": dtype, "variant": variant}
                outputs.append(quantize(x, scale, zero_point, block, **limits))
                outputs.append(quantize_tensor(x, 0.1, 3, **limits))
            for variant in (RoundingVariant.split, RoundingVariant.joined):
                outputs.append(
                    quantize(x, scale.double(), zero_point, block, qmin=qmin, qmax=qmax, dtype=dtype, variant=variant)
                )
    return outputs


def dequantize_case() -> Outputs:
    outputs = []
    for x, block in layouts():
        scale, zero_point = parameters(x, block)
        for dtype in INTEGERS:
            q = torch.empty_like(x, dtype=dtype).copy_(integers(x.shape, dtype))
            for s, z, exact in itertools.product((scale, scale.double()), (None, zero_point), (True, False)):
                outputs.append(dequantize(q, s, z, block, exact=exact))
    return outputs


def fake_quantize_case() -> Outputs:
    outputs = []
    for x, block in layouts():
        scale, zero_point = parameters(x, block)
        for z, beyond, way_back, limits in itertools.product(
            (zero_point, zero_point + 0.25), Beyond, WayBack, ((0, 255), (-(2**31), 2**31 - 1))
        ):
            qmin, qmax = limits
            outputs.extend(fake_quantize(x, scale, z, block, qmin=qmin, qmax=qmax, beyond=beyond, way_back=way_back))
    return outputs


def mask_gradient_case() -> Outputs:
    return [mask_gradient(x, torch.arange(x.numel()).reshape(x.shape) % 3 == 0) for x, _ in layouts()]


def minmax_case() -> Outputs:
    outputs = []
    for x, block in layouts():
        if x.numel():
            outputs.extend(minmax(x, block))
            outputs.extend(minmax(x.nan_to_num(0.0), block))
    return outputs


def packing_case() -> Outputs:
    outputs = []
    for bits, columns in itertools.product((2, 4), (0, 1, 3, 63, 64, 65, 127, 128, 129, 1000)):
        values = integers((3, columns), torch.uint8) % (1 << bits)
        packed = pack(values, bits)
        back = unpack(packed, columns, bits)
        assert torch.equal(back, values)
        outputs += [packed, back]
    return outputs


def quantization_loss_case() -> Outputs:
    outputs: Outputs = []
    for n, bits in itertools.product((1, 7, 8, 9, 100, 333), (2, 4)):
        x = torch.randn(n, generator=torch.Generator().manual_seed(n))
        outputs.extend(zeropoint.choose_qparams_optimized(x, n, bit_width=bits))
    return outputs


def images() -> Outputs:
    """Quantized images, channels outermost and innermost, with and without a whole vector of channels."""
    g = torch.Generator().manual_seed(5)
    pictures = [torch.randint(0, 256, (2, c, 11, 13), dtype=torch.uint8, generator=g) for c in (3, 40)]
    return [*pictures, *(p.contiguous(memory_format=torch.channels_last) for p in pictures)]


def lookup_case() -> Outputs:
    return [ops.stored_function(q, "sigmoid", [], 0.1, 3, 1 / 256, 0, 0, 255) for q in images()]


def interleave_case() -> Outputs:
    g = torch.Generator().manual_seed(16)
    shapes = [(2, 2 * groups, 5, 9) for groups in (1, 2, 3, 4, 5, 16, 17)]
    given = [torch.randint(0, 256, shape, generator=g, dtype=torch.uint8) for shape in shapes]
    return [ops.stored_channel_shuffle(q.contiguous(memory_format=torch.channels_last), q.shape[1] // 2) for q in given]


def max_pool_case() -> Outputs:
    return [ops.stored_max_pool(q, [3, 3], [2, 2], [1, 1], [1, 1], False, 2) for q in images()]


def average_pool_case() -> Outputs:
    fixed = [ops.stored_average_pool(q, [3, 2], [2, 2], [1, 1], False, True, None, 3, 0, 255, 2) for q in images()]
    return [*fixed, *(ops.stored_adaptive_average_pool(q, [4, 5], 3, 0, 255) for q in images())]


def bilinear_case() -> Outputs:
    corners = (False, True)
    return [ops.stored_bilinear(q, [20, 31], c, None, None, 3, 0, 255) for q in images() for c in corners]


def histogram_case() -> Outputs:
    """Counts and extremes, with NaN and infinities among the values, and ranges that overflow, vanish, or are one."""
    outputs = []
    ranges = ((-30.0, 30.0), (0.0, 0.5), (-3e38, 3e38), (0.0, 1e-40), (2.5, 2.5), (1e30, 1e30))
    for n, bins, (low, high) in itertools.product((0, 1, 7, 31, 64, 1000, 70_001), (1, 3, 2048), ranges):
        x, counts = floats((n,), n), torch.empty(bins)
        least, most, nans, infinities = _native.histogram(x.data_ptr(), n, low, high, bins, counts.data_ptr())
        assert (nans, infinities) == (int(x.isnan().sum()), int(x.isinf().sum()))
        outputs += [counts, torch.tensor([least, most])]
    return outputs


def layer(*weight: int, dtype: torch.dtype, outputs: int) -> tuple[torch.Tensor | None, ...]:
    """Weight, scale and zero point for each output channel, and a bias."""
    g = torch.Generator().manual_seed(outputs)
    low, high = INTEGERS[dtype]
    zero_point = torch.randint(low, high + 1, (outputs,), generator=g)
    return (
        integers(weight, dtype),
        torch.rand(outputs, generator=g) + 0.01,
        zero_point,
        torch.randn(outputs, generator=g),
    )


BYTES = (torch.uint8, torch.int8)


def gemm_case() -> Outputs:
    """Linear layers with every tail, and convolutions with taps that are neighbours and taps that are not."""
    outputs = []
    shapes = itertools.product((1, 5, 13, 250), (1, 7, 64, 130), (1, 16, 35))
    for (m, k, n), x_dtype, w_dtype in itertools.product(shapes, BYTES, BYTES):
        x, w = integers((m, k), x_dtype), layer(n, k, dtype=w_dtype, outputs=n)
        outputs.append(ops.linear(x, 0.1, 5, *w, 60.0, 9))
        outputs.append(ops.linear_leaky_relu(x, 0.1, 127, *w[:3], None, 60.0, 9, 0.1))
        outputs.append(ops.linear_dynamic(x.to(torch.float32), *w))
    for picture, w_dtype in itertools.product(images(), BYTES):
        c = picture.shape[1]
        w = layer(20, c, 3, 3, dtype=w_dtype, outputs=20)
        y = ops.conv2d_relu(picture, 0.1, 5, *w, [1, 2], [1, 1], [1, 1], 1, 200.0, 9)
        outputs += [y, ops.conv2d_add(picture, 0.1, 5, *w, [1, 2], [1], [1], 1, y, 9.0, 3, 99.0, 4)]
        outputs.append(ops.conv2d(picture, 0.1, 5, *w, [1, 1], [2, 2], [2, 3], 1, 200.0, 9))
        back = layer(c, 20, 3, 3, dtype=w_dtype, outputs=20)
        outputs.append(ops.conv_transpose2d(picture, 0.1, 5, *back, [2], [1], [1], [1], 1, 200.0, 9))
    # With these channels, AVX2 multiplies 16 numbers for four pixels where the others multiply 36.
    for (height, width), x_dtype, w_dtype in itertools.product(((7, 9), (2, 2), (4, 70)), BYTES, BYTES):
        picture, w = integers((2, 32, height, width), x_dtype), layer(40, 32, 3, 3, dtype=w_dtype, outputs=40)
        y = ops.conv2d_relu(picture, 0.1, 5, *w, [1], [1], [1], 1, 800.0, 9)
        outputs += [y, ops.conv2d_add(picture, 0.1, 5, *w, [1], [1], [1], 1, y, 9.0, 3, 999.0, 4)]
        column = layer(20, 3, 9, 1, dtype=w_dtype, outputs=20)
        outputs.append(ops.conv2d(integers((2, 3, 40, 1), x_dtype), 0.1, 5, *column, [2, 1], [4, 0], [1], 1, 200.0, 9))
    return outputs


def depthwise_case() -> Outputs:
    outputs = []
    for picture, w_dtype, kernel in itertools.product(images(), BYTES, (1, 2, 3, 5)):
        c = picture.shape[1]
        w = layer(c, 1, kernel, kernel, dtype=w_dtype, outputs=c)
        for stride, dilation in ((1, 1), (2, 1), (1, 2)):
            outputs.append(ops.conv2d(picture, 0.1, 5, *w, [stride], [1], [dilation], c, 9.0, 9))
            outputs.append(ops.conv2d_dynamic(picture.to(torch.float32), *w, [stride], [1], [dilation], c))
    return outputs


def recurrent(reduce_range: bool, dtypes: tuple[torch.dtype, ...]) -> Outputs:
    """Every kind of cell on a packed sequence, in both directions."""
    outputs: Outputs = []
    g = torch.Generator().manual_seed(6)
    for (name, gates), dtype in itertools.product((("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)), dtypes):
        for inputs, hidden in ((7, 5), (40, 70)):
            shapes = [(gates * hidden, inputs), (gates * hidden, hidden)] * 2
            if dtype == torch.float16:
                weights = [torch.randn(s, generator=g).to(dtype) for s in shapes]
                scales = zeros = []
            else:
                weights = [integers(s, dtype) for s in shapes]
                scales = [torch.rand(s[0], generator=g) / 100 + 0.001 for s in shapes]
                zeros = [torch.randint(*INTEGERS[dtype], (s[0],), generator=g) for s in shapes]
            biases = [torch.randn(s[0], generator=g) for s in shapes]
            h = torch.randn(2, 9, hidden, generator=g)
            x, sizes = torch.randn(21, inputs, generator=g), torch.tensor([9, 8, 2, 1, 1])
            sequence = getattr(ops, f"quantized_{name}").data
            hx = [h, h] if name == "lstm" else h
            outputs.extend(sequence(x, sizes, hx, weights, scales, zeros, biases, 1, 0.0, False, True, reduce_range))
    return outputs


def cell_case() -> Outputs:
    return recurrent(False, BYTES)


def narrow_gemm_case() -> Outputs:
    return recurrent(True, BYTES)


def half_gemm_case() -> Outputs:
    return recurrent(False, (torch.float16,))


def tables() -> Iterator[tuple[str, torch.Tensor]]:
    """(operators' name, embedding table): 8, 4 and 2 bits, rows around multiples of a vector."""
    for columns, (name, per_byte) in itertools.product(
        (1, 3, 7, 8, 9, 31, 64, 65, 100, 300), (("byte", 1), ("4bit", 2), ("2bit", 4))
    ):
        x = torch.randn(40, columns * per_byte, generator=torch.Generator().manual_seed(columns))
        yield name, getattr(ops, f"embedding_bag_{name}_prepack")(x)


def quantize_range_case() -> Outputs:
    return [table for _, table in tables()]


def embedding_case() -> Outputs:
    outputs = []
    g = torch.Generator().manual_seed(3)
    indices, weights = torch.randint(0, 40, (200,), generator=g), torch.randn(200, generator=g)
    offsets = torch.tensor([0, 0, 1, 3, 70, 71, 200])
    mapping = torch.randint(-1, 40, (40,), generator=g, dtype=torch.int32)
    for name, table in tables():
        bags = getattr(ops, f"embedding_bag_{name}_rowwise_offsets")
        outputs += [bags(table, indices, offsets, False, mode) for mode in range(3)]
        outputs += [bags(table, indices, offsets, False, mode, True, None, mapping) for mode in range(3)]
        outputs.append(bags(table, indices.int(), offsets.int(), False, 0, False, weights))
        outputs.append(getattr(ops, f"embedding_{name}")(table, indices))
        outputs.append(getattr(ops, f"embedding_bag_{name}_unpack")(table))
    return outputs


def moments_case() -> Outputs:
    """Means over rows and down columns."""
    limits = 0, 255
    rows = [ops.stored_mean(integers((9, n), torch.uint8), 1, *limits) for n in (1, 7, 31, 49, 64, 257, 3136)]
    columns = [ops.stored_mean_of_columns(q, [2, 3] if c else [0], 0.1, 3, *limits) for c, q in enumerate(images()[2:])]
    return [*rows, *columns]


def normalize_case() -> Outputs:
    outputs = []
    for q in images():
        c = q.shape[1]
        _, scale, _, bias = layer(1, dtype=torch.uint8, outputs=c)
        outputs.append(ops.batch_norm(q, 0.1, 5, scale, bias, bias, scale, 1e-5, 0.2, 9))
        outputs.append(ops.batch_norm2d_relu(q, 0.1, 5, None, None, bias, scale, 1e-5, 0.2, 9))
        outputs += [ops.group_norm(q, 0.1, 5, groups, scale, bias, 1e-5, 0.02, 100) for groups in (1, c)]
        outputs.append(ops.layer_norm(q, 0.1, 5, [11, 13], None, None, 1e-5, 0.02, 100))
    return outputs


def softmax_case() -> Outputs:
    return [ops.softmax(q, 0.1, 5, dim, 1 / 256, 0) for q in images() for dim in range(4)]


def binary_case() -> Outputs:
    outputs = []
    for q in [*images(), integers((3, 70_001), torch.int8)]:
        for operand in (q, q.flip(0), q[:1], q[..., :1], q.reshape(-1)[:1]):
            outputs.append(ops.add(q, 0.1, 5, operand, 0.25, 9, 0.3, 100))
            outputs.append(ops.mul_relu(operand, 0.25, 5, q, 0.25, 9, 2.0, 100))
    return outputs


def weight_only_case() -> Outputs:
    """Few rows and many, groups with a shorter last one, zero points of both kinds, and float16."""
    outputs = []
    for m, k, n in itertools.product((1, 2, 3, 13), (1, 64, 301), (1, 32, 70)):
        g = torch.Generator().manual_seed(m * k * n)
        x = torch.randn(m, k, generator=g)
        groups = -(-k // 40)
        scale, shift = torch.rand(n, groups, generator=g), torch.randn(n, groups, generator=g)
        zero_point = torch.randint(0, 16, (n, groups), generator=g)
        nibbles = integers((n, (k + 1) // 2), torch.uint8)
        for dtype in BYTES:
            outputs.append(ops.weight_only_linear(x, integers((n, k), dtype), scale, zero_point, shift[:, 0], 40))
        outputs.append(ops.weight_only_linear_4bit(x, nibbles, scale, zero_point, None, 40))
        outputs.append(ops.weight_only_linear_4bit(x.to(torch.bfloat16), nibbles, scale, shift, None, 40).float())
        outputs.append(ops.linear_relu_dynamic_fp16(x, torch.randn(n, k, generator=g).half(), None))
    return outputs


def float_values() -> Outputs:
    g = torch.Generator().manual_seed(9)
    shapes = [(n,) for n in (1, 8, 17, 33)] + [(3, 70), (2, 5, 100), (1, 9001)]
    return [torch.randn(shape, generator=g) * 4 for shape in shapes]


def float_function_case() -> Outputs:
    functions = (ops.float_gelu, ops.float_tanh, ops.float_sigmoid, ops.float_silu)
    return [f(x) for x in float_values() for f in (*functions, lambda x: ops.float_gelu(x, "tanh"))]


def map_case() -> Outputs:
    """Functions that vectors and single numbers must give alike, at any place in a block."""
    numbers = torch.cat([*(x.flatten() for x in float_values()), SPECIALS])
    outputs = [float_unary(numbers[start:], name) for name in UNARY for start in (0, 1, 3)]
    return outputs + [float_binary(numbers, numbers.flip(0), name) for name in BINARY]


def attention_case() -> Outputs:
    """Through a program: the step is the only one that runs it."""
    g = torch.Generator().manual_seed(13)
    outputs = []
    for heads, rows, columns, depth, width in ((1, 1, 1, 1, 1), (3, 7, 33, 5, 17), (2, 70, 65, 32, 32)):
        shapes = (heads, rows, depth), (heads, depth, columns), (heads, columns, width)
        given = [torch.randint(0, 256, shape, generator=g, dtype=torch.uint8) for shape in shapes]
        given.append(torch.randn(rows, columns, generator=g))
        builder = ProgramBuilder()
        for name, x in zip("qkvm", given):
            dtype = str(x.dtype).removeprefix("torch.")
            builder.inputs.append(Input(builder.fresh(name), dtype, [None] * x.dim(), list(x.shape)))
        scales = {"q": 0.02, "k": 0.02, "score": 0.05, "v": 0.03}
        attributes: dict[str, object] = {f"{name}_scale": scale for name, scale in scales.items()}
        attributes |= {f"{name}_zero_point": 120 for name in scales}
        attributes |= {"share_dtype": "uint8", "share_scale": 1 / 128, "share_zero_point": 3, "share_low": 0}
        attributes |= {"share_high": 255, "scale": 0.04, "zero_point": 99, "safe": False, "heads_inside": False}
        attributes["operations"] = [["multiply", 0.2], ["add_mask"]]
        builder.outputs = [builder.add("attention", list("qkvm"), **attributes)]
        program = runtime.Program(_native.Program(builder.data()))
        outputs.append(torch.from_numpy(program(*(x.numpy() for x in given))))
    return outputs


def decoder_case() -> Outputs:
    """Through programs of language models: only their steps run these kernels."""
    outputs = []
    with tempfile.TemporaryDirectory() as folder:
        for form, cache, heads in (("Q4_0", "int8", 4), ("Q4_1", "float16", 2), ("Q8_0", "int8", 1)):
            source = decoder_file(Path(folder) / "a.gguf", form=form, heads=heads, shared_heads=1)
            generation.compile_decoder(source, Path(folder) / "a.zpt", cache=cache, sequences=2)
            model = generation.load(Path(folder) / "a.zpt")
            ids, every = np.arange(29) % 40, np.arange(29)
            outputs.append(torch.from_numpy(model.logits(ids, every, every * 0, every)))
    return outputs


def quantized_function_case() -> Outputs:
    """Through a program: a linear layer with a function is the only one that runs it."""
    g = torch.Generator().manual_seed(17)
    outputs = []
    for function in ("gelu", "gelu_tanh", "tanh", "sigmoid", "silu"):
        for width, scale in ((70, 0.02), (64, 0.0001)):
            builder = ProgramBuilder()
            builder.inputs.append(Input(builder.fresh("x"), "uint8", [None, None], [13, 20]))
            weight = torch.randint(-128, 128, (width, 20), generator=g, dtype=torch.int8)
            stored = [
                builder.constant("weight", weight),
                builder.constant("scale", torch.tensor([0.002])),
                builder.constant("zero_point", torch.zeros(1, dtype=torch.int32)),
                builder.constant("bias", torch.randn(width, generator=g)),
            ]
            attributes = {"weight_dtype": "int8", "input_scale": 0.01, "input_zero_point": 120, "dtype": "uint8"}
            attributes |= {"scale": scale, "zero_point": 9, "low": 0, "high": 255, "function": function}
            builder.outputs = [builder.add("linear", ["x", *stored, None], **attributes)]
            program = runtime.Program(_native.Program(builder.data()))
            given = torch.randint(0, 256, (13, 20), generator=g, dtype=torch.uint8)
            outputs.append(torch.from_numpy(program(given.numpy())))
    return outputs


def float_softmax_case() -> Outputs:
    return [ops.float_softmax(x, dim) for x in float_values() for dim in (0, -1)]


def float_layer_norm_case() -> Outputs:
    return [ops.float_layer_norm(x, x.shape[-1:], x.flatten()[: x.shape[-1]]) for x in float_values()]


def float_gemm_case() -> Outputs:
    g = torch.Generator().manual_seed(11)
    sizes = itertools.product((1, 2, 7, 100), (1, 33), (1, 16, 70))
    products = [
        ops.float_matmul(torch.randn(2, m, k, generator=g), torch.randn(k, n, generator=g)) for m, k, n in sizes
    ]
    for m, k, n in ((1, 300, 70), (13, 600, 33), (100, 7, 16)):
        products.append(
            ops.float_linear(
                torch.randn(m, k, generator=g), torch.randn(n, k, generator=g), torch.randn(n, generator=g)
            )
        )
    x = torch.randn(2, 6, 9, 8, generator=g)
    for groups, stride, dilation in ((1, 1, 1), (2, 2, 1), (3, 1, 2)):
        weight = torch.randn(12, 6 // groups, 3, 3, generator=g)
        products.append(ops.float_conv(x, weight, None, [stride], [1], [dilation], groups))
        weight = torch.randn(6, 12 // groups, 3, 2, generator=g)
        products.append(ops.float_conv_transpose(x, weight, None, [2], [1], [1], groups, [dilation]))
    return products


def float_depthwise_case() -> Outputs:
    g = torch.Generator().manual_seed(12)
    outputs = []
    for channels, stride, dilation in ((1, 1, 1), (7, 2, 1), (16, 1, 2), (35, 1, 1)):
        x, bias = torch.randn(2, channels, 9, 10, generator=g), torch.randn(channels, generator=g)
        weight = torch.randn(channels, 1, 3, 3, generator=g)
        outputs.append(ops.float_conv(x, weight, bias, [stride], [1], [dilation], channels))
        outputs.append(ops.float_conv_transpose(x, weight, bias, [2], [1], [1], channels, [dilation]))
    return outputs


CASES: dict[str, Callable[[], Outputs]] = {
    "attention": attention_case,
    "cache_attention": decoder_case,
    "group_gemm": decoder_case,
    "float_function": float_function_case,
    "map": map_case,
    "float_softmax": float_softmax_case,
    "float_layer_norm": float_layer_norm_case,
    "float_gemm": float_gemm_case,
    "float_depthwise": float_depthwise_case,
    "embedding": embedding_case,
    "quantize_range": quantize_range_case,
    "moments": moments_case,
    "normalize": normalize_case,
    "softmax": softmax_case,
    "binary": binary_case,
    "weight_only": weight_only_case,
    "cell": cell_case,
    "half_gemm": half_gemm_case,
    "narrow_gemm": narrow_gemm_case,
    "gemm": gemm_case,
    "depthwise": depthwise_case,
    "interleave": interleave_case,
    "lookup": lookup_case,
    "quantized_function": quantized_function_case,
    "max_pool": max_pool_case,
    "average_pool": average_pool_case,
    "bilinear": bilinear_case,
    "quantize": quantize_case,
    "dequantize": dequantize_case,
    "fake_quantize": fake_quantize_case,
    "histogram": histogram_case,
    "mask_gradient": mask_gradient_case,
    "minmax": minmax_case,
    "pack": packing_case,
    "unpack": packing_case,
    "quantization_loss": quantization_loss_case,
}


def bytes_of(t: torch.Tensor) -> bytes:
    """The bytes of a tensor; NaN is one value, because neither its sign nor its payload is part of a contract."""
    t = t.contiguous()
    if t.is_floating_point():
        t = torch.where(t.isnan(), torch.full_like(t, float("nan")), t)
    return t.numpy().tobytes()


@pytest.fixture(scope="module")
def reference() -> Callable[[str], list[bytes]]:
    """The bytes each operation's case gives with the plain specification."""
    known: dict[str, list[bytes]] = {}

    def answers(operation: str) -> list[bytes]:
        if operation not in known:
            with zeropoint.use_isa("reference"):
                known[operation] = [bytes_of(t) for t in CASES[operation]()]
        return known[operation]

    return answers


@pytest.mark.isa
@pytest.mark.parametrize(
    ("operation", "isa"), [pytest.param(*k, id="-".join(k)) for k in LISTED if k[1] != "reference"]
)
def test_equals_reference(operation: str, isa: str, reference: Callable[[str], list[bytes]]) -> None:
    if isa not in AVAILABLE:
        pytest.skip(f"this CPU lacks {isa}: {dict(zeropoint.cpu_info().missing)[isa]}")
    want = reference(operation)
    with zeropoint.use_isa(isa):
        assert _native.selected_isa(operation, isa) == isa
        got = CASES[operation]()
    assert len(got) == len(want) > 0
    for i, (tensor, expected) in enumerate(zip(got, want)):
        assert bytes_of(tensor) == expected, f"output {i} of {operation}'s case: {tensor}"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_has_kernels_for_every_isa(operation: str) -> None:
    if _native.cpu_features()["architecture"] != "x86_64":
        pytest.skip("not an x86-64 CPU: its kernels are not built")
    isas = {isa for name, isa in LISTED if name == operation}
    assert isas >= (NEEDED - FEWER.get(operation, set())) | MORE.get(operation, set())


def test_lists_the_foundation_once() -> None:
    assert set(OPERATIONS) >= FOUNDATION
    assert set(CASES) >= FOUNDATION
    assert len(LISTED) == len(set(LISTED))


@pytest.mark.timeout(60)
def test_least_loss_range_ends_where_a_step_is_lost_in_rounding() -> None:
    # 0.3 + 1e-6 * [0, 1): a 200th of the range is less than half an ulp of 0.3. PyTorch's search never comes back.
    x = 0.3 + 1e-6 * torch.rand(33, generator=torch.Generator().manual_seed(0))
    high, low = zeropoint.choose_qparams_optimized(x, x.numel(), bit_width=4)
    assert x.min() <= low <= high <= x.max()
