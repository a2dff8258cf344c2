"""Matrices of 4- or 8-bit integers with a float16 scale for each group of inputs: made, joined, packed.

A weight is ``(q - zero) * scale`` with q unsigned and zero 8 or 128, or, with minima, ``q * scale + minimum``. Packing
puts 16 outputs side by side, as `native/kernels/group_gemm/group_gemm.h` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

PANEL, UNIT = 16, 32
_ROWS = 1 << 22  # elements that are rounded at once
# Scales that are tried for each group, as shares of the one that reaches its largest number.
_SHARES = (1.0, 0.96, 0.92, 0.88, 0.84, 0.8)


@dataclass(frozen=True)
class GroupMatrix:
    """A matrix (outputs, inputs).

    Args:
        bits: 4 or 8.
        q: uint8 of shape (outputs, inputs).
        scale: float16 of shape (outputs, groups).
        minimum: float16 of the same shape, or None.
    """

    bits: int
    q: np.ndarray
    scale: np.ndarray
    minimum: np.ndarray | None = None

    @property
    def outputs(self) -> int:
        """Rows of the matrix."""
        return int(self.q.shape[0])

    @property
    def inputs(self) -> int:
        """Columns of the matrix."""
        return int(self.q.shape[1])

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return self.inputs // int(self.scale.shape[1])

    def floats(self) -> np.ndarray:
        """The matrix in float32."""
        zero = 0 if self.minimum is not None else 1 << (self.bits - 1)
        q = self.q.astype(np.float32).reshape(self.outputs, -1, self.group) - np.float32(zero)
        w = q * self.scale.astype(np.float32)[..., None]
        if self.minimum is not None:
            w += self.minimum.astype(np.float32)[..., None]
        return w.reshape(self.q.shape)

    def rows(self, rows: slice | np.ndarray) -> GroupMatrix:
        """Some rows, by a slice or their numbers."""
        minimum = None if self.minimum is None else self.minimum[rows]
        return replace(self, q=self.q[rows], scale=self.scale[rows], minimum=minimum)

    def as_form(self, bits: int, minima: bool) -> GroupMatrix:
        """The same numbers with more bits, or with minima."""
        found = self
        if bits > found.bits:
            raised = 0 if found.minimum is not None else (1 << (bits - 1)) - (1 << (found.bits - 1))
            found = replace(found, bits=bits, q=found.q + np.uint8(raised))
        if minima and found.minimum is None:
            found = replace(found, minimum=found.scale * np.float16(-(1 << (found.bits - 1))))
        return found

    @staticmethod
    def joined(parts: Sequence[GroupMatrix]) -> GroupMatrix:
        """Matrices with groups of one size, one below the other."""
        bits, minima = max(part.bits for part in parts), any(part.minimum is not None for part in parts)
        alike = [part.as_form(bits, minima) for part in parts]
        q, scale = np.concatenate([part.q for part in alike]), np.concatenate([part.scale for part in alike])
        lowest = [part.minimum for part in alike if part.minimum is not None]
        return GroupMatrix(bits, q, scale, np.concatenate(lowest) if minima else None)

    def packed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The integers (panels, units, bytes), the scales (panels, groups, 16) and the minima."""
        panels, units = -(-self.outputs // PANEL), self.inputs // UNIT
        q = _padded(self.q, panels)
        if self.bits == 8:
            lines = q.reshape(panels, PANEL, units, 8, 4).transpose(0, 2, 3, 1, 4)
        else:
            split = q.reshape(panels, PANEL, units, 4, 2, 4).transpose(0, 2, 3, 4, 1, 5)
            lines = split[:, :, :, 0] | split[:, :, :, 1] << 4
        data = np.ascontiguousarray(lines).reshape(panels, units, -1)
        return (
            data,
            self._parameters(self.scale, panels),
            (None if self.minimum is None else self._parameters(self.minimum, panels)),
        )

    @classmethod
    def unpacked(
        cls, bits: int, outputs: int, data: np.ndarray, scale: np.ndarray, minimum: np.ndarray | None
    ) -> GroupMatrix:
        """What `packed` gave."""
        panels, units, _ = data.shape
        if bits == 8:
            lines = data.reshape(panels, units, 8, PANEL, 4)
        else:
            split = data.reshape(panels, units, 4, PANEL, 4)
            lines = np.stack([split & 15, split >> 4], 3)  # (panels, units, 4, 2, PANEL, 4)
        q = np.moveaxis(lines, -2, 1).reshape(panels * PANEL, units * UNIT)[:outputs]

        def rows(values: np.ndarray) -> np.ndarray:
            return values.transpose(0, 2, 1).reshape(panels * PANEL, -1)[:outputs].astype(np.float16)

        return cls(bits, q, rows(scale), None if minimum is None else rows(minimum))

    def _parameters(self, values: np.ndarray, panels: int) -> np.ndarray:
        return np.ascontiguousarray(_padded(values, panels).reshape(panels, PANEL, -1).transpose(0, 2, 1))


def _padded(x: np.ndarray, panels: int) -> np.ndarray:
    missing = panels * PANEL - x.shape[0]
    return np.pad(x, ((0, missing), (0, 0))) if missing else x


def quantized(w: np.ndarray, bits: int, group: int, importance: np.ndarray | None = None) -> GroupMatrix:
    """A float matrix rounded to the nearest integers; of some scales for each group, the one with the least squared
    error.

    Args:
        importance: of the error of each input; by default they are alike.

    Raises:
        ValueError: if a number is not finite, or a group is larger than float16 can scale.

    Example:
        >>> w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
        >>> bool(np.abs(quantized(w, 8, 32).floats() - w).max() < 0.005)
        True
    """
    outputs, inputs = w.shape
    q = np.empty((outputs, inputs), np.uint8)
    scale = np.empty((outputs, inputs // group), np.float16)
    weight = np.ones(inputs, np.float32) if importance is None else importance.astype(np.float32)
    step = max(1, _ROWS // inputs)
    for row in range(0, outputs, step):
        part = w[row : row + step].astype(np.float32).reshape(-1, inputs // group, group)
        if not np.isfinite(part).all():
            raise ValueError("a weight is NaN or infinite")
        found, scales = _rounded(part, bits, weight.reshape(-1, group))
        q[row : row + step] = found.reshape(-1, inputs)
        scale[row : row + step] = scales
    return GroupMatrix(bits, q, scale)


def _rounded(x: np.ndarray, bits: int, importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unsigned integers of rows of groups, and their scales. The number of the largest size becomes the lowest integer,
    which is one further from zero than the highest.
    """
    zero = 1 << (bits - 1)
    largest = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)
    best = np.full(largest.shape, np.inf, np.float32)
    found = np.full(x.shape, zero, np.uint8)
    scales = np.zeros(largest.shape, np.float16)
    for share in _SHARES if bits == 4 else _SHARES[:1]:
        with np.errstate(over="ignore"):
            scale = (largest * np.float32(-share / zero)).astype(np.float16)
        if not np.isfinite(scale).all():
            raise ValueError(f"a weight of {float(np.abs(largest).max()):.3g} is too large for float16 scales")
        wide = scale.astype(np.float32)
        inverse = np.divide(1, wide, out=np.zeros_like(wide), where=wide != 0)
        q = np.clip(np.rint(x * inverse), -zero, zero - 1)
        error = (np.square(q * wide - x) * importance).sum(-1, keepdims=True)
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, scale, scales)
        found = np.where(better, (q + zero).astype(np.uint8), found)
    return found, scales[..., 0]
