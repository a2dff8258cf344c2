"""The same values in another shape, another order of axes, or a part of them: views of the same memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from zeropoint.operators.node import arguments
from zeropoint.operators.record import Effect, Observed, Operator, Output, Traced
from zeropoint.operators.steps import (
    LAST,
    Emit,
    GraphBuilder,
    ProgramStep,
    StepBuilder,
    called,
    emit_same,
    restores,
    steps,
)

aten = torch.ops.aten

# ------------------------------------------------------------------------------------------------- steps of programs


def _emit_contiguous(c: StepBuilder, node: fx.Node) -> str:
    return c.add("contiguous", c.tensor(node.args[0]))


def _emit_reshape(c: StepBuilder, node: fx.Node) -> str:
    return c.add("reshape", c.tensor(node.args[0]), shape=c.sizes(node.args[1]))


def _emit_flatten(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("flatten", c.tensor(node.args[0]), first=a.get("start_dim", 0), last=a.get("end_dim", -1))


def _emit_unflatten(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("unflatten", c.tensor(node.args[0]), axis=a["dim"], shape=c.sizes(a["sizes"]))


def _emit_unsqueeze(c: StepBuilder, node: fx.Node) -> str:
    return c.add("unsqueeze", c.tensor(node.args[0]), axis=arguments(node)["dim"])


def _emit_squeeze(c: StepBuilder, node: fx.Node) -> str:
    axes = arguments(node).get("dim")
    if not c.rank(node.args[0]):
        return str(c.tensor(node.args[0]))
    given = {} if axes is None else {"axes": list(axes) if isinstance(axes, (list, tuple)) else [axes]}
    return c.add("squeeze", c.tensor(node.args[0]), **given)


def _emit_permute(c: StepBuilder, node: fx.Node) -> str:
    return c.add("permute", c.tensor(node.args[0]), order=list(arguments(node)["dims"]))


def _emit_movedim(c: StepBuilder, node: fx.Node) -> str:
    rank = c.rank(node.args[0])
    numbered = torch.empty([1] * rank).as_strided([1] * rank, list(range(rank)))  # strides that are the axes' numbers
    moved = torch.movedim(numbered, *node.args[1:])
    return c.add("permute", c.tensor(node.args[0]), order=list(moved.stride()))


def _emit_transpose(c: StepBuilder, node: fx.Node) -> str:
    return c.add("transpose", c.tensor(node.args[0]), first=node.args[1], second=node.args[2])


def _emit_turned(c: StepBuilder, node: fx.Node) -> str:
    rank = c.rank(node.args[0])
    order = list(range(rank))
    order = order[:-2] + order[-2:][::-1] if "mT" in str(node.target) else order[::-1]
    return c.add("permute", c.tensor(node.args[0]), order=order)


def _emit_as(c: StepBuilder, node: fx.Node) -> str:
    op = "expand" if "expand" in str(node.target) else "reshape"
    return c.add(op, c.tensor(node.args[0]), shape=[c.axis_size(node.args[1], d) for d in range(c.rank(node.args[1]))])


def _emit_expand(c: StepBuilder, node: fx.Node) -> str:
    return c.add("expand", c.tensor(node.args[0]), shape=c.sizes(node.args[1]))


# ----------------------------------------------------------------------------------------------------- steps: parts


def _emit_slice(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    begin, end = (d if a[k] is None else c.size(a[k]) for k, d in (("start", 0), ("end", LAST)))
    end = end if isinstance(end, str) else min(end, LAST)
    return c.add("slice", c.tensor(node.args[0]), axis=a["dim"], begin=begin, end=end, step=a["step"])


def _emit_narrow(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    begin, length = c.size(a["start"]), c.size(a["length"])
    size, first = c.axis_size(node.args[0], a["dim"]), begin
    if isinstance(begin, int) and begin < 0:  # from the end; slices to the end have no number for it
        first = c.number("add", size, begin)
        c.require(first, f"narrow: start {begin} is outside of axis {a['dim']}")
    end = c.number("add", first, length)
    why = f"narrow: axis {a['dim']} is shorter than start {_shown(begin)} and length {_shown(length)}"
    c.require(c.number("subtract", size, end), why)
    begin = first
    return c.add("slice", c.tensor(node.args[0]), axis=a["dim"], begin=begin, end=end, step=1)


def _shown(number: Any) -> str:
    return str(number) if isinstance(number, int) else "of this input"


def _emit_select(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("select", c.tensor(node.args[0]), axis=a["dim"], index=c.size(a["index"]))


def _emit_chunk(c: StepBuilder, node: fx.Node) -> list[str]:
    a = arguments(node)
    size = c.number("add", c.axis_size(node.args[0], a["dim"]), int(a["chunks"]) - 1)
    return _emit_pieces(c, node, a["dim"], c.number("floor_divide", size, int(a["chunks"])))


def _emit_split(c: StepBuilder, node: fx.Node) -> list[str]:
    a = arguments(node)
    return _emit_pieces(c, node, a["dim"], c.size(a["split_size"]))


def _emit_pieces(c: StepBuilder, node: fx.Node, axis: int, each: Any) -> list[str]:
    """As many pieces of `each` along an axis as the example had."""
    x, pieces = c.tensor(node.args[0]), []
    for i in range(len(c.found[node])):
        begin, end = (c.number("multiply", each, n) for n in (i, i + 1))
        pieces.append(c.add("slice", x, axis=axis, begin=begin, end=end, step=1))
    return pieces


def _emit_split_with_sizes(c: StepBuilder, node: fx.Node) -> list[str]:
    a = arguments(node)
    x, begin, pieces = c.tensor(node.args[0]), 0, []
    for size in c.sizes(a["split_sizes"]):
        end = c.number("add", begin, size)
        pieces.append(c.add("slice", x, axis=a["dim"], begin=begin, end=end, step=1))
        begin = end
    left = c.number("subtract", c.axis_size(node.args[0], a["dim"]), begin)
    c.require(left, f"split: the sizes of the pieces must add up to that of axis {a['dim']}", exact=True)
    return pieces


def _emit_sections(c: StepBuilder, node: fx.Node) -> list[str]:
    """Parts of nearly the same size; the first ones have one more where they cannot be the same."""
    a = arguments(node)
    x, begin, pieces = c.tensor(node.args[0]), 0, []
    for i in range(len(c.found[node])):
        more = c.number("add", c.axis_size(node.args[0], a["dim"]), len(c.found[node]) - i - 1)
        end = c.number("add", begin, c.number("floor_divide", more, len(c.found[node])))
        pieces.append(c.add("slice", x, axis=a["dim"], begin=begin, end=end, step=1))
        begin = end
    return pieces


def _emit_unbind(c: StepBuilder, node: fx.Node) -> list[str]:
    x = c.tensor(node.args[0])
    return [c.add("select", x, axis=arguments(node)["dim"], index=i) for i in range(len(c.found[node]))]


# ------------------------------------------------------------------------------------------------- steps as nodes again


def _restore_squeeze(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    x, axes = r.tensor(step.inputs[0]), step.attributes.get("axes")
    return r.call(aten.squeeze.default, x) if axes is None else r.call(aten.squeeze.dims, x, axes)


# ----------------------------------------------------------------------------------------------------------- records


def moves(
    name: str,
    emit: Emit,
    *overloads: str,
    also: tuple[str, ...] = (),
    **more: Any,
) -> Operator:
    """Calls that give values of their input, as ``aten::<name>`` with these overloads does.

    `also`: calls that the records do not take as they are captured, but programs do.
    """
    aten_names = tuple(f"{name}.{overload}" for overload in overloads or ("default",))
    made = steps(emit, *(f"aten.{call}" for call in (*aten_names, *also)))
    return Operator(name, aten_names, output=Output.INPUT, steps=made, **more)


def shared(*methods: str, without: tuple[Any, ...] = ()) -> Traced:
    """In FX graph mode: with the observer of the input; `methods` of tensors call it, too."""
    return Traced(Observed.SHARED, methods, without)


def _reshapes(name: str, emit: Emit, *overloads: str, **more: Any) -> Operator:
    return moves(name, emit, *overloads, effect=Effect.RESHAPES, **more)


RECORDS = (
    _reshapes(
        "reshape", _emit_reshape, also=("view.default",), traced=shared("reshape", "resize_", "view"),
        restores=restores(called(aten.reshape.default, "shape"), "reshape"),
    ),
    Operator("size", traced=Traced(Observed.INFO, ("shape", "size"))),
    _reshapes(
        "flatten", _emit_flatten, "using_ints", modules=(nn.Flatten,), functions=(torch.flatten,),
        traced=shared(without=(nn.Flatten,)),
        restores=restores(called(aten.flatten.using_ints, "first", "last"), "flatten"),
    ),
    _reshapes(
        "unflatten", _emit_unflatten, "int", modules=(nn.Unflatten,),
        restores=restores(called(aten.unflatten.int, "axis", "shape"), "unflatten"),
    ),
    _reshapes(
        "transpose", _emit_transpose, "int", functions=(torch.transpose,), traced=shared("transpose"),
        restores=restores(called(aten.transpose.int, "first", "second"), "transpose"),
    ),
    _reshapes(
        "permute", _emit_permute, traced=shared("permute"),
        restores=restores(called(aten.permute.default, "order"), "permute"),
    ),
    _reshapes("t", _emit_turned),
    _reshapes(
        "squeeze", _emit_squeeze, "default", "dim", "dims", functions=(torch.squeeze,),
        traced=shared("squeeze", "squeeze_"), restores=restores(_restore_squeeze, "squeeze"),
    ),
    _reshapes(
        "unsqueeze", _emit_unsqueeze, functions=(torch.unsqueeze,), traced=shared("unsqueeze", "unsqueeze_"),
        restores=restores(called(aten.unsqueeze.default, "axis"), "unsqueeze"),
    ),
    _reshapes(
        "contiguous", _emit_contiguous, traced=shared("contiguous"),
        restores=restores(called(aten.contiguous.default), "contiguous"),
    ),
    _reshapes("clone", emit_same),
    _reshapes("movedim", _emit_movedim, "int", "intlist"),
    _reshapes("swapaxes", _emit_transpose),
    _reshapes("swapdims", _emit_transpose),
    _reshapes("ravel", _emit_flatten),
    _reshapes("detach", emit_same, traced=shared("detach", "detach_")),
    moves("expand", _emit_expand, restores=restores(called(aten.expand.default, "shape"), "expand")),
    moves("expand_as", _emit_as),
    moves("broadcast_to", _emit_expand),
    moves("moveaxis", _emit_movedim, "int", "intlist"),
    moves("numpy_T", _emit_turned),
    moves("mT", _emit_turned),
    moves("reshape_as", _emit_as),
    moves("alias", emit_same, modules=(nn.Identity,), traced=shared()),
    moves("lift_fresh_copy", emit_same),
    moves(
        "slice", _emit_slice, "Tensor",
        restores=restores(called(aten.slice.Tensor, "axis", "begin", "end", "step"), "slice"),
    ),
    moves("select", _emit_select, "int", restores=restores(called(aten.select.int, "axis", "index"), "select")),
    moves("narrow", _emit_narrow, functions=(torch.narrow,), traced=shared()),
    moves("chunk", _emit_chunk, also=("unsafe_chunk.default",)),
    moves("split", _emit_split, "Tensor"),
    moves("split_with_sizes", _emit_split_with_sizes),
    moves("tensor_split", _emit_sections, "sections"),
    moves("unbind", _emit_unbind, "int"),
)  # fmt: skip
