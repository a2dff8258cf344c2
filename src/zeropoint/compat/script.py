"""TorchScript: what scripted code means by the old names.

TorchScript knows PyTorch's functions by identity and calls operators of C++ for them. Ours get operators of their own,
`torch.ops.zeropoint_compat`, with the signatures of the old ones; what only reads a tensor is one of
`torch.ops.zeropoint`.
"""

from __future__ import annotations

import ast
import io
from typing import Any

import torch
from torch import Tensor
from torch.jit import _builtins, frontend

from zeropoint.compat import lookup, names
from zeropoint.compat.changes import Changes
from zeropoint.compat.modules import resolve
from zeropoint.nn.quantized.dynamic.recurrent_weights import Matrix
from zeropoint.nn.quantized.storage import as_qtensor
from zeropoint.ops.library import ON_QTENSORS
from zeropoint.ops.rounding import chosen
from zeropoint.qfunctions.embedding import EmbeddingPackedParams
from zeropoint.tensor.qtensor import QTensor, rebuild

NAMESPACE = "zeropoint_compat"

# Signatures as TorchScript sees them; a dtype is a number there.
_SCHEMAS = (
    "quantize_per_tensor(Tensor input, float scale, int zero_point, int dtype) -> Tensor",
    "quantize_per_tensor.tensor_qparams(Tensor input, Tensor scale, Tensor zero_point, int dtype) -> Tensor",
    "quantize_per_tensor.tensors(Tensor[] tensors, Tensor scales, Tensor zero_points, int dtype) -> Tensor[]",
    "quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int dtype) -> Tensor",
    "quantize_per_tensor_dynamic(Tensor input, int dtype, bool reduce_range) -> Tensor",
    # Graphs of FX mode name dtypes where PyTorch has none.
    "quantize_per_tensor.named(Tensor input, Tensor scale, Tensor zero_point, str dtype) -> Tensor",
    "quantize_per_channel.named(Tensor input, Tensor scales, Tensor zero_points, int axis, str dtype) -> Tensor",
    "quantize_per_tensor_dynamic.named(Tensor input, str dtype, bool reduce_range) -> Tensor",
    "dequantize.self(Tensor input) -> Tensor",
    "dequantize.tensors(Tensor[] tensors) -> Tensor[]",
    "_make_per_tensor_quantized_tensor(Tensor input, float scale, int zero_point) -> Tensor",
    "_make_per_channel_quantized_tensor(Tensor input, Tensor scales, Tensor zero_points, int axis) -> Tensor",
    "_choose_qparams_per_tensor(Tensor input, bool reduce_range=False) -> (float, int)",
    "_saturate_weight_to_fp16(Tensor weight) -> Tensor",
    "choose_qparams_optimized(Tensor input, int numel, int n_bins, float ratio, int bit_width) -> (Tensor, Tensor)",
    "save(Any item, str filename) -> ()",
    "is_quantized(Tensor input) -> bool",
    "quantized_dtype(Tensor input) -> int",
    "rounding(Tensor zero_points, int groups, int[] output_padding) -> str",
    "weight_parts(Tensor weight) -> (Tensor, Tensor, Tensor, int, str)",
    "weight(Tensor values, Tensor scales, Tensor zero_points, int axis, str dtype) -> Tensor",
    "written_weight(Tensor values, Tensor scales, Tensor zero_points, int axis, str dtype) -> Tensor",
    "table_parts(Tensor weight) -> (Tensor, Tensor, int)",
    "table_weight(Tensor stored) -> Tensor",
)
# Operators of torch.ops.quantized on tensors, by their arguments: a quantized tensor is their result. Ours declare
# those that they have themselves.
_TO = "float output_scale, int output_zero_point"
_POOL = "int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode"
_OPERATORS = {
    "Tensor qa, Tensor qb, float scale, int zero_point": "add add_relu mul mul_relu matmul",
    "Tensor qa, Scalar b": (
        "add_scalar add_scalar_relu mul_scalar mul_scalar_relu add.Scalar add_relu.Scalar mul.Scalar mul_relu.Scalar"
    ),
    "Tensor[] qx, int dim, float? scale, int? zero_point": "cat cat_relu",
    f"Tensor self, {_TO}, Scalar p=0.5, bool training=False": "dropout",
    "Tensor qx, Scalar? min=None, Scalar? max=None": "clamp",
    f"Tensor qx, Scalar negative_slope, bool inplace, {_TO}": "leaky_relu",
    "Tensor qx, bool inplace=False": "relu6",
    "Tensor qx, Scalar threshold, Scalar value": "threshold",
    f"Tensor qx, {_POOL}": "max_pool1d max_pool2d",
}
_OLD = dict(lookup.entries(names.OPERATORS))
for _name, _form in ON_QTENSORS.items():
    if _name in _OLD:
        _OPERATORS[_form.text] = f"{_OPERATORS.get(_form.text, '')} {_name}"
