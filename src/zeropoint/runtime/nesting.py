"""What a model was called with and what it gave, as nested lists, tuples and dictionaries of the arrays of a program.

A tree, as the file has it, is the number of an array; ``["list", trees]``, ``["tuple", trees]``,
``["dict", [[key, tree], ...]]``; ``["constant", value]``, what is no array and the same in every call; or, in results,
``["as complex64", number]`` and the like, for types that no step has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def is_array(value: Any) -> bool:
    """Whether a value may be an array, and is no nesting of them."""
    return value is not None and not isinstance(value, (Mapping, list, tuple, str, bool, int, float))


def filled(tree: Any, arrays: Sequence[Any], given_as: Callable[[str, Any], Any]) -> Any:
    """The arrays in their places; `given_as` makes an array of another type of one.

    Example:
        >>> filled(["dict", [["a", 1], ["b", ["tuple", [0, ["constant", None]]]]]], ["x", "y"], None)
        {'a': 'y', 'b': ('x', None)}
    """
    if isinstance(tree, int):
        return arrays[tree]
    kind, parts = tree
    if kind == "constant":
        return parts
    if kind == "as number":
        return arrays[parts].item()
    if kind.startswith("as "):
        return given_as(kind.removeprefix("as "), arrays[parts])
    if kind == "dict":
        return {key: filled(part, arrays, given_as) for key, part in parts}
    made = [filled(part, arrays, given_as) for part in parts]
    return tuple(made) if kind == "tuple" else made


def flattened(tree: Any, args: Sequence[Any], kwargs: Mapping[str, Any], count: int) -> list[Any]:
    """The arrays of a call, in the order of the inputs.

    Args:
        tree: a tuple of the tuple of what comes in order and the dictionary of what has names.
        count: how many there are.

    Raises:
        TypeError: if something is missing, too much, or of another kind, with the way to it.
        ValueError: if what is no array differs from what the model was captured with.

    Example:
        >>> tree = ["tuple", [["tuple", [["dict", [["a", 1], ["b", 0]]], ["constant", None]]], ["dict", []]]]
        >>> flattened(tree, ({"b": b"x", "a": b"y"}, None), {}, 2)
        [b'x', b'y']
    """
    found: list[Any] = [None] * count
    _, ((_, in_order), (_, by_name)) = tree
    left = dict(kwargs)
    in_order, by_name = list(in_order), dict(by_name)
    if len(args) > len(in_order):
        raise TypeError(f"the program takes {len(in_order)} positional arguments, got {len(args)}")
    for place, part in enumerate(in_order):
        if place < len(args):
            _collect(part, args[place], f"argument {place}", found)
        elif not _may_be_missing(part):
            raise TypeError(f"the program takes {len(in_order)} positional arguments, got {len(args)}")
    for name, part in by_name.items():
        if name in left:
            _collect(part, left.pop(name), name, found)
        elif not _may_be_missing(part):
            raise TypeError(f"the program needs the input {name!r}: pass it by name")
    if left:
        raise TypeError(f"the program has no input {next(iter(left))!r}: remove the argument")
    return found


def _may_be_missing(tree: Any) -> bool:
    """Whether there is no array in it."""
    return not isinstance(tree, int) and tree[0] == "constant"


def _collect(tree: Any, value: Any, way: str, found: list[Any]) -> None:
    if isinstance(tree, int):
        if not is_array(value):
            raise TypeError(f"{way} must be an array, got {type(value).__name__}")
        found[tree] = value
        return
    kind, parts = tree
    if kind == "constant":
        if isinstance(value, bool) != isinstance(parts, bool) or is_array(value) or value != parts:
            given = type(value).__name__ if is_array(value) else repr(value)
            raise ValueError(f"the model was captured with {way} = {parts!r}, got {given}")
        return
    if kind == "dict":
        if not isinstance(value, Mapping) or sorted(value) != sorted(key for key, _ in parts):
            raise TypeError(f"{way} must be a dictionary of {', '.join(repr(key) for key, _ in parts)}")
        for key, part in parts:
            _collect(part, value[key], f"{way}[{key!r}]", found)
        return
    if not isinstance(value, (list, tuple)) or len(value) != len(parts):
        raise TypeError(f"{way} must be a {kind} of {len(parts)}, got {type(value).__name__}")
    for place, (part, given) in enumerate(zip(parts, value)):
        _collect(part, given, f"{way}[{place}]", found)
