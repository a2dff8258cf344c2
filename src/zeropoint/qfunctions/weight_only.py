"""Weights of 8 or 4 bits for layers on floats: quantized once, stored plainly, unpacked in registers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.numerics import affine, blocks, packing
from zeropoint.numerics.qparams import qparams_from_range
from zeropoint.numerics.schemes import per_channel_affine, per_channel_symmetric
from zeropoint.ops.weight_only import group_length, make_weight_only_layer, middle, run_weight_only
from zeropoint.qfunctions.operands import require_quantized
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.quantizer import PerChannelQuantizer, PerTensorQuantizer

__all__ = [
    "WeightOnlyPackedParams",
    "weight_only_linear",
    "weight_only_linear_relu",
    "weight_only_prepack",
    "weight_only_unpack",
]

_PREPACK = "weight_only_prepack"


class WeightOnlyPackedParams:
    """Copies of the integer weight of a linear layer on floats, its scales and its bias, packed for this CPU.

    Args:
        weight: ``(outputs, inputs)``, int8 or uint8, or, of 4 bits, ``(outputs, ceil(inputs / 2))``, uint8.
        scale: one value, ``(outputs,)`` or ``(outputs, groups)``.
        zero_point: as `scale`; integers are subtracted, floats are added, None is the middle of the range: see
            `zeropoint.ops.weight_only.weight_only_linear`.
        bias: ``(outputs,)`` or None.
        bits: 8 or 4.
        inputs: needed where 4-bit rows end in half a byte; None: as many as the weight holds.
        group_size: inputs that share a scale; 0: groups of equal length.

    Example:
        >>> packed = WeightOnlyPackedParams(torch.tensor([[2, -4]], dtype=torch.int8), torch.tensor([0.5]))
        >>> packed.unpack()[0]
        tensor([[ 1., -2.]])
    """

    def __init__(
        self,
        weight: Tensor,
        scale: Tensor,
        zero_point: Tensor | None = None,
        bias: Tensor | None = None,
        bits: int = 8,
        inputs: int | None = None,
        group_size: int = 0,
    ) -> None:
        if bits not in (4, 8):
            raise ValueError(f"{_PREPACK}: bits must be 8 or 4, got {bits}")
        if inputs is None:
            inputs = weight.shape[-1] * (8 // bits) if weight.dim() else 0
        self.bits, self.inputs = bits, inputs
        self.group_size = group_length(_PREPACK, inputs, scale, group_size)
        self._weight, self._scale = weight.detach().clone(), scale.detach().clone()
        self._zero_point = None if zero_point is None else zero_point.detach().clone()
        self._bias = None if bias is None else bias.detach().clone()
        self._layer: tuple[str, _native.WeightOnlyLayer] | None = None
        self.layer()

    def layer(self) -> _native.WeightOnlyLayer:
        """The native layer for the instruction set in use."""
        isa = _native.isa()
        if self._layer is None or self._layer[0] != isa:
            made = make_weight_only_layer(
                "weight_only_linear",
                self._weight,
                self.inputs,
                self.bits,
                self._scale,
                self._zero_point,
                self._bias,
                self.group_size,
            )
            self._layer = isa, made
        return self._layer[1]

    def int_repr(self) -> Tensor:
        """The stored integers: ``(outputs, inputs)``, or the bytes that hold two of 4 bits each."""
        return self._weight

    def qparams(self) -> tuple[Tensor, Tensor | None]:
        """Scales and zero points, as given."""
        return self._scale, self._zero_point

    def unpack(self) -> tuple[Tensor, Tensor | None]:
        """The weight, as float32, and the bias."""
        q = packing.unpack(self._weight, self.inputs, 4) if self.bits == 4 else self._weight
        groups = -(-self.inputs // self.group_size)
        scale = self._along_inputs(self._scale, groups)
        if self._zero_point is None or self._zero_point.is_floating_point():
            weight = (q.to(torch.float32) - middle(self._weight, self.bits)) * scale
            if self._zero_point is not None:
                weight = weight + self._along_inputs(self._zero_point, groups)
        else:
            weight = (q.to(torch.float32) - self._along_inputs(self._zero_point, groups)) * scale
        return weight, self._bias

    def _along_inputs(self, t: Tensor, groups: int) -> Tensor:
        """A value for each weight: ``(1, 1)``, ``(outputs, 1)`` or ``(outputs, inputs)``."""
        t = t.to(torch.float32).reshape(1 if t.numel() == 1 else self._weight.shape[0], -1)
        if groups > 1 and t.shape[1] == groups:
            t = t.repeat_interleave(self.group_size, dim=1)[:, : self.inputs]
        return t

    def __reduce__(self) -> Any:
        parts = (self._weight, self._scale, self._zero_point, self._bias, self.bits, self.inputs, self.group_size)
        return WeightOnlyPackedParams, parts

    def __repr__(self) -> str:
        outputs = self._weight.shape[0]
        return (
            f"WeightOnlyPackedParams(weight=({outputs}, {self.inputs}), bits={self.bits}, group_size={self.group_size})"
        )


def weight_only_prepack(
    weight: Tensor, bias: Tensor | None = None, bits: int = 8, group_size: int = 0, symmetric: bool = True
) -> WeightOnlyPackedParams:
    """Pack a weight for `weight_only_linear`: a quantized one as it is, a float one after quantizing it.

    A float weight gets a scale for each group of each output from its own range:
    ``scale = max|w| / ((2**bits - 1) / 2)``, or, not symmetric, ``(max - min) / (2**bits - 1)`` with a zero point.

    Args:
        weight: ``(outputs, inputs)``: qint8, quint8 or quint4x2, per tensor or along axis 0; or float.
        bias: ``(outputs,)`` or None.
        bits: 8 or 4, for a float weight.
        group_size: inputs that share a scale, a multiple of 8, the last group may be shorter; 0: all. For a float
            weight.
        symmetric: for a float weight: no zero points.

    Raises:
        ValueError: if the weight is not finite, or its shape or `group_size` does not fit.

    Example:
        >>> weight_only_prepack(torch.randn(16, 64), bits=4, group_size=32)
        WeightOnlyPackedParams(weight=(16, 64), bits=4, group_size=32)
    """
    if isinstance(weight, QTensor):
        return _from_quantized(weight, bias, bits, group_size)
    if not weight.is_floating_point():
        raise TypeError(f"{_PREPACK}: weight must be float or a quantized tensor, got {weight.dtype}")
    if weight.dim() != 2:
        raise ValueError(f"{_PREPACK}: weight must be (outputs, inputs), got shape {tuple(weight.shape)}")
    if bits not in (4, 8):
        raise ValueError(f"{_PREPACK}: bits must be 8 or 4, got {bits}")
    outputs, inputs = weight.shape
    group_size = group_length(_PREPACK, inputs, torch.ones(1), group_size)
    groups = -(-inputs // group_size)
    # Zeros after the last input change no range: every range contains 0.
    padded = torch.nn.functional.pad(weight.detach().to(torch.float32), (0, groups * group_size - inputs))
    block = blocks.per_group(padded.shape, group_size)
    qmin, qmax, dtype = (0, 15, torch.uint8) if bits == 4 else (-128, 127, torch.int8)
    if not padded.numel():
        stored = torch.empty(outputs, packing.packed_columns(inputs, bits), dtype=dtype)
        return WeightOnlyPackedParams(stored, torch.ones(outputs, groups), None, bias, bits, inputs, group_size)
    low, high = affine.minmax(padded, block)
    if not torch.isfinite(low).all() or not torch.isfinite(high).all():
        raise ValueError(f"{_PREPACK}: weight must be finite")
    scale, zero_point = qparams_from_range(
        low,
        high,
        qmin,
        qmax,
        eps=torch.tensor([torch.finfo(torch.float32).eps]),
        scheme=per_channel_symmetric if symmetric else per_channel_affine,
        symmetric_zero_point=8 if bits == 4 else 0,
    )
    q = affine.quantize(padded, scale, zero_point, block, qmin=qmin, qmax=qmax, dtype=dtype)[:, :inputs]
    stored = packing.pack(q, 4) if bits == 4 else q
    zero_points = None if symmetric else zero_point.reshape(outputs, groups)
    return WeightOnlyPackedParams(stored, scale.reshape(outputs, groups), zero_points, bias, bits, inputs, group_size)


def _from_quantized(weight: QTensor, bias: Tensor | None, bits: int, group_size: int) -> WeightOnlyPackedParams:
    require_quantized(_PREPACK, "weight", weight, ("quint4x2", "qint8", "quint8"))
    if bits != 8 or group_size != 0:
        raise ValueError(f"{_PREPACK}: bits and group_size apply to float weights; this one is already quantized")
    if weight.dim() != 2:
        raise ValueError(f"{_PREPACK}: weight must be (outputs, inputs), got shape {tuple(weight.shape)}")
    quantizer = weight._qparams.quantizer
    bits, stored = 8, weight._data
    if weight._qdtype.name == "quint4x2":  # packed without regard to rows; here each begins with a byte of its own
        bits, stored = 4, packing.pack(packing.unpack(stored.reshape(-1), weight.numel(), 4).reshape(weight.shape), 4)
    scale: Tensor
    zero_point: Tensor
    if isinstance(quantizer, PerTensorQuantizer):
        scale, zero_point = torch.tensor([quantizer.scale]), torch.tensor([quantizer.zero_point])
    else:
        assert isinstance(quantizer, PerChannelQuantizer)
        if quantizer.axis != 0:
            raise ValueError(f"{_PREPACK}: weight must be quantized along axis 0, got axis {quantizer.axis}")
        scale, zero_point = quantizer.scales, quantizer.zero_points
        if zero_point.is_floating_point():  # (q - z) s = (q - middle) s + (middle - z) s
            zero_point = (middle(stored, bits) - zero_point) * scale
    return WeightOnlyPackedParams(stored, scale, zero_point, bias, bits, weight.shape[1])


def weight_only_unpack(packed: WeightOnlyPackedParams) -> tuple[Tensor, Tensor | None]:
    """The weight, as float32, and the bias of a packed layer."""
    return packed.unpack()


def weight_only_linear(x: Tensor, packed: WeightOnlyPackedParams) -> Tensor:
    """``x @ weight.T + bias``: ``(..., inputs)`` to ``(..., outputs)``, float32 or bfloat16, summed in float32.

    Example:
        >>> packed = WeightOnlyPackedParams(torch.tensor([[2, -4]], dtype=torch.int8), torch.tensor([0.5]))
        >>> weight_only_linear(torch.tensor([[10.0, 1.0]]), packed)
        tensor([[8.]])
    """
    return run_weight_only("weight_only_linear", x, packed.layer())


def weight_only_linear_relu(x: Tensor, packed: WeightOnlyPackedParams) -> Tensor:
    """As `weight_only_linear`, with a ReLU."""
    return run_weight_only("weight_only_linear_relu", x, packed.layer(), relu=True)


torch.serialization.add_safe_globals([WeightOnlyPackedParams])
