"""Pools, means and norms over axes of float32 tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx

from zeropoint.compiler.steps.table import ours, row
from zeropoint.operators.node import arguments, each

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


@row(*(f"aten.max_pool{d}d.default" for d in (1, 2, 3)), *ours(*(f"float_avg_pool{d}d" for d in (1, 2, 3))))
def _windows(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if c.dtype(node) != torch.float32:
        raise c.unsupported("it is a step on float32 only")
    largest = "max" in str(node.target)
    dims = int(str(node.target).split("pool")[1][0])
    kernel = each(a["kernel_size"], dims)
    stride = each(a["stride"], dims) if a["stride"] else kernel
    numbers = {"spatial": dims, "kernel": kernel, "stride": stride, "padding": each(a["padding"], dims)}
    if largest:
        numbers["dilation"] = each(a["dilation"], dims)
    else:
        numbers |= {"count_include_pad": a["count_include_pad"], "divisor": a["divisor_override"] or 0}
    op = "float_max_pool" if largest else "float_average_pool"
    return c.add(op, c.tensor(node.args[0]), ceil_mode=a["ceil_mode"], **numbers)


@row(*ours(*(f"float_adaptive_avg_pool{d}d" for d in (1, 2, 3))))
def _adaptive(c: Compiler, node: fx.Node) -> str:
    dims = int(str(node.target).split("pool")[1][0])
    size = c.sizes(each(node.args[1], dims))
    return c.add("float_adaptive_average_pool", c.tensor(node.args[0]), spatial=dims, output_size=size)


@row(*ours("float_mean", "float_sum"))
def _mean(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    op = str(node.target).split(".")[1]
    return c.add(op, c.tensor(a["input"]), axes=list(a["dim"] or ()), keepdim=bool(a["keepdim"]))


@row(*ours("float_norm"))
def _norm(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    x, rank = c.tensor(a["input"]), c.rank(a["input"])
    axes = [axis % max(rank, 1) for axis in a["dim"] or ()]
    if len(axes) != 1 or rank < 1:
        raise c.unsupported("it is a step over one axis only")
    if axes[0] == rank - 1:
        return c.add("float_norm", x, keepdim=bool(a["keepdim"]))
    order = [axis for axis in range(rank) if axis != axes[0]] + axes
    y = c.add("float_norm", c.add("permute", x, order=order), keepdim=False)
    return c.add("unsqueeze", y, axis=axes[0]) if a["keepdim"] else y
