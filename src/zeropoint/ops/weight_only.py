"""Linear layers on floats whose weights are stored in 8 or 4 bits, or in float16, and unpacked in registers.

``y[n] = sum_g scale[n, g] * sum_{k in g} x[k] * (q[n, k] - zero_point[n, g]) + bias[n]`` in float32, in an order that
is the same on every CPU, for every number of threads and whatever other rows are there; see
native/kernels/weight_only/weight_only.h. bfloat16 is widened on the way in and rounded once on the way out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics.packing import packed_columns
from zeropoint.ops import checks
from zeropoint.ops.layers import kept
from zeropoint.ops.library import operator

FLOATS = {torch.float32: 0, torch.bfloat16: 1}
_STORAGES = ("uint8", "int8", "uint4", "float16")  # by their numbers in the native core


# ------------------------------------------------------------------------------------------------- packed weights


def middle(weight: Tensor, bits: int) -> int:
    """The integer that stands for 0 in a symmetric weight: 0 for int8, 128 for uint8, 8 for 4 bits."""
    return 8 if bits == 4 else 128 if weight.dtype == torch.uint8 else 0


def group_length(op: str, inputs: int, scale: Tensor, group_size: int) -> int:
    """Inputs that share a scale: `group_size`, or, if that is 0, what the shape of `scale` says."""
    if group_size < 0:
        raise ValueError(f"{op}: group_size must not be negative, got {group_size}")
    if group_size == 0:
        groups = scale.shape[1] if scale.dim() == 2 else 1
        if groups == 0 or inputs % groups != 0:
            raise ValueError(
                f"{op}: scale of shape {tuple(scale.shape)} cuts {inputs} inputs into {groups} groups, which are "
                "not equal: pass group_size"
            )
        group_size = inputs // groups
    if group_size < inputs and group_size % 8 != 0:
        raise ValueError(f"{op}: group_size must be a multiple of 8, or all {inputs} inputs, got {group_size}")
    return max(1, min(group_size, inputs))


def _spread(op: str, name: str, t: Tensor, outputs: int, groups: int) -> Tensor:
    """One value, one for each output, or one for each group of each output, as float32."""
    fits = t.numel() == 1 or tuple(t.shape) in ((outputs,), (outputs, 1), (outputs, groups))
    if not fits:
        raise ValueError(
            f"{op}: {name} has shape {tuple(t.shape)}, but the weight has {outputs} outputs of {groups} group(s): "
            f"pass one value, ({outputs},) or ({outputs}, {groups})"
        )
    return t.detach().to(torch.float32).contiguous()


def _bias(op: str, bias: Tensor | None, outputs: int) -> Tensor | None:
    if bias is None:
        return None
    if bias.dim() != 1 or bias.numel() != outputs or not bias.is_floating_point():
        raise ValueError(
            f"{op}: bias must be {outputs} floats, one for each output, got {bias.dtype} of shape {tuple(bias.shape)}"
        )
    return bias.detach().to(torch.float32).contiguous()


@dataclass(frozen=True)
class SmallWeight:
    """A weight as the native core takes it: ``(outputs, ...)``, and float32 numbers beside it.

    Args:
        storage: "uint8", "int8", "uint4" or "float16", which has no scale and no zero point.
        shift: what is added, ``(q - zero_point) * scale + shift``; None for nothing.
    """

    weight: Tensor
    storage: str
    inputs: int
    group_size: int
    scale: Tensor | None
    zero_point: Tensor | None
    shift: Tensor | None
    bias: Tensor | None

    def packed(self) -> _native.WeightOnlyLayer:
        """For this CPU."""
        return _native.WeightOnlyLayer(
            (self.weight.data_ptr(), _STORAGES.index(self.storage), self.group_size),
            self.weight.shape[0],
            self.inputs,
            _array(self.scale),
            _array(self.zero_point),
            _array(self.shift),
            _array(self.bias)[0],
        )


def _array(t: Tensor | None) -> tuple[int, int]:
    """Where its elements are, and how many; zeros for None."""
    return (0, 0) if t is None else (t.data_ptr(), t.numel())


def small_weight(
    op: str,
    weight: Tensor,
    inputs: int,
    bits: int,
    scale: Tensor,
    zero_point: Tensor | None,
    bias: Tensor | None,
    group_size: int,
) -> SmallWeight:
    """The weight of a linear layer on floats, checked.

    Args:
        weight: ``(outputs, inputs)``, int8 or uint8, or, of 4 bits, ``(outputs, ceil(inputs / 2))``, uint8.
        scale: one value, ``(outputs,)`` or ``(outputs, groups)``.
        zero_point: as `scale`. Integers are subtracted, ``(q - zero_point) * scale``; floats are added,
            ``(q - middle) * scale + zero_point``; None is the middle.
        group_size: inputs that share a scale, the last group may be shorter; 0 for what the shape of `scale` says.
    """
    checks.require_dtype(op, "weight", weight.dtype, (torch.uint8,) if bits == 4 else (torch.uint8, torch.int8))
    columns = packed_columns(inputs, 4) if bits == 4 else inputs
    if weight.dim() != 2 or weight.shape[1] != columns:
        raise ValueError(
            f"{op}: a weight of {bits} bits for {inputs} inputs must have shape (outputs, {columns}), got"
            f" {tuple(weight.shape)}"
        )
    outputs = weight.shape[0]
    group_size = group_length(op, inputs, scale, group_size)
    groups = -(-inputs // group_size)
    s = _spread(op, "scale", scale, outputs, groups)
    z, shift = torch.tensor([float(middle(weight, bits))]), None
    if zero_point is not None and zero_point.is_floating_point():
        shift = _spread(op, "zero_point", zero_point, outputs, groups)
    elif zero_point is not None:
        z = _spread(op, "zero_point", zero_point, outputs, groups)
    storage = "uint4" if bits == 4 else str(weight.dtype).removeprefix("torch.")
    bias = _bias(op, bias, outputs)
    return SmallWeight(weight.detach().contiguous(), storage, inputs, group_size, s, z, shift, bias)


def make_weight_only_layer(
    op: str,
    weight: Tensor,
    inputs: int,
    bits: int,
    scale: Tensor,
    zero_point: Tensor | None,
    bias: Tensor | None,
    group_size: int,
) -> _native.WeightOnlyLayer:
    """The weights of a linear layer on floats, packed for this CPU; arguments as for `small_weight`.

    Example:
        >>> weight = torch.ones(2, 3, dtype=torch.int8)
        >>> make_weight_only_layer("weight_only_linear", weight, 3, 8, torch.tensor([0.5]), None, None, 0).outputs
        2
    """
    small = small_weight(op, weight, inputs, bits, scale, zero_point, bias, group_size)
    try:
        return small.packed()
    except ValueError as error:
        raise ValueError(str(error).replace("weight_only", op, 1)) from None


def half_weight(op: str, weight: Tensor, bias: Tensor | None) -> SmallWeight:
    """The float16 weight ``(outputs, inputs)`` of a linear layer, checked."""
    checks.require_dtype(op, "weight", weight.dtype, (torch.float16,))
    if weight.dim() != 2:
        raise ValueError(f"{op}: weight must be (outputs, inputs), got shape {tuple(weight.shape)}")
    outputs, inputs = weight.shape
    bias = _bias(op, bias, outputs)
    return SmallWeight(weight.detach().contiguous(), "float16", inputs, max(1, inputs), None, None, None, bias)


def make_fp16_layer(op: str, weight: Tensor, bias: Tensor | None) -> _native.WeightOnlyLayer:
    """The float16 weights ``(outputs, inputs)`` of a linear layer, packed for this CPU."""
    return half_weight(op, weight, bias).packed()


# -------------------------------------------------------------------------------------------------------- running


def run_weight_only(op: str, x: Tensor, layer: _native.WeightOnlyLayer, relu: bool = False) -> Tensor:
    """A linear layer on floats, ``(..., inputs)`` to ``(..., outputs)`` of the same dtype: float32 or bfloat16."""
    checks.require_no_trace(op)
    checks.require_dtype(op, "input", x.dtype, tuple(FLOATS))
    if x.dim() == 0 or x.shape[-1] != layer.inputs:
        raise ValueError(
            f"{op}: input of shape {tuple(x.shape)} does not fit weight of shape ({layer.outputs}, {layer.inputs})"
        )
    x = x.detach().contiguous()
    y = torch.empty((*x.shape[:-1], layer.outputs), dtype=x.dtype)
    code = FLOATS[x.dtype]
    layer.run((x.data_ptr(), code), math.prod(x.shape[:-1]), (y.data_ptr(), code), relu)
    return y


def run_linear_fp16(op: str, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """A linear layer in float32 with float16 weights; what is packed of them is kept with `weight`."""
    checks.require_dtype(op, "input", x.dtype, (torch.float32,))
    return run_weight_only(op, x, kept(weight, (bias,), lambda: make_fp16_layer(op, weight, bias)), relu)


# ------------------------------------------------------------------------------------------------------ operators


def _fake_weight_only(op: str, input: Tensor, weight: Tensor) -> Tensor:
    checks.require_dtype(op, "input", input.dtype, tuple(FLOATS))
    if input.dim() == 0 or weight.dim() != 2:
        raise ValueError(
            f"{op}: needs an input (..., inputs) and a weight of two dimensions, got {tuple(input.shape)} and"
            f" {tuple(weight.shape)}"
        )
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


def _fake_8bit(input: Tensor, weight: Tensor) -> Tensor:
    return _fake_weight_only("weight_only_linear", input, weight)


@operator(fake=_fake_8bit)
def weight_only_linear(
    input: Tensor,
    weight: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    bias: Tensor | None = None,
    group_size: int = 0,
) -> Tensor:
    """``input @ ((weight - zero_point) * scale).T + bias`` in float32, with weights of 8 bits.

    Args:
        input: ``(..., inputs)``, float32 or bfloat16.
        weight: ``(outputs, inputs)``, int8 or uint8.
        scale: one value, ``(outputs,)``, or ``(outputs, groups)`` with a scale for each group of inputs.
        zero_point: as `scale`; None is 0 for int8 and 128 for uint8. Floats are added to the weight instead:
            ``weight * scale + zero_point``, where uint8 counts from 128.
        bias: ``(outputs,)`` or None.
        group_size: inputs in a group, a multiple of 8; the last group may be shorter. 0: groups of equal length.

    Returns:
        ``(..., outputs)`` of the dtype of `input`.

    Raises:
        ValueError: if shapes do not fit, a scale is not finite, or a zero point is no value of the weight's dtype.

    Example:
        >>> weight = torch.tensor([[1, 2], [3, 4]], dtype=torch.int8)
        >>> weight_only_linear(torch.tensor([[1.0, 10.0]]), weight, torch.tensor([1.0, 0.5]))
        tensor([[21.0000, 21.5000]])
    """
    op = "weight_only_linear"
    checks.require_dims(op, input, 1)
    inputs = input.shape[-1]
    layer = kept(
        weight,
        (scale, zero_point, bias, group_size, inputs),
        lambda: make_weight_only_layer(op, weight, inputs, 8, scale, zero_point, bias, group_size),
    )
    return run_weight_only(op, input, layer)


def _fake_4bit(input: Tensor, weight: Tensor) -> Tensor:
    return _fake_weight_only("weight_only_linear_4bit", input, weight)


@operator(fake=_fake_4bit)
def weight_only_linear_4bit(
    input: Tensor,
    weight: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    bias: Tensor | None,
    group_size: int,
) -> Tensor:
    """``input @ ((weight - zero_point) * scale).T + bias`` in float32, with weights of 4 bits, two in a byte.

    Args:
        input: ``(..., inputs)``, float32 or bfloat16.
        weight: ``(outputs, ceil(inputs / 2))``, uint8: values from 0 to 15, the first of two in the low bits, as
            `zeropoint.numerics.packing.pack` makes them.
        scale: one value, ``(outputs,)``, or ``(outputs, groups)``.
        zero_point: as `scale`; None is 8. Floats are added to the weight instead, as tinygemm has it:
            ``(weight - 8) * scale + zero_point``.
        bias: ``(outputs,)`` or None.
        group_size: inputs in a group, a multiple of 8; the last group may be shorter. 0: groups of equal length.

    Returns:
        ``(..., outputs)`` of the dtype of `input`.

    Raises:
        ValueError: if shapes do not fit, a scale is not finite, or a zero point is not from 0 to 15.

    Example:
        >>> weight = torch.tensor([[0xA9]], dtype=torch.uint8)  # 9 and 10: 1 and 2 above the middle
        >>> weight_only_linear_4bit(torch.tensor([[1.0, 10.0]]), weight, torch.tensor([0.5]), None, None, 0)
        tensor([[10.5000]])
    """
    op = "weight_only_linear_4bit"
    checks.require_dims(op, input, 1)
    inputs = input.shape[-1]
    layer = kept(
        weight,
        (scale, zero_point, bias, group_size, inputs),
        lambda: make_weight_only_layer(op, weight, inputs, 4, scale, zero_point, bias, group_size),
    )
    return run_weight_only(op, input, layer)