OPERATORS = {name.split(".")[0] for listed in _OPERATORS.values() for name in listed.split()}
# Functions that torch.ops.zeropoint has as operators, with the same signature.
_OURS = {
    "fake_quantize_per_tensor_affine": "fake_quantize_per_tensor_affine",
    "fake_quantize_per_channel_affine": "fake_quantize_per_channel_affine",
    "_fake_quantize_learnable_per_tensor_affine": "fake_quantize_learnable_per_tensor_affine",
    "_fake_quantize_learnable_per_channel_affine": "fake_quantize_learnable_per_channel_affine",
    "fused_moving_avg_obs_fake_quant": "fused_moving_avg_obs_fake_quant",
}


# What TorchScript calls the dtypes.
_NUMBERS = {"qint8": 12, "quint8": 13, "qint32": 14, "quint4x2": 16, "quint2x4": 17}
_DTYPES = {number: name for name, number in _NUMBERS.items()}


def _save(item: Any, filename: str) -> None:
    torch.save(item, filename)


def weight_parts(weight: Tensor) -> tuple[Tensor, Tensor, Tensor, int, str]:
    """A weight in plain tensors and numbers: integers, scales, zero points, axis or -1, dtype; float ones in float16.

    It may be what `written_weight` gave.
    """
    if not isinstance(weight, QTensor) and weight.dtype == torch.uint8:
        parts = torch.load(io.BytesIO(weight.numpy().tobytes()), weights_only=True)
        return weight_parts(parts) if isinstance(parts, Tensor) else parts
    stored = Matrix(as_qtensor(weight), None)
    parameters = stored._weight_values, stored._weight_scales, stored._weight_zero_points
    return *parameters, stored._weight_axis, stored._weight_dtype


def _weight(values: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: str) -> Tensor:
    if dtype == "float16":
        return values.to(torch.float32)
    parameters = (float(scales), int(zero_points)) if axis < 0 else (scales.clone(), zero_points.clone(), axis)
    return rebuild(values.clone(), dtype, parameters, None)


def written(content: Any) -> Tensor:
    """Something as bytes: files of TorchScript cannot hold QTensors."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _written_weight(*parts: Any) -> Tensor:
    return written(parts)


def _table_weight(stored: Tensor) -> Tensor:
    """A table that `written` gave."""
    return torch.load(io.BytesIO(stored.numpy().tobytes()), weights_only=True)


def _table_parts(weight: Tensor) -> tuple[Tensor, Tensor, int]:
    """A table as bytes for a file, as rows for kernels, and its bits. It may be such bytes."""
    if not isinstance(weight, QTensor) and weight.dtype == torch.uint8:
        stored, weight = weight, _table_weight(weight)
    else:
        stored = written(as_qtensor(weight))
    packed = EmbeddingPackedParams(as_qtensor(weight))
    return stored, packed.table(), packed._dtype.bits


_OWN = {
    "save": _save,
    "is_quantized": lambda input: isinstance(input, QTensor) or input.is_quantized,
    "quantized_dtype": lambda input: _NUMBERS[input._qdtype.name],
    "rounding": chosen,
    "weight_parts": weight_parts,
    "weight": _weight,
    "written_weight": _written_weight,
    "table_parts": _table_parts,
    "table_weight": _table_weight,
}


def _kernel(name: str, table: dict[str, str], arguments: str = "") -> Any:
    """A function that looks zeropoint's up when it is called: defining operators does not load them all."""
    path = dict(lookup.entries(table))[name].path
    kinds = arguments.split(", ")
    dtype = next((position for position, kind in enumerate(kinds) if kind.startswith("int dtype")), None)

    def kernel(*args: Any) -> Any:
        if dtype is not None:
            args = *args[:dtype], _DTYPES.get(args[dtype], args[dtype]), *args[dtype + 1 :]
        result = resolve(str(path))(*args)
        return list(result) if isinstance(result, tuple) and isinstance(args[0], (list, tuple)) else result

    return kernel


