"""State: what a model keeps from one call to the next."""

from __future__ import annotations

from torch import fx

from zeropoint.operators.record import Operator
from zeropoint.operators.steps import StepBuilder, steps


def _emit_read(c: StepBuilder, node: fx.Node) -> str:
    return c.state(node.args[0])


def _emit_update(c: StepBuilder, node: fx.Node) -> None:
    state, following, initial = node.args
    c.update_state(state, c.tensor(following), c.parameter(initial))


RECORDS = (
    Operator("read_state", steps=steps(_emit_read, "read_state")),
    Operator("update_state", steps=steps(_emit_update, "update_state")),
)
