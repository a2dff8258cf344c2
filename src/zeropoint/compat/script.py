"""TorchScript: what scripted code means by the old names.

TorchScript knows PyTorch's functions by identity and calls operators of C++ for them. Ours get operators of their own,
`torch.ops.zeropoint_compat`, with the signatures of the old ones; what only reads a tensor stays the old operator,
which QTensor answers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.jit import _builtins

from zeropoint.compat import lookup, names
from zeropoint.compat.changes import Changes
from zeropoint.compat.modules import resolve

NAMESPACE = "zeropoint_compat"

# Signatures as TorchScript sees them; a dtype is a number there.
_SCHEMAS = (
    "quantize_per_tensor(Tensor input, float scale, int zero_point, ScalarType dtype) -> Tensor",
    "quantize_per_tensor.tensor_qparams(Tensor input, Tensor scale, Tensor zero_point, ScalarType dtype) -> Tensor",
    "quantize_per_tensor.tensors(Tensor[] tensors, Tensor scales, Tensor zero_points, ScalarType dtype) -> Tensor[]",
    "quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, ScalarType dtype) -> Tensor",
    "quantize_per_tensor_dynamic(Tensor input, ScalarType dtype, bool reduce_range) -> Tensor",
    "dequantize.self(Tensor input) -> Tensor",
    "dequantize.tensors(Tensor[] tensors) -> Tensor[]",
    "_make_per_tensor_quantized_tensor(Tensor input, float scale, int zero_point) -> Tensor",
    "_make_per_channel_quantized_tensor(Tensor input, Tensor scales, Tensor zero_points, int axis) -> Tensor",
    "_choose_qparams_per_tensor(Tensor input, bool reduce_range=False) -> (float, int)",
    "_saturate_weight_to_fp16(Tensor weight) -> Tensor",
    "choose_qparams_optimized(Tensor input, int numel, int n_bins, float ratio, int bit_width) -> (Tensor, Tensor)",
    "save(Any item, str filename) -> ()",
)
# Functions that torch.ops.zeropoint has as operators, with the same signature.
_OURS = {
    "fake_quantize_per_tensor_affine": "fake_quantize_per_tensor_affine",
    "fake_quantize_per_channel_affine": "fake_quantize_per_channel_affine",
    "_fake_quantize_learnable_per_tensor_affine": "fake_quantize_learnable_per_tensor_affine",
    "_fake_quantize_learnable_per_channel_affine": "fake_quantize_learnable_per_channel_affine",
    "fused_moving_avg_obs_fake_quant": "fused_moving_avg_obs_fake_quant",
}


def _save(item: Any, filename: str) -> None:
    torch.save(item, filename)


def _kernel(name: str) -> Any:
    """A function that looks ours up when it is called: defining operators does not load them all."""
    path = dict(lookup.entries(names.FUNCTIONS))[name].path

    def kernel(*args: Any) -> Any:
        result = resolve(str(path))(*args)
        return list(result) if isinstance(result, tuple) and isinstance(args[0], (list, tuple)) else result

    return kernel


# Defined for good, not for the time between install and uninstall: files of scripted modules name them.
LIBRARY = torch.library.Library(NAMESPACE, "DEF")
for _schema in _SCHEMAS:
    # Saving has an effect that its signature does not show: without this the compiler would drop the call.
    LIBRARY.define(_schema, "CONSERVATIVE" if _schema.startswith("save") else "")
    _qualified = _schema.split("(", 1)[0]
    _name = _qualified.split(".")[0]
    LIBRARY.impl(_qualified, _save if _name == "save" else _kernel(_name), "CompositeImplicitAutograd")
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
        else:
            operator = f"aten::{name}"
        changes.item(table, id(resolve(found.path)), operator)
    changes.item(table, id(torch.save), f"{NAMESPACE}::save")
