"""nn.TransformerEncoder and nn.TransformerDecoder with masks, without a question that no graph can answer.

Both ask whether a mask that they are given is the causal one, to take a faster way with the same result. The answer
depends on data: torch.export stops there. While a model is captured they are told not to ask; the mask is applied as
it is.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

_ASKED = {nn.TransformerEncoder: ("is_causal",), nn.TransformerDecoder: ("tgt_is_causal", "memory_is_causal")}


def masks_as_they_are(model: nn.Module) -> None:
    """Let the encoders and decoders of a model, which may be changed, take masks without looking into them."""
    for module in model.modules():
        for kind, names in _ASKED.items():
            if isinstance(module, kind):
                module.register_forward_pre_hook(_answer(names), prepend=True, with_kwargs=True)


def _answer(names: tuple[str, ...]) -> Any:
    def hook(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        for name in names:
            if name in inspect.signature(module.forward).parameters and bound.arguments.get(name) is None:
                bound.arguments[name] = False
        return (), dict(bound.arguments)

    return hook
