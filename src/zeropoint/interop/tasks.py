"""What peers are asked to do, and how they say that they cannot."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Arrays", "Call", "Task", "Unavailable", "first_line", "quietly"]

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
    """

    model: nn.Module
    inputs: tuple[Tensor, ...]
    calibration: tuple[tuple[Tensor, ...], ...]
    dynamic: bool = False

    @property
    def arrays(self) -> Arrays:
        return tuple(x.numpy() for x in self.inputs)


def first_line(error: BaseException) -> str:
    """The beginning of a message that may have pages.

    Example:
        >>> first_line(ValueError("no\\nbecause"))
        'no'
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Exporters talk a lot: nothing of it is shown."""
    logging.disable(logging.WARNING)
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
    finally:
        logging.disable(logging.NOTSET)
