"""Which tests are the quick suite that `make test` runs; `make test-all` runs all of them.

A test with several parameters runs once for each value of each of them, not for each combination: under every
instruction set, with every dtype, but not with every dtype under every instruction set. The combinations that are left
over are marked `thorough`, as are tests that carry the mark themselves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby

import pytest


def enough(choices: Sequence[frozenset[Hashable]]) -> list[int]:
    """The positions of a few choices that have every value of every parameter.

    Examples:
        >>> enough(
        ...     [
        ...         frozenset({"u8", "avx2"}),
        ...         frozenset({"u8", "vnni"}),
        ...         frozenset({"s8", "avx2"}),
        ...         frozenset({"s8", "vnni"}),
        ...     ]
        ... )
        [0, 3]
    """
    missing = set().union(*choices)
    taken: list[int] = []
    if choices and all(len(choice) == 1 for choice in choices):  # one parameter
        return sorted({next(iter(choice)): i for i, choice in reversed(list(enumerate(choices)))}.values())
    while missing:
        best = max(range(len(choices)), key=lambda i: len(choices[i] & missing))  # the first of the best
        missing -= choices[best]
        taken.append(best)
    return sorted(taken)


def _values(item: pytest.Function) -> frozenset[Hashable]:
    """What the item has of each parameter; arguments that one `parametrize` gives together are one parameter."""
    params = item.callspec.params
    together = [_names(mark.args[0]) for mark in item.iter_markers("parametrize")]
    alone = [(name,) for name in params if not any(name in names for names in together)]
    return frozenset((names, *(id(params[name]) for name in names)) for names in (*together, *alone))


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else tuple(given)


def mark_thorough(items: Iterable[pytest.Item]) -> None:
    """Mark the combinations of parameters that repeat values of others."""
    parametrized = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        # those that carry the mark stand for nothing in the quick suite
        and item.get_closest_marker("thorough") is None
    ]
    for _, same in groupby(parametrized, key=lambda item: item.nodeid.partition("[")[0]):
        group = list(same)
        taken = set(enough([_values(item) for item in group]))
        for position, item in enumerate(group):
            if position not in taken:
                item.add_marker(pytest.mark.thorough)
