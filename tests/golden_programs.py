"""Small programs with every kind of step, kept as files: what was written once gives the same bytes for ever.

``python tests/golden_programs.py`` adds the files that are not there yet to tests/golden/programs. Files that are there
are never written again: a program that has changed gets a new name here. They are also what tests/fuzz makes wrong
files from.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf_files
import torch
import torch.nn.functional as F
from few_layers import Layers
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn

import zeropoint
from zeropoint import _native
from zeropoint.compiler.program_builder import Input, ProgramBuilder, Size
from zeropoint.generation.decoder_program import decoder_program
from zeropoint.generation.gguf import Gguf
from zeropoint.generation.gguf_decoder import GgufWeights, gguf_decoder

FOLDER = Path(__file__).parent / "golden" / "programs"


class Image(nn.Module):
    """Convolutions, a residual sum, pools and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.grouped = nn.Conv2d(8, 4, 1, groups=2)
        self.last = nn.Linear(4, 3)

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self.first(image))
        x = F.max_pool2d(x + self.depthwise(x), 2)
        x = F.avg_pool2d(self.grouped(x), 3, 2, 1)
        return self.last(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Products(nn.Module):
    """Products of activations with the ranges of each call: of both signs, and of shares."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.transpose(1, 2)).softmax(-1) @ x


class Residual(nn.Module):
    """Layers with the sums and the products that follow them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.past = (
            nn.Conv2d(3, 20, 3, 2, 1),
            nn.Conv2d(20, 20, 3, 1, 1),
            nn.Conv2d(3, 20, 1, 2),
        )
        self.depthwise, self.gate = nn.Conv2d(20, 20, 3, 1, 1, groups=20), nn.Conv2d(20, 20, 1)
        self.wide, self.narrow, self.last = nn.Linear(20, 33), nn.Linear(33, 20), nn.Linear(20, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self.second(F.relu(self.first(image))) + self.past(image))
        x = x + F.hardswish(self.depthwise(x))
        x = x * torch.sigmoid(self.gate(x))
        x = x.mean([2, 3])
        return self.last(self.narrow(F.relu(self.wide(x))) + x)


class Upsampled(nn.Module):
    """A transposed convolution, functions by table, tensors joined, a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, 2, 1)
        self.up = nn.ConvTranspose2d(4, 2, 3, 2, 1, output_padding=1)

    def forward(self, image: Tensor) -> Tensor:
        return torch.cat([image, F.hardswish(self.up(F.hardswish(self.down(image))))], 1).mean([2, 3])


class Signal(nn.Module):
    """One axis, products, two results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3, dilation=2)
        self.gate = nn.Conv1d(2, 4, 5)

    def forward(self, signal: Tensor) -> dict[str, Tensor]:
        x, gate = self.conv(signal), torch.sigmoid(self.gate(signal))
        return {"gated": x * gate, "plain": x}


class Volume(Layers):
    """Three axes."""

    def forward(self, volume: Tensor) -> Tensor:
        return F.hardswish(F.max_pool3d(F.relu(self.conv(volume)), 2))


class Views(Layers):
    """Everything that only looks at memory in another way."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        y = y.reshape(y.shape[0], 2, 4).transpose(1, 2).permute(0, 2, 1)
        y = y.unflatten(2, (2, 2)).flatten(2)[:, :, 0:4:1].unsqueeze(1)
        y = y.expand(-1, 3, -1, -1).squeeze(0)[:, 1]
        return self.out(y[..., :4]).select(-1, 0)


class Sized(Layers):
    """Sizes that are computed from others."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y.reshape(y.shape[0] * y.shape[1], 4)[: x.shape[0] + 1].reshape(-1)


