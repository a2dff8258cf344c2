"""im2col and col2im, pools with indices, and non-maximum suppression: operators that programs compute in float."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from zeropoint.operators.creation import filled
from zeropoint.operators.node import arguments
from zeropoint.operators.record import Operator
from zeropoint.operators.steps import GraphBuilder, ProgramStep, StepBuilder, called, restores, steps


def _emit_columns(c: StepBuilder, node: fx.Node) -> str:
    """Windows of images as columns, (N, C * kernel, places)."""
    a = arguments(node)
    if list(a["dilation"]) != [1, 1] or c.rank(node.args[0]) != 4:
        raise c.unsupported("only (N, C, H, W) without dilation is supported")
    (up, left), x = a["padding"], c.tensor(node.args[0])
    if up or left:
        x = c.add("pad", x, pads=[left, left, up, up], value=0)
    for axis, length, step in zip((2, 3), a["kernel_size"], a["stride"]):
        x = c.add("unfold", x, axis=axis, length=length, step=step)
    windows = c.add("permute", x, order=[0, 1, 4, 5, 2, 3])
    return c.add("flatten", c.add("flatten", windows, first=4, last=5), first=1, last=3)


def _windows(c: StepBuilder, a: dict[str, Any]) -> dict[str, Any]:
    """Kernel, stride, padding and dilation along both axes."""

    def two(values: Any) -> list[int]:
        if any(isinstance(v, fx.Node) for v in values):
            raise c.unsupported("its windows depend on input sizes")
        return [int(v) for v in (values if len(values) == 2 else [*values] * 2)]

    stride = a["stride"] or a["kernel_size"]
    given = {"kernel": a["kernel_size"], "stride": stride, "padding": a["padding"], "dilation": a["dilation"]}
    return {name: two(values) for name, values in given.items()}


def _emit_fold(c: StepBuilder, node: fx.Node) -> str:
    """Columns of windows added up to images again."""
    a, x = arguments(node), c.tensor(node.args[0])
    if c.dtype(node.args[0]) != torch.float32:
        raise c.unsupported("only float32 is supported")
    is_single = c.rank(node.args[0]) == 2
    if is_single:
        x = c.add("unsqueeze", x, axis=0)
    y = c.add("fold", x, shape=c.sizes(a["output_size"]), **_windows(c, a))
    return c.add("squeeze", y, axes=[0]) if is_single else y


def _emit_pool_with_places(c: StepBuilder, node: fx.Node) -> list[str]:
    a = arguments(node)
    if c.dtype(node.args[0]) != torch.float32 or c.rank(node.args[0]) != 4:
        raise c.unsupported("with indices, only float32 (N, C, H, W) is supported")
    names = [str(node), f"{node}_places"]
    options = {"ceil_mode": bool(a["ceil_mode"]), **_windows(c, a)}
    return c.builder.add_several("max_pool_places", [c.tensor(node.args[0])], names, **options)


def _emit_unpool(c: StepBuilder, node: fx.Node) -> str:
    """Values at the places that a pool has named, zeros elsewhere."""
    a, rank = arguments(node), c.rank(node.args[0])
    height, width = c.sizes(a["output_size"])
    front = [c.axis_size(node.args[0], axis) for axis in range(rank - 2)]
    zeros = filled(c, [*front, c.number("multiply", height, width)], c.dtype(node), 0)
    x, index = (c.add("flatten", c.tensor(a[name]), first=rank - 2, last=rank - 1) for name in ("self", "indices"))
    return c.add("reshape", c.add("scatter", zeros, index, x, axis=-1, mode="set"), shape=[*front, height, width])


def _emit_nms(c: StepBuilder, node: fx.Node) -> list[str]:
    a = arguments(node)
    options = {"iou_threshold": float(a["iou_threshold"]), "max_output": c.size(a["max_output"])}
    inputs = [c.tensor(a[name]) for name in ("boxes", "scores", "labels")]
    return c.builder.add_several("nms", inputs, [str(node), f"{node}_count"], **options)


def _restore_pool_with_places(r: GraphBuilder, step: ProgramStep) -> list[fx.Node]:
    a = step.attributes
    options = (a[k] for k in ("kernel", "stride", "padding", "dilation", "ceil_mode"))
    made = r.call(torch.ops.aten.max_pool2d_with_indices.default, r.tensor(step.inputs[0]), *options)
    return [r.call(operator.getitem, made, i) for i in (0, 1)]


def _restore_nms(r: GraphBuilder, step: ProgramStep) -> list[fx.Node]:
    a = step.attributes
    boxes, scores, labels = (r.tensor(name) for name in step.inputs)
    made = r.call(torch.ops.zeropoint.nms.default, boxes, scores, a["iou_threshold"], r.size(a["max_output"]), labels)
    return [r.call(operator.getitem, made, i) for i in (0, 1)]


RECORDS = (
    Operator(
        "col2im", steps=steps(_emit_fold, "aten.col2im.default"),
        restores=restores(
            called(torch.ops.aten.col2im.default, "shape", "kernel", "dilation", "padding", "stride"), "fold"
        ),
    ),
    Operator(
        "max_pool_places", steps=steps(_emit_pool_with_places, "aten.max_pool2d_with_indices.default"),
        restores=restores(_restore_pool_with_places, "max_pool_places"),
    ),
    Operator("max_unpool", steps=steps(_emit_unpool, "aten.max_unpool2d.default")),
    Operator("nms", steps=steps(_emit_nms, "nms"), restores=restores(_restore_nms, "nms")),
    Operator("im2col", steps=steps(_emit_columns, "aten.im2col.default")),
)  # fmt: skip
