"""Products with a matrix that the program holds: packed when it is loaded, with the bytes of one that comes in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import zeropoint
from zeropoint import _native
from zeropoint.compiler.program_builder import Input, ProgramBuilder

PARTS: dict[str, Any] = {"a_scale": 0.05, "b_scale": 0.1, "scale": 0.2}


def product(dtype: str, b: np.ndarray | None, rank: int, zero_points: tuple[int, int, int]) -> Any:
    builder = ProgramBuilder()
    builder.inputs.append(Input("a", dtype, [None] * rank, [2] * (rank - 1) + [7]))
    if b is None:
        builder.inputs.append(Input("b", dtype, [7, 19], [7, 19]))
        name = "b"
    else:
        name = builder.constant("b", torch.from_numpy(b))
    numbers = dict(zip(("a_zero_point", "b_zero_point", "zero_point"), zero_points))
    builder.outputs.append(builder.add("matmul", ["a", name], **PARTS, **numbers))
    return _native.Program(builder.data())


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 7), (2, 3, 50, 7), (1, 1, 7), (0, 4, 7)])
def test_a_stored_matrix_gives_the_bytes_of_one_that_comes_in(dtype: str, shape: tuple[int, ...], isa: str) -> None:
    random = np.random.default_rng(len(shape))
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    a, b = (random.integers(low, high, size, dtype=dtype, endpoint=True) for size in (shape, (7, 19)))
    zero_points = (low + 100, low + 131, low + 120)
    kept, given = product(dtype, b, len(shape), zero_points), product(dtype, None, len(shape), zero_points)
    for threads in (1, 2):
        zeropoint.set_num_threads(threads)
        assert np.array_equal(kept.run((a,))[0], given.run((a, b))[0])
