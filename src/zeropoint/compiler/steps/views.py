"""Other views of the same memory, and sizes as numbers."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from zeropoint.compiler.program_builder import Size
from zeropoint.compiler.steps.table import LAST, NUMBERS, row
from zeropoint.operators.node import arguments

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


@row(
    "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default", "aten.clone.default",
    "aten.dropout.default", "aten._assert_tensor_metadata.default",
)  # fmt: skip
def _same(c: Compiler, node: fx.Node) -> str | None:
    """Values never change, so that a copy is the value itself."""
    return c.tensor(node.args[0])


@row("aten.contiguous.default")
def _contiguous(c: Compiler, node: fx.Node) -> str:
    return c.add("contiguous", c.tensor(node.args[0]))


@row("aten.reshape.default", "aten.view.default")
def _reshape(c: Compiler, node: fx.Node) -> str:
    return c.add("reshape", c.tensor(node.args[0]), shape=c.sizes(node.args[1]))


@row("aten.flatten.using_ints", "aten.ravel.default")
def _flatten(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("flatten", c.tensor(node.args[0]), first=a.get("start_dim", 0), last=a.get("end_dim", -1))


@row("aten.unflatten.int")
def _unflatten(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("unflatten", c.tensor(node.args[0]), axis=a["dim"], shape=c.sizes(a["sizes"]))


@row("aten.unsqueeze.default")
def _unsqueeze(c: Compiler, node: fx.Node) -> str:
    return c.add("unsqueeze", c.tensor(node.args[0]), axis=arguments(node)["dim"])


@row("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def _squeeze(c: Compiler, node: fx.Node) -> str:
    axes = arguments(node).get("dim")
    given = {} if axes is None else {"axes": list(axes) if isinstance(axes, (list, tuple)) else [axes]}
    return c.add("squeeze", c.tensor(node.args[0]), **given)


@row("aten.permute.default")
def _permute(c: Compiler, node: fx.Node) -> str:
    return c.add("permute", c.tensor(node.args[0]), order=list(arguments(node)["dims"]))


@row("aten.movedim.int", "aten.movedim.intlist", "aten.moveaxis.int", "aten.moveaxis.intlist")
def _movedim(c: Compiler, node: fx.Node) -> str:
    rank = c.rank(node.args[0])
    numbered = torch.empty([1] * rank).as_strided([1] * rank, list(range(rank)))  # strides that are the axes' numbers
    moved = torch.movedim(numbered, *node.args[1:])
    return c.add("permute", c.tensor(node.args[0]), order=list(moved.stride()))


@row("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default")
def _transpose(c: Compiler, node: fx.Node) -> str:
    return c.add("transpose", c.tensor(node.args[0]), first=node.args[1], second=node.args[2])


@row("aten.t.default", "aten.numpy_T.default", "aten.mT.default")
def _turned(c: Compiler, node: fx.Node) -> str:
    rank = c.rank(node.args[0])
    order = list(range(rank))
    order = order[:-2] + order[-2:][::-1] if "mT" in str(node.target) else order[::-1]
    return c.add("permute", c.tensor(node.args[0]), order=order)


@row("aten.slice.Tensor")
def _slice(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    begin, end = (d if a[k] is None else c.size(a[k]) for k, d in (("start", 0), ("end", LAST)))
    end = end if isinstance(end, str) else min(end, LAST)
    return c.add("slice", c.tensor(node.args[0]), axis=a["dim"], begin=begin, end=end, step=a["step"])


@row("aten.narrow.default")
def _narrow(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    begin, length = c.size(a["start"]), c.size(a["length"])
    known = isinstance(begin, int) and isinstance(length, int)
    end = begin + length if known else c.number("add", begin, length)
    return c.add("slice", c.tensor(node.args[0]), axis=a["dim"], begin=begin, end=end, step=1)


@row("aten.select.int")
def _select(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("select", c.tensor(node.args[0]), axis=a["dim"], index=c.size(a["index"]))


@row("aten.chunk.default", "aten.unsafe_chunk.default")
def _chunk(c: Compiler, node: fx.Node) -> list[str]:
    a = arguments(node)
    size = c.number("add", c.axis_size(node.args[0], a["dim"]), int(a["chunks"]) - 1)
    return _pieces(c, node, a["dim"], c.number("floor_divide", size, int(a["chunks"])))


@row("aten.split.Tensor")
def _split(c: Compiler, node: fx.Node) -> list[str]:
    a = arguments(node)
    return _pieces(c, node, a["dim"], c.size(a["split_size"]))


def _pieces(c: Compiler, node: fx.Node, axis: int, each: Any) -> list[str]:
    """As many pieces of `each` along an axis as the example had."""
    x, pieces = c.tensor(node.args[0]), []
    for i in range(len(c.found[node])):
        begin, end = (c.number("multiply", each, n) for n in (i, i + 1))
        pieces.append(c.add("slice", x, axis=axis, begin=begin, end=end, step=1))
    return pieces


@row("aten.split_with_sizes.default")
def _split_with_sizes(c: Compiler, node: fx.Node) -> list[str]:
    a = arguments(node)
    x, begin, pieces = c.tensor(node.args[0]), 0, []
    for size in c.sizes(a["split_sizes"]):
        end = c.number("add", begin, size)
        pieces.append(c.add("slice", x, axis=a["dim"], begin=begin, end=end, step=1))
        begin = end
    return pieces


@row("aten.tensor_split.sections")
def _sections(c: Compiler, node: fx.Node) -> list[str]:
    """Parts of nearly the same size; the first ones have one more where they cannot be the same."""
    a = arguments(node)
    x, begin, pieces = c.tensor(node.args[0]), 0, []
    for i in range(len(c.found[node])):
        more = c.number("add", c.axis_size(node.args[0], a["dim"]), len(c.found[node]) - i - 1)
        end = c.number("add", begin, c.number("floor_divide", more, len(c.found[node])))
        pieces.append(c.add("slice", x, axis=a["dim"], begin=begin, end=end, step=1))
        begin = end
    return pieces


@row("aten.unbind.int")
def _unbind(c: Compiler, node: fx.Node) -> list[str]:
    x = c.tensor(node.args[0])
    return [c.add("select", x, axis=arguments(node)["dim"], index=i) for i in range(len(c.found[node]))]


@row("aten.expand_as.default", "aten.reshape_as.default")
def _as(c: Compiler, node: fx.Node) -> str:
    op = "expand" if "expand" in str(node.target) else "reshape"
    return c.add(op, c.tensor(node.args[0]), shape=[c.axis_size(node.args[1], d) for d in range(c.rank(node.args[1]))])


@row("aten.expand.default", "aten.broadcast_to.default")
def _expand(c: Compiler, node: fx.Node) -> str:
    return c.add("expand", c.tensor(node.args[0]), shape=c.sizes(node.args[1]))


@row("aten.sym_numel.default")
def _numel(c: Compiler, node: fx.Node) -> Any:
    return c.number_of_elements(node.args[0])


@row("aten.sym_size.int")
def _size(c: Compiler, node: fx.Node) -> Size:
    return Size(c.add("size", c.tensor(node.args[0]), axis=node.args[1]))


@row(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
def _arithmetic(c: Compiler, node: fx.Node) -> Any:
    a, b = node.args
    if node.target is operator.mul and isinstance(b, float):
        return c.number("scaled", c.size(a), b)
    name = next(name for name, function in NUMBERS.items() if function is node.target)
    return c.number(name, c.size(a), c.size(b))


@row(torch.sym_int, math.trunc, math.floor)
def _whole(c: Compiler, node: fx.Node) -> Any:
    """What is cut off is cut off by the product before it."""
    return c.size(node.args[0])


@row(torch.sym_float)
def _scaled(c: Compiler, node: fx.Node) -> Any:
    """A number on its way to a product with a factor, of which the whole part is taken."""
    products = [user for user in node.users if user.target is operator.mul and isinstance(user.args[1], float)]
    readers = [reader for product in products for reader in product.users]
    if len(products) != len(node.users) or any(
        r.target not in (torch.sym_int, math.trunc, math.floor) for r in readers
    ):
        raise c.unsupported("sizes are whole numbers")
    return c.size(node.args[0])
