"""Calls of the operators on integers: layers, norms, embeddings, elementwise, recurrent."""

from __future__ import annotations

from typing import Any

import torch
from sample_tensors import SCALE, ZERO, Samples, codes, ours, scales, values, zeros

LAYER_SAMPLES: Samples = {}


def bytes_layer(*weight: int, outputs: int) -> tuple:
    """Weight, its scale and zero point for each output channel, and a bias."""
    return codes(*weight), scales(outputs), zeros(outputs, dtype=torch.int64), values(outputs)


def norm_samples() -> Samples:
    def image(dims: int, layout: str) -> tuple:
        return codes(2, 6, *(3, 4, 5)[:dims], dtype=torch.uint8, layout=layout), 0.1, 3

    def batch(dims: int) -> list[tuple[tuple, dict]]:
        return [
            ((*image(dims, "contiguous"), values(6), values(6), values(6), scales(6), 1e-5, 0.2, 100), {}),
            ((*image(dims, "permuted"), None, None, values(6), scales(6), 1e-5, 0.2, 100), {}),
            ((*image(dims, "channels_last"), values(6), None, values(6), scales(6), 1e-5, 0.2, 100), {}),
        ]

    dims = {"batch_norm": 2, "batch_norm1d": 1, "batch_norm2d": 2, "batch_norm3d": 3}
    parameters = values(6), values(6), 1e-5, 0.2, 100
    return {
        **{f"{name}{relu}": batch(dims[name]) for name in dims for relu in ("", "_relu")},
        "layer_norm": [
            ((*image(2, "contiguous"), [3, 4], values(3, 4), values(3, 4), 1e-5, 0.2, 100), {}),
            ((*image(2, "channels_last"), [4], None, None, 1e-5, 0.2, 100), {}),
        ],
        "group_norm": [
            ((*image(2, "contiguous"), 3, *parameters), {}),
            ((*image(3, "channels_last"), 2, None, None, 1e-5, 0.2, 100), {}),
            ((*image(1, "sliced"), 2, *parameters), {}),
        ],
        "instance_norm": [
            ((*image(2, "contiguous"), *parameters), {}),
            ((*image(2, "channels_last"), None, None, 1e-5, 0.2, 100), {}),
        ],
        "softmax": [
            ((*image(2, "contiguous"), -1, 1 / 256, 0), {}),
            ((*image(2, "channels_last"), 1, 1 / 256, 0), {}),
            ((*image(2, "permuted"), 2, 1 / 256, 0), {}),
        ],
    }


def convolution_samples(dims: int) -> Samples:
    ones, sizes = [1] * dims, [5] * dims
    shape, transposed = (ones, ones, ones, 2), ([2] * dims, ones, ones, ones, 2)
    weight = bytes_layer(6, 2, *[3] * dims, outputs=6)
    backwards = bytes_layer(4, 3, *[3] * dims, outputs=6)
    x, single = codes(2, 4, *sizes, dtype=torch.uint8), codes(1, 4, *sizes, layout="sliced")
    inside = codes(2, 4, *sizes, dtype=torch.uint8, layout="channels_last")
    other = codes(2, 6, *sizes, dtype=torch.uint8)
    name = f"conv{dims}d"
    plain = [
        ((x, 0.1, 3, *weight, *shape, 2.0, 100), {}),
        ((single, 0.1, 3, *weight[:3], None, [2], [0], [1], 2, 2.0, 0), {}),
        ((inside, 0.1, 3, *weight, *shape, 2.0, 100), {}),
    ]
    added = [((x, 0.1, 3, *weight, *shape, other, 0.2, 7, 2.0, 100), {})]
    return {
        name: plain if dims == 2 else plain[:1],
        f"{name}_relu": plain[:1],
        f"{name}_add": added,
        f"{name}_add_relu": added,
        f"{name}_dynamic": [
            ((values(2, 4, *sizes), *weight, *shape), {}),
            ((values(1, 4, *sizes), *weight, *shape, True), {}),
        ],
        f"conv_transpose{dims}d": [((x, 0.1, 3, *backwards, *transposed, 2.0, 100), {})],
        f"conv_transpose{dims}d_dynamic": [((values(2, 4, *sizes), *backwards, *transposed), {})],
    }