class Sequence(nn.Module):
    """Layers that remember, in both directions, and a vector of length one."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.recurrent, self.last = kind(3, 5, 2, batch_first=True, bidirectional=True), nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.recurrent(x)
        return F.normalize(F.relu(self.last(y)), dim=-1)


class Chosen(nn.Module):
    """Rows of tables: single ones, and bags."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.bag = nn.Embedding(6, 4), nn.EmbeddingBag(5, 6, mode="sum")

    def forward(self, single: Tensor, several: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        return self.table(single), self.bag(several, per_sample_weights=weights)


class Ranged(Layers):
    """Layers that quantize what they get by its own range."""

    def forward(self, image: Tensor) -> Tensor:
        return self.linear(F.relu(self.conv(image)).flatten(2))


class Normed(nn.Module):
    """Norms over channels, slopes of channels, images of other sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.slope = nn.Conv2d(2, 8, 1), nn.PReLU(8)
        self.group, self.batch = nn.GroupNorm(2, 8), nn.BatchNorm2d(8)

    def forward(self, image: Tensor) -> Tensor:
        x = self.slope(self.conv(image))
        x = self.batch(F.max_pool2d(self.group(x), 2))
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        return F.interpolate(x, size=(5, 7), mode="bilinear")


class Moved(Layers):
    """Elements that change places."""

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = F.pixel_unshuffle(F.pixel_shuffle(self.conv(image), 2), 2)
        x = F.pad(x.flip(2), (1, 2, 0, 1)).repeat(1, 2, 1, 1)
        x = x.index_select(3, torch.tensor([0, 2, 1]))
        return x.amax(1), x.max(2).values


class Remembering(nn.Module):
    """A state: what the last call got is added to what this one gets."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("last", torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x) + self.last
        self.last.copy_(x)
        return x


class Windows(Layers):
    """Pools that say where a value comes from, values put back there, windows added up."""

    def forward(self, image: Tensor) -> Tensor:
        x, places = F.max_pool2d(self.conv(image), 2, return_indices=True)
        x = F.max_unpool2d(x, places, 2)
        x = F.fold(F.unfold(self.last(x), 2, stride=2), (6, 6), 2, stride=2)
        return x.cummax(-1).values


class Boxes(Layers):
    """Boxes and scores, and which of the boxes are kept."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        corner, size = self.box(x).chunk(2, -1)
        kept, count = zeropoint.nms(
            torch.cat([corner, corner + size.abs() + 1], -1), self.score(x)[:, 0], iou_threshold=0.3, max_output=4
        )
        return kept, count


class Packed(nn.Module):
    """Sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        lengths = x.size(1) - torch.arange(x.size(0)).clamp(max=x.size(1) - 1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


def _layers() -> nn.Module:
    return nn.Sequential(nn.Linear(24, 17), nn.ReLU(), nn.Linear(17, 3))


def _compiled(model: nn.Module, *shape: int, **options: Any) -> bytes:
    return _compiled_for((torch.randn(*shape),), model, **options)


def _compiled_for(inputs: tuple[Tensor, ...], model: nn.Module, **options: Any) -> bytes:
    quantized = zeropoint.to_int8(model.eval(), inputs, dynamic_shapes="all", progress=False, **options)
    return zeropoint.compile(quantized, inputs)._native.data()


def _moved() -> bytes:
    """Bytes in, bytes out, without a layer."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "uint8", ["rows", None], [3, 4]))
    turned = builder.add("transpose", ["x"], first=0, second=1)
    table = builder.constant("table", torch.arange(255, -1, -1, dtype=torch.uint8))
    whole = builder.add("contiguous", [turned])
    builder.outputs += [builder.add("lookup", [whole, table], dtype="uint8"), whole]
    builder.result = ["tuple", [0, ["list", [1]]]]
    return builder.data()


def _attention() -> bytes:
    """Products of activations, softmax, a norm over the last axis."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("a", "int8", [None, "rows", 4], [2, 3, 4]))
    builder.inputs.append(Input("b", "int8", [None, 4, "rows"], [2, 4, 3]))
    parts = {"a_scale": 0.05, "a_zero_point": -3, "b_scale": 0.1, "b_zero_point": 7}
    product = builder.add("matmul", ["a", "b"], scale=0.05, zero_point=1, **parts)
    shares = builder.add(
        "softmax", [product], axis=-1, input_scale=0.05, input_zero_point=1, scale=1 / 256, zero_point=-128
    )
    scales = {"input_scale": 1 / 256, "input_zero_point": -128, "scale": 0.02, "zero_point": 0}
    builder.outputs.append(builder.add("layer_norm", [shares, None, None], axes=1, eps=1e-5, **scales))
    return builder.data()


def _product() -> bytes:
    """A product with a matrix that is stored."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("a", "uint8", [None, "rows", 6], [2, 3, 6]))
    matrix = builder.constant("matrix", torch.arange(6 * 19).remainder(251).to(torch.uint8).reshape(6, 19))
    parts = {"a_scale": 0.05, "a_zero_point": 3, "b_scale": 0.1, "b_zero_point": 120}
    builder.outputs.append(builder.add("matmul", ["a", matrix], scale=0.4, zero_point=100, **parts))
    return builder.data()


def _floats() -> bytes:
    """Functions, norms, softmax, products and sums of float32."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", ["rows", 5, 6], [2, 5, 6]))
    builder.inputs.append(Input("mask", "int64", ["rows", 1, 5], [2, 1, 5]))
    weight = builder.constant("weight", torch.linspace(0.5, 1.5, 6))
    normed = builder.add("float_layer_norm", ["x", weight, None], axes=1, eps=1e-5)
    turned = builder.add("transpose", [normed], first=1, second=2)
    added = builder.add(
        "float_multiply", [builder.add("convert", ["mask"], dtype="float32")], number=-9.0, swapped=False
    )
    scores = builder.add("float_add", [builder.add("float_matmul", [normed, turned]), added])
    shares = builder.add("float_softmax", [scores], axis=-1, safe=True)
    seen = builder.add("float_matmul", [shares, normed])
    seen = builder.add("matmul_dynamic", [seen, turned])
    seen = builder.add("matmul_dynamic", [builder.add("float_softmax", [seen], axis=-1, safe=True), normed])
    functions = ("float_gelu", "float_gelu_tanh", "float_tanh", "float_sigmoid", "float_silu")
    made = [builder.add(name, [seen]) for name in functions]
    builder.outputs += [
        *made,
        builder.add("float_subtract", [seen, "x"]),
        builder.add("float_softmax", ["x"], axis=1, safe=False),
    ]
    builder.result = ["tuple", list(range(7))]
    return builder.data()


