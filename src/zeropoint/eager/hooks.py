"""Forward hooks of modules that are swapped or fused."""

from __future__ import annotations

from typing import Any

from torch import nn


def is_ours(hook: Any) -> bool:
    """Whether `prepare` put it."""
    return getattr(hook, "__module__", "") == "zeropoint.eager.prepare"


def move_hooks(first: nn.Module, last: nn.Module, new: nn.Module) -> None:
    """Give `new` the user's hooks: those before `first` and those after `last`, called as they were registered."""
    for key, hook in first._forward_pre_hooks.items():
        if not is_ours(hook) and hook not in new._forward_pre_hooks.values():
            new.register_forward_pre_hook(hook, with_kwargs=key in first._forward_pre_hooks_with_kwargs)
    for key, hook in last._forward_hooks.items():
        if not is_ours(hook) and hook not in new._forward_hooks.values():
            new.register_forward_hook(
                hook,
                with_kwargs=key in last._forward_hooks_with_kwargs,
                always_call=key in last._forward_hooks_always_called,
            )
