"""Where a model's quantized regions begin and end."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class _Stub(nn.Module):
    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class QuantStub(_Stub):
    """Passes floats through; an observer after it learns their range, and `convert` makes it a `Quantize`.

    Example:
        >>> QuantStub()(1.0)
        1.0
    """


class DeQuantStub(_Stub):
    """Passes floats through; `convert` makes it a `DeQuantize`.

    Example:
        >>> DeQuantStub()(1.0)
        1.0
    """


class QuantWrapper(nn.Module):
    """A module between a `QuantStub` and a `DeQuantStub`.

    Example:
        >>> QuantWrapper(nn.Linear(1, 1))
        QuantWrapper(
          (quant): QuantStub()
          (dequant): DeQuantStub()
          (module): Linear(in_features=1, out_features=1, bias=True)
        )
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant = QuantStub(qconfig)
        self.dequant = DeQuantStub(qconfig)
        self.module = module
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        return self.dequant(self.module(self.quant(X)))
