"""Tensors of known values, other dtypes, counting."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.operators.elementwise import overloads
from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes

__all__ = ["FORMS"]

_I64 = torch.int64


def _write_convert(w: OnnxWriter, node: fx.Node) -> Any:
    return w.convert(w.floats(node.args[0]), w.dtype(node))


def _scalar(w: OnnxWriter, value: Any, dtype: torch.dtype = _I64) -> Any:
    """A number, or a size, without axes."""
    if isinstance(value, fx.Node):
        return w.convert(w.op("Squeeze", w.tensor(value), w.ints([0])), dtype)
    return w.number(value, dtype)


def _filled(w: OnnxWriter, shape: Any, value: Any, dtype: torch.dtype) -> Any:
    return w.op("Expand", _scalar(w, value, dtype), shape)


def _value_of(node: fx.Node) -> Any:
    a, name = arguments(node), str(node.target)
    if "scalar_tensor" in name:
        return a["s"]
    return a["fill_value"] if "full" in name else int("ones" in name)


def _write_filled(w: OnnxWriter, node: fx.Node) -> Any:
    return _filled(w, w.ints(list(arguments(node).get("size", []))), _value_of(node), w.dtype(node))


def _write_filled_like(w: OnnxWriter, node: fx.Node) -> Any:
    return _filled(w, w.op("Shape", w.tensor(node.args[0])), _value_of(node), w.dtype(node))


def _write_range(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    kind = torch.float32 if w.dtype(node).is_floating_point else _I64
    numbers = (_scalar(w, a.get(k, d), kind) for k, d in (("start", 0), ("end", 0), ("step", 1)))
    return w.convert(w.op("Range", *numbers), w.dtype(node))


def _write_cumulative_sum(w: OnnxWriter, node: fx.Node) -> Any:
    x = w.convert(w.floats(node.args[0]), w.dtype(node))
    return w.op("CumSum", x, w.number(arguments(node)["dim"], _I64))


def _write_triangle(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    return w.op("Trilu", w.tensor(node.args[0]), _scalar(w, a["diagonal"]), upper=int("triu" in str(node.target)))


def _write_same(w: OnnxWriter, node: fx.Node) -> Any:
    return w.tensor(node.args[0])


# ------------------------------------------------------------------------------------------------------------- reading


def _read_cast(r: OnnxReader, n: ReadNode) -> Any:
    return r.tensor(n.inputs[0]).to(r.torch_dtype(n.attribute("to")))


def _read_cast_like(r: OnnxReader, n: ReadNode) -> Any:
    return r.tensor(n.inputs[0]).to(r.dtype(n.inputs[1]))


def _read_filled(r: OnnxReader, n: ReadNode) -> Any:
    given = n.attribute("value", None)
    value, dtype = (0.0, torch.float32) if given is None else (given.reshape(-1)[0].item(), given.dtype)
    return torch.full(r.numbers(n.inputs[0]), value, dtype=dtype)


def _read_range(r: OnnxReader, n: ReadNode) -> Any:
    return torch.arange(*(r.number(value) for value in n.inputs), dtype=r.dtype(n.inputs[0]))


def _read_cumulative_sum(r: OnnxReader, n: ReadNode) -> Any:
    if n.attribute("exclusive", 0) or n.attribute("reverse", 0):
        raise r.unsupported("exclusive and reverse are not supported")
    return torch.cumsum(r.tensor(n.inputs[0]), int(r.number(n.inputs[1])))


def _read_triangle(r: OnnxReader, n: ReadNode) -> Any:
    k = int(r.number(n.inputs[1])) if len(n.inputs) > 1 and n.inputs[1] is not None else 0
    return (torch.triu if n.attribute("upper", 1) else torch.tril)(r.tensor(n.inputs[0]), k)


_CREATED = tuple(f"aten.{name}.default" for name in ("zeros", "ones", "full", "new_zeros", "new_ones", "new_full"))
FORMS = {
    "to": OnnxForms(
        writes(_write_convert, overloads("to", "_to_copy", "type_as")),
        (*reads(_read_cast, "Cast"), *reads(_read_cast_like, "CastLike")),
    ),
    "cumsum": OnnxForms(writes(_write_cumulative_sum, "aten.cumsum.default"), reads(_read_cumulative_sum, "CumSum")),
    "arange": OnnxForms(
        writes(_write_range, *(f"aten.arange.{k}" for k in ("default", "start", "start_step"))),
        reads(_read_range, "Range"),
    ),
    "full": OnnxForms(
        writes(_write_filled, *_CREATED, "aten.scalar_tensor.default"), reads(_read_filled, "ConstantOfShape")
    ),
    "full_like": OnnxForms(
        writes(_write_filled_like, *(f"aten.{name}_like.default" for name in ("zeros", "ones", "full")))
    ),
    "triangle": OnnxForms(
        writes(_write_triangle, "aten.tril.default", "aten.triu.default"), reads(_read_triangle, "Trilu")
    ),
    "assert_metadata": OnnxForms(writes(_write_same, "aten._assert_tensor_metadata.default")),
}
