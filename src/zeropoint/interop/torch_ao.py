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


def quantize_graph(model: Any, batches: list[tuple[Any, ...]]) -> Any:
    """A float model quantized by PyTorch's FX mode for x86, calibrated on the batches.

    Raises:
        ImportError: where PyTorch no longer has it.
    """
    import copy

    import torch
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        prepared = prepare_fx(copy.deepcopy(model).eval(), get_default_qconfig_mapping("x86"), batches[0])
        for batch in batches:
            prepared(*batch)
        return convert_fx(prepared)