LINEAR = bytes_layer(7, 5, outputs=7)
BYTES_IN = (codes(3, 5, dtype=torch.uint8), 0.1, 3)
LAYER_SAMPLES.update(
    {
        "linear": [
            ((*BYTES_IN, *LINEAR, 2.0, 100), {}),
            ((codes(2, 3, 5, layout="permuted"), 0.1, 3, *LINEAR[:3], None, 2.0, 0), {}),
            ((codes(5), 0.1, 3, codes(7, 5), SCALE, ZERO, None, 2.0, 0), {}),
            ((codes(0, 5), 0.1, 3, *LINEAR, 2.0, 0), {}),
        ],
        "linear_relu": [((*BYTES_IN, *LINEAR, 2.0, 100), {})],
        "linear_leaky_relu": [((*BYTES_IN, *LINEAR, 2.0, 100, 0.1), {})],
        "linear_to_float": [((*BYTES_IN, *LINEAR), {})],
        "linear_tanh": [((*BYTES_IN, *LINEAR, 1 / 128, 128), {})],
        "linear_dynamic": [
            ((values(3, 5), *LINEAR), {}),
            ((values(2, 3, 5, layout="permuted"), *LINEAR[:3], None, True), {}),
            ((values(3, 5), *LINEAR, False, True), {}),
        ],
        "linear_relu_dynamic": [((values(3, 5), *LINEAR), {})],
        "linear_dynamic_fp16": [((values(3, 5), values(7, 5, dtype=torch.float16), values(7)), {})],
        "linear_relu_dynamic_fp16": [((values(3, 5), values(7, 5, dtype=torch.float16), None), {})],
        "weight_only_linear": [
            ((values(3, 16), codes(7, 16), scales(7)), {}),
            ((values(2, 3, 16, layout="permuted"), codes(7, 16), scales(7, 2), zeros(7, 2), values(7)), {}),
            ((values(3, 20, dtype=torch.bfloat16), codes(7, 20, dtype=torch.uint8), scales(7, 3)), {"group_size": 8}),
            ((values(0, 16), codes(7, 16), SCALE), {}),
        ],
        "weight_only_linear_4bit": [
            ((values(3, 16), codes(7, 8, dtype=torch.uint8), scales(7, 2), zeros(7, 2), values(7), 8), {}),
            ((values(2, 3, 15, layout="permuted"), codes(7, 8, dtype=torch.uint8), scales(7), None, None, 0), {}),
            ((values(3, 20), codes(7, 10, dtype=torch.uint8), scales(7, 3), values(7, 3), None, 8), {}),
        ],
        "matmul": [
            ((*BYTES_IN, codes(5, 4), 0.1, 0, 2.0, 100), {}),
            ((codes(2, 1, 3, 5), 0.1, 3, codes(4, 5, 6, layout="permuted"), 0.1, 0, 2.0, 0), {}),
        ],
        "matmul_dynamic": [
            ((values(3, 5), values(5, 4)), {}),
            ((values(2, 1, 3, 5).abs(), values(4, 5, 6, layout="permuted")), {}),
        ],
        "bmm": [((codes(2, 3, 5), 0.1, 3, codes(2, 5, 4), 0.1, 0, 2.0, 0), {})],
        **norm_samples(),
        **convolution_samples(1),
        **convolution_samples(2),
        **convolution_samples(3),
    }
)