# Defined for good, not for the time between install and uninstall: files of scripted modules name them.
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
for _schema in _SCHEMAS:
    # Saving has an effect that its signature does not show: without this the compiler would drop the call.
    LIBRARY.define(_schema, "CONSERVATIVE" if _schema.startswith("save") else "")
    _qualified, _arguments = _schema.split(") ->")[0].split("(", 1)
    _name = _qualified.split(".")[0]
    _own = _OWN.get(_name) or _kernel(_name, names.FUNCTIONS, _arguments)
    LIBRARY.impl(_qualified, _own, "CompositeImplicitAutograd")
for _arguments, _listed in _OPERATORS.items():
    for _qualified in _listed.split():
        LIBRARY.define(f"{_qualified}({_arguments}) -> Tensor")
        _name = _qualified.split(".")[0]
        LIBRARY.impl(_qualified, _kernel(_name, names.OPERATORS), "CompositeImplicitAutograd")
# `q.dequantize()` in scripted code is an operator of PyTorch with that name, answered by zeropoint's. A PyTorch
# that has none gets it here.
_METHODS = {
    "dequantize.self": "Tensor",
    "int_repr": "Tensor",
    "q_scale": "float",
    "q_zero_point": "int",
    "q_per_channel_scales": "Tensor",
    "q_per_channel_zero_points": "Tensor",
    "q_per_channel_axis": "int",
}
_OF_PYTORCH = torch.library.Library("aten", "FRAGMENT")
for _qualified, _result in _METHODS.items():
    _packet = getattr(torch.ops.zeropoint, _qualified.split(".")[0])
    if f"aten::{_qualified}" in torch._C._dispatch_get_all_op_names():
        # QTensors, and what else has a dispatch of its own; PyTorch's kernels stay for its own tensors.
        _OF_PYTORCH.impl(_qualified, _packet, "Python")
    else:
        _OF_PYTORCH.define(f"{_qualified}(Tensor self) -> {_result}")
        _OF_PYTORCH.impl(_qualified, _packet, "CompositeImplicitAutograd")
_DEFINED = {schema.split("(", 1)[0].split(".")[0] for schema in _SCHEMAS}


def teach_torchscript(changes: Changes) -> None:
    """Tell the compiler of TorchScript which operators our functions are."""
    table = _builtins._get_builtin_table()
    for name, found in lookup.entries(names.FUNCTIONS):
        if not found.path:
            continue
        if name in _DEFINED:
            operator = f"{NAMESPACE}::{name}"
        elif name in _OURS:
            operator = f"zeropoint::{_OURS[name]}"
        elif name in _METHODS:
            operator = f"zeropoint::{name}"
        else:
            operator = f"aten::{name}"
        changes.item(table, id(resolve(found.path)), operator)
    changes.item(table, id(torch.save), f"{NAMESPACE}::save")
    if not hasattr(torch, "quint8"):
        changes.attribute(
            frontend.ExprBuilder, "build_Attribute", staticmethod(_reading_dtypes(frontend.ExprBuilder.build_Attribute))
        )


def _reading_dtypes(build: Any) -> Any:
    """How TorchScript reads `torch.quint8` in source code where PyTorch has no such dtype: as its number."""

    def build_attribute(context: Any, expression: ast.Attribute) -> Any:
        if not isinstance(expression.value, ast.Name) or expression.value.id != "torch":
            return build(context, expression)
        if expression.attr not in _NUMBERS:
            return build(context, expression)
        start = expression.col_offset
        place = context.make_range(expression.lineno, start, start + len(f"torch.{expression.attr}"))
        return frontend.Const(place, str(_NUMBERS[expression.attr]))

    return build_attribute
