"""Float modules that will become one quantized layer: sequences of two or three that `fuse_modules` put together."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.fake_quant.base import FakeQuantizeBase


class FusedModule(nn.Sequential):
    """Modules that observers see as one; `PARTS` are their types.

    Example:
        >>> ConvReLU2d(nn.Conv2d(1, 1, 1), nn.ReLU())
        ConvReLU2d(
          (0): Conv2d(1, 1, kernel_size=(1, 1), stride=(1, 1))
          (1): ReLU()
        )
    """

    PARTS: ClassVar[tuple[type, ...]] = ()

    def __init__(self, *parts: nn.Module) -> None:
        kinds = [type_before_parametrizations(m) for m in parts]
        if self.PARTS and (len(kinds) != len(self.PARTS) or not all(map(issubclass, kinds, self.PARTS))):
            raise TypeError(
                f"{type(self).__name__} takes {', '.join(t.__name__ for t in self.PARTS)}; got "
                f"{', '.join(t.__name__ for t in kinds)}"
            )
        super().__init__(*parts)

    def forward(self, input: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            for part in self:
                input = part(input)
            return input
        else:
            return self._run(input)

    def _run(self, x: Tensor) -> Tensor:
        """The parts in turn.

        What `prepare` adds is one of them: an observer, which so sees each result twice, as in torch.ao. A fake
        quantization must not: it would cut results to its own range, not to that of the type (see
        `nn.simulated_tensor.observed`).
        """
        for part in self:
            if not isinstance(part, FakeQuantizeBase):
                x = part(x)
        return x


def _fused(name: str, *parts: type) -> Any:
    what = " followed by ".join(t.__name__ for t in parts)
    return type(name, (FusedModule,), {"PARTS": parts, "__doc__": f"{what}, as one.", "__module__": __name__})


ConvReLU1d = _fused("ConvReLU1d", nn.Conv1d, nn.ReLU)
ConvReLU2d = _fused("ConvReLU2d", nn.Conv2d, nn.ReLU)
ConvReLU3d = _fused("ConvReLU3d", nn.Conv3d, nn.ReLU)
ConvBn1d = _fused("ConvBn1d", nn.Conv1d, nn.BatchNorm1d)
ConvBn2d = _fused("ConvBn2d", nn.Conv2d, nn.BatchNorm2d)
ConvBn3d = _fused("ConvBn3d", nn.Conv3d, nn.BatchNorm3d)
ConvBnReLU1d = _fused("ConvBnReLU1d", nn.Conv1d, nn.BatchNorm1d, nn.ReLU)
ConvBnReLU2d = _fused("ConvBnReLU2d", nn.Conv2d, nn.BatchNorm2d, nn.ReLU)
ConvBnReLU3d = _fused("ConvBnReLU3d", nn.Conv3d, nn.BatchNorm3d, nn.ReLU)
BNReLU2d = _fused("BNReLU2d", nn.BatchNorm2d, nn.ReLU)
BNReLU3d = _fused("BNReLU3d", nn.BatchNorm3d, nn.ReLU)
LinearReLU = _fused("LinearReLU", nn.Linear, nn.ReLU)
LinearBn1d = _fused("LinearBn1d", nn.Linear, nn.BatchNorm1d)
LinearLeakyReLU = _fused("LinearLeakyReLU", nn.Linear, nn.LeakyReLU)
LinearTanh = _fused("LinearTanh", nn.Linear, nn.Tanh)


class ConvAdd2d(FusedModule):
    """``add(conv(x), other)``: `add` is a function of two tensors, or a module of one."""

    def __init__(self, conv: nn.Module, add: Any) -> None:
        super().__init__(conv)
        self.add = add

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:  # type: ignore[override]
        """`x1` goes through the convolution, `x2` is added."""
        return self.add(self[0](x1), x2)


class ConvAddReLU2d(FusedModule):
    """``relu(add(conv(x), other))``."""

    def __init__(self, conv: nn.Module, add: Any, relu: nn.Module) -> None:
        super().__init__(conv)
        self.add = add
        self.relu = relu

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:  # type: ignore[override]
        """`x1` goes through the convolution, `x2` is added."""
        return self.relu(self.add(self[0](x1), x2))
