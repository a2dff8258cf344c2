"""Which sizes of the inputs a captured graph leaves free: all, but for sizes of one that the model broadcasts."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.export import Dim

__all__ = ["with_free_sizes"]

_Place = tuple[Any, ...]  # the way to a tensor in the inputs, and an axis of it


def with_free_sizes(
    export: Callable[[Any], Any], model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """What `export` gives with as many free sizes as it can stand.

    A size of one may be an ordinary size, such as that of a batch of one, or be there to be broadcast; torch.export
    takes it for the first, and fails with the second. Then sizes of one are fixed, and as many of them freed as works:
    first those of all batches together. A warning says which ones stay fixed. torch.export says with a RuntimeError
    that sizes do not fit; whatever else is raised, by the model or by PyTorch, ends the capture.

    Args:
        export: called with dynamic_shapes as torch.export takes them.
    """
    inputs = _by_name(model, args, kwargs)
    try:
        return export(_shapes(inputs, frozenset()))
    except RuntimeError as refused:
        fixed = frozenset(_ones(inputs))
        if not fixed:
            raise
        try:
            found = export(_shapes(inputs, fixed))
        except RuntimeError as still:  # so sizes of one are not the reason
            raise refused from still
    batches = frozenset(place for place in fixed if place[-1] == 0)
    for freed in (batches, *(frozenset([place]) for place in sorted(fixed, key=str))):
        if freed and freed <= fixed:
            try:
                found = export(_shapes(inputs, fixed - freed))
                fixed -= freed
            except RuntimeError:  # it stays fixed
                continue
    for *way, axis in sorted(fixed, key=str):
        name = ".".join(map(str, way))
        warnings.warn(f"the size 1 of {name} along axis {axis} is fixed: the model broadcasts it", stacklevel=4)
    return found


def _shapes(value: Any, fixed: frozenset[_Place], way: _Place = ()) -> Any:
    """Free sizes, but for the `fixed` ones, in the nesting of the inputs."""
    if isinstance(value, Tensor):
        return {axis: Dim.STATIC if (*way, axis) in fixed else Dim.AUTO for axis in range(value.dim())}
    if isinstance(value, (tuple, list)):
        return type(value)(_shapes(v, fixed, (*way, i)) for i, v in enumerate(value))
    if isinstance(value, Mapping):
        return {k: _shapes(v, fixed, (*way, k)) for k, v in value.items()}
    return None


def _ones(value: Any, way: _Place = ()) -> Iterator[_Place]:
    if isinstance(value, Tensor):
        yield from ((*way, axis) for axis, size in enumerate(value.shape) if size == 1)
    elif isinstance(value, (tuple, list)):
        for i, v in enumerate(value):
            yield from _ones(v, (*way, i))
    elif isinstance(value, Mapping):
        for k, v in value.items():
            yield from _ones(v, (*way, k))


def _by_name(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by the names that forward gives them; those of ``*inputs`` are one."""
    named: dict[str, Any] = {}
    left = list(args)
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            named[name], left = tuple(left), []
        elif left:
            named[name] = left.pop(0)
    return {**named, **kwargs}
