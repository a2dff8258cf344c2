"""The operators QTensors are made of pass opcheck: schema, fake kernel, layouts."""

from __future__ import annotations

import pytest
import torch

import zeropoint.tensor  # noqa: F401  registers the operators

ours = torch.ops.zeropoint


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def codes(*shape: int, channels_last: bool = False) -> torch.Tensor:
    q = torch.randint(0, 255, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return q.contiguous(memory_format=torch.channels_last) if channels_last else q


SCALES = torch.rand(3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
ZEROS = torch.zeros(3, dtype=torch.int64)
IMAGES = [codes(2, 3, 6, 8), codes(2, 3, 6, 8, channels_last=True)]

# name -> arguments of each sample
SAMPLES: dict[str, list[tuple]] = {
    "qtensor": [],  # answers a QTensor; tested with torch.export in test_compile.py
    "stored_quantize": [(floats(4, 5), 0.1, 3, 0, 255, torch.uint8), (floats(4, 5).t(), 0.1, 3, -8, 7, torch.int32)],
    "stored_quantize_per_channel": [(floats(2, 3, 4), SCALES, ZEROS, 1, -128, 127, torch.int8)],
    "stored_dequantize": [(codes(4, 5), 0.1, 3), (codes(2, 3, 4, 4, channels_last=True), 0.1, 3)],
    "stored_dequantize_per_channel": [(codes(2, 3, 4), SCALES, ZEROS, 1)],
    "stored_pack": [(codes(3, 5) % 16, 4), (codes(7) % 4, 2)],
    "stored_unpack": [(codes(8), 15, 4), (codes(2), 7, 2)],
    "stored_compare": [(q, 0.1, 3, "lt", 0.5) for q in (codes(4, 5), codes(4, 5).t(), IMAGES[1])],
    "stored_function": [(codes(4, 5), "sigmoid", [], 0.1, 3, 1 / 256, 0, 0, 255)],
    "stored_function_": [(codes(4, 5), "leaky_relu", [0.1], 0.1, 3, 0.1, 3, 0, 255)],
    "stored_max_pool": [(q, [3, 3], [2, 2], [1, 1], [1, 1], False, 2) for q in IMAGES],
    "stored_average_pool": [(q, [2, 2], [2, 2], [0, 0], False, True, None, 3, 0, 255, 2) for q in IMAGES],
    "stored_adaptive_average_pool": [(q, [2, 2], 3, 0, 255) for q in IMAGES],
    "stored_mean": [(codes(4, 3, 5), 1, 0, 255)],
    "stored_mean_of_columns": [(q, axes, 0.1, 3, 0, 255) for q in IMAGES for axes in ([0], [2])],
    "stored_mean_over": [
        (q, axes, keep, 0.1, 3, 0, 255)
        for q in IMAGES
        for axes, keep in (([2, 3], False), ([-1], True), ([0, 2], True))
    ],
    "stored_bilinear": [(q, [12, 16], False, None, None, 3, 0, 255) for q in IMAGES],
    "stored_channel_shuffle": [(codes(2, 4, 3, 3), 2)],
    "stored_pixel_shuffle": [(codes(2, 4, 3, 3), 2)],
    "stored_nearest": [(q, [12, 16], [2.0, 2.0], False) for q in IMAGES],
}


def test_every_stored_operator_has_samples():
    names = {name.removeprefix("zeropoint::") for name in torch._C._dispatch_get_all_op_names()}
    stored = sorted(name for name in names if name.startswith("stored_"))
    assert [name for name in stored if name not in SAMPLES] == []


@pytest.mark.parametrize("name", sorted(name for name, samples in SAMPLES.items() if samples))
def test_stored_operator_passes_opcheck(name):
    operator = getattr(ours, name).default
    for arguments in SAMPLES[name]:
        torch.library.opcheck(operator, arguments)
