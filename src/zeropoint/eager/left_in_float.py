"""A warning for models that a call was to quantize and left as they were."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from torch import nn

from zeropoint.nn.quantized import DeQuantize, Quantize

_NO_LAYERS = (Quantize, DeQuantize)


def warn_if_float(call: str, model: nn.Module, quantized: Iterable[type] = (), stacklevel: int = 3) -> None:
    """Warn unless a module of the model is quantized: one of zeropoint's, or of the classes `quantized`.

    Example:
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_if_float("quantize_dynamic", nn.ReLU())
        >>> str(caught[0].message)[:52]
        'quantize_dynamic: no module of ReLU was quantized, a'
    """
    classes = set(quantized)
    for module in model.modules():
        kind = type(module)
        if isinstance(module, _NO_LAYERS):
            continue
        if kind in classes or (kind.__module__.startswith("zeropoint.nn.") and ".quantized" in kind.__module__):
            return
    warnings.warn(
        f"{call}: no module of {type(model).__name__} was quantized, all of it stays float. Set a qconfig on"
        " modules of exactly the types of the mapping, inside the model",
        stacklevel=stacklevel,
    )
