"""What models compute from sizes, on numbers: shapes that are read, taken apart and put together again."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from zeropoint.interop.onnx.imported_value import Constant, Numbers

_WHOLE = torch.int64
_MOST = 4096  # numbers that are computed one by one


def _objects(values: Any) -> Any:
    """An array of objects: numpy would turn sizes that are free into numbers."""
    return np.asarray(values, dtype=object)


def _shape_of(n: Any, x: torch.Tensor) -> Numbers:
    sizes = list(x.shape)[n.attribute("start", 0) : n.attribute("end", None)]
    made = np.empty(len(sizes), dtype=object)
    for place, size in enumerate(sizes):
        made[place] = size
    return Numbers(made, _WHOLE)


def _count_of(n: Any, x: torch.Tensor) -> Numbers:
    made = np.empty((), dtype=object)
    made[()] = math.prod(x.shape)
    return Numbers(made, _WHOLE)


def _elementwise(function: Callable[..., Any], dtype: torch.dtype | None = None) -> Callable[..., Any]:
    def compute(n: Any, *arrays: Any) -> Any:
        if math.prod(np.broadcast_shapes(*(a.shape for a in arrays))) > _MOST:
            return None
        shaped = np.broadcast_arrays(*(_objects(a) for a in arrays))
        made = np.empty(shaped[0].shape, dtype=object)
        for place in np.ndindex(*made.shape):
            made[place] = function(*(a[place] for a in shaped))
        return made, dtype

    return compute


def _divide(a: Any, b: Any) -> Any:
    is_whole = all(isinstance(v, (int, np.integer, torch.SymInt)) for v in (a, b))
    return a // b if is_whole else a / b


def _axes(n: Any, arrays: tuple[Any, ...]) -> list[int]:
    given = arrays[1] if len(arrays) > 1 else n.attribute("axes", [0])
    return [int(axis) for axis in np.asarray(given).reshape(-1)]


def _unsqueeze(n: Any, x: Any, *rest: Any) -> Any:
    axes = _axes(n, (x, *rest))
    rank = x.ndim + len(axes)
    return np.expand_dims(x, tuple(sorted(axis % rank for axis in axes))), None


def _squeeze(n: Any, x: Any, *rest: Any) -> Any:
    given = rest or n.attribute("axes", None) is not None
    return np.squeeze(x, tuple(_axes(n, (x, *rest))) if given else None), None


def _slice(n: Any, x: Any, *rest: Any) -> Any:
    if not rest:
        begins, ends = n.attribute("starts"), n.attribute("ends")
        axes, steps = n.attribute("axes", list(range(len(begins)))), [1] * len(begins)
    else:
        begins, ends, *more = (np.asarray(value).reshape(-1).tolist() for value in rest)
        axes = more[0] if more else list(range(len(begins)))
        steps = more[1] if len(more) > 1 else [1] * len(begins)
    for axis, begin, end, step in zip(axes, begins, ends, steps):
        place = [slice(None)] * x.ndim
        place[int(axis)] = slice(int(begin), None if step < 0 and end < -(2**31) else int(end), int(step))
        x = x[tuple(place)]
    return x, None


def _cast(n: Any, x: Any) -> Any:
    dtype = n.torch_dtype(n.attribute("to"))
    convert: Any = torch.sym_float if dtype.is_floating_point else bool if dtype == torch.bool else torch.sym_int
    made = np.empty(x.shape, dtype=object)
    for place in np.ndindex(*x.shape):
        made[place] = convert(x[place])
    return made, dtype


def _filled(n: Any, shape: Any) -> Any:
    given = n.attribute("value", None)
    value, dtype = (0.0, torch.float32) if given is None else (given.reshape(-1)[0].item(), given.dtype)
    sizes = shape.reshape(-1).tolist()
    if not all(isinstance(size, int) for size in sizes) or int(np.prod(sizes, dtype=np.float64)) > _MOST:
        return None
    made = np.empty(tuple(sizes), dtype=object)
    made.fill(value)
    return made, dtype


def _expand(n: Any, x: Any, shape: Any) -> Any:
    sizes = shape.reshape(-1).tolist()
    if not all(isinstance(size, int) for size in sizes) or int(np.prod(sizes, dtype=np.float64)) > _MOST:
        return None
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(sizes))), None


def _gather(n: Any, x: Any, places: Any) -> Any:
    return np.take(x, places.astype(np.int64), axis=n.attribute("axis", 0)), None


def _concat(n: Any, *arrays: Any) -> Any:
    return np.concatenate([_objects(a) for a in arrays], axis=n.attribute("axis")), None


def _reshape(n: Any, x: Any, shape: Any) -> Any:
    n.without_effect("allowzero")  # numpy fails on what it speaks of
    return x.reshape([int(size) for size in shape.reshape(-1)]), None


def _product(n: Any, x: Any, *rest: Any) -> Any:
    axes = [int(axis) for axis in rest[0].reshape(-1)] if rest else n.attribute("axes", None)
    n.without_effect("axes", "noop_with_empty_axes")
    if (not axes and n.attribute("noop_with_empty_axes", 0)) or (axes and x.ndim != 1):
        return None
    made = np.empty((), dtype=object)
    total: Any = 1
    for value in x.reshape(-1).tolist():
        total = total * value
    made[()] = total
    return made.reshape([1] * x.ndim if n.attribute("keepdims", 1) else ()), None


def _select(condition: Any, a: Any, b: Any) -> Any:
    return a if bool(condition) else b


_BOOL = torch.bool
SIZES: dict[str, Callable[[Any, torch.Tensor], Numbers]] = {"Shape": _shape_of, "Size": _count_of}
KNOWN: dict[str, Callable[..., Any]] = {
    "Add": _elementwise(operator.add), "Sub": _elementwise(operator.sub), "Mul": _elementwise(operator.mul),
    "Div": _elementwise(_divide), "Mod": _elementwise(operator.mod), "Neg": _elementwise(operator.neg),
    "Min": _elementwise(torch.sym_min), "Max": _elementwise(torch.sym_max),
    "Equal": _elementwise(operator.eq, _BOOL), "Less": _elementwise(operator.lt, _BOOL),
    "Greater": _elementwise(operator.gt, _BOOL), "GreaterOrEqual": _elementwise(operator.ge, _BOOL),
    "LessOrEqual": _elementwise(operator.le, _BOOL), "Not": _elementwise(operator.not_, _BOOL),
    "And": _elementwise(lambda a, b: bool(a) and bool(b), _BOOL),
    "Or": _elementwise(lambda a, b: bool(a) or bool(b), _BOOL),
    "Where": _elementwise(_select), "Floor": _elementwise(np.floor), "Ceil": _elementwise(np.ceil),
    "Identity": lambda n, x: (x, None), "Cast": _cast, "Concat": _concat, "Gather": _gather, "Reshape": _reshape,
    "Slice": _slice, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "ConstantOfShape": _filled, "Expand": _expand,
    "ReduceProd": _product,
}  # fmt: skip


def compute(n: Any) -> Numbers | None:
    """What a node gives whose inputs are all known, or None if it is computed with tensors."""
    function = KNOWN.get(n.op_type)
    given = [value for value in n.given if value is not None]
    if function is None or not given or not all(isinstance(value, (Constant, Numbers)) for value in given):
        return None
    if all(isinstance(value, Constant) for value in given) or any(value.array.size > _MOST for value in given):
        return None
    made = function(n, *(value.array for value in given))
    if made is None:
        return None
    n.every()  # it has read them
    array, dtype = made
    last = given[-1] if n.op_type == "Where" else given[0]
    return Numbers(_objects(array), dtype or (last.dtype if isinstance(last, Numbers) else last.tensor.dtype))
