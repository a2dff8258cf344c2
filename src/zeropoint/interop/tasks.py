"""What peers are asked to do, and how they say that they cannot."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

Call = Callable[[], Any]
Arrays = tuple[Any, ...]  # numpy arrays


class Unavailable(Exception):
    """Why a peer does not take part."""


@dataclass(frozen=True)
class Task:
    """A float model in evaluation mode, what it is run on, and data that looks like it.

    Args:
        calibration: batches, each a tuple like `inputs`.
        dynamic: ranges of activations are found while it runs.
        weight_bits: quantize weights only, to so many bits: 8 or 4.
    """

    model: nn.Module
    inputs: tuple[Tensor, ...]
    calibration: tuple[tuple[Tensor, ...], ...]
    dynamic: bool = False
    weight_bits: int | None = None

    @property
    def arrays(self) -> Arrays:
        return tuple(x.numpy() for x in self.inputs)


@dataclass(frozen=True)
class Ready:
    """Something that can be called.

    Args:
        setting: how it runs, in words.
        together: calls that are under way at the same time, in each `call`.
    """

    call: Call
    setting: str
    together: int = 1


def best_of(choices: Iterable[Ready], calls: int = 5) -> Ready:
    """The one whose quickest of some calls is the quickest.

    Example:
        >>> best_of([Ready(lambda: 1, "only")]).setting
        'only'
    """

    def quickest(ready: Ready) -> float:
        ready.call()
        times = []
        for _ in range(calls):
            start = time.perf_counter()
            ready.call()
            times.append(time.perf_counter() - start)
        return min(times) / ready.together

    kept = list(choices)
    return kept[0] if len(kept) == 1 else min(kept, key=quickest)


def first_line(error: BaseException) -> str:
    """The beginning of a message that may have pages.

    Example:
        >>> first_line(ValueError("no\\nbecause"))
        'no'
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]


@contextlib.contextmanager
def one_operator_each() -> Iterator[None]:
    """torch.nn.MultiheadAttention in the operators that exporters know, not in PyTorch's single one for inference."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Exporters talk a lot: nothing of it is shown."""
    logging.disable(logging.WARNING)
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
    finally:
        logging.disable(logging.NOTSET)
