"""Dequantizing into memory that is already there."""

from __future__ import annotations

import pytest
import torch

from zeropoint.numerics import affine


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_out_receives_what_a_new_tensor_would(isa, memory_format):
    q = torch.randint(0, 255, (2, 3, 5, 7), dtype=torch.uint8).contiguous(memory_format=memory_format)
    out = torch.full_like(q, -1.0, dtype=torch.float32)
    answer = affine.dequantize_tensor(q, 0.25, 10, out=out)
    assert answer is out
    assert torch.equal(out, affine.dequantize_tensor(q, 0.25, 10))


@pytest.mark.parametrize(
    "out",
    [torch.empty(4), torch.empty(5, dtype=torch.float64), torch.empty(10)[::2]],
    ids=["shape", "dtype", "layout"],
)
def test_an_out_that_does_not_fit_is_refused_and_left_alone(out):
    before = out.zero_().clone()
    with pytest.raises(ValueError, match=r"out must be a torch\.float32 tensor of shape"):
        affine.dequantize_tensor(torch.ones(5, dtype=torch.uint8), 0.25, 10, out=out)
    assert torch.equal(out, before)
