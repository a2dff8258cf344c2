"""Arithmetic between tensors as modules: what stands in a float model for an operator that has to be observed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.nn.quantized.storage import QuantizedOutput, integers_of, output_qparams, quantized
from zeropoint.nn.simulated_tensor import moved, observed, plain
from zeropoint.numerics import scalars
from zeropoint.qfunctions import elementwise, packed
from zeropoint.tensor.recording import is_recorded


class _Functional(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("this module cannot be called: use its methods, as in self.functional.add(x, y)")


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


def _binary(name: str, op: Any, eager: Any, what: str) -> Any:
    """The method for a function of two tensors: `eager`, or, in code that is recorded, the operator `op`."""

    def method(self: Any, x: Tensor, y: Tensor) -> Tensor:
        if not torch.jit.is_scripting() and not is_recorded():
            return self._logged(eager(x, y, self.scale, self.zero_point))
        r = op(
            *integers_of(x), *integers_of(y), self.scale,
            self.zero_point,
        )  # fmt: skip
        return quantized(r, self.scale, self.zero_point)

    method.__name__, method.__doc__ = name, what  # torch.jit.script goes by the name
    return method


class QFunctional(QuantizedOutput):
    """add, mul, cat, matmul and relatives on quantized tensors; results have its `scale` and `zero_point`.

    `add_scalar` and `mul_scalar` do without: their results have those of the input, moved or scaled.

    Example:
        >>> import zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 0, zeropoint.quint8)
        >>> QFunctional().add(q, q).dequantize()
        tensor([2., 4.])
    """

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("this module cannot be called: use its methods, as in self.functional.add(x, y)")

    @torch.jit.unused
    def _logged(self, r: Tensor) -> Tensor:
        """`r`, seen by a logger of the numeric suite if there is one."""
        logger = self._modules.get("activation_post_process")
        return r if logger is None else logger(r)

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    add = _binary("add", torch.ops.zeropoint.add, elementwise.add, "``x + y``")
    add_relu = _binary("add_relu", torch.ops.zeropoint.add_relu, elementwise.add_relu, "``relu(x + y)``")
    mul = _binary("mul", torch.ops.zeropoint.mul, elementwise.mul, "``x * y``")
    matmul = _binary("matmul", torch.ops.zeropoint.matmul, packed.matmul, "``x @ y``")

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` for a number `y`."""
        if not torch.jit.is_scripting() and not is_recorded():
            return elementwise.add_scalar(x, y)
        q, scale, zero_point = integers_of(x)
        if torch.jit.is_scripting():
            new_scale, new_zero_point = torch.ops.zeropoint.add_scalar_parameters(scale, zero_point, y, q.dtype)
        else:
            new_scale, new_zero_point = scalars.sum_parameters(scale, zero_point, y, q.dtype)
        return quantized(torch.ops.zeropoint.add_scalar(q, scale, zero_point, y), new_scale, new_zero_point)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` for a number `y`."""
        if not torch.jit.is_scripting() and not is_recorded():
            return elementwise.mul_scalar(x, y)
        q, scale, zero_point = integers_of(x)
        if torch.jit.is_scripting():
            new_scale, new_zero_point = torch.ops.zeropoint.mul_scalar_parameters(scale, zero_point, y, q.dtype)
        else:
            new_scale, new_zero_point = scalars.product_parameters(scale, zero_point, y, q.dtype)
        return quantized(torch.ops.zeropoint.mul_scalar(q, scale, zero_point, y), new_scale, new_zero_point)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """Tensors one after the other along `dim`."""
        if not torch.jit.is_scripting() and not is_recorded():
            return self._logged(elementwise.cat(x, dim, self.scale, self.zero_point))
        read = [integers_of(t) for t in x]
        values, scales, zero_points = [t[0] for t in read], [t[1] for t in read], [t[2] for t in read]
        y = torch.ops.zeropoint.cat(values, scales, zero_points, dim, self.scale, self.zero_point)
        return quantized(y, self.scale, self.zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        """What a calibrated `FloatFunctional` becomes."""
        return cls(*output_qparams(mod))
