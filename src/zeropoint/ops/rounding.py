"""How layers, sums and means with 8-bit results round: as we do, or as an engine of PyTorch's old stack does.

``s = x_scale * weight_scale``, ``m = s / scale``, operation by operation in float32; ``rne`` rounds halves to even:

- ``zeropoint``: ``rne(acc * m + bias / scale) + zero_point``
- ``fbgemm``: ``rne((acc + bias / s) * m) + zero_point``; with one weight scale for all ``fma(bias, 1 / s, acc)``
- ``qnnpack``: ``rne((acc + rne(bias / s)) * (s * (1 / scale))) + zero_point``; with one ``bias * (1 / s)``
- ``onednn``: ``rne((acc * (1 / (1 / x_scale)) * weight_scale + bias) * (1 / scale) + zero_point)``

Linear layers of dynamic quantization give ``acc * s + bias``, those of ``fbgemm`` ``fma(acc, s, bias)``.

Results differ by one step at most, and rarely. A layer keeps the rounding that was chosen when it was made.

QNNPACK has its own forms of some operators on uint8, which are taken where `of_values` says so when they run:

- sums of tensors of one shape: in fixed point, halves away from zero (`zeropoint.numerics.binary`)
- avg_pool2d without ceil_mode, adaptive_avg_pool2d to windows of one size, the mean over axes (2, 3):
  ``rne(sum * (scale / (scale * n))) + zero_point`` in every layout
- hardswish: ``rne(y * (1 / scale) + zero_point)``

Layers of dynamic quantization round what they get to 7 bits if they are asked to (`reduce_range`), QNNPACK's never.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from zeropoint.context import CONTEXT

OURS = "zeropoint"
# By their numbers in the native core (native/operators/rounding.h) and in programs.
CODES = {OURS: 0, "fbgemm": 1, "qnnpack": 2, "onednn": 3}

QNNPACK = "qnnpack"


def chosen(zero_points: Tensor, groups: int = 0, output_padding: Sequence[int] = ()) -> str:
    """The rounding of a layer that is made now.

    Example:
        >>> import torch
        >>> chosen(torch.zeros(1, dtype=torch.int64))
        'zeropoint'
    """
    choose = CONTEXT.rounding_of_layer
    return OURS if choose is None else choose(zero_points, groups, output_padding)


def of_values() -> str:
    """The rounding of sums, means and functions that run now: zeropoint's, or that of QNNPACK.

    Example:
        >>> of_values()
        'zeropoint'
    """
    choose = CONTEXT.rounding_of_values
    return OURS if choose is None else choose()


def takes_7_bits(reduce_range: bool, rounding: str) -> bool:
    """Whether a layer of dynamic quantization with this rounding quantizes its input to 7 bits, if `reduce_range` asks.

    zeropoint.compat.scripted writes it out: code in files of TorchScript calls no functions.

    Example:
        >>> takes_7_bits(True, "fbgemm"), takes_7_bits(True, "qnnpack")
        (True, False)
    """
    return reduce_range and rounding != "qnnpack"


def linear_takes_7_bits() -> bool:
    """Whether a linear layer of dynamic quantization that is made now quantizes its input to 7 bits.

    Example:
        >>> linear_takes_7_bits()
        False
    """
    return takes_7_bits(CONTEXT.reduces_range, chosen(torch.zeros(1)))


def code(op: str, rounding: str) -> int:
    """The number of a rounding.

    Example:
        >>> code("linear", "fbgemm")
        1
    """
    if rounding not in CODES:
        raise ValueError(f"{op}: rounding must be one of {', '.join(CODES)}, got {rounding!r}")
    return CODES[rounding]
