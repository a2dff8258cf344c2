"""The float computation of a layer with a weight, also as one matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Operation:
    """A linear layer (no `dims`) or a convolution over `dims` axes, of an input, a weight and a bias.

    Example:
        >>> Operation(relu=True)(torch.ones(1, 2), torch.tensor([[1.0, 1.0], [-1.0, 0.0]]), None)
        tensor([[2., 0.]])
    """

    dims: int = 0
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    output_padding: tuple[int, ...] | None = None  # of a transposed convolution
    relu: bool = False

    @classmethod
    def of_arguments(cls, arguments: dict[str, Any], dims: int, relu: bool) -> Operation:
        """The operation of a node or a module, from its arguments by their names."""
        if dims == 0:
            return cls(relu=relu)

        def numbers(name: str) -> tuple[int, ...]:
            value = arguments[name]
            found = tuple(value) if isinstance(value, (list, tuple)) else (value,)
            return found * dims if len(found) == 1 else found

        outside = numbers("output_padding") if "output_padding" in arguments else None
        shape = numbers("stride"), numbers("padding"), numbers("dilation")
        return cls(dims, *shape, int(arguments["groups"]), outside, relu)

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.dims == 0:
            y = F.linear(x, weight, bias)
        elif self.output_padding is None:
            convolution: Any = getattr(F, f"conv{self.dims}d")
            y = convolution(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        else:
            transposed: Any = getattr(F, f"conv_transpose{self.dims}d")
            rest = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
            y = transposed(x, weight, bias, *rest)
        return y.relu() if self.relu else y

    @property
    def has_matrix(self) -> bool:
        """Whether `columns` and `matrix` are there: not for transposed convolutions and those over three axes."""
        return self.dims < 3 and self.output_padding is None

    @property
    def channel_axis(self) -> int:
        """The axis of results that counts output channels."""
        return -1 if self.dims == 0 else -1 - self.dims

    def matrix(self, weight: Tensor) -> Tensor:
        """A weight as ``(groups, outputs of a group, inputs of one output)``."""
        return weight.reshape(self.groups, weight.shape[0] // self.groups, -1)

    def columns(self, x: Tensor, weight: Tensor) -> Tensor:
        """An input as ``(groups, rows, inputs of one output)``: ``columns @ matrix.mT`` are the results.

        Example:
            >>> x, w = torch.randn(2, 4, 5, 5), torch.randn(6, 2, 3, 3)
            >>> conv = Operation(2, (1, 1), (0, 0), (1, 1), 2)
            >>> y = conv.columns(x, w) @ conv.matrix(w).mT
            >>> torch.allclose(y.movedim(0, 1).reshape(2, 9, 6).mT.reshape(2, 6, 3, 3), conv(x, w, None), atol=1e-4)
            True
        """
        if self.dims == 0:
            return x.reshape(1, -1, x.shape[-1])
        shape, stride, padding, dilation = weight.shape[2:], self.stride, self.padding, self.dilation
        if x.dim() == self.dims + 1:
            x = x[None]
        if self.dims == 1:
            x, shape = x.unsqueeze(2), torch.Size((1, *shape))
            stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
        spread = F.unfold(x, shape, dilation, padding, stride)  # (N, channels * window, places)
        return spread.unflatten(1, (self.groups, -1)).permute(1, 0, 3, 2).flatten(1, 2)
