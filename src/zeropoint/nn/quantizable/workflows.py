"""The workflows that modules made of other modules run on themselves.

They belong to `zeropoint.eager`, a layer above this one, which hands them in when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_WORKFLOWS: dict[str, Callable[..., Any]] = {}


def provide(workflow: Callable[..., Any]) -> None:
    """Make `workflow` known under its name: prepare, prepare_qat or convert."""
    _WORKFLOWS[workflow.__name__] = workflow


def workflow(name: str) -> Callable[..., Any]:
    """The workflow of that name.

    Raises:
        RuntimeError: if `zeropoint.eager` was never imported.
    """
    if name not in _WORKFLOWS:
        raise RuntimeError(f"zeropoint.{name} is needed here: import zeropoint.eager first")
    return _WORKFLOWS[name]