def _channels() -> bytes:
    """Floats to bytes, with a scale and a zero point for each index of an axis."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", [None, 3, 4], [2, 3, 4]))
    for axis, dtype, zero_points in ((1, "uint8", [0, 255, 128]), (2, "int8", [-128, 127, 0, 5])):
        scales = builder.constant("scales", torch.linspace(0.01, 0.5, len(zero_points)))
        stored = builder.constant("zero_points", torch.tensor(zero_points, dtype=torch.int32))
        bounds = {"low": 0, "high": 127, "dtype": dtype}
        builder.outputs.append(builder.add("quantize_channels", ["x", scales, stored], axis=axis, **bounds))
    builder.result = ["tuple", [0, 1]]
    return builder.data()


class Unquantized(nn.Module):
    """Layers, pools and norms that stay float32, beside one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.each = nn.Conv2d(2, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, groups=8)
        self.up = nn.ConvTranspose2d(8, 6, 3, 2, 1, 1, groups=2)
        self.batch, self.group = nn.BatchNorm2d(6), nn.GroupNorm(3, 6)
        self.linear, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.lstm = nn.LSTM(8, 5)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        x = F.max_pool2d(self.first(image), 3, 1, 1)
        x = self.group(self.batch(self.up(F.avg_pool2d(self.each(x), 2, 1, 1, count_include_pad=False))))
        x = F.adaptive_avg_pool2d(x, (2, 1)).flatten(2).transpose(1, 2)
        y = self.head(self.linear(x))
        return F.normalize(y, dim=1), y.mean(1), self.lstm(self.linear(x))[0]


def _unquantized() -> bytes:
    mapping = zeropoint.QConfigMapping().set_module_name("linear", zeropoint.get_default_qconfig())
    return _compiled(Unquantized(), 2, 2, 9, 8, qconfig=mapping)


