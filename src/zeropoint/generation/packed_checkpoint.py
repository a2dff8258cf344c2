"""Checkpoints of GPTQ, AWQ, compressed-tensors and torchao: integers of 4 or 8 bits, with scales for groups of inputs.

A weight is ``(q - zero) * scale``. The integers are kept. Scales become float16, which is exact for those of float16
and for most of bfloat16; where zero points are not in the middle, ``-zero * scale`` is rounded to float16.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from zeropoint.generation.decoder import Matrix
from zeropoint.generation.group_weights import UNIT, GroupMatrix
from zeropoint.generation.tensor_files import Tensors

_LARGEST_GROUP = 256  # of the kernels; larger ones repeat their scales
# The output that each four bits of an int32 of AWQ belong to.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_SUPPORTED = (
    "supported are gptq and awq with 4 bits, compressed-tensors with 4 or 8 bits (pack-quantized, int-quantized), and"
    " torchao. Pass the float model"
)


class PackedCheckpoint(Protocol):
    """How the weights of a checkpoint are packed: `mark` is the tensor that every packed layer has, `parts` are all,
    and `outputs_axis` is the axis of `mark` that has the outputs.
    """

    @property
    def mark(self) -> str: ...
    @property
    def parts(self) -> tuple[str, ...]: ...
    @property
    def outputs_axis(self) -> int: ...

    def matrix(self, tensors: Tensors, layer: str) -> tuple[Matrix, str]:
        """The matrix of a layer, and what is rounded of it, or an empty text."""


def packed_checkpoint(config: Any) -> PackedCheckpoint | None:
    """What the entry quantization_config of a config.json says; None if there is none.

    Raises:
        ValueError: if it is not supported.
    """
    if config is None:
        return None
    found = config if isinstance(config, Mapping) else {}
    method = found.get("quant_method")
    if method == "compressed-tensors":
        return _CompressedTensors.of(found)
    if method == "torchao":
        return _Torchao()
    bits, group = found.get("bits"), found.get("group_size")
    if method not in ("gptq", "awq") or type(bits) is not int or bits != 4:
        raise ValueError(
            f"the weights of the model are quantized in a way that is not supported: {method!r} with {bits!r} bits;"
            f" {_SUPPORTED}"
        )
    if type(group) is not int or (group != -1 and (group < UNIT or group % UNIT)):
        raise ValueError(f"group_size must be a multiple of {UNIT} or -1, got {group!r}")
    old = method == "gptq" and found.get("checkpoint_format", "gptq") == "gptq"
    return _Int32(method, group, 1 if old else 0)


@dataclass(frozen=True)
class _Int32:
    """GPTQ and AWQ: eight integers in an int32.

    Args:
        method: "gptq" or "awq".
        group: inputs that share a scale; -1 is all.
        shift: what is added to zero points as they are stored.
    """

    mark: ClassVar[str] = "qweight"
    parts: ClassVar[tuple[str, ...]] = ("qweight", "qzeros", "scales", "g_idx")
    outputs_axis: ClassVar[int] = -1

    method: str
    group: int
    shift: int

    def matrix(self, tensors: Tensors, layer: str) -> tuple[Matrix, str]:
        """The matrix of a layer, and what is rounded of it, or an empty text."""
        order = range(8) if self.method == "gptq" else _AWQ_ORDER
        zeros = _unpacked(tensors.raw(f"{layer}.qzeros"), 4, order).astype(np.float32) + self.shift
        packed = _two(tensors, f"{layer}.qweight")
        inputs = packed[0] * 8 if self.method == "gptq" else packed[0]
        scales = tensors.raw(f"{layer}.scales")
        group = inputs if self.group == -1 else self.group
        if len(scales) * group != inputs:
            raise ValueError(f"{layer}: scales of shape {scales.shape} do not fit {inputs} inputs in groups of {group}")
        _require_order(tensors, layer, "g_idx", inputs, group)

        def integers() -> np.ndarray:
            words = tensors.raw(f"{layer}.qweight")
            if self.method == "gptq":  # eight inputs in a number
                return _unpacked(words.T, 4, order)
            return np.ascontiguousarray(_unpacked(words, 4, order).T)

        return _kept(layer, 4, inputs, scales.T, zeros.T, integers)


@dataclass(frozen=True)
class _CompressedTensors:
    """compressed-tensors: integers in int32, or one by one in int8."""

    bits: int
    is_packed: bool
    is_symmetric: bool
    outputs_axis: ClassVar[int] = 0

    @property
    def mark(self) -> str:
        """The tensor that every packed layer has."""
        return "weight_packed" if self.is_packed else "weight_scale"

    @property
    def parts(self) -> tuple[str, ...]:
        """The tensors of a packed layer."""
        weight = ("weight_packed", "weight_shape") if self.is_packed else ("weight",)
        return (*weight, "weight_scale", "weight_zero_point", "weight_g_idx")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> _CompressedTensors:
        """What a quantization_config says."""
        groups = config.get("config_groups")
        if not isinstance(groups, Mapping) or len(groups) != 1:
            raise ValueError("compressed-tensors with other than one group of layers (config_groups) is not supported")
        (group,) = groups.values()
        for part in (group, group.get("weights") if isinstance(group, Mapping) else None):
            if not isinstance(part, Mapping):
                raise ValueError("config_groups of compressed-tensors is damaged: it has no weights")
        form, weights = group.get("format") or config.get("format"), group["weights"]
        bits, inputs = weights.get("num_bits"), group.get("input_activations")
        wrong = {
            "format": form not in ("pack-quantized", "int-quantized"),
            "num_bits": type(bits) is not int or bits not in ((4, 8) if form == "pack-quantized" else (8,)),
            "type": weights.get("type") != "int",
            "strategy": weights.get("strategy") not in ("group", "channel"),
            "dynamic": bool(weights.get("dynamic")),
        }
        for name, is_wrong in wrong.items():
            if is_wrong:
                value = form if name == "format" else weights.get(name)
                raise ValueError(f"compressed-tensors with {name} {value!r} is not supported; {_SUPPORTED}")
        if inputs is not None and not _is_dynamic(inputs):
            raise ValueError("compressed-tensors whose activations are not dynamic with 8 bits is not supported")
        for name in ("output_activations", "transform_config", "sparsity_config"):
            if group.get(name) or config.get(name):
                raise ValueError(f"compressed-tensors with {name} is not supported")
        return cls(bits, form == "pack-quantized", weights.get("symmetric", True) is True)

    def matrix(self, tensors: Tensors, layer: str) -> tuple[Matrix, str]:
        """The matrix of a layer, and what is rounded of it, or an empty text."""
        name = f"{layer}.weight_packed" if self.is_packed else f"{layer}.weight"
        shape, scale = _two(tensors, name), tensors.raw(f"{layer}.weight_scale")
        inputs = shape[1] * (32 // self.bits if self.is_packed else 1)
        if scale.ndim != 2 or not scale.shape[1] or inputs % scale.shape[1]:
            raise ValueError(f"{layer}: scales of shape {scale.shape} do not fit {inputs} inputs")
        _require_order(tensors, layer, "weight_g_idx", inputs, inputs // scale.shape[1])
        middle = 1 << (self.bits - 1)
        zeros: np.ndarray = np.full(scale.shape, middle, np.float32)
        if f"{layer}.weight_zero_point" in tensors.names():
            stored = tensors.raw(f"{layer}.weight_zero_point")
            is_packed = self.is_packed and stored.dtype == np.int32
            zeros = (
                _unpacked(stored.T, self.bits, range(32 // self.bits)).T[: len(scale)].astype(np.float32)
                if is_packed
                else stored.astype(np.float32) + middle
            )
        elif not self.is_symmetric:
            raise ValueError(f"{layer}: symmetric is false, so it needs the tensor '{layer}.weight_zero_point'")

        def integers() -> np.ndarray:
            stored = tensors.raw(name)
            if self.is_packed:
                return _unpacked(stored, self.bits, range(32 // self.bits))
            return _unsigned(stored, middle, layer)

        return _kept(layer, self.bits, inputs, scale, zeros, integers)


@dataclass(frozen=True)
class _Torchao:
    """torchao: integers one by one in int8; what they are is said in the metadata of the file."""

    mark: ClassVar[str] = "_weight_qdata"
    parts: ClassVar[tuple[str, ...]] = ("_weight_qdata", "_weight_scale", "_weight_zero_point")
    outputs_axis: ClassVar[int] = 0

    def matrix(self, tensors: Tensors, layer: str) -> tuple[Matrix, str]:
        """The matrix of a layer, and what is rounded of it, or an empty text."""
        bits = self._bits(tensors.said(f"{layer}.weight"), layer)
        (_, inputs), scale = _two(tensors, f"{layer}._weight_qdata"), tensors.raw(f"{layer}._weight_scale")
        middle = 1 << (bits - 1)
        zeros: np.ndarray = np.full(scale.shape, middle, np.float32)
        if f"{layer}._weight_zero_point" in tensors.names():
            zeros = tensors.raw(f"{layer}._weight_zero_point").astype(np.float32) + middle
        return _kept(
            layer, bits, inputs, scale, zeros, lambda: _unsigned(tensors.raw(f"{layer}._weight_qdata"), middle, layer)
        )

    @staticmethod
    def _bits(text: str, layer: str) -> int:
        try:
            facts = json.loads(text)
            kind, data = facts["_type"], facts["_data"]
            said = "int8" if kind == "Int8Tensor" else data["target_dtype"]["_data"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"{layer}: the file does not say how torchao packed it, or in another way") from None
        if kind not in ("Int8Tensor", "IntxUnpackedToInt8Tensor") or said not in [f"int{n}" for n in range(2, 9)]:
            raise ValueError(
                f"{layer} is a {str(kind)[:40]} of torchao, which is not supported, only Int8Tensor and"
                " IntxUnpackedToInt8Tensor. Pass the float model"
            )
        return 4 if int(said[3:]) <= 4 else 8


def _two(tensors: Tensors, name: str) -> tuple[int, int]:
    """The sizes of a matrix."""
    shape = tensors.shape(name)
    if len(shape) != 2:
        raise ValueError(f"{name} must have two axes, its shape is {shape}")
    return shape[0], shape[1]


def _is_dynamic(activations: Any) -> bool:
    """Whether activations are rounded to 8 bits when the model runs, as zeropoint does for each token and group."""
    found = activations if isinstance(activations, Mapping) else {}
    return bool(found.get("dynamic") is True and found.get("num_bits") == 8 and found.get("type") == "int")


def _kept(
    layer: str, bits: int, inputs: int, scale: np.ndarray, zeros: np.ndarray, integers: Callable[[], np.ndarray]
) -> tuple[Matrix, str]:
    """A matrix of unsigned integers (outputs, inputs) with scales and zero points (outputs, groups), and what is
    rounded of it.
    """
    if scale.ndim != 2 or scale.shape != zeros.shape or 0 in scale.shape or inputs % scale.shape[1]:
        raise ValueError(
            f"{layer}: scales of shape {scale.shape} and zero points of shape {zeros.shape} do not fit {inputs} inputs"
        )
    outputs, group = len(scale), inputs // scale.shape[1]
    repeated = _repeats(group)
    minima = bool((zeros != 1 << (bits - 1)).any())
    with np.errstate(over="ignore"):
        small = scale.astype(np.float16)
        minimum = (-zeros * scale.astype(np.float32)).astype(np.float16) if minima else None
    if not np.isfinite(small).all() or (minimum is not None and not np.isfinite(minimum).all()):
        raise ValueError(f"{layer}: a scale is not finite, or too large for float16")
    rounded = "" if np.array_equal(small, scale) else "whose scales become float16"

    def make() -> GroupMatrix:
        q = integers()
        if q.shape != (outputs, inputs):
            raise ValueError(f"{layer}: integers of shape {q.shape} do not fit {outputs} outputs of {inputs} inputs")
        lowest = None if minimum is None else minimum.repeat(repeated, 1)
        return GroupMatrix(bits, q, small.repeat(repeated, 1), lowest)

    matrix = Matrix(outputs, inputs, bits, group // repeated, minima, make)
    return matrix, "whose zero points times scales become float16" if minima else rounded


def _repeats(group: int) -> int:
    """How many groups of the kernels one has."""
    if group in (32, 64, 128, 256):
        return 1
    size = next((n for n in (_LARGEST_GROUP, 128, 64, UNIT) if group % n == 0), None)
    if size is None:
        raise ValueError(f"groups of {group} inputs are no multiple of {UNIT}")
    return group // size


def _unsigned(stored: np.ndarray, middle: int, layer: str) -> np.ndarray:
    """Signed integers of int8, with `middle` for zero."""
    if stored.dtype != np.int8 or (stored.size and (stored.min() < -middle or stored.max() >= middle)):
        raise ValueError(f"{layer}: integers must be int8 from {-middle} to {middle - 1}")
    return (stored.astype(np.int16) + middle).astype(np.uint8)


def _require_order(tensors: Tensors, layer: str, part: str, inputs: int, group: int) -> None:
    """Refuse groups whose inputs are not neighbours."""
    if f"{layer}.{part}" not in tensors.names():
        return
    if not np.array_equal(tensors.raw(f"{layer}.{part}"), np.arange(inputs) // group):
        raise ValueError(f"{layer} has its inputs in another order (desc_act, actorder), which is not supported")


def _unpacked(packed: np.ndarray, bits: int, order: Any) -> np.ndarray:
    """Numbers of 4 or 8 bits from each int32, along the last axis."""
    if packed.dtype != np.int32 or packed.ndim != 2:
        raise ValueError(f"packed integers must be a matrix of int32, got {packed.dtype} of shape {packed.shape}")
    words = np.ascontiguousarray(packed).view(np.uint32)[..., None]
    values = (words >> np.arange(0, 32, bits, dtype=np.uint32) & ((1 << bits) - 1)).astype(np.uint8)
    found = np.empty_like(values)
    found[..., list(order)] = values
    return found.reshape(packed.shape[0], -1)
