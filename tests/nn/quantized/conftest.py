"""PyTorch's engines, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch_engines import ENGINES


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = request.param
    yield request.param
    torch.backends.quantized.engine = before
