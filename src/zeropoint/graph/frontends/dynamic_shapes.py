"""Which sizes of the inputs a captured graph leaves free: of batches, and of sequences their length."""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

ALL = "all"  # every size that the model does not depend on
_TORCH = Path(torch.__file__).parent
_IMAGE = 4  # axes that a tensor has at least to be taken for images or videos, whose sizes stay as they are
_Place = tuple[Any, ...]  # the way to a tensor in the inputs, and an axis of it


def with_free_sizes(
    export: Callable[[Any], Any],
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    wanted: str | None = None,
) -> Any:
    """What `export` gives with as many free sizes as it can stand, of those that are worth it.

    Free are the first axis, of batches, and all axes of tensors with up to three, which may be sequences. Images and
    videos, tensors with more axes, keep their sizes, but for those that sequences have too, as masks do: most models
    for images depend on them in some place, and torch.export takes minutes to find out where.

    A size of one may be an ordinary size, such as that of a batch of one, or be there to be broadcast; torch.export
    takes it for the first, and fails with the second. Then sizes of one are fixed, and as many of them freed as works:
    first those of all batches together. If that is not the reason, only batches are free, and then nothing. A warning
    says which sizes stay fixed. What PyTorch raises may mean that sizes do not fit; what the model's own code raises
    ends the capture.

    Args:
        export: called with dynamic_shapes as torch.export takes them.
        wanted: `ALL` to leave every size free.
    """
    inputs = _by_name(model, args, kwargs)
    free = frozenset(_places(inputs)) if wanted == ALL else frozenset(_worth_it(inputs))
    empty = free & frozenset(_of_size(inputs, 0))  # reductions of nothing are others than those of elements
    _warn(empty, "was captured with no elements there", inputs)
    free -= empty
    try:
        return export(_shapes(inputs, free))
    except Exception as error:
        refused = _of_torch(error)
    ones = free & frozenset(_of_size(inputs, 1))
    if ones:
        try:
            return _with_ones(export, inputs, free, ones, export(_shapes(inputs, free - ones)))
        except Exception as error:  # so sizes of one are not the reason
            _of_torch(error)
    batches = frozenset(place for place in free if place[-1] == 0)
    for fewer in (batches - ones, frozenset[_Place]()):
        if fewer == free:
            continue
        try:
            found = export(_shapes(inputs, fewer))
        except Exception as error:  # what is said without free sizes is said about the model
            refused = _of_torch(error)
            continue
        _warn(free - fewer, "cannot be captured with a dynamic size there", inputs)
        return found
    raise refused


def _with_ones(
    export: Callable[[Any], Any], inputs: dict[str, Any], free: frozenset[_Place], ones: frozenset[_Place], found: Any
) -> Any:
    """`found`, which has all sizes of one fixed, or what has more of them free."""
    fixed = ones
    batches = frozenset(place for place in ones if place[-1] == 0)
    for freed in (batches, *(frozenset([place]) for place in sorted(ones, key=str))):
        if freed and freed <= fixed:
            try:
                found = export(_shapes(inputs, free - (fixed - freed)))
                fixed -= freed
            except Exception as error:  # it stays fixed
                _of_torch(error)
    _warn(fixed, "broadcasts it", inputs)
    return found


class EndsCapture(Exception):
    """What is said about a model, whichever of its sizes are free."""


def _of_torch(error: Exception) -> Exception:
    """`error`, if PyTorch raised it; else it is raised again."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, EndsCapture):
            raise error
        cause = cause.__cause__ or cause.__context__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, RuntimeError) or Path(frames[-1].filename).is_relative_to(_TORCH):
        return error
    raise error


def _warn(fixed: frozenset[_Place], why: str, inputs: Any) -> None:
    for place in sorted(fixed, key=str):
        *way, axis = place
        size = _at(inputs, way).shape[axis]
        name = ".".join(map(str, way))
        warnings.warn(f"the size {size} of {name} along axis {axis} is fixed: the model {why}", stacklevel=6)


def _at(value: Any, way: Sequence[Any]) -> Any:
    for part in way:
        value = value[part]
    return value


def _worth_it(inputs: Any) -> Iterator[_Place]:
    """Sizes of batches and sequences, and those of other tensors that are as long as a sequence."""
    places = list(_places(inputs))
    short = [place for place in places if _at(inputs, place[:-1]).dim() < _IMAGE]
    lengths = {_at(inputs, place[:-1]).shape[place[-1]] for place in short if place[-1] > 0}
    for place in places:
        tensor = _at(inputs, place[:-1])
        if place[-1] == 0 or tensor.dim() < _IMAGE or tensor.shape[place[-1]] in lengths:
            yield place


def _shapes(value: Any, free: frozenset[_Place], way: _Place = ()) -> Any:
    """The `free` sizes, in the nesting of the inputs; all others are fixed."""
    if isinstance(value, Tensor):
        return {axis: Dim.AUTO if (*way, axis) in free else Dim.STATIC for axis in range(value.dim())}
    if isinstance(value, (tuple, list)):
        return type(value)(_shapes(v, free, (*way, i)) for i, v in enumerate(value))
    if isinstance(value, Mapping):
        return {k: _shapes(v, free, (*way, k)) for k, v in value.items()}
    return None


def _places(value: Any, way: _Place = ()) -> Iterator[_Place]:
    """Every axis of every tensor."""
    if isinstance(value, Tensor):
        yield from ((*way, axis) for axis in range(value.dim()))
    elif isinstance(value, (tuple, list)):
        for i, v in enumerate(value):
            yield from _places(v, (*way, i))
    elif isinstance(value, Mapping):
        for k, v in value.items():
            yield from _places(v, (*way, k))


def _of_size(inputs: Any, size: int) -> Iterator[_Place]:
    return (place for place in _places(inputs) if _at(inputs, place[:-1]).shape[place[-1]] == size)


def _by_name(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by the names that forward gives them; those of ``*inputs`` are one."""
    named: dict[str, Any] = {}
    left = list(args)
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            if left:  # torch.export knows no name for none
                named[name], left = tuple(left), []
        elif left:
            named[name] = left.pop(0)
    return {**named, **kwargs}
