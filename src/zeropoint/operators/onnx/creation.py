"""ONNX forms of constant tensors, casts and ranges."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.operators.elementwise import overloads
from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes

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


_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)


def _read_cast(r: OnnxReader, n: ReadNode) -> Any:
    return _converted(r, n, r.torch_dtype(n.attribute("to")))


def _read_cast_like(r: OnnxReader, n: ReadNode) -> Any:
    if r.storage(n.input(1)) in ("int4", "uint4"):
        raise r.unsupported("4-bit integers are not supported here")
    return _converted(r, n, r.dtype(n.input(1)))


def _converted(r: OnnxReader, n: ReadNode, dtype: torch.dtype) -> Any:
    """Floats of 8 bits end at their largest; PyTorch makes NaN or infinity of what is beyond."""
    x = r.tensor(n.input(0))
    if dtype in _FLOAT8:
        if not n.attribute("saturate", 1):
            if dtype == torch.float8_e4m3fn:
                raise r.unsupported(f"saturate=0 with {dtype} is not supported")
            return x.to(dtype)
        most = torch.finfo(dtype).max
        return torch.clamp(x.float(), -most, most).to(dtype)
    n.without_effect("saturate", "round_mode")  # they speak of floats of 8 bits
    return x.to(dtype)


def _read_filled(r: OnnxReader, n: ReadNode) -> Any:
    given = n.attribute("value", None)
    value, dtype = (0.0, torch.float32) if given is None else (given.reshape(-1)[0].item(), given.dtype)
    return torch.full(r.numbers(n.input(0)), value, dtype=dtype)


def _read_range(r: OnnxReader, n: ReadNode) -> Any:
    return torch.arange(*(r.number(value) for value in n.every()), dtype=r.dtype(n.input(0)))


def _read_cumulative_sum(r: OnnxReader, n: ReadNode) -> Any:
    x, axis = r.tensor(n.input(0)), int(r.number(n.input(1)))
    backwards = n.attribute("reverse", 0)
    whole = torch.cumsum(torch.flip(x, [axis]) if backwards else x, axis)
    if n.attribute("exclusive", 0):
        whole = whole - (torch.flip(x, [axis]) if backwards else x)
    return torch.flip(whole, [axis]) if backwards else whole


def _read_triangle(r: OnnxReader, n: ReadNode) -> Any:
    k = int(r.number(n.input(1))) if n.has(1) else 0
    return (torch.triu if n.attribute("upper", 1) else torch.tril)(r.tensor(n.input(0)), k)


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