def _ordered() -> bytes:
    """Elements chosen by indices and by their order, sums along an axis, edges, other dtypes."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", ["rows", 4], [3, 4]))
    builder.inputs.append(Input("bytes", "int8", ["rows", 4], [3, 4]))
    builder.inputs.append(Input("at", "int64", ["rows", 2], [3, 2]))
    within = builder.add("remainder", ["at"], number=3)
    values, places = builder.add_several("sort", ["bytes"], ["values", "places"], axis=1, descending=True)
    up, _ = builder.add_several("sort", ["x"], ["up", "where"], axis=0, descending=False)
    builder.outputs += [
        values,
        places,
        up,
        builder.add("gather", ["bytes", within], axis=1),
        builder.add("index", ["x", within, within], axis=0),
        builder.add("index", ["x", within], axis=1),
        builder.add("cumulative_sum", ["x"], axis=1),
        builder.add("cumulative_sum", ["at"], axis=0),
        builder.add("remainder", ["x"], number=-0.75),
        builder.add("convert", ["x"], dtype="int64"),
        builder.add("convert", ["x"], dtype="bool"),
        *(
            builder.add("pad_from", ["bytes"], pads=[2, 1, 1, 0], mode=mode)
            for mode in ("reflect", "replicate", "circular")
        ),
    ]
    builder.result = ["tuple", list(range(len(builder.outputs)))]
    return builder.data()


def _summed() -> bytes:
    """Sums over axes."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", ["rows", 3, 4], [2, 3, 4]))
    builder.outputs.append(builder.add("float_sum", ["x"], axes=[1], keepdim=False))
    builder.outputs.append(builder.add("float_sum", ["x"], axes=[], keepdim=True))
    builder.result = ["tuple", [0, 1]]
    return builder.data()


def _thresholds() -> bytes:
    """What came after `floats`: logarithms of shares, thresholds, larger images, the largest of floats."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", ["images", 2, 3, 4], [2, 2, 3, 4]))
    largest, place = builder.add_several("extreme", ["x"], ["most", "at"], axis=1, keepdim=False, largest=True)
    factors = {"depth_factor": 0.0, "height_factor": 0.0, "width_factor": 0.0}
    builder.outputs += [
        builder.add("float_log_softmax", ["x"], axis=1),
        builder.add("float_threshold", ["x"], threshold=0.25, value=-0.5),
        builder.add(
            "float_bilinear", ["x"], output_size=[5, 3], align_corners=False, height_factor=0.0, width_factor=0.0
        ),
        builder.add("nearest", ["x"], spatial=2, output_size=[2, 7], exact=False, **factors),
        largest,
        place,
    ]
    builder.result = ["tuple", list(range(len(builder.outputs)))]
    return builder.data()


_CHOICE = torch.zeros(3, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.int64), torch.rand(2, 4)


def _matrices() -> bytes:
    """Factors, determinants and solutions of matrices, and products along an axis."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", ["rows", 3, 3], [2, 3, 3]))
    functions = ("determinant", "inverse_any", "reflectors", "singular_values")
    builder.outputs += [builder.add("matrices", ["x"], function=name) for name in functions]
    builder.outputs.append(builder.add("matrices", ["x", "x"], function="solve_any"))
    builder.outputs.append(builder.add("cumulative_product", ["x"], axis=1))
    builder.result = ["tuple", list(range(len(builder.outputs)))]
    return builder.data()


