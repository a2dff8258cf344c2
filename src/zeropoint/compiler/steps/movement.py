"""Operators that move, repeat or choose elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import fx

from zeropoint.compiler.steps.table import LAST, row
from zeropoint.operators.node import arguments

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


@row("aten.flip.default")
def _flip(c: Compiler, node: fx.Node) -> str:
    return c.add("flip", c.tensor(node.args[0]), axes=list(arguments(node)["dims"]))


@row("aten.roll.default")
def _roll(c: Compiler, node: fx.Node) -> str:
    """What falls off at the end comes back at the beginning."""
    a = arguments(node)
    x, axes = str(c.tensor(node.args[0])), list(a["dims"])
    if not axes:
        x, axes = c.add("flatten", x, first=0, last=-1), [0]
    for shift, axis in zip(a["shifts"], axes):
        size = c.axis_size(node.args[0], axis) if a["dims"] else c.number_of_elements(node.args[0])
        left = c.number("modulo", c.number("subtract", 0, shift), size)
        head = c.add("slice", x, axis=axis, begin=left, end=LAST, step=1)
        tail = c.add("slice", x, axis=axis, begin=0, end=left, step=1)
        x = c.add("cat", head, tail, None, None, None, None, axis=axis)
    if not a["dims"]:
        sizes = [c.axis_size(node.args[0], d) for d in range(c.rank(node.args[0]))]
        x = c.add("reshape", x, shape=sizes)
    return x


@row("aten.repeat.default", "aten.tile.default")
def _repeat(c: Compiler, node: fx.Node) -> str:
    times = c.sizes(node.args[1])
    return c.add("repeat", c.tensor(node.args[0]), repeats=[1] * (c.rank(node.args[0]) - len(times)) + times)


@row("aten.pixel_shuffle.default", "aten.pixel_unshuffle.default")
def _pixel_shuffle(c: Compiler, node: fx.Node) -> str:
    op = "pixel_unshuffle" if "unshuffle" in str(node.target) else "pixel_shuffle"
    return c.add(op, c.tensor(node.args[0]), factor=int(node.args[1]))


@row("aten.channel_shuffle.default")
def _channel_shuffle(c: Compiler, node: fx.Node) -> str:
    split = c.add("unflatten", c.tensor(node.args[0]), axis=1, shape=[int(node.args[1]), -1])
    return c.add("flatten", c.add("transpose", split, first=1, second=2), first=1, last=2)


@row("aten.constant_pad_nd.default")
def _pad(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("pad", c.tensor(node.args[0]), pads=c.sizes(a["pad"]), value=a["value"])


@row("aten.repeat_interleave.self_int")
def _repeat_interleave(c: Compiler, node: fx.Node) -> str:
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


@row("aten.rot90.default")
def _rotate(c: Compiler, node: fx.Node) -> str | None:
    a = arguments(node)
    first, second = a["dims"]
    x, turns = c.tensor(node.args[0]), a["k"] % 4
    if turns == 0:
        return x
    flipped = c.add("flip", x, axes={1: [second], 2: [first, second], 3: [first]}[turns])
    return flipped if turns == 2 else c.add("transpose", flipped, first=first, second=second)


@row("aten.index_select.default")
def _index_select(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("index_select", c.tensor(node.args[0]), c.tensor(a["index"]), axis=a["dim"])


@row("aten.max.dim", "aten.min.dim")
def _extreme(c: Compiler, node: fx.Node) -> list[str]:
    a = arguments(node)
    numbers = {"axis": a["dim"], "keepdim": a["keepdim"], "largest": "max" in str(node.target)}
    return c.builder.add_several("extreme", [c.tensor(node.args[0])], [f"{node}", f"{node}_index"], **numbers)


@row("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def _extremes(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    x, largest = str(c.tensor(node.args[0])), "max" in str(node.target)
    rank = c.rank(node.args[0])
    axes = sorted({axis % rank for axis in a.get("dim") or range(rank)}, reverse=True) if rank else []
    for axis in axes:  # the last one first, so that the others keep their numbers
        numbers = {"axis": axis, "keepdim": bool(a.get("keepdim")), "largest": largest}
        x, _ = c.builder.add_several("extreme", [x], [f"{node}", f"{node}_index"], **numbers)
    return x
