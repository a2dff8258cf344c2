"""LSTM on quantized tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.context import CONTEXT
from zeropoint.nn.quantizable import lstm as quantizable
from zeropoint.nn.quantizable.lstm import joint_qparams
from zeropoint.nn.quantized.lstm_sequence import whole_sequence
from zeropoint.nn.quantized.storage import integers_of, quantized
from zeropoint.tensor.recording import is_recorded


class _Cell(quantizable.LSTMCell):
    def _begin(self, x: Tensor) -> tuple[Tensor, Tensor]:
        zeros = _zeros([x.shape[0], self.hidden_size], x)
        return zeros, zeros

    def _get_name(self) -> str:
        return "QuantizedLSTMCell"


class _Direction(quantizable._Direction):
    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        given = self.cell.of_input(x)  # for all steps at once
        if torch.jit.is_scripting():
            return self._steps(x, given, h, c)
        else:
            at_once = whole_sequence(self.cell, given, h, c)
            return self._steps(x, given, h, c) if at_once is None else at_once

    def _steps(self, x: Tensor, given: list[Tensor], h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        results: list[Tensor] = []
        for i in range(x.shape[0]):
            h, c = self.cell.step([g[i] for g in given], h, c)
            results.append(h)
        return torch.stack(results), h, c


class _Layer(quantizable._Layer):
    def _joined(self, parts: list[Tensor], dim: int) -> Tensor:
        return _joined(parts, dim)


class LSTM(quantizable.LSTM):
    """An LSTM whose every step is computed on integers, from an observed one (`zeropoint.nn.quantizable.LSTM`).

    Example:
        >>> import zeropoint
        >>> model = zeropoint.QuantWrapper(torch.nn.LSTM(2, 2)).eval()
        >>> model.dequant = torch.nn.Identity()
        >>> model.qconfig = zeropoint.default_qconfig
        >>> prepared = zeropoint.prepare(model)
        >>> _ = prepared(torch.randn(8, 1, 2))
        >>> type(zeropoint.convert(prepared).module)
        <class 'zeropoint.nn.quantized.lstm.LSTM'>
    """

    _FLOAT_MODULE: Any = quantizable.LSTM

    def _zeros(self, shape: list[int], x: Tensor) -> Tensor:
        return _zeros(shape, x)

    def _joined(self, parts: list[Tensor], dim: int) -> Tensor:
        return _joined(parts, dim)

    def _get_name(self) -> str:
        return "QuantizedLSTM"

    @classmethod
    def from_float(cls, *args: Any, **kwargs: Any) -> Any:
        """There is none: an LSTM is observed first."""
        raise NotImplementedError(
            "zeropoint.nn.quantized.LSTM is created from an observed module: call zeropoint.prepare on the model "
            "(it replaces nn.LSTM with zeropoint.nn.quantizable.LSTM), calibrate, then call zeropoint.convert"
        )

    @classmethod
    def from_observed(cls, other: Any) -> LSTM:
        """The quantized LSTM of a calibrated or trained `zeropoint.nn.quantizable.LSTM`."""
        quantizable._require_type(cls, other)
        made: Any = CONTEXT.convert(other, inplace=False, remove_qconfig=True)
        made.__class__ = cls
        made._take_parts()
        return made.eval()

    def _take_parts(self) -> None:
        """Let the layers and cells, which were observed, be quantized ones, as the modules in them are."""
        for layer in self.layers:
            layer.__class__ = _Layer
            for direction in layer.children():
                direction.__class__ = _Direction
                direction.cell.__class__ = _Cell


def _zeros(shape: list[int], x: Tensor) -> Tensor:
    return quantized(torch.zeros(shape, dtype=torch.ops.zeropoint.int_repr(x).dtype, device=x.device), 1.0, 0)


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    if torch.jit.is_scripting():
        return _joined_graph(parts, dim)
    else:
        return _joined_graph(parts, dim) if is_recorded() else quantizable.joined(parts, dim)


def _joined_graph(parts: list[Tensor], dim: int) -> Tensor:
    read = [integers_of(p) for p in parts]
    values, scales, zero_points = [p[0] for p in read], [p[1] for p in read], [p[2] for p in read]
    scale, zero_point = scales[0], zero_points[0]
    for i in range(1, len(parts)):
        if scales[i] != scales[0] or zero_points[i] != zero_points[0]:
            bounds = (0, 255) if values[0].dtype == torch.uint8 else (-128, 127)
            scale, zero_point = joint_qparams(scales, zero_points, bounds[0], bounds[1])
    y = torch.ops.zeropoint.cat(values, scales, zero_points, dim, scale, zero_point)
    return quantized(y, scale, zero_point)
