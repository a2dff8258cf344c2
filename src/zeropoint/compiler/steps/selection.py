"""Operators that choose elements by indices, in their order, or from the other side of an edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from zeropoint.compiler.steps.table import dtype_name, ours, row
from zeropoint.operators.node import arguments

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


@row("aten.gather.default")
def _gather(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if c.rank(node.args[0]) == 0:
        raise c.unsupported("a number has no axis")
    return c.add("gather", c.tensor(node.args[0]), c.tensor(a["index"]), axis=a["dim"])


@row("aten.index.Tensor")
def _index(c: Compiler, node: fx.Node) -> str:
    """Axes that are indexed come together, at the front if they are not neighbours."""
    x, given = c.tensor(node.args[0]), arguments(node)["indices"]
    axes = [axis for axis, index in enumerate(given) if index is not None]
    for axis in axes:
        if c.dtype(given[axis]) not in (torch.int64, torch.int32):
            raise c.unsupported(f"indices of {dtype_name(c.dtype(given[axis]))} have no step")
    indices = [c.add("convert", c.tensor(given[axis]), dtype="int64") for axis in axes]
    first = axes[0]
    if axes != list(range(first, first + len(axes))):
        order = axes + [axis for axis in range(c.rank(node.args[0])) if axis not in axes]
        x, first = c.add("permute", x, order=order), 0
    return c.add("index", x, *indices, axis=first)


def _sorted(c: Compiler, node: fx.Node, axis: int, descending: bool) -> list[str]:
    dtypes = (torch.uint8, torch.int8, torch.bool, torch.int32, torch.int64, torch.float32)
    if c.dtype(node.args[0]) not in dtypes:
        raise c.unsupported(f"values of {dtype_name(c.dtype(node.args[0]))} have no step")
    names = [f"{node}", f"{node}_index"]
    return c.builder.add_several("sort", [c.tensor(node.args[0])], names, axis=axis, descending=descending)


@row("aten.sort.default", "aten.sort.stable")
def _sort(c: Compiler, node: fx.Node) -> list[str]:
    a = arguments(node)
    return _sorted(c, node, a["dim"], bool(a["descending"]))


@row(*ours("top"))
def _top(c: Compiler, node: fx.Node) -> list[str]:
    a = arguments(node)
    made: list[Any] = _sorted(c, node, a["dim"], a["largest"])
    return [c.add("slice", part, axis=a["dim"], begin=0, end=c.size(a["k"]), step=1) for part in made]


@row("aten.pad.default")
def _pad(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    pads = c.sizes(a["pad"])
    if a["mode"] == "constant":
        return c.add("pad", c.tensor(node.args[0]), pads=pads, value=a["value"] or 0)
    return c.add("pad_from", c.tensor(node.args[0]), pads=pads, mode=a["mode"])
