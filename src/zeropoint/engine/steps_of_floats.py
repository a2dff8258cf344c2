"""Rows of the table for layers that take floats and have small weights: recurrent ones, embeddings, weight only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from zeropoint.engine.steps import row
from zeropoint.graph.fx.plain import arguments
from zeropoint.ops.embedding import MODES, NAMES
from zeropoint.ops.recurrent import KINDS, Kind
from zeropoint.ops.weight_only import SmallWeight, half_weight, small_weight

if TYPE_CHECKING:
    from zeropoint.engine.compiler import Compiler

__all__: list[str] = []


# -------------------------------------------------------------------------------------------------------- weight only


def _weight_only(c: Compiler, a: dict[str, Any], small: SmallWeight, relu: bool = False) -> str:
    def constant(part: str, value: Tensor | None) -> str | None:
        return None if value is None else c.draft.constant(f"{a['weight'].target}{part}", value)

    return c.add(
        "weight_only_linear",
        c.tensor(a["input"]),
        constant("", small.weight),
        *(constant(f"_{part}", _flat(getattr(small, part))) for part in ("scale", "zero_point", "shift", "bias")),
        storage=small.storage,
        inputs=small.inputs,
        group_size=small.group_size,
        relu=relu,
    )


def _flat(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.reshape(-1)


@row("zeropoint.weight_only_linear.default", "zeropoint.weight_only_linear_4bit.default")
def _weight_only_linear(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(a["input"]) != torch.float32:
        raise c.unsupported(f"it is a step on float32 only, not on {c.dtype(a['input'])}")
    weight, scale, zero_point, bias = (
        None if a[k] is None else c.parameter(a[k]) for k in ("weight", "scale", "zero_point", "bias")
    )
    inputs, bits = c.found[a["input"]].shape[-1], 4 if "4bit" in str(node.target) else 8
    return _weight_only(
        c, a, small_weight(str(node.target), weight, inputs, bits, scale, zero_point, bias, a["group_size"])
    )


@row("zeropoint.linear_dynamic_fp16.default", "zeropoint.linear_relu_dynamic_fp16.default")
def _linear_fp16(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    bias = None if a["bias"] is None else c.parameter(a["bias"])
    return _weight_only(
        c, a, half_weight(str(node.target), c.parameter(a["weight"]), bias), "_relu" in str(node.target)
    )


# ------------------------------------------------------------------------------------------------- floats, no weights


_OPERATIONS = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide"}


@row(*(f"aten.{name}.{kind}" for name in _OPERATIONS for kind in ("Tensor", "Scalar")))
def _float_binary(c: Compiler, node: fx.Node) -> str:
    a, b = node.args[:2]
    if any(isinstance(t, fx.Node) and c.dtype(t) != torch.float32 for t in (a, b)):
        raise c.unsupported("it is a step on float32 only")
    if arguments(node).get("alpha", 1) != 1:
        raise c.unsupported("there is no step for it with alpha")
    operation = _OPERATIONS[str(node.target).split(".")[1]]
    if isinstance(b, fx.Node):
        return c.add("float_binary", c.tensor(a), c.tensor(b), operation=operation)
    return c.add("float_binary", c.tensor(a), operation=operation, number=float(b))


@row("aten.linalg_vector_norm.default")
def _vector_norm(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    axes = [axis % c.rank(node.args[0]) for axis in a["dim"] or []]
    if a["ord"] != 2 or axes != [c.rank(node.args[0]) - 1] or c.dtype(node) != torch.float32:
        raise c.unsupported("it is a step for norms of order 2 over the last axis of float32 only")
    return c.add("float_norm", c.tensor(node.args[0]), keepdim=bool(a["keepdim"]))


# ------------------------------------------------------------------------------------------------------------- filled


@row("aten.zeros.default", "aten.ones.default", "aten.full.default")
def _full(c: Compiler, node: fx.Node) -> str:
    """Mostly the states that a recurrent layer begins with."""
    a = arguments(node)
    value = a["fill_value"] if "fill_value" in a else int("ones" in str(node.target))
    dtype = c.dtype(node)
    value = float(value) if dtype.is_floating_point else int(value)
    return c.add("full", shape=c.sizes(a["size"]), value=value, dtype=str(dtype).removeprefix("torch."))


# --------------------------------------------------------------------------------------------------------- embeddings


def _bits(node: fx.Node) -> int:
    return next(bits for bits, name in NAMES.items() if f"_{name}" in str(node.target))


@row(*(f"zeropoint.embedding_{name}.default" for name in NAMES.values()))
def _embedding(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("embedding", c.tensor(a["weight"]), c.tensor(a["indices"]), bits=_bits(node))


@row(*(f"zeropoint.embedding_bag_{name}_rowwise_offsets.default" for name in NAMES.values()))
def _embedding_bags(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if a["pruned_weights"]:
        raise c.unsupported("tables whose rows were pruned have no step")
    tensors = (c.tensor(a[k]) for k in ("weight", "indices", "offsets", "per_sample_weights"))
    numbers = {"mode": MODES[a["mode"]], "include_last_offset": bool(a["include_last_offset"])}
    return c.add("embedding_bags", *tensors, bits=_bits(node), **numbers)


# ---------------------------------------------------------------------------------------------------------- recurrent


def _matrix(c: Compiler, weight: fx.Node, scale: Any, zero_point: Any, bias: Any) -> list[str | None]:
    """The constants of one of the matrices of a cell."""

    def constant(node: Any, dtype: torch.dtype) -> str | None:
        return None if node is None else c.draft.constant(str(node.target), c.parameter(node).reshape(-1).to(dtype))

    numbers = constant(scale, torch.float32), constant(zero_point, torch.int32), constant(bias, torch.float32)
    return [c.tensor(weight), *numbers]


def _recurrent(
    c: Compiler, kind: Kind, x: Any, states: list[Any], matrices: list[Any], weight: fx.Node, **numbers: Any
) -> list[str]:
    """The step: the names of its output and of the last states."""
    names = [str(c.node), *(f"{c.node}_{state}" for state in ("hidden", "cell"))][: 1 + len(states)]
    dtype = str(c.parameter(weight).dtype).removeprefix("torch.")
    numbers |= {"cell": kind.name, "weight_dtype": dtype}
    return c.draft.add_several("recurrent", [x, *states, *(part for m in matrices for part in m)], names, **numbers)


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
