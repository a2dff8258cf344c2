"""Checkpoints of GPTQ and AWQ: 4-bit integers in int32, with zero points and float16 scales for groups of inputs.

A weight is ``(q - zero) * scale``. The integers are kept. Where all zero points are 8, so is everything else; otherwise
``-zero * scale`` is rounded to float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zeropoint.generation.decoder import Matrix
from zeropoint.generation.group_weights import UNIT, GroupMatrix
from zeropoint.generation.tensor_files import Tensors

_LARGEST_GROUP = 256  # of the kernels; larger ones repeat their scales
_MIDDLE = 8
# The output that each four bits of an int32 of AWQ belong to.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True)
class PackedCheckpoint:
    """How the weights of a checkpoint are packed.

    Args:
        method: "gptq" or "awq".
        group: inputs that share a scale; -1 is all.
        shift: what is added to zero points as they are stored.
    """

    PARTS = ("qweight", "qzeros", "scales", "g_idx")

    method: str
    group: int
    shift: int

    @classmethod
    def of(cls, config: Any) -> PackedCheckpoint | None:
        """What the entry quantization_config of a config.json says; None if there is none.

        Raises:
            ValueError: if it is not supported.
        """
        if config is None:
            return None
        found = config if isinstance(config, Mapping) else {}
        method, bits, group = (found.get(key) for key in ("quant_method", "bits", "group_size"))
        if method not in ("gptq", "awq") or bits != 4:
            raise ValueError(
                f"the weights of the model are quantized in a way that is not supported: {method!r} with {bits!r} bits;"
                " supported are gptq and awq with 4 bits. Pass the float model"
            )
        if type(group) is not int or (group != -1 and (group < UNIT or group % UNIT)):
            raise ValueError(f"group_size must be a multiple of {UNIT} or -1, got {group!r}")
        old = method == "gptq" and found.get("checkpoint_format", "gptq") == "gptq"
        return cls(method, group, 1 if old else 0)

    def matrix(self, tensors: Tensors, layer: str) -> tuple[Matrix, bool]:
        """The matrix of a layer, and whether it has exactly the numbers of the file."""
        scales, zeros = tensors.raw(f"{layer}.scales"), self._zeros(tensors, layer)
        packed = tensors.shape(f"{layer}.qweight")
        outputs = int(scales.shape[1])
        inputs = packed[0] * 8 if self.method == "gptq" else packed[0]
        group = inputs if self.group == -1 else self.group
        if scales.shape != zeros.shape or len(scales) * group != inputs:
            raise ValueError(f"{layer}: scales of shape {scales.shape} do not fit {inputs} inputs in groups of {group}")
        self._require_order(tensors, layer, inputs, group)
        repeated = self._repeats(group)
        minima = bool((zeros != _MIDDLE).any())

        def make() -> GroupMatrix:
            q = self._integers(tensors.raw(f"{layer}.qweight"))
            if q.shape != (outputs, inputs):
                raise ValueError(f"{layer}: integers of shape {q.shape} do not fit {outputs} outputs")
            scale = scales.T.repeat(repeated, 1)
            minimum = (-zeros.T.repeat(repeated, 1) * scale).astype(np.float16) if minima else None
            return GroupMatrix(4, q, scale.astype(np.float16), minimum)

        return Matrix(outputs, inputs, 4, group // repeated, minima, make), not minima

    @staticmethod
    def _repeats(group: int) -> int:
        if group <= _LARGEST_GROUP:
            return 1
        size = next((n for n in (_LARGEST_GROUP, 128, 64, UNIT) if group % n == 0), None)
        if size is None:
            raise ValueError(f"groups of {group} inputs are no multiple of {UNIT}")
        return group // size

    def _integers(self, packed: np.ndarray) -> np.ndarray:
        """(outputs, inputs) of an int32 tensor."""
        if self.method == "gptq":  # eight inputs in a number
            return _unpacked(packed.T, range(8))
        return np.ascontiguousarray(_unpacked(packed, _AWQ_ORDER).T)

    def _zeros(self, tensors: Tensors, layer: str) -> np.ndarray:
        """(groups, outputs), as float32."""
        order = range(8) if self.method == "gptq" else _AWQ_ORDER
        return _unpacked(tensors.raw(f"{layer}.qzeros"), order).astype(np.float32) + self.shift

    @staticmethod
    def _require_order(tensors: Tensors, layer: str, inputs: int, group: int) -> None:
        """Refuse groups whose inputs are not neighbours."""
        if f"{layer}.g_idx" not in tensors.names():
            return
        if not np.array_equal(tensors.raw(f"{layer}.g_idx"), np.arange(inputs) // group):
            raise ValueError(f"{layer} has its inputs in another order (desc_act), which is not supported")


def _unpacked(packed: np.ndarray, order: Any) -> np.ndarray:
    """Eight numbers of four bits from each int32, along the last axis."""
    words = np.ascontiguousarray(packed).view(np.uint32)[..., None]
    values = (words >> np.arange(0, 32, 4, dtype=np.uint32) & 15).astype(np.uint8)
    found = np.empty_like(values)
    found[..., list(order)] = values
    return found.reshape(*packed.shape[:-1], -1)
