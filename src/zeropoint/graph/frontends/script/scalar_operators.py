"""What TorchScript computes with numbers, strings, lists and dictionaries, in Python.

Numbers may be symbols for sizes, which only Python's own operators understand; so those are what stands here.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# The numbers that dtypes have in TorchScript.
DTYPES: dict[int, torch.dtype] = dict(
    enumerate(
        (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
    )
) | {9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16}
_DTYPE_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}

# What is asked of a tensor.
TENSOR_PROPERTIES: dict[str, Callable[..., Any]] = {
    "aten::size": lambda x, *axis: x.size(*axis) if axis else list(x.shape),
    "aten::dim": Tensor.dim,
    "aten::numel": Tensor.numel,
    "aten::len": lambda x: x.size(0),
    "aten::is_floating_point": Tensor.is_floating_point,
    "aten::is_complex": Tensor.is_complex,
    "aten::is_contiguous": Tensor.is_contiguous,
    "aten::stride": lambda x, *axis: x.stride(*axis) if axis else list(x.stride()),
    "aten::get_device": lambda x: -1,
    "prim::dtype": lambda x: _DTYPE_NUMBERS.get(x.dtype, x.dtype),
    **{
        f"prim::{name}": operator.attrgetter(name)
        for name in ("device", "is_cuda", "is_quantized", "is_sparse", "is_mkldnn", "is_nested", "requires_grad")
    },
    "prim::layout": lambda x: 0,
    "prim::shape": lambda x: list(x.shape),
    "prim::data": Tensor.detach,
    "prim::unchecked_cast": lambda x: x,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
}

# Of numbers, and of tensors that a trace made of numbers.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "aten::add": lambda a, b, alpha=1: a + b if isinstance(a, (list, str, tuple)) else a + b * alpha,
    "aten::sub": lambda a, b, alpha=1: a - b * alpha,
    "aten::rsub": lambda a, b, alpha=1: b - a * alpha,
    "aten::mul": operator.mul,
    "aten::div": lambda a, b, rounding=None: a / b if rounding is None else a // b,
    "aten::floordiv": operator.floordiv,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::neg": operator.neg,
    "aten::pow": operator.pow,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
}


def _warn(message: str, *_: Any) -> None:
    warnings.warn(message, stacklevel=2)


def _format(text: str, *values: Any) -> str:
    return text.format(*values)


def _slice(values: Any, start: Any, end: Any, step: Any) -> Any:
    return values[start:end:step]


def _with_default(values: Any, defaults: Any) -> list[Any]:
    given = list(values)
    return [d if v is None else v for v, d in zip(given, defaults[-len(given) :])]


SCALAR_OPERATORS: dict[str, Callable[..., Any]] = {
    **ARITHMETIC,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::__not__": operator.not_,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::__contains__": operator.contains,
    "aten::__getitem__": operator.getitem,
    "aten::_set_item": operator.setitem,
    "aten::Delete": operator.delitem,
    "aten::append": lambda values, value: values.append(value) or values,
    "aten::extend": lambda values, more: values.extend(more),
    "aten::add_": operator.iadd,
    "aten::insert": lambda values, place, value: values.insert(place, value),
    "aten::pop": lambda values, *place: values.pop(*place),
    "aten::clear": lambda values: values.clear(),
    "aten::reverse": lambda values: values.reverse(),
    "aten::copy": lambda values: values.copy(),
    "aten::slice": _slice,
    "aten::len": len,
    "aten::list": list,
    "aten::dict": dict,
    "aten::keys": lambda values: list(values.keys()),
    "aten::values": lambda values: list(values.values()),
    "aten::items": lambda values: list(values.items()),
    "aten::get": lambda values, *rest: values.get(*rest),
    "aten::list_with_default": _with_default,
    "aten::sum": sum,
    "aten::any": any,
    "aten::all": all,
    "aten::str": str,
    "aten::format": _format,
    "aten::warn": _warn,
    "aten::Int": torch.sym_int,
    "aten::IntImplicit": torch.sym_int,
    "aten::Float": torch.sym_float,
    "aten::FloatImplicit": torch.sym_float,
    "aten::ScalarImplicit": lambda value: value,
    "aten::Bool": lambda value: value != 0,
    "aten::sqrt": lambda value: value**0.5,
    "aten::floor": math.floor,
    "aten::ceil": math.ceil,
    "aten::is_grad_enabled": torch.is_grad_enabled,
    "aten::is_autocast_enabled": lambda: False,
    "aten::is_scripting": lambda: False,
    "prim::min": min,
    "prim::max": max,
    "prim::abs": abs,
    "prim::type": operator.attrgetter("type"),
    "prim::NumToTensor": lambda value: value,
    "prim::unchecked_cast": lambda value: value,
    "prim::Uninitialized": lambda: None,
    "prim::Print": lambda *values: None,
    "prim::ListConstruct": lambda *values: list(values),
    "prim::TupleConstruct": lambda *values: values,
    "prim::ListUnpack": lambda values: values,
    "prim::TupleUnpack": lambda values: values,
    "prim::TupleIndex": operator.getitem,
    "prim::TupleSlice": lambda values, first, end: values[first:end],
    "prim::DictConstruct": lambda *pairs: dict(zip(pairs[::2], pairs[1::2])),
    "prim::rangelist": lambda end: list(range(end)),
}
