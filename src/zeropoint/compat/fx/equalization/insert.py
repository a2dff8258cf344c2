"""Equalization observers into a graph that is being prepared."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import fx, nn

from zeropoint.compat.fx.equalization.layers import input_axis
from zeropoint.compat.fx.modules import is_observer_call


def why_not(node: fx.Node, model: fx.GraphModule, qconfigs: dict[str, Any]) -> str:
    """Why a layer that can be equalized is not, before its input is observed; '' if it is.

    An input that goes to other quantized layers, too, would need one factor for each of them; a weight that is used
    twice, one for each use.
    """
    if not node.args or not isinstance(node.args[0], fx.Node):
        return "its input is given by name"
    modules = dict(model.named_modules(remove_duplicate=False))
    for user in node.args[0].users:
        if user is not node and (qconfigs.get(user.name) is not None or is_observer_call(user, modules)):
            return "its input goes to other quantized layers"
    used = Counter(str(n.target) for n in model.graph.nodes if n.op in ("call_module", "get_attr"))
    weight = _weight(node) or node
    return "its weight is used several times" if used[str(weight.target)] > 1 else ""


def _weight(node: fx.Node) -> fx.Node | None:
    if node.op != "call_function":
        return None
    found = node.args[1] if len(node.args) > 1 else node.kwargs.get("weight")
    return found if isinstance(found, fx.Node) else None


def insert_equalization_observers(
    node: fx.Node,
    qconfig: Any,
    reason: str,
    modules: dict[str, nn.Module],
    add: Callable[[fx.Node, nn.Module], fx.Node],
) -> None:
    """Observe the input of a layer for equalization, and the weight if it is an argument.

    Args:
        reason: why the layer cannot be equalized, or ''.
        add: puts a module behind a value.
    """
    observed: Any = node.args[0] if node.args else None
    if not reason and len(observed.users) > 1:
        reason = "its input is used in float, too"
    if reason:
        warnings.warn(f"{node.name} is not equalized: {reason}", stacklevel=2)
        return
    observer = qconfig.input_activation()
    observer.watch_axis(input_axis(node, modules))
    node.replace_input_with(observed, add(observed, observer))
    weight = _weight(node)
    if weight is not None:
        node.replace_input_with(weight, add(weight, qconfig.weight()))
