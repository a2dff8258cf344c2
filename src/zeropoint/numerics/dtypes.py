"""The quantized dtypes: what integers a tensor may hold and how they are stored."""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from zeropoint.numerics.named_constant import Named, constant_of

if TYPE_CHECKING:
    import torch


class QuantizedDtype(Named):
    """An integer type with `bits` bits, held in elements of type `storage`.

    The range follows from the bits: ``[0, 2**bits - 1]`` if unsigned, ``[-2**(bits-1), 2**(bits-1) - 1]`` if signed.
    Sub-byte types hold ``8 / bits`` values in a byte, low bits first.

    Example:
        >>> from zeropoint import quint4x2
        >>> quint4x2.qmin, quint4x2.qmax, quint4x2.per_byte
        (0, 15, 2)
    """

    # Attributes and no properties, as torch.compile looks at dtypes and cannot follow those.
    _of_torch = "dtype"
    bits: int
    signed: bool
    storage: str
    qmin: int
    qmax: int
    per_byte: int  # values in a byte; 1 for types of a byte or more
    itemsize: int  # bytes of one storage element

    def __init__(self, name: str, bits: int, signed: bool) -> None:
        width, levels = max(bits, 8), 1 << bits
        vars(self).update(
            name=name,
            bits=bits,
            signed=signed,
            storage=f"{'int' if signed else 'uint'}{width}",
            qmin=-levels // 2 if signed else 0,
            qmax=levels // 2 - 1 if signed else levels - 1,
            per_byte=max(8 // bits, 1),
            itemsize=width // 8,
        )

    @functools.cached_property
    def torch_storage(self) -> torch.dtype:
        """The torch dtype of the storage; needs torch."""
        import torch

        return getattr(torch, self.storage)

    def __reduce__(self) -> Any:
        return self.name if self._is_torchs else (quantized_dtype, (self.name,))


qint8 = QuantizedDtype("qint8", 8, signed=True)
quint8 = QuantizedDtype("quint8", 8, signed=False)
qint32 = QuantizedDtype("qint32", 32, signed=True)
quint4x2 = QuantizedDtype("quint4x2", 4, signed=False)
quint2x4 = QuantizedDtype("quint2x4", 2, signed=False)

DTYPES = MappingProxyType({d.name: d for d in (qint8, quint8, qint32, quint4x2, quint2x4)})


def quantized_dtype(dtype: Any) -> QuantizedDtype:
    """The quantized dtype that `dtype` means: one of zeropoint's, its name, or torch's dtype of the same name.

    Raises:
        TypeError: if it is none of these.

    Example:
        >>> quantized_dtype("qint8")
        zeropoint.qint8
    """
    return constant_of("dtype", dtype, QuantizedDtype, DTYPES)
