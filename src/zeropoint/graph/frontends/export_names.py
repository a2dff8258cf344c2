"""Names of parameters and buffers that a graph can have: plain ones, that are not its own attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx, nn

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.code_names import is_plain, plain
from zeropoint.graph.passes.insert_observers import OBSERVER

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
    taken = {tuple(name.split(".")[: i + 1]) for name in names for i in range(name.count(".") + 1)}
    renamed: dict[tuple[str, ...], str] = {}
    made = {}
    for name in names:
        old: tuple[str, ...] = ()
        way: list[str] = []
        for part in name.split("."):
            old = (*old, part)
            if old not in renamed:
                renamed[old] = _usable(part, tuple(way), taken)
                taken.add((*way, renamed[old]))
            way.append(renamed[old])
        if ".".join(way) != name:
            made[name] = ".".join(way)
    return made


def _usable(part: str, way: tuple[str, ...], taken: set[tuple[str, ...]]) -> str:
    """`part` itself, or a name like it that nothing at `way` has."""
    if is_plain(part) and (way or not _is_of_graphs(part)):
        return part
    new = f"_{part}" if part.startswith(OBSERVER) else f"{part}_"
    new = new if is_plain(new) else plain(new)
    while (*way, new) in taken:
        new += "_"
    return new


def _is_of_graphs(part: str) -> bool:
    return part in _OF_GRAPHS or part in _LATER or part.startswith(OBSERVER)


def rename_unusable(exported: Any) -> None:
    """Give the parameters and buffers of an exported model names that its graph can have."""
    names = usable_names(internals.stored_names(exported))
    if names:
        internals.rename_stored(exported, names)
