"""LSTM, GRU and RNN layers, and one step of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from zeropoint.compiler.steps.table import dtype_name, row
from zeropoint.operators.node import arguments
from zeropoint.ops.recurrent import KINDS, Kind

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


def _matrix(c: Compiler, weight: fx.Node, scale: Any, zero_point: Any, bias: Any) -> list[str | None]:
    """The constants of one of the matrices of a cell."""

    def constant(node: Any, dtype: torch.dtype) -> str | None:
        return None if node is None else c.builder.constant(str(node.target), c.parameter(node).reshape(-1).to(dtype))

    numbers = constant(scale, torch.float32), constant(zero_point, torch.int32), constant(bias, torch.float32)
    return [c.tensor(weight), *numbers]


def _recurrent(
    c: Compiler, kind: Kind, x: Any, states: list[Any], matrices: list[Any], weight: fx.Node, **numbers: Any
) -> list[str]:
    """The step: the names of its output and of the last states."""
    names = [str(c.node), *(f"{c.node}_{state}" for state in ("hidden", "cell"))][: 1 + len(states)]
    dtype = dtype_name(c.parameter(weight).dtype)
    numbers |= {"cell": kind.name, "weight_dtype": dtype}
    return c.builder.add_several("recurrent", [x, *states, *(part for m in matrices for part in m)], names, **numbers)


def _each(given: Any, count: int) -> list[Any]:
    return list(given) if given else [None] * count


def _enter(kind: Kind) -> None:
    """The rows of one kind of cell."""

    @row(f"zeropoint.quantized_{kind.name}.input")
    def sequence(c: Compiler, node: fx.Node) -> list[str]:
        a = arguments(node)
        if a["train"] and a["dropout"]:
            raise c.unsupported("it drops values out at random: call eval() before the model is converted")
        columns = (_each(a[k], len(a["weights"])) for k in ("weight_scales", "weight_zero_points", "biases"))
        matrices = [_matrix(c, *parts) for parts in zip(a["weights"], *columns)]
        states = [c.tensor(h) for h in (a["hx"] if kind.has_cell_state else [a["hx"]])]
        numbers: dict[str, Any] = {k: bool(a[k]) for k in ("batch_first", "reduce_range")}
        numbers |= {"layers": a["num_layers"], "directions": 2 if a["bidirectional"] else 1}
        return _recurrent(c, kind, c.tensor(a["input"]), states, matrices, a["weights"][0], **numbers)

    @row(f"zeropoint.quantized_{kind.name}_cell_dynamic.default")
    def cell(c: Compiler, node: fx.Node) -> Any:
        """A sequence of one step, of one layer."""
        a = arguments(node)
        matrices = [_matrix(c, a[w], a[f"{w}_scale"], a[f"{w}_zero_point"], a[b]) for w, b in
                    (("w_ih", "b_ih"), ("w_hh", "b_hh"))]  # fmt: skip
        states = [c.add("unsqueeze", c.tensor(h), axis=0) for h in (a["hx"] if kind.has_cell_state else [a["hx"]])]
        x = c.add("unsqueeze", c.tensor(a["input"]), axis=0)
        numbers = {"layers": 1, "directions": 1, "batch_first": False, "reduce_range": bool(a["reduce_range"])}
        _, *last = _recurrent(c, kind, x, states, matrices, a["w_ih"], **numbers)
        next_states = [c.add("squeeze", state, axes=[0]) for state in last]
        return next_states if kind.has_cell_state else next_states[0]


for _kind in KINDS:
    _enter(_kind)