def _asked() -> bytes:
    """Sizes that must be what the model was captured for."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", ["rows", "columns"], [3, 4]))
    rows = Size(builder.add("size", ["x"], axis=0))
    even = Size(builder.add("arithmetic", [], operation="modulo", a=Size(builder.add("size", ["x"], axis=1)), b=2))
    builder.add("require", [], value=rows, low=3, exact=False, why="there must be three rows")
    builder.add("require", [], value=even, low=0, exact=True, why="columns come in pairs")
    builder.outputs.append(builder.add("float_tanh", ["x"]))
    return builder.data()


def _expressions() -> bytes:
    """Expressions on every dtype, functions of floats, numbers of sizes, values over axes."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", ["rows", 5], [3, 5]))
    builder.inputs.append(Input("n", "int64", [5], [5]))
    builder.inputs.append(Input("mask", "bool", ["rows", 1], [3, 1]))
    rows = Size(builder.add("size", ["x"], axis=0))
    half = Size(builder.add("calculate", [], operation="divide", operands=[rows, 2]))
    positive = [["abs", "float32", 0], ["number", "float32", 0.25], ["add", "float32", 1, 2]]
    functions = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "atan", "sinh", "cosh")
    functions += ("asinh", "erf", "erfc", "sqrt", "rsqrt", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "round")
    made = [builder.add("map", ["x"], types=["float32"], code=[*positive, [name, "float32", 3]]) for name in functions]
    code = [["number", "int64", 3], ["remainder", "int64", 1, 3], ["convert", "float32", 4], ["size", "float32", 0]]
    code += [["pow", "float32", 0, 5], ["mul", "float32", 7, 6], ["number", "float32", "-inf"]]
    code += [["where", "float32", 2, 8, 9]]
    kinds = {"types": ["float32", "int64", "bool"], "sizes": [half]}
    made.append(builder.add("map", ["x", "n", "mask"], code=code, **kinds))
    for dtype in ("int32", "int8", "uint8"):
        steps = [["convert", dtype, 0], ["mul", dtype, 1, 1], ["number", dtype, 7], ["floor_divide", dtype, 2, 3]]
        made.append(builder.add("map", ["n"], types=["int64"], code=steps))
    axes = {"axes": [1], "keepdim": False}
    made += [builder.add("float_product", ["x"], **axes), builder.add("float_variance", ["x"], correction=1.0, **axes)]
    made += [builder.add(f"integer_{kind}", ["n"], axes=[0], keepdim=True) for kind in ("sum", "product")]
    builder.outputs += made
    builder.result = ["tuple", list(range(len(made)))]
    return builder.data()


def _written() -> bytes:
    """Elements written anew at indices, windows and diagonals."""
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", ["rows", 4], [3, 4]))
    builder.inputs.append(Input("at", "int64", ["rows", 2], [3, 2]))
    within = builder.add("map", ["at"], types=["int64"], code=[["number", "int64", 3], ["remainder", "int64", 0, 1]])
    first = builder.add("select", [within], axis=1, index=0)
    part = builder.add("slice", ["x"], axis=1, begin=0, end=1, step=1)
    builder.outputs += [
        builder.add("scatter", ["x", within, "x"], axis=1, mode="add"),
        builder.add("scatter", ["x", within, "x"], axis=0, mode="set"),
        builder.add("index_put", ["x", "x", first], mode="multiply"),
        builder.add("slice_scatter", ["x", part], axis=1, begin=1, end=-1, step=1),
        builder.add("unfold", ["x"], axis=1, length=2, step=1),
        builder.add("diagonal", ["x"], offset=1, first=0, second=1),
    ]
    builder.result = ["tuple", list(range(len(builder.outputs)))]
    return builder.data()


def _decoder() -> bytes:
    """A language model of one layer, for five tokens."""
    with tempfile.TemporaryDirectory() as folder:
        file = Gguf(gguf_files.decoder_file(Path(folder) / "a.gguf", width=32, layers=1, heads=2, shared_heads=1))
        decoder = gguf_decoder(file, 32)
        made = decoder_program(decoder, GgufWeights(file, decoder, 4, 32), "int8", 5)
        for given in made.inputs:
            given["example"] = [5]
        made.write(Path(folder) / "a.zpt", {})
        return (Path(folder) / "a.zpt").read_bytes()


