"""Names of parameters and buffers that a graph can have: not those of its attributes, and no words of Python."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import Any

from torch import fx, nn

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.passes.insert_observers import OBSERVER

__all__ = ["rename_unusable", "usable_names"]

_EMPTY = fx.GraphModule(nn.Module(), fx.Graph())
_OF_GRAPHS = (set(dir(_EMPTY)) | set(vars(_EMPTY))) - set(dir(nn.Module()))
_LATER = {"_sizes", "shape_env"}  # what is put into graphs: by us, and by torch.export


def usable_names(names: Iterable[str]) -> dict[str, str]:
    """New names for those that a graph cannot have: a model may call a layer ``code``, ``graph`` or ``heads.class``.

    Example:
        >>> usable_names(["code.weight", "heads.class.bias", "first.code"])
        {'code.weight': 'code_.weight', 'heads.class.bias': 'heads.class_.bias'}
    """
    names = list(names)
    parts = {tuple(name.split(".")[: i + 1]) for name in names for i in range(name.count(".") + 1)}
    made = {}
    for name in names:
        way: list[str] = []
        for part in name.split("."):
            new = part
            if _is_unusable(part, first=not way):
                new = f"_{part}" if part.startswith(OBSERVER) else f"{part}_"
                while (*way, new) in parts:
                    new += "_"
            way.append(new)
        if ".".join(way) != name:
            made[name] = ".".join(way)
    return made


def _is_unusable(part: str, first: bool) -> bool:
    return keyword.iskeyword(part) or (first and (part in _OF_GRAPHS or part in _LATER or part.startswith(OBSERVER)))


def rename_unusable(exported: Any) -> None:
    """Give the parameters and buffers of an exported model names that its graph can have."""
    names = usable_names(internals.stored_names(exported))
    if names:
        internals.rename_stored(exported, names)
