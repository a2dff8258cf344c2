"""What was chosen for a method, as text that a ScriptModule carries with it."""

from __future__ import annotations

import copy
import json
from typing import Any

import torch

from zeropoint.graph.fx.plan import Choice, Way
from zeropoint.graph.recipes import OPERATORS
from zeropoint.graph.summary import Row, Summary
from zeropoint.qconfig import QConfig

__all__ = ["PLAN", "SUMMARY", "choice_from", "choice_to", "load", "rows", "store", "summary"]

PLAN, SUMMARY = "_zeropoint_plan", "_zeropoint_summary"
_BY_NAME = {operator.name: operator for operator in OPERATORS}


def store(module: Any, name: str, value: Any) -> None:
    """Keep `value` in an attribute of a `torch._C.ScriptModule`."""
    text = json.dumps(value)
    if module.hasattr(name):
        module.setattr(name, text)
    else:
        module._register_attribute(name, torch._C.StringType.get(), text)


def load(module: Any, name: str) -> Any:
    """What `store` kept; None if there is nothing."""
    return json.loads(module.getattr(name)) if module.hasattr(name) else None


def choice_to(choice: Choice, activation: dict[str, Any] | None, weight: Any) -> dict[str, Any]:
    """A choice as plain values; `activation` has facts about that observer, `weight` is the name of that one."""
    return {
        "way": choice.way.name,
        "reason": choice.reason,
        "operator": choice.operator.name if choice.operator else None,
        "inputs": list(choice.inputs),
        "relu": choice.relu,
        "result": choice.result,
        "activation": activation,
        "weight": weight,
    }


def choice_from(kept: dict[str, Any], activation: Any, weight: Any) -> Choice:
    """The choice that was kept, with a qconfig of observers that are there already."""
    qconfig = (
        QConfig(activation=lambda: activation, weight=lambda: copy.deepcopy(weight)) if kept["activation"] else None
    )
    operator = _BY_NAME[kept["operator"]] if kept["operator"] else None
    inputs = tuple(kept["inputs"])
    made = Choice(Way[kept["way"]], kept["reason"], operator, qconfig, inputs, kept["relu"])
    made.result = kept["result"]
    return made


def rows(choices: dict[Any, Choice], path: Any, operator: Any) -> list[list[str]]:
    """What a summary shows."""
    return [
        [path(node), operator(node, choice), choice.way.value, choice.reason]
        for node, choice in choices.items()
        if choice.way not in (Way.PASSED, Way.FUSED, Way.JOINED)
    ]


def summary(module: Any) -> Summary:
    """What became of each operator of a model, and why; of a ScriptModule, or of what has a ``summary()`` itself.

    Raises:
        TypeError: for a model that zeropoint did not quantize.
    """
    if callable(getattr(module, "summary", None)):
        return module.summary()
    kept = load(module._c, SUMMARY) if isinstance(module, torch.jit.ScriptModule) else None
    if kept is None:
        raise TypeError(f"summary takes a model that zeropoint prepared or quantized, got {type(module).__name__}")
    return Summary(tuple(Row(*row) for row in kept))
