"""Modules that keep what they are called with."""

from __future__ import annotations

from typing import Any

from torch import nn

from zeropoint.numerics.dtypes import quint8


class Logger(nn.Module):
    """Base of all loggers: `stats` is what it has kept."""

    prepared_elsewhere = True  # what it hands on stays as it is: the model is not one that is being prepared

    def __init__(self) -> None:
        super().__init__()
        self.stats: dict[str, Any] = {}
        self.dtype = quint8


class OutputLogger(Logger):
    """Keeps what it is called with, and hands it on.

    Example:
        >>> import torch
        >>> logger = OutputLogger()
        >>> logger(torch.ones(2))
        tensor([1., 1.])
        >>> len(logger.stats["tensor_val"])
        1
    """

    def __init__(self) -> None:
        super().__init__()
        self.stats["tensor_val"] = []

    def forward(self, x: Any) -> Any:
        self.stats["tensor_val"].append(x)
        return x


class ShadowLogger(Logger):
    """Keeps the results of a quantized module and of its float shadow; of several results, the first."""

    def __init__(self) -> None:
        super().__init__()
        self.stats |= {"float": [], "quantized": []}

    def forward(self, x: Any, y: Any) -> None:
        self.stats["quantized"].append(_first(x).detach())
        self.stats["float"].append(_first(y).detach())


def _first(result: Any) -> Any:
    return _first(result[0]) if isinstance(result, (tuple, list)) else result


def get_logger_dict(mod: nn.Module, prefix: str = "") -> dict[str, dict[str, Any]]:
    """The `stats` of every logger in a model, by the path of the module that it watches, with ".stats" behind it.

    Example:
        >>> model = nn.Sequential(nn.Identity())
        >>> model[0].logger = OutputLogger()
        >>> get_logger_dict(model)
        {'0.stats': {'tensor_val': []}}
    """
    found: dict[str, dict[str, Any]] = {}
    for path, module in mod.named_modules():
        logger = next((child for child in module.children() if isinstance(child, Logger)), None)
        if logger is not None:
            found[".".join(filter(None, (prefix, path, "stats")))] = logger.stats
    return found
