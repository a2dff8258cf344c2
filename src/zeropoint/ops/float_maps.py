"""Functions of float32 tensors, element by element, for what a model leaves unquantized.

PyTorch's own differ from CPU to CPU in the last bits, even its square root. These are computed in float64 with one
fixed formula each and rounded once (`native/kernels/map/functions.h`), and programs of the engine use them too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.ops import checks
from zeropoint.ops.library import operator

UNARY = (
    "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "erfcx", "ndtri", "log_ndtr", "lgamma",
    "digamma", "i0", "i0e", "i1", "i1e", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0", "airy_ai",
    "mantissa", "exponent",
)  # fmt: skip
BINARY = (
    "pow", "atan2", "hypot", "floor_divide", "remainder", "fmod", "maximum", "minimum", "copysign", "nextafter",
    "zeta",
    "polygamma", "igamma", "igammac", "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
    "chebyshev_polynomial_w", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "hermite_polynomial_h",
    "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
)  # fmt: skip


def _require(op: str, function: str, known: tuple[str, ...], **tensors: Tensor) -> None:
    if function not in known:
        raise ValueError(f"{op}: function must be one of {', '.join(known)}, got {function!r}")
    for name, x in tensors.items():
        checks.require_dtype(op, name, x.dtype, (torch.float32,))
        if x.device.type != "cpu":
            raise NotImplementedError(f"{op}: {name} is on {x.device}, its kernels run on the CPU: call .cpu() first")


@operator(fake=lambda input, function: torch.empty_like(input))
def float_unary(input: Tensor, function: str) -> Tensor:
    """A function of each number: "exp", "log", "sin", ...; `UNARY` has their names.

    Example:
        >>> float_unary(torch.tensor([0.0, 1.0]), "exp")
        tensor([1.0000, 2.7183])
    """
    _require("float_unary", function, UNARY, input=input)
    y = torch.empty_like(input)
    x = input if y.stride() == input.stride() else y.copy_(input)  # there may be gaps between the elements of input
    _native.float_map(function, x.data_ptr(), 0, y.data_ptr(), x.numel())
    return y


def _fake_binary(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(torch.broadcast_shapes(a.shape, b.shape))


@operator(fake=_fake_binary)
def float_binary(a: Tensor, b: Tensor, function: str) -> Tensor:
    """A function of two numbers, of tensors that broadcast: "pow", "atan2", "hypot", ...; `BINARY` has their names.

    Example:
        >>> float_binary(torch.tensor([1.0, 2.0, 3.0]), torch.tensor(3.0), "pow")
        tensor([ 1.,  8., 27.])
    """
    _require("float_binary", function, BINARY, a=a, b=b)
    y = _fake_binary(a, b)
    if not y.numel():  # which has no memory
        return y
    left, right = (t.expand(y.shape).contiguous() for t in (a, b))
    _native.float_map(function, left.data_ptr(), right.data_ptr(), y.data_ptr(), y.numel())
    return y
