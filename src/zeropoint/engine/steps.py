"""THE table from operators of graphs to steps of programs. One row makes the steps of one operator, or of its family.

What a step computes, and the numbers it takes, is in native/engine/steps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from zeropoint.engine.draft import Size
from zeropoint.graph.fx.plain import arguments
from zeropoint.numerics import functions
from zeropoint.numerics.functions import FUNCTIONS, Step
from zeropoint.ops import checks
from zeropoint.ops.geometry import three

if TYPE_CHECKING:
    from zeropoint.engine.compiler import Compiler

__all__ = ["ROWS", "Unsupported"]

Row = Callable[["Compiler", fx.Node], Any]
ROWS: dict[Any, Row] = {}
_LAST = 2**62  # beyond the end of every axis


class Unsupported(NotImplementedError):
    """An operator that no step computes."""


def row(*names: Any) -> Callable[[Row], Row]:
    """Enters a function into the table, for these operators."""

    def enter(function: Row) -> Row:
        for name in names:
            assert name not in ROWS, name
            ROWS[name] = function
        return function

    return enter


def _ours(*names: str) -> list[str]:
    return [f"zeropoint.{name}.default" for name in names]


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ------------------------------------------------------------------------------------------------------------ borders


@row(*_ours("quantize_per_tensor"))
def _quantize(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    bounds = {"low": a["quant_min"], "high": a["quant_max"]}
    parameters = {"scale": float(a["scale"]), "zero_point": a["zero_point"], "dtype": _dtype(a["dtype"])}
    return c.add("quantize", c.tensor(a["input"]), **parameters, **bounds)


@row(*_ours("dequantize_per_tensor"))
def _dequantize(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("dequantize", c.tensor(a["input"]), scale=float(a["scale"]), zero_point=a["zero_point"])


# ------------------------------------------------------------------------------------------------------------- layers


def _result(c: Compiler, a: dict[str, Any], relu: bool, dtype: torch.dtype) -> dict[str, Any]:
    """The numbers of a layer's result."""
    if dtype == torch.float32:
        return {"dtype": "float32", "relu": relu}
    low, high = checks.bounds(dtype)
    zero_point = int(a["zero_point"])
    low = max(low, min(zero_point, high)) if relu else low
    return {"dtype": _dtype(dtype), "scale": float(a["scale"]), "zero_point": zero_point, "low": low, "high": high}


def _stored(c: Compiler, a: dict[str, Any], weight: Tensor, repeat: int = 1) -> list[str | None]:
    """The constants of a layer: its weight with the output channels first, scales, zero points, bias or None."""
    name = str(a["weight"].target)
    scale, zero_point = (c.parameter(a[f"weight_{k}"]).reshape(-1) for k in ("scale", "zero_point"))
    if repeat > 1:  # scales of transposed convolutions lie along the outputs of one group
        scale, zero_point = (
            t.repeat(repeat) if t.numel() * repeat == weight.shape[0] else t for t in (scale, zero_point)
        )
    bias = None if a["bias"] is None else c.draft.constant(str(a["bias"].target), c.parameter(a["bias"]).float())
    return [
        c.draft.constant(name, weight),
        c.draft.constant(f"{name}_scale", scale.float()),
        c.draft.constant(f"{name}_zero_point", zero_point.to(torch.int32)),
        bias,
    ]


def _layer(c: Compiler, node: fx.Node, op: str, weight: Tensor, repeat: int = 1, **numbers: Any) -> str:
    """A step of a layer, on integers or, if it is dynamic, on floats."""
    a = arguments(node)
    x, stored, relu = c.tensor(a["input"]), _stored(c, a, weight, repeat), "_relu" in str(node.target)
    numbers |= {"weight_dtype": _dtype(weight.dtype)}
    if "_dynamic" in str(node.target):
        numbers |= {k: bool(a[k]) for k in ("reduce_range", "per_token") if k in a}
        numbers |= {"relu": relu} if op == "linear" else {}
        return c.add(f"{op}_dynamic", x, *stored, **numbers)
    numbers |= {"input_scale": float(a["input_scale"]), "input_zero_point": int(a["input_zero_point"])}
    return c.add(op, x, *stored, None, **numbers, **_result(c, a, relu, c.dtype(node)))