def embedding_samples(kind: str) -> Samples:
    weight = values(10, 8)
    table = getattr(ours, f"embedding_bag_{kind}_prepack")(weight)
    search = [] if kind == "byte" else [((weight, True, 50, 0.2), {})]
    indices, offsets, ranges = torch.tensor([3, 1, 9, 0]), torch.tensor([0, 0, 3]), torch.tensor([[-4.0, 4.0]] * 10)
    mapping = torch.arange(-1, 9, dtype=torch.int32)
    more = [((weight, ranges, True), {})] if search else []
    return {
        f"embedding_bag_{kind}_prepack": [((weight,), {}), ((values(2, 3, 8, dtype=torch.float16),), {}), *search],
        f"embedding_bag_{kind}_prepack_with_rowwise_min_max": [((weight, ranges), {}), *more],
        f"embedding_bag_{kind}_unpack": [((table,), {}), ((table.reshape(2, 5, -1),), {})],
        f"embedding_bag_{kind}_rowwise_offsets": [
            ((table, indices, offsets), {}),
            ((table, indices.reshape(2, 2)), {"mode": 1}),
            ((table, indices, torch.tensor([0, 4], dtype=torch.int32), False, 0, True, values(4), mapping, True), {}),
        ],
        f"embedding_{kind}": [((table, indices), {}), ((table, indices.reshape(2, 2).int()), {})],
    }


LAYER_SAMPLES.update({**embedding_samples("byte"), **embedding_samples("4bit"), **embedding_samples("2bit")})
A_BYTE, B_BYTE = (codes(2, 3, 4, dtype=torch.uint8), 0.1, 3), (codes(3, 1, dtype=torch.uint8), 0.2, 5)
IMAGE = (codes(2, 3, 4, 5, layout="channels_last"), 0.1, 3)
WORDS = (codes(2, 5, dtype=torch.int32) % 4001, 0.1, 3)
OUT = (0.3, 7)
LAYER_SAMPLES |= {
    name: [
        ((*A_BYTE, *B_BYTE, *OUT), {}),
        ((*B_BYTE, *A_BYTE, *OUT), {}),
        ((*IMAGE, *IMAGE, *OUT), {}),
        ((codes(4, 6, layout="sliced"), 0.1, 3, codes(4, 6, layout="permuted"), 0.2, 3, *OUT), {}),
        ((*WORDS, *WORDS, *OUT), {}),
    ]
    for name in ("add", "add_relu", "mul", "mul_relu")
}
LAYER_SAMPLES |= {
    name: [((*q, number), {}) for q in (A_BYTE, IMAGE, WORDS) for number in (1.5, -40.0)]
    for name in ("add_scalar", "add_scalar_relu", "mul_scalar", "mul_scalar_relu")
}
LAYER_SAMPLES |= {
    name: [
        (([A_BYTE[0]] * 2, [0.1, 0.2], [3, 4], -1, *OUT), {}),
        (([IMAGE[0]] * 2, [0.1, 0.3], [3, 7], 1, *OUT), {}),
        (([WORDS[0]] * 2, [0.1, 0.3], [3, 7], 0, *OUT), {}),
    ]
    for name in ("cat", "cat_relu")
}
UNARY_ARGUMENTS = {"elu": (1.1, 0.9, 1.2), "gelu": (1.0,), "leaky_relu": (0.1,), "celu": (1.2,)}
LAYER_SAMPLES |= {
    name: [((*q, *UNARY_ARGUMENTS.get(name, ()), *OUT), {}) for q in (A_BYTE, IMAGE, WORDS)]
    for name in (
        "celu", "elu", "exp", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "mish", "sigmoid", "silu", "tanh",
    )
}  # fmt: skip
LAYER_SAMPLES |= {
    "unary": [((*q, "clamp", [-0.5, 0.5], *OUT), {}) for q in (A_BYTE, IMAGE, WORDS)],
    "prelu": [((*IMAGE, codes(3), 0.1, 0, *OUT), {}), ((*A_BYTE, codes(1, dtype=torch.uint8), 0.1, 0, *OUT), {})],
    "requantize": [((*A_BYTE, *OUT), {}), ((*IMAGE, *OUT, torch.uint8), {}), ((*WORDS, *OUT, torch.int8), {})],
    "clamp": [((*A_BYTE, -0.5, None), {}), ((*IMAGE, None, 0.5), {}), ((*WORDS, -0.5, 0.5), {})],
    "relu6": [((*A_BYTE,), {}), ((*IMAGE,), {})],
    "threshold": [((*A_BYTE, 0.5, 0.25), {}), ((*IMAGE, 0.5, 0.25), {})],
    "lookup": [((q[0], torch.arange(256, dtype=torch.uint8).view(q[0].dtype)), {}) for q in (A_BYTE, IMAGE)],
}


