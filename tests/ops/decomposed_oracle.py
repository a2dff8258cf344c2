"""The operators of PyTorch's decomposed library, as the oracle of ours."""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers the oracle
from strategies import assert_laid_out_like, assert_same

import zeropoint.ops  # noqa: F401 (registers the operators)

ours = torch.ops.zeropoint
oracle = torch.ops.quantized_decomposed


def assert_like_the_oracle(operator: str, x: torch.Tensor, *arguments: Any, **options: Any) -> None:
    """The operator of this name gives the bits of PyTorch's, in the layout of its input."""
    y = getattr(ours, operator)(x, *arguments, **options)
    assert_same(y, getattr(oracle, operator)(x, *arguments, **options))
    assert_laid_out_like(y, x)
