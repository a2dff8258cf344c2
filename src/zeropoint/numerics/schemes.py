"""The quantization schemes: which elements share a scale, and whether zero is in the middle."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from zeropoint.numerics.named_constant import Named, constant_of


class QScheme(Named):
    """How quantization parameters are laid out over a tensor.

    Example:
        >>> from zeropoint import per_channel_symmetric
        >>> per_channel_symmetric.per_channel, per_channel_symmetric.symmetric
        (True, True)
    """

    _of_torch = "qscheme"
    per_channel: bool
    symmetric: bool
    float_zero_point: bool

    def __init__(self, name: str, per_channel: bool, symmetric: bool, float_zero_point: bool = False) -> None:
        facts = {"per_channel": per_channel, "symmetric": symmetric, "float_zero_point": float_zero_point}
        vars(self).update(name=name, **facts)

    def __reduce__(self) -> Any:
        return self.name if self._is_torchs else (qscheme, (self.name,))


per_tensor_affine = QScheme("per_tensor_affine", per_channel=False, symmetric=False)
per_tensor_symmetric = QScheme("per_tensor_symmetric", per_channel=False, symmetric=True)
per_channel_affine = QScheme("per_channel_affine", per_channel=True, symmetric=False)
per_channel_symmetric = QScheme("per_channel_symmetric", per_channel=True, symmetric=True)
per_channel_affine_float_qparams = QScheme(
    "per_channel_affine_float_qparams", per_channel=True, symmetric=False, float_zero_point=True
)

SCHEMES = MappingProxyType(
    {
        s.name: s
        for s in (
            per_tensor_affine,
            per_tensor_symmetric,
            per_channel_affine,
            per_channel_symmetric,
            per_channel_affine_float_qparams,
        )
    }
)


def qscheme(scheme: Any) -> QScheme:
    """The scheme that `scheme` means: one of zeropoint's, its name, or torch's qscheme of the same name.

    Raises:
        TypeError: if it is none of these.

    Example:
        >>> qscheme("per_tensor_affine")
        zeropoint.per_tensor_affine
    """
    return constant_of("scheme", scheme, QScheme, SCHEMES)
