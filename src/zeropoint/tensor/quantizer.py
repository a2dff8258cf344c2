"""The quantization parameters of a QTensor: one pair, or one for each channel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from zeropoint.numerics.dtypes import QuantizedDtype
from zeropoint.numerics.schemes import QScheme, per_channel_affine, per_channel_affine_float_qparams, per_tensor_affine
from zeropoint.ops import qtensor_storage
from zeropoint.tensor.errors import QTensorError
from zeropoint.tensor.recording import run


def is_plain(x: torch.Tensor) -> bool:
    """Whether `x` has numbers in it: fake tensors and the like, which compilers use, have none."""
    return type(x) in (torch.Tensor, torch.nn.Parameter) and not x.is_meta


def _zero_point_range(dtype: QuantizedDtype) -> tuple[int, int]:
    """Sub-byte values may lie around a zero point of a whole byte, as PyTorch's may."""
    return (0, 255) if dtype.bits < 8 else (dtype.qmin, dtype.qmax)


@dataclass(slots=True, unsafe_hash=True)
class PerTensorQuantizer:
    """One scale and zero point: ``x = (q - zero_point) * scale``. Never changed; a frozen class costs twice to make."""

    scale: float
    zero_point: int

    @property
    def scheme(self) -> QScheme:
        return per_tensor_affine

    def check(self, dtype: QuantizedDtype, shape: torch.Size) -> None:
        low, high = _zero_point_range(dtype)
        if not low <= self.zero_point <= high:
            raise QTensorError(f"zero_point {self.zero_point} is outside the range of {dtype.name}, {low}..{high}")

    def quantize(self, x: torch.Tensor, dtype: QuantizedDtype) -> torch.Tensor:
        """Integers, one in each element, not packed."""
        return run(
            qtensor_storage.stored_quantize, x, self.scale, self.zero_point, dtype.qmin, dtype.qmax, dtype.torch_storage
        )

    def dequantize(self, values: torch.Tensor) -> torch.Tensor:
        return run(qtensor_storage.stored_dequantize, values, self.scale, self.zero_point)

    def same(self, other: Quantizer) -> bool:
        return self == other

    def to(self, device: torch.device) -> PerTensorQuantizer:
        return self

    def describe(self) -> list[str]:
        return [f"scale={self.scale}", f"zero_point={self.zero_point}"]


@dataclass(frozen=True, eq=False)
class PerChannelQuantizer:
    """A scale and zero point for each index of `axis`: float64 and int64, or both float32."""

    scales: torch.Tensor
    zero_points: torch.Tensor
    axis: int

    @staticmethod
    def of(scales: torch.Tensor, zero_points: torch.Tensor, axis: int) -> PerChannelQuantizer:
        """With the types PyTorch keeps them in, and copies of its own."""
        if zero_points.is_floating_point():
            kinds = torch.float32, torch.float32
        else:
            kinds = torch.float64, torch.int64
        scales, zero_points = (t.detach().to(kind, copy=True) for t, kind in zip((scales, zero_points), kinds))
        return PerChannelQuantizer(scales, zero_points, axis)

    @property
    def scheme(self) -> QScheme:
        return per_channel_affine_float_qparams if self.zero_points.is_floating_point() else per_channel_affine

    def check(self, dtype: QuantizedDtype, shape: torch.Size) -> None:
        if not 0 <= self.axis < len(shape):
            raise QTensorError(f"axis {self.axis} is out of range for shape {tuple(shape)}")
        for name, values in (("scales", self.scales), ("zero_points", self.zero_points)):
            if values.dim() != 1 or values.numel() != shape[self.axis]:
                raise QTensorError(
                    f"{name} has shape {tuple(values.shape)}, expected ({shape[self.axis]},): one for each index of"
                    f" axis {self.axis} of shape {tuple(shape)}"
                )
        if self.zero_points.is_floating_point():
            return
        if dtype.bits < 8:
            raise QTensorError(f"{dtype.name} needs float zero points per channel, got {self.zero_points.dtype}")
        if self.zero_points.numel() and is_plain(self.zero_points):
            low, high = (int(v) for v in torch.aminmax(self.zero_points))
            if low < dtype.qmin or high > dtype.qmax:
                raise QTensorError(
                    f"zero_points from {low} to {high} are outside the range of {dtype.name},"
                    f" {dtype.qmin}..{dtype.qmax}"
                )

    def quantize(self, x: torch.Tensor, dtype: QuantizedDtype) -> torch.Tensor:
        """Integers, one in each element, not packed."""
        limits = dtype.qmin, dtype.qmax
        parameters = self.scales, self.zero_points, self.axis
        return run(qtensor_storage.stored_quantize_per_channel, x, *parameters, *limits, dtype.torch_storage)

    def dequantize(self, values: torch.Tensor) -> torch.Tensor:
        return run(qtensor_storage.stored_dequantize_per_channel, values, self.scales, self.zero_points, self.axis)

    def same(self, other: Quantizer) -> bool:
        return self is other or (
            isinstance(other, PerChannelQuantizer)
            and self.axis == other.axis
            and self.zero_points.dtype == other.zero_points.dtype
            and torch.equal(self.scales, other.scales)
            and torch.equal(self.zero_points, other.zero_points)
        )

    def to(self, device: torch.device) -> PerChannelQuantizer:
        if self.scales.device == device:
            return self
        return replace(self, scales=self.scales.to(device), zero_points=self.zero_points.to(device))

    def moved(self, axis: int) -> PerChannelQuantizer:
        """The same parameters along another axis."""
        return self if axis == self.axis else replace(self, axis=axis)

    def channel(self, index: int) -> PerTensorQuantizer:
        """The parameters of one channel. A float zero point has no per-tensor form."""
        if self.zero_points.is_floating_point():
            raise QTensorError(
                "one channel of a tensor with float zero points cannot be selected, because per-tensor zero points "
                f"are integers: use a slice, which keeps axis {self.axis}, or call .dequantize() first"
            )
        if not is_plain(self.scales):
            raise QTensorError(
                "one channel of a per-channel tensor has a scale that is not known while compiling: use a slice, "
                f"which keeps axis {self.axis}, or call .dequantize() first"
            )
        return PerTensorQuantizer(float(self.scales[index]), int(self.zero_points[index]))

    def pick(self, index: torch.Tensor | slice) -> PerChannelQuantizer:
        """The parameters of some channels."""
        return replace(self, scales=self.scales[index], zero_points=self.zero_points[index])

    def describe(self) -> list[str]:
        return [f"scale={self.scales}", f"zero_point={self.zero_points}", f"axis={self.axis}"]


Quantizer = PerTensorQuantizer | PerChannelQuantizer
