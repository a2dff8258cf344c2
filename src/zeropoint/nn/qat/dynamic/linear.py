"""Linear layers in training whose activations will be quantized as they come."""

from __future__ import annotations

from typing import Any

from zeropoint.nn.qat import linear
from zeropoint.qconfig import activation_is_memoryless


class Linear(linear.Linear):
    """`zeropoint.nn.qat.Linear` for a qconfig whose observer of activations keeps nothing from batch to batch.

    Example:
        >>> import zeropoint
        >>> type(Linear(2, 3, qconfig=zeropoint.default_dynamic_qat_qconfig)).__name__
        'Linear'
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, qconfig: Any = None, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, qconfig, device, dtype)
        if not activation_is_memoryless(qconfig):
            raise ValueError(  # the words that torch.ao says, which programs look for
                "Dynamic QAT requires a memoryless observer.This means a MovingAverage observer with averaging constant"
                f" equal to 1; got {qconfig.activation}"
            )
