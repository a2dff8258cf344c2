"""Arithmetic between tensors as modules: what stands in a float model for an operator that has to be observed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zeropoint.nn.flow import moved, observed, plain

__all__ = ["FXFloatFunctional", "FloatFunctional"]


class _Functional(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError(f"{type(self).__name__} is not called: use its methods, as in self.functional.add(x, y)")


class FloatFunctional(_Functional):
    """add, mul, cat, matmul and relatives on floats, observed by `activation_post_process`.

    Example:
        >>> FloatFunctional().add_relu(torch.tensor(1.0), torch.tensor(-2.0))
        tensor(0.)
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process: nn.Module = nn.Identity()

    def _observed(self, r: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            return self.activation_post_process(r)
        else:
            if type(self.activation_post_process) is nn.Identity:
                return r
            return observed(self.activation_post_process, r)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``"""
        return self._observed(torch.add(_floats(x), _floats(y)))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` for a number `y`; not observed, because only the zero point changes."""
        return _moved(torch.add(_floats(x), y), x)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``"""
        return self._observed(torch.mul(_floats(x), _floats(y)))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` for a number `y`; not observed, because only the scale changes."""
        return _moved(torch.mul(_floats(x), y), x)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """Tensors one after the other along `dim`."""
        return self._observed(torch.cat([_floats(t) for t in x], dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)``"""
        return self._observed(torch.relu(torch.add(_floats(x), _floats(y))))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x @ y``"""
        return self._observed(torch.matmul(_floats(x), _floats(y)))


def _floats(x: Tensor) -> Tensor:
    if torch.jit.is_scripting():
        return x
    else:
        return plain(x)


def _moved(r: Tensor, x: Tensor) -> Tensor:
    if torch.jit.is_scripting():
        return r
    else:
        return moved(r, x)


class FXFloatFunctional(_Functional):
    """As `FloatFunctional`, without an observer: graph mode puts its own."""

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``"""
        return torch.add(x, y)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` for a number `y`."""
        return torch.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``"""
        return torch.mul(x, y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` for a number `y`."""
        return torch.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """Tensors one after the other along `dim`."""
        return torch.cat(x, dim=dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)``"""
        return torch.relu(torch.add(x, y))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x @ y``"""
        return torch.matmul(x, y)
