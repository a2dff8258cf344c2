"""What was chosen for a method, as text that a ScriptModule carries with it."""

from __future__ import annotations

import copy
import json
from typing import Any

import torch

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.passes.annotate import Choice, Precision
from zeropoint.graph.summary import Row, Summary
from zeropoint.operators import BY_NAME
from zeropoint.qconfig import QConfig

PLAN, SUMMARY = "_zeropoint_plan", "_zeropoint_summary"


def store(module: Any, name: str, value: Any) -> None:
    """Keep `value` in an attribute of a `torch._C.ScriptModule`."""
    text = json.dumps(value)
    if module.hasattr(name):
        module.setattr(name, text)
    else:
        internals.add_attribute(module, name, internals.string_type(), text)


def load(module: Any, name: str) -> Any:
    """What `store` kept; None if there is nothing."""
    return json.loads(module.getattr(name)) if module.hasattr(name) else None


def choice_to(choice: Choice, path: str, operator: str) -> dict[str, Any]:
    """A choice as plain values, without its observers; `path` and `operator` are for the summary."""
    return {
        "precision": choice.precision.name,
        "reason": choice.reason,
        "recipe": choice.operator.name if choice.operator else None,
        "inputs": list(choice.inputs),
        "relu": choice.relu,
        "result": choice.result,
        "path": path,
        "operator": operator,
        "activation": None,
        "weight": None,
    }


def choice_from(kept: dict[str, Any], activation: Any, weight: Any) -> Choice:
    """The choice that was kept, with a qconfig of observers that are there already."""
    qconfig = QConfig(activation=lambda: activation, weight=lambda: copy.deepcopy(weight)) if activation else None
    recipe = BY_NAME[kept["recipe"]] if kept["recipe"] else None
    made = Choice(Precision[kept["precision"]], kept["reason"], recipe, qconfig, tuple(kept["inputs"]), kept["relu"])
    made.result = kept["result"]
    return made


def store_summary(module: Any, choices: list[tuple[Choice, dict[str, Any]]], notes: list[str]) -> None:
    """Keep what a summary shows of choices and of what was kept of them, and its notes."""
    hidden = (Precision.PASSED, Precision.FUSED, Precision.JOINED)
    rows = [[k["path"], k["operator"], c.precision.value, c.reason] for c, k in choices if c.precision not in hidden]
    store(module, SUMMARY, {"rows": rows, "notes": notes})


def summary(module: Any) -> Summary:
    """How each operator of a quantized model is computed, and why. Takes a ScriptModule, or a model with ``summary()``.

    Raises:
        TypeError: for a model that zeropoint did not quantize.

    Example:
        >>> import zeropoint
        >>> model = torch.jit.script(torch.nn.Linear(4, 2).eval())
        >>> print(summary(zeropoint.quantize_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig})))
        module   operator  computed       why
        (model)  linear    int8, dynamic
        1 int8, dynamic
    """
    if callable(getattr(module, "summary", None)):
        return module.summary()
    kept = load(module._c, SUMMARY) if isinstance(module, torch.jit.ScriptModule) else None
    if kept is None:
        raise TypeError(f"summary takes a model that zeropoint prepared or quantized, got {type(module).__name__}")
    return Summary(tuple(Row(*row) for row in kept["rows"]), tuple(kept["notes"]))
