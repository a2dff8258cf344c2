"""Operators that copy, repeat, gather or sort values without changing them; `views` has those that only reshape."""

from __future__ import annotations

import math
import operator as python
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from zeropoint.operators.creation import filled
from zeropoint.operators.expressions import Expression, in_dtype
from zeropoint.operators.float_forms import by_operator
from zeropoint.operators.lowered_value import Scale
from zeropoint.operators.lowering import Lowering
from zeropoint.operators.node import arguments
from zeropoint.operators.record import Observed, Operator, Output, Traced
from zeropoint.operators.steps import (
    LAST,
    GraphBuilder,
    ProgramStep,
    Restore,
    StepBuilder,
    called,
    dtype_name,
    restores,
    steps,
    with_axis,
    without_axis,
)
from zeropoint.operators.views import moves, shared

aten, ours = torch.ops.aten, torch.ops.zeropoint


def _top(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    """Integers are often equal, and topk leaves open which of equal values it takes."""
    return g.call(ours.top.default, q, a["k"], a["dim"], a["largest"])


def _pad(g: Lowering, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    if a.get("mode", "constant") != "constant":  # with values that there are
        return g.call(aten.pad.default, q, a["pad"], a["mode"])
    return g.call(aten.constant_pad_nd.default, q, a["pad"], s.zero_point)


def _pads_numbers(a: dict[str, Any]) -> str:
    pads_zeros = a.get("mode", "constant") != "constant" or not a["value"]
    return "" if pads_zeros else "it pads with a value other than zero"


# --------------------------------------------------------------------------------------------- steps of programs: moved


def _emit_flip(c: StepBuilder, node: fx.Node) -> str:
    return c.add("flip", c.tensor(node.args[0]), axes=list(arguments(node)["dims"]))


def _emit_roll(c: StepBuilder, node: fx.Node) -> str:
    """What falls off at the end comes back at the beginning."""
    a = arguments(node)
    x, axes = str(c.tensor(node.args[0])), list(a["dims"])
    if not axes:
        x, axes = c.add("flatten", x, first=0, last=-1), [0]
    for shift, axis in zip(c.sizes(a["shifts"]), axes):
        size = c.axis_size(node.args[0], axis) if a["dims"] else c.number_of_elements(node.args[0])
        left = c.number("modulo", c.number("subtract", 0, shift), c.calculate("maximum", size, 1))
        head = c.add("slice", x, axis=axis, begin=left, end=LAST, step=1)
        tail = c.add("slice", x, axis=axis, begin=0, end=left, step=1)
        x = c.add("cat", head, tail, None, None, None, None, axis=axis)
    if not a["dims"]:
        sizes = [c.axis_size(node.args[0], d) for d in range(c.rank(node.args[0]))]
        x = c.add("reshape", x, shape=sizes)
    return x


def _emit_repeat(c: StepBuilder, node: fx.Node) -> str:
    times = c.sizes(node.args[1])
    return c.add("repeat", c.tensor(node.args[0]), repeats=[1] * (c.rank(node.args[0]) - len(times)) + times)


def _emit_pixel_shuffle(c: StepBuilder, node: fx.Node) -> str:
    op = "pixel_unshuffle" if "unshuffle" in str(node.target) else "pixel_shuffle"
    return c.add(op, c.tensor(node.args[0]), factor=int(node.args[1]))


def _emit_channel_shuffle(c: StepBuilder, node: fx.Node) -> str:
    split = c.add("unflatten", c.tensor(node.args[0]), axis=1, shape=[int(node.args[1]), -1])
    return c.add("flatten", c.add("transpose", split, first=1, second=2), first=1, last=2)


def _padded(c: StepBuilder, node: fx.Node, pads: list[Any], value: Any) -> str:
    """With a number around it; one that is not finite, which files do not have, is put where a padded mask is not."""
    x, dtype = node.args[0], c.dtype(node)
    if dtype == torch.bool:  # as bytes
        before, after = Expression(c), Expression(c)
        made = c.add("pad", before.step(before.term(x, torch.uint8)), pads=pads, value=int(bool(value)))
        return after.step(after.convert(after.tensor(made, torch.uint8), torch.bool))
    if math.isfinite(value):
        return c.add("pad", c.tensor(x), pads=pads, value=value)
    ones = filled(c, [c.axis_size(x, d) for d in range(c.rank(x))], torch.uint8, 1)
    inside, around = (c.add("pad", t, pads=pads, value=0) for t in (ones, c.tensor(x)))
    e = Expression(c)
    is_inside = e.convert(e.tensor(inside, torch.uint8), torch.bool)
    return e.step(e.call("where", is_inside, e.tensor(around, dtype), e.number(value, dtype)))


def _emit_constant_pad(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return _padded(c, node, c.sizes(a["pad"]), a["value"])


def _emit_pad(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    pads = c.sizes(a["pad"])
    if a["mode"] == "constant":
        return _padded(c, node, pads, a["value"] or 0)
    x, rank = str(c.tensor(node.args[0])), c.rank(node.args[0])
    if a["mode"] == "circular":  # what is cut off does not come back on the other side
        for place, size in enumerate(pads):
            if isinstance(size, int) and size < 0:
                ends = {"begin": 0, "end": size} if place % 2 else {"begin": -size, "end": LAST}
                x, pads[place] = c.add("slice", x, axis=rank - 1 - place // 2, step=1, **ends), 0
    else:
        for axis in range(max(rank - 1 - len(pads) // 2, 0), rank):
            least = c.number("subtract", c.axis_size(node.args[0], axis), 1)
            c.require(least, f"pad: axis {axis} has no elements to take")
    return c.add("pad_from", x, pads=pads, mode=a["mode"])


def _emit_repeat_interleave(c: StepBuilder, node: fx.Node) -> str:
    """Each element several times: an axis behind it, which is repeated and then joined to it."""
    a = arguments(node)
    x, rank = c.tensor(node.args[0]), c.rank(node.args[0])
    if a["dim"] is None:
        x, rank, axis = c.add("flatten", x, first=0, last=-1), 1, 0
    else:
        axis = a["dim"] % max(rank, 1)
    shape = [-1] * (rank + 1)
    shape[axis + 1] = c.size(a["repeats"])
    repeated = c.add("expand", c.add("unsqueeze", x, axis=axis + 1), shape=shape)
    return c.add("flatten", repeated, first=axis, last=axis + 1)


def _emit_rotate(c: StepBuilder, node: fx.Node) -> str | None:
    a = arguments(node)
    first, second = a["dims"]
    x, turns = c.tensor(node.args[0]), a["k"] % 4
    if turns == 0:
        return x
    flipped = c.add("flip", x, axes={1: [second], 2: [first, second], 3: [first]}[turns])
    return flipped if turns == 2 else c.add("transpose", flipped, first=first, second=second)


# -------------------------------------------------------------------------------------------- steps of programs: chosen


def _emit_index_select(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    taken = c.add("index_select", with_axis(c, node.args[0]), in_dtype(c, a["index"], torch.int64), axis=a["dim"])
    return without_axis(c, taken, node)


def _emit_gather(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    taken = c.add("gather", with_axis(c, node.args[0]), with_axis(c, a["index"]), axis=a["dim"])
    return without_axis(c, taken, node)


def _emit_index(c: StepBuilder, node: fx.Node) -> str:
    """Axes that are indexed come together, at the front if they are not neighbours."""
    x, given = c.tensor(node.args[0]), _whole_indices(c, arguments(node)["indices"])
    axes = [axis for axis, index in enumerate(given) if index is not None]
    indices = [given[axis] for axis in axes]
    first = axes[0]
    if axes != list(range(first, first + len(axes))):
        order = axes + [axis for axis in range(c.rank(node.args[0])) if axis not in axes]
        x, first = c.add("permute", x, order=order), 0
    return c.add("index", x, *indices, axis=first)


def _whole_indices(c: StepBuilder, given: Any) -> list[str | None]:
    """Indices as int64; of a mask that is fixed the places it names."""
    made: list[str | None] = []
    for index in given:
        if index is None:
            made.append(None)
        elif c.dtype(index) in (torch.bool, torch.uint8):
            if not c.is_parameter(index):
                raise c.unsupported("the number of values that a mask selects depends on the data: use torch.where")
            places = c.parameter(index).nonzero(as_tuple=True)
            made += [c.builder.constant(f"{index}_places", place) for place in places]
        else:
            made.append(in_dtype(c, index, torch.int64))
    return made


def _emit_unfold(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    axis, length = a["dimension"], c.size(a["size"])
    made = c.add("unfold", with_axis(c, node.args[0]), axis=axis, length=length, step=a["step"])
    return made if c.rank(node.args[0]) else c.add("select", made, axis=0, index=0)


def _emit_diagonal(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("diagonal", c.tensor(node.args[0]), offset=a["offset"], first=a["dim1"], second=a["dim2"])


def _emit_grid(c: StepBuilder, node: fx.Node) -> list[str]:
    """Each of some vectors along an axis of its own, repeated along those of the others."""
    a = arguments(node)
    tensors = a["tensors"]
    count = len(tensors)
    order = [1, 0, *range(2, count)] if a.get("indexing") == "xy" and count > 1 else list(range(count))
    shape: list[Any] = [1] * count
    for place, t in zip(order, tensors):
        shape[place] = c.axis_size(t, 0) if c.rank(t) else 1
    made = []
    for place, t in zip(order, tensors):
        line = c.add("reshape", c.tensor(t), shape=[-1 if d == place else 1 for d in range(count)])
        made.append(c.add("expand", line, shape=shape))
    return made


def _emit_extreme(c: StepBuilder, node: fx.Node) -> list[str]:
    a, x = arguments(node), node.args[0]
    numbers = {"axis": a["dim"], "keepdim": a["keepdim"] and c.rank(x) > 0, "largest": "max" in str(node.target)}
    return c.builder.add_several("extreme", [with_axis(c, x)], [f"{node}", f"{node}_index"], **numbers)


def _emit_extremes(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    x, largest = str(c.tensor(node.args[0])), "max" in str(node.target)
    rank = c.rank(node.args[0])
    axes = sorted({axis % rank for axis in a.get("dim") or range(rank)}, reverse=True) if rank else []
    for axis in axes:  # the last one first, so that the others keep their numbers
        numbers = {"axis": axis, "keepdim": bool(a.get("keepdim")), "largest": largest}
        x, _ = c.builder.add_several("extreme", [x], [f"{node}", f"{node}_index"], **numbers)
    return x


def _emit_sorted(c: StepBuilder, node: fx.Node, axis: int, descending: bool) -> list[str]:
    dtypes = (torch.uint8, torch.int8, torch.bool, torch.int32, torch.int64, torch.float32)
    if c.dtype(node.args[0]) not in dtypes:
        raise c.unsupported(f"{dtype_name(c.dtype(node.args[0]))} is not supported")
    names = [f"{node}", f"{node}_index"]
    return c.builder.add_several("sort", [c.tensor(node.args[0])], names, axis=axis, descending=descending)


def _emit_sort(c: StepBuilder, node: fx.Node) -> list[str]:
    a = arguments(node)
    return _emit_sorted(c, node, a["dim"], bool(a["descending"]))


def _emit_places(c: StepBuilder, node: fx.Node) -> str:
    a = arguments(node)
    return _emit_sorted(c, node, a["dim"], bool(a["descending"]))[1]


def _emit_top(c: StepBuilder, node: fx.Node) -> list[str]:
    a = arguments(node)
    made: list[Any] = _emit_sorted(c, node, a["dim"], a["largest"])
    if not c.rank(node.args[0]):  # a number is all there is
        return made
    k = c.size(a["k"])
    c.require(
        c.number("subtract", c.axis_size(node.args[0], a["dim"]), k), f"topk: axis {a['dim']} has fewer than k={k}"
    )
    return [c.add("slice", part, axis=a["dim"], begin=0, end=k, step=1) for part in made]


# ------------------------------------------------------------------------------------------------- steps as nodes again


def _restore_pad(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    a, x = step.attributes, r.tensor(step.inputs[0])
    if step.op == "pad_from":  # PyTorch wants an axis more than those that it pads
        pads = r.size(a["pads"])
        is_small = len(r.shape(x)) == len(pads) // 2
        x = r.call(aten.unsqueeze.default, x, 0) if is_small else x
        y = r.call(aten.pad.default, x, pads, a["mode"])
        return r.call(aten.squeeze.dims, y, [0]) if is_small else y
    return r.call(aten.constant_pad_nd.default, x, r.size(a["pads"]), a["value"])


def _restore_index(r: GraphBuilder, step: ProgramStep) -> fx.Node:
    x, *indices = (r.tensor(name) for name in step.inputs)
    return r.call(aten.index.Tensor, x, [*[None] * step.attributes["axis"], *indices])


def _restore_along(target: Any) -> Restore:
    """With an axis between the tensors."""

    def restore(r: GraphBuilder, step: ProgramStep) -> fx.Node:
        x, index = (r.tensor(name) for name in step.inputs)
        return r.call(target, x, step.attributes["axis"], index)

    return restore


def _restore_extreme(r: GraphBuilder, step: ProgramStep) -> list[fx.Node]:
    a = step.attributes
    op = (aten.max if a["largest"] else aten.min).dim
    made = r.call(op, r.tensor(step.inputs[0]), a["axis"], a["keepdim"])
    return [r.call(python.getitem, made, i) for i in (0, 1)]


def _restore_sort(r: GraphBuilder, step: ProgramStep) -> list[fx.Node]:
    a = step.attributes
    options = {"stable": True, "dim": a["axis"], "descending": a["descending"]}
    made = r.call(aten.sort.stable, r.tensor(step.inputs[0]), **options)
    return [r.call(python.getitem, made, i) for i in (0, 1)]


# ----------------------------------------------------------------------------------------------------------- records


def _extreme(name: str) -> Operator:
    """Along an axis, or of all values."""
    made = (*steps(_emit_extreme, f"aten.{name}.dim"), *steps(_emit_extremes, f"aten.{name}.default"))
    again = restores(_restore_extreme, "extreme")
    return Operator(name, (f"{name}.dim", f"{name}.default"), output=Output.INPUT, steps=made, restores=again)


RECORDS = (
    moves("flip", _emit_flip, restores=restores(called(aten.flip.default, "axes"), "flip")),
    moves("roll", _emit_roll),
    moves(
        "repeat", _emit_repeat, traced=shared("repeat"),
        restores=restores(called(aten.repeat.default, "repeats"), "repeat"),
    ),
    moves("tile", _emit_repeat),
    moves(
        "repeat_interleave", _emit_repeat_interleave, "self_int", functions=(torch.repeat_interleave,),
        traced=shared("repeat_interleave"),
    ),
    moves("rot90", _emit_rotate),
    moves(
        "pixel_shuffle", _emit_pixel_shuffle, modules=(nn.PixelShuffle,), functions=(F.pixel_shuffle,), traced=shared(),
        restores=restores(called(aten.pixel_shuffle.default, "factor"), "pixel_shuffle"),
    ),
    moves(
        "pixel_unshuffle", _emit_pixel_shuffle, modules=(nn.PixelUnshuffle,), functions=(F.pixel_unshuffle,),
        traced=shared(), restores=restores(called(aten.pixel_unshuffle.default, "factor"), "pixel_unshuffle"),
    ),
    moves(
        "channel_shuffle", _emit_channel_shuffle, modules=(nn.ChannelShuffle,), functions=(torch.channel_shuffle,),
        traced=Traced(Observed.PASSED),
    ),
    moves(
        "index_select", _emit_index_select,
        restores=restores(_restore_along(aten.index_select.default), "index_select"),
    ),
    moves("index", _emit_index, "Tensor", restores=restores(_restore_index, "index")),
    moves("gather", _emit_gather, restores=restores(_restore_along(aten.gather.default), "gather")),
    Operator(
        "unfold", steps=steps(_emit_unfold, "aten.unfold.default", "aten.unfold_copy.default"),
        restores=restores(called(aten.unfold.default, "axis", "length", "step"), "unfold"),
    ),
    Operator(
        "diagonal", steps=steps(_emit_diagonal, "aten.diagonal.default", "aten.diagonal_copy.default"),
        restores=restores(called(aten.diagonal.default, "offset", "first", "second"), "diagonal"),
    ),
    Operator("meshgrid", steps=steps(_emit_grid, "aten.meshgrid.default", "aten.meshgrid.indexing")),
    moves("sort", _emit_sort, "default", "stable", restores=restores(_restore_sort, "sort")),
    Operator("argsort", steps=steps(_emit_places, "aten.argsort.default", "aten.argsort.stable")),
    _extreme("max"),
    _extreme("min"),
    moves("amax", _emit_extremes),
    moves("amin", _emit_extremes),
    Operator(
        "topk", ("topk.default",), output=Output.INPUT, integers=_top,
        steps=steps(_emit_top, "top", "aten.topk.default"),
        float_form=by_operator("top", "self", "k", "dim", "largest", gives_floats=False),
    ),
    Operator(
        "pad", ("pad.default", "constant_pad_nd.default"), output=Output.INPUT, integers=_pad, refuses=_pads_numbers,
        steps=(*steps(_emit_pad, "aten.pad.default"), *steps(_emit_constant_pad, "aten.constant_pad_nd.default")),
        restores=restores(_restore_pad, "pad", "pad_from"),
    ),
)  # fmt: skip
