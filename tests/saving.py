"""The ways to save and load a value, for tests that a value survives them."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch


def torch_saved(value: Any, **options: Any) -> Any:
    """What torch.load gives of what torch.save wrote."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


WAYS = {
    "weights_only": lambda value: torch_saved(value, weights_only=True),
    "torch.load": lambda value: torch_saved(value, weights_only=False),
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "deepcopy": copy.deepcopy,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
