"""A quantized module with its float form beside it, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from zeropoint.tensor.create import dequantize
from zeropoint.tensor.qtensor import QTensor


def floats(value: Any) -> Any:
    """`value` with every quantized tensor in it dequantized."""
    if isinstance(value, (tuple, list)):
        return [floats(part) for part in value]
    return dequantize(value) if isinstance(value, QTensor) else value


class Shadow(nn.Module):
    """Calls a quantized module, then its float form on the dequantized inputs, and shows both results to a logger.

    Args:
        q_module: what computes; its result is the result.
        float_module: the shadow.
        logger_cls: makes the logger, which is called with both results.
    """

    def __init__(self, q_module: nn.Module, float_module: nn.Module, logger_cls: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.orig_module, self.shadow_module, self.logger = q_module, float_module, logger_cls()

    def _both(self, quantized: Callable[..., Any], shadow: Callable[..., Any], *args: Any) -> Any:
        output = quantized(*args)
        self.logger(output, shadow(*(floats(arg) for arg in args)))
        return output

    def forward(self, *x: Any) -> Any:
        return self._both(self.orig_module, self.shadow_module, *x)

    # A QFunctional is not called: its methods are.

    def _method(self, name: str, *args: Any) -> Any:
        return self._both(getattr(self.orig_module, name), getattr(self.shadow_module, name), *args)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``"""
        return self._method("add", x, y)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` for a number `y`."""
        return self._method("add_scalar", x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``"""
        return self._method("mul", x, y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` for a number `y`."""
        return self._method("mul_scalar", x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """Tensors one after the other along `dim`."""
        return self._method("cat", x, dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)``"""
        return self._method("add_relu", x, y)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x @ y``"""
        return self._method("matmul", x, y)
