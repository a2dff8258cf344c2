"""Convolutions on quantized tensors, plain and transposed."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zeropoint import _native
from zeropoint.nn.quantized.functional import reflected
from zeropoint.nn.quantized.storage import (
    QuantizedOutput,
    StoredWeight,
    as_qtensor,
    float_layer,
    integers_of,
    output_qparams,
    quantize_weight,
    quantized,
)
from zeropoint.numerics.dtypes import qint8
from zeropoint.ops import layers, rounding
from zeropoint.ops.geometry import Geometry
from zeropoint.qfunctions import packed
from zeropoint.tensor.create import empty_affine_quantized
from zeropoint.tensor.qtensor import QTensor


def each(value: Any, dims: int) -> tuple[int, ...]:
    """A number for each dimension."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * dims
    if len(values) != dims:
        raise ValueError(f"expected one number or {dims} numbers, got {value}")
    return tuple(int(v) for v in values)


def pads(padding: Any, kernel: tuple[int, ...], dilation: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Padding in numbers, for the words "valid" and "same" too."""
    if padding == "valid":
        return (0,) * len(kernel)
    if padding == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation)]
        if any(s != 1 for s in stride) or any(t % 2 for t in total):
            raise NotImplementedError(
                f"padding='same' with stride {stride} and kernel {kernel} is not symmetric: pass the padding as numbers"
            )
        return tuple(t // 2 for t in total)
    return each(padding, len(kernel))


class _ConvNd(QuantizedOutput, StoredWeight):
    """What all convolutions share; see `Conv2d`."""

    _version = 1
    _DIMS: ClassVar[int]
    _TRANSPOSED: ClassVar[bool] = False
    _RELU: ClassVar[bool] = False
    _FLOAT: ClassVar[tuple[type, ...]]
    _NAME: ClassVar[str]
    _KIND: ClassVar[str] = "Quantized"
    _OPERATOR: ClassVar[str]  # the operator that computes a layer, without its number of dimensions
    _graph_of: ClassVar[Any]  # the method `_graph` of the layer that an operator computes
    _graph: Any

    def __init_subclass__(cls, dims: int = 0, **kwargs: Any) -> None:
        """What follows from the number of dimensions: the float class, the name in torch.ao, the operator."""
        super().__init_subclass__(**kwargs)
        if dims:
            cls._DIMS, cls._FLOAT, cls._NAME = dims, (getattr(nn, cls.__name__),), cls._KIND + cls.__name__
            cls._graph = cls._graph_of(getattr(torch.ops.zeropoint, cls._OPERATOR.format(dims)))

    def _set_up(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
    ) -> None:
        dims = self._DIMS
        allowed = ("zeros",) if self._TRANSPOSED else ("zeros", "reflect")
        if padding_mode not in allowed:
            raise NotImplementedError(
                f"{type(self).__name__}: padding_mode must be {' or '.join(map(repr, allowed))}, got {padding_mode!r}"
            )
        if self._TRANSPOSED and out_channels < 1:
            raise ValueError(f"{type(self).__name__}: out_channels must be greater than 0, got {out_channels}")
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: in_channels {in_channels} and out_channels {out_channels} must be multiples of"
                f" groups {groups}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = (each(v, dims) for v in (kernel_size, stride, dilation))
        self.padding = pads(padding, self.kernel_size, self.dilation, self.stride)
        self.output_padding = each(output_padding, dims)
        self.transposed, self.padding_mode = self._TRANSPOSED, padding_mode
        self.__dict__["_made_geometry"] = None  # made when it is used first; a module that was never called has it, too
        # What the operators take. Reflected padding happens before them.
        self._stride, self._dilation = list(self.stride), list(self.dilation)
        self._pads = [0] * dims if padding_mode == "reflect" else list(self.padding)
        self._output_pads = list(self.output_padding)
        self._reflect = [p for size in reversed(self.padding) for p in (size, size)]
        outer = (in_channels, out_channels // groups) if self._TRANSPOSED else (out_channels, in_channels // groups)
        weight = empty_affine_quantized([*outer, *self.kernel_size], scale=1.0, zero_point=0, dtype=qint8)
        weight._data.zero_()
        self.set_weight_bias(weight, torch.zeros(out_channels) if bias else None)

    def _get_name(self) -> str:
        return self._NAME

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}",
            f"scale={self.scale}, zero_point={self.zero_point}",
        ]
        if any(self.padding):
            parts.append(f"padding={self.padding}")
        if any(d != 1 for d in self.dilation):
            parts.append(f"dilation={self.dilation}")
        if any(self.output_padding):
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self._bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    # --------------------------------------------------------------------------------------------------- running

    def _native_layer(self) -> _native.ConvLayer:
        """The native layer for the instruction set in use."""
        isa = _native.isa()
        if self._layer is None or self._layer[0] != isa:
            parameters = (self._weight_values, self._weight_scales, self._weight_zero_points, self._bias)
            self._layer = isa, layers.make_conv_layer(self._geometry, *parameters, self._rounding)
        return self._layer[1]

    @property
    def _geometry(self) -> Geometry:
        made = self.__dict__.get("_made_geometry")
        if made is None:
            op = f"conv{'_transpose' if self._TRANSPOSED else ''}{self._DIMS}d"
            more = self._output_pads if self._TRANSPOSED else None
            made = Geometry(op, self._DIMS, self._stride, self._pads, self._dilation, self.groups, more)
            self.__dict__["_made_geometry"] = made
        return made

    def _padded(self, x: QTensor) -> QTensor:
        return reflected(self._NAME, x, self.padding, self._DIMS) if self.padding_mode == "reflect" else x

    def _eager(self, x: QTensor, other: QTensor | None = None) -> QTensor:
        return packed.run_conv(
            self._padded(x),
            self._geometry,
            self._weight_values,
            self._native_layer(),
            self.scale,
            self.zero_point,
            self._RELU,
            other,
        )

    # --------------------------------------------------------------------------------------------------- weights

    def set_weight_bias(self, w: QTensor, b: Tensor | None) -> None:
        """Keep copies of a quantized weight and a float bias."""
        if not isinstance(w, QTensor):
            raise TypeError(f"{type(self).__name__}: the weight must be a quantized tensor, got {type(w).__name__}")
        if w._qdtype.name not in ("qint8", "quint8") or w.dim() != self._DIMS + 2:
            raise ValueError(
                f"{type(self).__name__}: the weight must be qint8 or quint8 of {self._DIMS + 2} dimensions, got"
                f" {w._qdtype.name} of shape {tuple(w.shape)}"
            )
        self._store(w, b)

    def _chosen_rounding(self, zero_points: Tensor) -> str:
        return rounding.chosen(zero_points, self.groups, self._output_pads)

    def _weight_bias(self) -> tuple[QTensor, Tensor | None]:
        return self._stored()

    def weight(self) -> QTensor:
        """A copy of the quantized weight."""
        return self._stored()[0]

    def bias(self) -> Tensor | None:
        """A copy of the bias."""
        return self._stored()[1]

    @property
    def _packed_params(self) -> packed.ConvPackedParams:
        """What `zeropoint.qfunctions.conv2d` and relatives take; a copy."""
        more = self._output_pads if self._TRANSPOSED else None
        return packed.ConvPackedParams(*self._stored(), self._stride, self._pads, self._dilation, self.groups, more)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"], destination[prefix + "bias"] = self._stored()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        _, strict, missing_keys, *_ = args
        weight, bias = state_dict.pop(prefix + "weight", None), state_dict.pop(prefix + "bias", None)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if weight is not None:
            self.set_weight_bias(as_qtensor(weight), bias)
        elif strict:
            missing_keys.append(prefix + "weight")

    # ------------------------------------------------------------------------------------------------ conversion

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The quantized layer of a float layer that was calibrated (`prepare`) or trained (`prepare_qat`)."""
        layer = float_layer(cls, mod, cls._FLOAT)
        weight = quantize_weight(layer.weight, cls._along_outputs(layer))
        return cls._of(_convolution(mod), weight, layer.bias, *output_qparams(mod))

    @classmethod
    def _along_outputs(cls, layer: Any) -> Any:
        """The observer of the weight, looking along the axis that the output channels have."""
        return layer.observer

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: float, output_zero_point: int) -> Any:
        """The quantized layer of a reference layer (`zeropoint.nn.quantized.reference`)."""
        layer = _convolution(ref_qconv)
        weight = as_qtensor(layer.get_quantized_weight())
        return cls._of(layer, weight, layer.bias, float(output_scale), int(output_zero_point))

    @classmethod
    def _of(cls: Any, like: Any, weight: QTensor, bias: Tensor | None, scale: float, zero_point: int) -> Any:
        shape = [like.in_channels, like.out_channels, like.kernel_size, like.stride, like.padding]
        if cls._TRANSPOSED:
            made = cls(*shape, like.output_padding, like.groups, bias is not None, like.dilation, like.padding_mode)
        else:
            made = cls(*shape, like.dilation, like.groups, bias is not None, like.padding_mode)
        made.set_weight_bias(weight, bias)
        made.scale, made.zero_point = scale, zero_point
        return made


