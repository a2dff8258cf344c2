"""Weights of 8, 4 and 16 bits on float activations: against torch's float32 linear, its own operators, and memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.timing import CALL, Row, interleaved
from zeropoint.qfunctions import linear_dynamic_fp16, linear_prepack_fp16, weight_only_linear, weight_only_prepack

GROUP = 128
SHAPES = ((4096, 4096), (1024, 4096))  # outputs, inputs
ROWS = (1, 4, 32, 128)
FEW = 4  # beyond, a call of torch's int8 and int4 operators takes seconds where they have no AVX512 to run on


def rows() -> Iterator[Row]:
    for outputs, inputs in SHAPES:
        yield from _shape(outputs, inputs)


def _shape(outputs: int, inputs: int) -> Iterator[Row]:
    weight = torch.randn(outputs, inputs) * 0.02
    eight, four = weight_only_prepack(weight), weight_only_prepack(weight, bits=4, group_size=GROUP)
    half = linear_prepack_fp16(weight)
    # torch takes the same integers: scales for each output, or scales and zeros for each group.
    q8, scale8 = eight.int_repr(), eight.qparams()[0].reshape(-1)
    values = torch.stack([four.int_repr() & 15, four.int_repr() >> 4], -1).reshape(outputs, inputs)
    their4 = torch._convert_weight_to_int4pack_for_cpu(values.to(torch.int32), 1)
    scale4 = four.qparams()[0].t()
    both = torch.stack([scale4, torch.zeros_like(scale4)], -1).contiguous()
    their_half = torch.ops.quantized.linear_prepack_fp16(weight, None)
    _print_reading(outputs, inputs)
    for m in ROWS:
        x = torch.randn(m, inputs)
        plain = {"float32": lambda x=x: torch.nn.functional.linear(x, weight)}
        kinds: dict[str, tuple[CALL, CALL, int]] = {
            "int8": (
                lambda x=x: weight_only_linear(x, eight),
                lambda x=x: torch._weight_int8pack_mm(x, q8, scale8),
                outputs * inputs,
            ),
            f"int4 g={GROUP}": (
                lambda x=x: weight_only_linear(x, four),
                lambda x=x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, their4, GROUP, both),
                outputs * inputs // 2 + outputs * inputs // GROUP * 4,
            ),
            "float16": (
                lambda x=x: linear_dynamic_fp16(x, half),
                lambda x=x: torch.ops.quantized.linear_dynamic_fp16(x, their_half),
                outputs * inputs * 2,
            ),
        }
        for kind, (ours, theirs, size) in kinds.items():
            peers = {"torch": theirs, **plain} if m <= FEW or kind == "float16" else plain
            name = f"{kind} {outputs}x{inputs} M={m}"
            yield Row(name, ours, peers, dict.fromkeys(peers, 1.0), _copy(size) if m == 1 else None)


def _copy(size: int) -> CALL:
    """A copy that reads as many bytes as the weights have."""
    source = torch.ones(size // 4)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _print_reading(outputs: int, inputs: int) -> None:
    """How fast two threads copy the bytes of each format, which decides one row."""
    for kind, size in (("int4", outputs * inputs // 2), ("int8", outputs * inputs), ("float16", 2 * outputs * inputs)):
        seconds = interleaved({"copy": _copy(size)}, seconds=0.2, least_rounds=3)["copy"].median
        print(f"copying the {size / 1e6:.0f} MB of {kind} {outputs}x{inputs}: {size / seconds / 1e9:.1f} GB/s read")