PROGRAMS: dict[str, Callable[[], bytes]] = {
    "decoder": _decoder,
    "image": lambda: _compiled(Image(), 2, 3, 8, 8),
    "residual": lambda: _compiled(Residual(), 2, 3, 8, 8),
    "upsampled": lambda: _compiled(Upsampled(), 2, 2, 6, 6),
    "signal": lambda: _compiled(Signal(), 2, 2, 12),
    "volume": lambda: _compiled(Volume(conv=nn.Conv3d(1, 3, 2)), 2, 1, 5, 5, 5),
    "views": lambda: _compiled(Views(layer=nn.Linear(6, 8), out=nn.Linear(4, 4)), 2, 6),
    "sized": lambda: _compiled(Sized(layer=nn.Linear(4, 4)), 2, 3, 4),
    "moved": _moved,
    "lstm": lambda: _compiled(Sequence(nn.LSTM), 2, 4, 3),  # one range for all rows, as files had until November 2026
    "lstm_by_row": lambda: _compiled(Sequence(nn.LSTM), 2, 4, 3),
    "gru": lambda: _compiled(Sequence(nn.GRU), 2, 4, 3, mode="dynamic", qconfig=zeropoint.float16_dynamic_qconfig),
    "chosen": lambda: _compiled_for(_CHOICE, Chosen(), mode="weight_only"),
    "ranged": lambda: _compiled(Ranged(conv=nn.Conv2d(2, 3, 3), linear=nn.Linear(6, 4)), 2, 2, 4, 5, mode="dynamic"),
    "weights8": lambda: _compiled(_layers(), 3, 24, mode="weight_only"),
    "weights4": lambda: _compiled(
        _layers(), 3, 24, mode="weight_only", qconfig=zeropoint.float_qparams_weight_only_qconfig_4bit
    ),
    "attention": _attention,
    "product": _product,
    "floats": _floats,
    "normed": lambda: _compiled(Normed(), 2, 2, 4, 4),
    "moving": lambda: _compiled(Moved(conv=nn.Conv2d(2, 8, 1)), 1, 2, 4, 4),
    "channels": _channels,
    "summed": _summed,
    "unquantized": _unquantized,
    "ordered": _ordered,
    "thresholds": _thresholds,
    "asked": _asked,
    "matrices": _matrices,
    "expressions": _expressions,
    "written": _written,
    "encoder": lambda: _compiled(nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=True), 2, 3, 8),
    "remembering": lambda: _compiled(Remembering(), 3, 4),
    "windows": lambda: _compiled(Windows(conv=nn.Conv2d(2, 4, 1), last=nn.Conv2d(4, 2, 1)), 2, 2, 6, 6),
    "boxes": lambda: _compiled(Boxes(box=nn.Linear(6, 4), score=nn.Linear(6, 1)), 5, 6, mode="dynamic"),
    "packed": lambda: _compiled(Packed(), 2, 4, 3, mode="dynamic"),
    "ranged_products": lambda: _compiled(Products(), 2, 3, 5, mode="dynamic", policy={"products": "int8"}),
}


def paths() -> list[Path]:
    """The program files."""
    return sorted(FOLDER.glob("*.zpt"))


def arrays_of(path: Path) -> tuple[list[Any], list[Any]]:
    """The inputs that are kept with a program, and what it must make of them."""
    arrays = load_file(path.with_suffix(".safetensors"))
    return tuple([arrays[name] for name in sorted(arrays) if name.startswith(kind)] for kind in ("input", "output"))


def parts_of(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Header without metadata, program, and bytes of the tensors of a file."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header.pop("__metadata__")["zeropoint.program"]), data[8 + length :]


def joined(header: dict[str, Any], program: dict[str, Any], data: bytes) -> bytes:
    """The file with these parts."""
    text = json.dumps({"__metadata__": {"zeropoint.program": json.dumps(program)}, **header}).encode()
    return struct.pack("<Q", len(text)) + text + data


def text_of(data: bytes) -> dict[str, Any]:
    """The program as its file has it."""
    return parts_of(data)[1]


def _write(path: Path, data: bytes) -> None:
    program = _native.Program(data)
    inputs = []
    for (_, dtype, _), shape in zip(program.inputs, program.example_shapes(), strict=True):
        values = torch.randn(shape) if dtype == "float32" else torch.randint(0, 5, shape)
        inputs.append(values.numpy().astype(dtype))
    outputs = [output.copy(order="C") for output in program.run(tuple(inputs))]
    kinds = {"input": inputs, "output": outputs}
    arrays = {f"{kind}_{i:02}": array for kind, list_ in kinds.items() for i, array in enumerate(list_)}
    path.write_bytes(data)
    save_file(arrays, path.with_suffix(".safetensors"))


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PROGRAMS.items():
        if not (FOLDER / f"{name}.zpt").exists():
            torch.manual_seed(0)
            _write(FOLDER / f"{name}.zpt", make())
            print(f"added {name}")