@row(*_ours("linear", "linear_relu", "linear_to_float", "linear_dynamic", "linear_relu_dynamic"))
def _linear(c: Compiler, node: fx.Node) -> str:
    return _layer(c, node, "linear", c.parameter(arguments(node)["weight"]))


def _spatial(values: Any, missing: int, dims: int) -> list[int]:
    return list(three([int(v) for v in values], missing, dims))


@row(*_ours(*(f"conv{d}d{kind}" for d in (1, 2, 3) for kind in ("", "_relu", "_dynamic"))))
@row(*_ours(*(f"conv_transpose{d}d{kind}" for d in (1, 2, 3) for kind in ("", "_dynamic"))))
def _conv(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    weight, groups = c.parameter(a["weight"]), int(a["groups"])
    dims = weight.dim() - 2
    transposed = "output_padding" in a
    if transposed:  # (in, out / groups, ...) -> (out, in / groups, ...)
        inputs, each, *kernel = weight.shape
        weight = weight.reshape(groups, inputs // groups, each, *kernel).transpose(1, 2)
        weight = weight.reshape(groups * each, inputs // groups, *kernel)
    stored = weight.reshape(*weight.shape[:2], *[1] * (3 - dims), *weight.shape[2:]).movedim(1, -1)
    return _layer(
        c, node, "conv", stored, groups if transposed else 1,
        spatial=dims, groups=groups, transposed=transposed,
        stride=_spatial(a["stride"], 1, dims), padding=_spatial(a["padding"], 0, dims),
        dilation=_spatial(a["dilation"], 1, dims),
        output_padding=_spatial(a["output_padding"] if transposed else [0], 0, dims),
    )  # fmt: skip


# -------------------------------------------------------------------------------------------- functions of one value


@row(
    *_ours(*(name for name in FUNCTIONS if name not in ("same", "scaled"))),
    *_ours("celu", "relu6", "add_scalar", "add_scalar_relu", "mul_scalar", "mul_scalar_relu"),
    "aten.clamp_min.default", "aten.clamp_max.default", "aten.clamp.default", "aten.relu.default",
)  # fmt: skip
def _function(c: Compiler, node: fx.Node) -> str:
    """Any function of bytes: its results for all 256 of them."""
    x = node.args[0]
    dtype = c.dtype(x)
    if dtype == torch.float32 and node.target.namespace == "aten":
        return _clamped(c, node)
    if dtype not in (torch.uint8, torch.int8):
        raise c.unsupported(f"it is a step on uint8 and int8 only, not on {_dtype(dtype)}")
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    results = node.target(every, *node.args[1:], **node.kwargs)
    table = c.draft.constant(f"{node}_table", results.view(torch.uint8))
    return c.add("lookup", c.tensor(x), table, dtype=_dtype(results.dtype))


def _clamped(c: Compiler, node: fx.Node) -> str:
    """Floats between two bounds, of which one may be missing."""
    a = arguments(node)
    low = 0.0 if "relu" in str(node.target) else a.get("min")
    bounds = {k: float(v) for k, v in (("low", low), ("high", a.get("max"))) if v is not None}
    return c.add("float_clamp", c.tensor(node.args[0]), **bounds)


# ------------------------------------------------------------------------------------------------------ several values


@row(*_ours("add", "add_relu", "mul", "mul_relu"))
def _binary(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    op = "add" if "zeropoint.add" in str(node.target) else "multiply"
    scales = {k: float(a[k]) for k in ("a_scale", "b_scale", "scale")}
    zero_points = {k: int(a[k]) for k in ("a_zero_point", "b_zero_point", "zero_point")}
    return c.add(op, c.tensor(a["a"]), c.tensor(a["b"]), **scales, **zero_points, relu="_relu" in str(node.target))


@row(*_ours("cat", "cat_relu"))
def _cat(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    dtype = c.dtype(node)
    low, high = checks.bounds(dtype)
    scale, zero_point = float(a["scale"]), int(a["zero_point"])
    least = max(low, zero_point) if "_relu" in str(node.target) else low

    def table(piece: tuple[float, int], function: str) -> str | None:
        if piece == (scale, zero_point) and least == low:
            return None
        step = Step(*piece, scale, zero_point, least, high)
        return c.draft.constant(f"{node}_table", functions.table_of(function, (), step, dtype, dtype))

    pieces = [(float(s), int(z)) for s, z in zip(a["scales"], a["zero_points"])]
    tables = [table(piece, function) for function in ("requantize", "same") for piece in pieces]
    return c.add("cat", *(c.tensor(t) for t in a["inputs"]), *tables, axis=a["dim"])


# ------------------------------------------------------------------------------------------------------------ pooling


def _each(values: Any, dims: int) -> list[int]:
    values = [int(v) for v in values]
    return values * dims if len(values) == 1 else values


@row(*_ours("stored_max_pool"))
def _max_pool(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    dims = int(a["spatial"])
    windows = {k: _each(a[k], dims) for k in ("kernel", "stride", "padding", "dilation")}
    return c.add("max_pool", c.tensor(a["q"]), spatial=dims, ceil_mode=a["ceil_mode"], **windows)


@row(*_ours("stored_average_pool"))
def _average_pool(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    dims = int(a["spatial"])
    windows = {k: _each(a[k], dims) for k in ("kernel", "stride", "padding")}
    options = {"ceil_mode": a["ceil_mode"], "count_include_pad": a["count_include_pad"]}
    numbers = {"divisor": a["divisor_override"] or 0, "zero_point": int(a["zero_point"])}
    return c.add("average_pool", c.tensor(a["q"]), spatial=dims, **windows, **options, **numbers)


@row(*_ours("stored_adaptive_average_pool"))
def _adaptive_average_pool(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    size = [int(n) for n in a["output_size"]]
    numbers = {"spatial": len(size), "output_size": size, "zero_point": int(a["zero_point"])}
    return c.add("adaptive_average_pool", c.tensor(a["q"]), **numbers)


@row(*_ours("stored_mean_over"))
def _mean(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    numbers = {"axes": list(a["axes"]), "scale": float(a["scale"]), "zero_point": int(a["zero_point"])}
    return c.add("mean", c.tensor(a["q"]), keepdim=a["keepdim"], **numbers)


# -------------------------------------------------------------------------------------------------------------- views


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
    begin, end = (d if a[k] is None else c.size(a[k]) for k, d in (("start", 0), ("end", _LAST)))
    end = end if isinstance(end, str) else min(end, _LAST)
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


@row("aten.expand.default")
def _expand(c: Compiler, node: fx.Node) -> str:
    return c.add("expand", c.tensor(node.args[0]), shape=c.sizes(node.args[1]))


# -------------------------------------------------------------------------------------------------------------- sizes


@row("aten.sym_size.int")
def _size(c: Compiler, node: fx.Node) -> Size:
    return Size(c.add("size", c.tensor(node.args[0]), axis=node.args[1]))


@row(operator.add, operator.sub, operator.mul, operator.floordiv)
def _arithmetic(c: Compiler, node: fx.Node) -> Any:
    a, b = node.args
    if node.target is operator.mul and isinstance(b, float):
        return c.number("scaled", c.size(a), b)
    names = {operator.add: "add", operator.sub: "subtract", operator.mul: "multiply", operator.floordiv: "floor_divide"}
    return c.number(names[node.target], c.size(a), c.size(b))


@row(torch.sym_int)
def _whole(c: Compiler, node: fx.Node) -> Any:
    return c.size(node.args[0])