def conv_graph(op: Any) -> Any:
    """The method `_graph` of a convolution that the operator `op` computes."""

    def _graph(self: Any, x: Tensor) -> Tensor:
        y = op(
            *self._mirrored(x), self._weight_values, self._weight_scales,
            self._weight_zero_points, self._bias, self._stride, self._pads, self._dilation, self.groups,
            self.scale, self.zero_point, self._rounding,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    return _graph


def conv_transpose_graph(op: Any) -> Any:
    """The same for a transposed one."""

    def _graph(self: Any, x: Tensor) -> Tensor:
        y = op(
            *integers_of(x), self._weight_values, self._weight_scales,
            self._weight_zero_points, self._bias, self._stride, self._pads, self._output_pads, self._dilation,
            self.groups, self.scale, self.zero_point, self._rounding,
        )  # fmt: skip
        return quantized(y, self.scale, self.zero_point)

    return _graph


def _convolution(mod: nn.Module) -> Any:
    """`mod`, or, if it is fused, the convolution that it begins with."""
    return mod[0] if isinstance(mod, nn.Sequential) else mod


class _Conv(_ConvNd):
    """Convolutions that are not transposed."""

    _OPERATOR = "conv{}d"
    _graph_of = staticmethod(conv_graph)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._set_up(in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias, padding_mode)

    def _mirrored(self, x: Tensor) -> tuple[Tensor, float, int]:
        """The integers of `x`, padded if padding is reflected, its scale and zero point: in compiled code."""
        values, scale, zero_point = integers_of(x)
        if self.padding_mode == "reflect":
            padded = torch.nn.functional.pad(values.to(torch.float32), self._reflect, mode="reflect")
            return padded.to(values.dtype), scale, zero_point
        return values, scale, zero_point


class Conv1d(_Conv, dims=1):
    """A convolution of ``(N, C, L)``; see `Conv2d`."""


class Conv2d(_Conv, dims=2):
    """A two-dimensional convolution on integers, ``(N, C, H, W)``; arguments as for torch.nn.Conv2d.

    Attributes:
        scale, zero_point: of the output.

    Example:
        >>> import zeropoint
        >>> layer = Conv2d(1, 1, 3)
        >>> layer.set_weight_bias(zeropoint.quantize_per_tensor(torch.ones(1, 1, 3, 3), 0.5, 0, zeropoint.qint8), None)
        >>> layer.scale = 0.5
        >>> layer(zeropoint.quantize_per_tensor(torch.ones(1, 1, 3, 3), 0.1, 0, zeropoint.quint8)).dequantize()
        tensor([[[[9.]]]])
    """


class Conv3d(_Conv, dims=3):
    """A convolution of ``(N, C, D, H, W)``; see `Conv2d`."""


class _ConvTranspose(_ConvNd):
    """Transposed convolutions: weights are ``(in, out / groups, ...)``, per tensor or along axis 1."""

    _TRANSPOSED, _OPERATOR = True, "conv_transpose{}d"
    _graph_of = staticmethod(conv_transpose_graph)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        geometry = (kernel_size, stride, padding, dilation, output_padding)
        self._set_up(in_channels, out_channels, *geometry, groups, bias, padding_mode)

    @classmethod
    def _along_outputs(cls, layer: Any) -> Any:
        inner = getattr(layer.observer, "activation_post_process", layer.observer)
        if "per_channel" in str(inner.qscheme) and inner.ch_axis != 1:
            inner.ch_axis = layer.observer.ch_axis = 1  # a fake quantization has an axis, too
            inner.reset_min_max_vals()
            layer.observer(layer.weight)
        return layer.observer


class ConvTranspose1d(_ConvTranspose, dims=1):
    """A transposed convolution of 1 dimension; arguments as for torch.nn.ConvTranspose1d."""


class ConvTranspose2d(_ConvTranspose, dims=2):
    """A transposed convolution of 2 dimensions; arguments as for torch.nn.ConvTranspose2d."""


class ConvTranspose3d(_ConvTranspose, dims=3):
    """A transposed convolution of 3 dimensions; arguments as for torch.nn.ConvTranspose3d."""
