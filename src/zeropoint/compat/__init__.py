"""The drop-in: PyTorch's old quantization names, with zeropoint behind them.

``zeropoint.compat.install()`` at the top of a program, or ``python -m zeropoint.compat program.py``, and code written
for torch.ao.quantization runs as it is.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

from zeropoint.compat.changes import Changes

__all__ = ["convert", "install", "is_installed", "load", "load_script", "load_state_dict", "to_stock_ops", "uninstall"]

_LAZY = {
    "to_stock_ops": "stock_ops",
    "load_script": "script_files",
    "load": "old_files",
    "load_state_dict": "old_files",
    "convert": "old_files",
}

_lock = threading.RLock()
_changes: Changes | None = None


def install() -> None:
    """Replace the old names with zeropoint's; a second call does nothing.

    This also changes PyTorch modules that are already loaded, but not names that your code imported before (``from
    torch.ao.quantization import prepare``). Call it first.

    Example:
        >>> import torch, zeropoint
        >>> install()
        >>> torch.ao.quantization.prepare is zeropoint.prepare
        True
        >>> uninstall()
        >>> is_installed()
        False
    """
    global _changes
    with _lock:
        if _changes is not None:
            return
        from zeropoint.compat.attributes import replace_attributes
        from zeropoint.compat.script import teach_torchscript

        changes = Changes()
        try:
            teach_torchscript(changes)
            replace_attributes(changes)
            _replace_the_rest(changes)
        except BaseException:
            changes.undo()
            raise
        _changes = changes


def _replace_the_rest(changes: Changes) -> None:
    # Loaded when the names in `torch` are there again: some of these compile, and torch's compiler reads them.
    from zeropoint.compat.checkpoints import replace_loading
    from zeropoint.compat.modules import replace_modules
    from zeropoint.compat.operators import replace_operators
    from zeropoint.compat.reference import replace_reference_operators
    from zeropoint.compat.script_files import replace_script_loading, replace_script_saving
    from zeropoint.compat.script_passes import replace_passes
    from zeropoint.compat.scripted import teach_packed_weights
    from zeropoint.compat.torch_backends import adapt_surroundings

    teach_packed_weights(changes)
    replace_operators(changes)
    replace_passes(changes)
    replace_reference_operators(changes)
    adapt_surroundings(changes)
    replace_loading(changes)
    replace_script_loading(changes)
    replace_script_saving(changes)
    replace_modules(changes)


def uninstall() -> None:
    """Restore PyTorch's names; without `install` it does nothing."""
    global _changes
    with _lock:
        if _changes is not None:
            _changes.undo()
            _changes = None


def is_installed() -> bool:
    """Whether the old names currently refer to zeropoint."""
    return _changes is not None


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
