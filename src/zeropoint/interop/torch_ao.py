"""PyTorch's own eager quantization, to compare with."""

from __future__ import annotations

import warnings
from typing import Any


def namespaces() -> tuple[Any, Any] | None:
    """torch.ao.quantization and torch.ao.nn.quantized; None where PyTorch no longer has them.

    Example:
        >>> found = namespaces()
        >>> found is None or found[0].__name__
        'torch.ao.quantization'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # their deprecation is why this project exists
            import torch.ao.nn.quantized
            import torch.ao.quantization
    except ImportError:
        return None
    return torch.ao.quantization, torch.ao.nn.quantized