def recurrent_samples() -> Samples:
    """Sequences, packed sequences and cells; 8-bit and float weights; one layer, and two in both directions."""
    samples: Samples = {}
    hidden, inputs = 3, 5
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        rows = gates * hidden

        def states(cells: int, name: str = name) -> Any:
            h = values(cells, 2, hidden)
            return [h, values(cells, 2, hidden)] if name == "lstm" else h

        def matrices(layers: int, half: bool, rows: int = rows) -> tuple[list[torch.Tensor], ...]:
            shapes = [shape for i in range(layers) for shape in ((rows, 6 if i > 1 else inputs), (rows, hidden))]
            biases = [values(rows) for _ in shapes]
            if half:
                return [values(*s, dtype=torch.float16) for s in shapes], [], [], biases
            return [codes(*s) for s in shapes], [SCALE for _ in shapes], [ZERO for _ in shapes], biases

        batch_sizes = torch.tensor([2, 2, 1])
        samples[f"quantized_{name}.input"] = [
            ((values(4, 2, inputs), states(1), *matrices(1, False), 1, 0.0, False, False, False), {}),
            ((values(2, 4, inputs), states(4), *matrices(4, True), 2, 0.0, False, True, True, True), {}),
        ]
        samples[f"quantized_{name}.data"] = [
            ((values(5, inputs), batch_sizes, states(4), *matrices(4, False), 2, 0.0, False, True, True), {}),
            ((values(5, inputs), batch_sizes, states(1), *matrices(1, True)[:3], [], 1, 0.0, False, False), {}),
        ]
        hx = values(2, hidden)
        one = (codes(rows, inputs), SCALE, ZERO, codes(rows, hidden), SCALE, ZERO)
        floats = (values(rows, inputs), None, None, values(rows, hidden), None, None)
        samples[f"quantized_{name}_cell_dynamic"] = [
            ((values(2, inputs), [hx, values(2, hidden)] if name == "lstm" else hx, *one, values(rows), None), {}),
            ((values(2, inputs), [hx, values(2, hidden)] if name == "lstm" else hx, *floats, values(rows), None), {}),
        ]
    return samples


LAYER_SAMPLES.update(recurrent_samples())
SIZES = torch.tensor([2, 1, 0])
LAYER_SAMPLES["nms"] = [
    ((values(5, 4), values(5), 0.5, 3), {}),
    ((values(5, 4), values(5), 0.5, 3, torch.arange(5)), {}),
]
LAYER_SAMPLES |= {"batch_sizes": [((torch.tensor([3, 1]), 4), {})], "padding_mask": [((SIZES, 2, False), {})]}
for _name, _gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
    _state = values(1, 2, 3)
    _padded = (values(3, 2, 4), [_state, _state.clone()] if _name == "lstm" else _state)
    _weights = [values(3 * _gates, 4), values(3 * _gates, 3)]
    LAYER_SAMPLES[f"{_name}_padded"] = [((*_padded, _weights, False, 1, 0.0, False, False, False, SIZES), {})]
    LAYER_SAMPLES[f"quantized_{_name}.input"].append(
        ((*_padded, _weights, [], [], [], 1, 0.0, False, False, False, False, SIZES), {})
    )
