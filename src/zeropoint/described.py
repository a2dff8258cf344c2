"""A value that a user passed or a file has, in a few words for a message; and messages that stay short."""

from __future__ import annotations

from typing import Any

_LONGEST = 80
_LONGEST_MESSAGE, _END = 1000, 200  # as in native/engine/tensor.cpp
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def described(value: Any) -> str:
    """What a message says about a value: type, shape and dtype of tensors and arrays, never their numbers.

    Example:
        >>> import numpy as np
        >>> described(np.zeros((2, 3), dtype=np.float32))
        'ndarray of shape (2, 3), float32'
        >>> described("int4"), described([1, 2, 3]), described({"a": np.zeros(2)})
        ("'int4'", '[1, 2, 3]', 'dict of 1')
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None and not isinstance(value, type):
        return f"{type(value).__name__} of shape {tuple(shape)}, {str(dtype).removeprefix('torch.')}"
    if isinstance(value, (list, tuple, set, frozenset, dict)) and not _is_plain(value):
        return f"{type(value).__name__} of {len(value)}"
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return _kind(value)
    return text if len(text) <= _LONGEST and "\n" not in text else _kind(value)


def _is_plain(values: Any) -> bool:
    """Whether a container holds numbers and strings alone."""
    parts = [*values, *values.values()] if isinstance(values, dict) else values
    return all(isinstance(part, _PLAIN) for part in parts)


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{name} of {len(value)}" if hasattr(value, "__len__") and not isinstance(value, type) else f"a {name}"


def shortened(message: str) -> str:
    """A message without its middle if it is long: names and values of files, which may have any length, are part of it.

    Example:
        >>> len(shortened("x" * 100_000)), shortened("short")
        (1005, 'short')
    """
    if len(message) <= _LONGEST_MESSAGE:
        return message
    return f"{message[: _LONGEST_MESSAGE - _END]} ... {message[-_END:]}"
