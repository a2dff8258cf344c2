"""Operators on quantized tensors, with the names and arguments of torch.ops.quantized.

Each is also an operator of a graph, ``torch.ops.zeropoint.<name>``, on plain integers with their parameters beside them
(`zeropoint.ops`), which does the work.
"""

from zeropoint.quantized.packed import (
    ConvPackedParams,
    LinearPackedParams,
    LinearPackedParamsFp16,
    bmm,
    conv_prepack,
    conv_transpose_prepack,
    linear,
    linear_dynamic,
    linear_dynamic_fp16,
    linear_leaky_relu,
    linear_prepack,
    linear_prepack_fp16,
    linear_relu,
    linear_relu_dynamic,
    linear_relu_dynamic_fp16,
    linear_tanh,
    linear_unpack,
    matmul,
)
from zeropoint.quantized.weight_only import (
    WeightOnlyPackedParams,
    weight_only_linear,
    weight_only_linear_relu,
    weight_only_prepack,
    weight_only_unpack,
)

__all__ = [
    "ConvPackedParams",
    "LinearPackedParams",
    "LinearPackedParamsFp16",
    "WeightOnlyPackedParams",
    "bmm",
    "conv_prepack",
    "conv_transpose_prepack",
    "linear",
    "linear_dynamic",
    "linear_dynamic_fp16",
    "linear_leaky_relu",
    "linear_prepack",
    "linear_prepack_fp16",
    "linear_relu",
    "linear_relu_dynamic",
    "linear_relu_dynamic_fp16",
    "linear_tanh",
    "linear_unpack",
    "matmul",
    "weight_only_linear",
    "weight_only_linear_relu",
    "weight_only_prepack",
    "weight_only_unpack",
]
