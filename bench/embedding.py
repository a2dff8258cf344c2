"""Embedding bags and lookups from tables of 8, 4 and 2 bits against torch.ops.quantized's, and packing the tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import zeropoint.qfunctions
from bench.timing import CALL, Row

BAGS, LENGTH = 1000, 40
NAMES = ("byte", "4bit", "2bit")


def rows() -> Iterator[Row]:
    for count, columns in ((100_000, 64), (100_000, 128), (1_000_000, 64), (1_000_000, 128)):
        weight = torch.randn(count, columns)
        for name in NAMES:
            yield from _bags(name, weight)
        if count == 100_000:
            for name in NAMES:
                yield from _packing(name, weight)
    yield from _lookups(torch.randn(100_000, 128))


def _both(name: str) -> tuple[Any, Any]:
    return getattr(zeropoint.qfunctions, name), getattr(torch.ops.quantized, name)


def _row(label: str, ours: CALL, theirs: CALL, target: float = 1.0) -> Row:
    return Row(label, ours, {"torch": theirs}, {"torch": target})


def _bags(name: str, weight: torch.Tensor) -> Iterator[Row]:
    ours, theirs = _both(f"embedding_bag_{name}_rowwise_offsets")
    table = _both(f"embedding_bag_{name}_prepack")[0](weight)
    indices = torch.randint(0, len(weight), (BAGS * LENGTH,))
    offsets = torch.arange(0, BAGS * LENGTH, LENGTH)
    label = f"embedding_bag_{name} {len(weight)}x{weight.shape[1]}"
    for kind, weights in (("", None), (", weighted", torch.rand(BAGS * LENGTH))):
        arguments = table, indices, offsets, False, 0, False, weights
        yield _row(label + kind, lambda a=arguments: ours(*a), lambda a=arguments: theirs(*a))


def _packing(name: str, weight: torch.Tensor) -> Iterator[Row]:
    ours, theirs = _both(f"embedding_bag_{name}_prepack")
    size = f"{len(weight)}x{weight.shape[1]}"
    yield _row(f"embedding_bag_{name}_prepack {size}", lambda: ours(weight), lambda: theirs(weight))
    if name != "byte":
        some = weight[:200]
        yield _row(
            f"embedding_bag_{name}_prepack, searched, 200 rows", lambda: ours(some, True), lambda: theirs(some, True)
        )


def _lookups(weight: torch.Tensor) -> Iterator[Row]:
    indices = torch.randint(0, len(weight), (BAGS * LENGTH,))
    for name, dtype, steps in (("byte", "quint8", 255), ("4bit", "quint4x2", 15)):
        low, high = torch.aminmax(weight, dim=1)
        scales = (high - low) / steps
        ours, theirs = _both(f"embedding_{name}")
        packed = [
            prepack(library.quantize_per_channel(weight, scales, -low / scales, 0, getattr(library, dtype)))
            for prepack, library in zip(_both("embedding_bag_prepack"), (zeropoint, torch))
        ]
        yield _row(
            f"embedding_{name} 100000x128, {len(indices)} indices",
            lambda o=ours, p=packed[0]: o(p, indices),
            lambda o=theirs, p=packed[1]: o(p, indices),
        )
