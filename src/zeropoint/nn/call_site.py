"""Where in a model a function is called, for messages: the module, its path, and the line of the code."""

from __future__ import annotations

import inspect
import traceback
from types import FrameType

from torch import nn


def call_site() -> tuple[nn.Module | None, str]:
    """The module that calls a function now, and words for where that is.

    Which modules run is written in no other place than the stack: their methods have them as first argument.
    """
    modules: list[nn.Module] = []
    line = ""
    for frame, number in traceback.walk_stack(inspect.currentframe()):
        inside = _first_argument(frame)
        if isinstance(inside, nn.Module) and (not modules or modules[-1] is not inside):
            modules.append(inside)
        if not line and not frame.f_globals.get("__name__", "").startswith(("torch.", "zeropoint.")):
            line = f"{frame.f_code.co_filename}:{number}"
    if not modules:
        return None, f"at {line}"
    return modules[0], f"in {_path(modules)} ({type(modules[0]).__name__}), {line}"


def _first_argument(frame: FrameType) -> object:
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if names else None


def _path(modules: list[nn.Module]) -> str:
    """The name of the first of `modules` in the outermost that has it inside."""
    for model in reversed(modules[1:]):
        for name, module in model.named_modules():
            if module is modules[0]:
                return name
    return "the model"
