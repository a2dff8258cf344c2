"""Linear layers of an ONNX file with weights of 4 bits, or of 8 with a scale for each block, as one node here.

ONNX Runtime has MatMulNBits and GatherBlockQuantized, with integers packed into bytes; ONNX has DequantizeLinear with
blocks before a MatMul or Gemm. They become ``zeropoint.SmallLinear`` with inputs ``x, weight, scale, zero point, bias``
in the layout of our kernels: ``(outputs, bytes of inputs)`` and ``(outputs, blocks)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, helper

_MICROSOFT = "com.microsoft"
_SMALL = ("int4", "uint4")
Store = Callable[[str, Any], None]


def join_small_weights(nodes: list[NodeProto], known: Mapping[str, Any], store: Store) -> list[NodeProto]:
    """The nodes with one for each such layer; `store` takes the constants that they read."""
    makers = {name: node for node in nodes for name in node.output}
    made = []
    for node in nodes:
        new = None
        if node.domain == _MICROSOFT and node.op_type == "MatMulNBits":
            new = _packed(node, known, store)
        elif node.domain == _MICROSOFT and node.op_type == "GatherBlockQuantized":
            new = _rows(node, known, store)
        elif node.op_type in ("MatMul", "Gemm") and node.domain == "":
            new = _dequantized(node, makers.get(node.input[1]), known, store)
        made.append(node if new is None else new)
    return made


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _input(node: NodeProto, place: int) -> str:
    return node.input[place] if place < len(node.input) else ""


def _unpacked(array: Any, columns: int) -> Any:
    """The 4-bit integers of each row, the first of two in the low bits."""
    return np.stack([array & 15, array >> 4], -1).reshape(*array.shape[:-1], -1)[..., :columns]


def _node(node: NodeProto, stored: dict[str, Any], bias: str, bits: int, block: int, store: Store) -> NodeProto:
    names = []
    for part, array in stored.items():
        names.append("" if array is None else f"{node.output[0]}.{part}")
        if array is not None:
            store(names[-1], np.ascontiguousarray(array))
    options: dict[str, Any] = {"bits": bits, "block_size": block, "domain": "zeropoint", "name": node.name}
    return helper.make_node("SmallLinear", [node.input[0], *names, bias], list(node.output), **options)


def _packed(node: NodeProto, known: Mapping[str, Any], store: Store) -> NodeProto | None:
    a = _attributes(node)
    bits, block, inputs, outputs = (int(a.get(k, 0)) for k in ("bits", "block_size", "K", "N"))
    read = [_input(node, place) for place in range(1, 5)]
    if bits not in (4, 8) or read[3] or any(name and name not in known for name in read[:3]):
        return None
    blocks = -(-inputs // block)
    weight = known[read[0]].reshape(outputs, -1)[:, : -(-inputs * bits // 8)]
    scale = known[read[1]].reshape(outputs, blocks).astype(np.float32)
    shift = known[read[2]] if read[2] else None
    if shift is not None and shift.dtype.kind == "f":  # zeropoint's are added to what counts from the middle
        shift = (2 ** (bits - 1) - shift.reshape(outputs, blocks).astype(np.float32)) * scale
    elif shift is not None:
        shift = shift.reshape(outputs, -1)
        shift = _unpacked(shift, blocks) if bits == 4 else shift
    return _node(node, {"weight": weight, "scale": scale, "shift": shift}, _input(node, 5), bits, block, store)


def _dequantized(node: NodeProto, source: NodeProto | None, known: Mapping[str, Any], store: Store) -> NodeProto | None:
    """A product with what DequantizeLinear makes of a matrix."""
    if source is None or source.op_type != "DequantizeLinear" or node.input[0] in known:
        return None
    names = [_input(source, place) for place in range(3)]
    if any(name and name not in known for name in names) or known[names[0]].ndim != 2:
        return None
    a, b = _attributes(source), _attributes(node)
    block, turned = int(a.get("block_size", 0)), bool(b.get("transB", 0))
    weight, scale = known[names[0]], known[names[1]]
    storage = str(weight.dtype)
    if storage not in (*_SMALL, "int8", "uint8") or (storage not in _SMALL and not block) or scale.dtype != np.float32:
        return None
    axis = int(a.get("axis", 1)) % 2
    along = 1 if turned else 0  # which axis of the matrix counts inputs
    plain = {k: v for k, v in b.items() if (k, v) not in (("alpha", 1.0), ("beta", 1.0), ("transA", 0))}
    if plain.keys() - {"transB"} or (block and axis != along) or (not block and scale.size > 1 and axis == along):
        return None
    bias = _input(node, 2)
    if bias and (bias not in known or known[bias].ndim != 1):
        return None
    integers = (weight if turned else weight.T).astype(np.int16)
    outputs, inputs = integers.shape
    if block and block < inputs and block % 8:
        return None
    blocks = -(-inputs // block) if block else 1
    shift = known[names[2]].astype(np.int16) if names[2] else np.zeros(scale.shape, np.int16)

    def by_output(part: Any) -> Any:
        if not block:
            return np.broadcast_to(part.reshape(-1, 1), (outputs, 1))
        return (part if turned else part.T).reshape(outputs, blocks)

    bits, middle = (4, 8) if storage in _SMALL else (8, 128)
    lowest = middle if storage.startswith("int") else 0
    integers, shift = (integers + lowest).astype(np.uint8), (by_output(shift) + lowest).astype(np.uint8)
    if bits == 4:
        even = np.pad(integers, ((0, 0), (0, inputs % 2)))
        integers = even[:, ::2] | even[:, 1::2] << 4
    parts = {"weight": integers, "scale": by_output(scale), "shift": shift}
    return _node(node, parts, bias, bits, block or inputs, store)


def _rows(node: NodeProto, known: Mapping[str, Any], store: Store) -> NodeProto | None:
    """A table whose rows are unpacked: bytes are what is read by index."""
    a = _attributes(node)
    table, scale, shift = (_input(node, place) for place in (0, 2, 3))
    if any(name and name not in known for name in (table, scale, shift)):
        return None
    array, scales = known[table], known[scale]
    rank, block = array.ndim, int(a.get("block_size", 128))
    axes = int(a.get("gather_axis", 0)) % rank, int(a.get("quantize_axis", 1)) % rank
    bits = 4 if str(array.dtype) in _SMALL else int(a.get("bits", 4))
    if axes != (0, rank - 1) or bits not in (4, 8):
        return None
    is_packed = bits == 4 and str(array.dtype) == "uint8"
    integers = _unpacked(array, 2 * array.shape[-1]) if is_packed else array
    middle = 0 if str(array.dtype) in ("int4", "int8") else 2 ** (bits - 1)
    shifts = np.full(scales.shape, middle) if not shift else known[shift]
    if shift and is_packed:
        shifts = _unpacked(shifts, scales.shape[-1])
    names = [f"{node.output[0]}.{part}" for part in ("table", "scale", "shift")]
    kind = np.int8 if middle == 0 else np.uint8
    arrays = integers.astype(kind), scales.astype(np.float32), shifts.astype(np.float32)
    for name, part in zip(names, arrays):
        store(name, np.ascontiguousarray(part))
    inputs = [names[0], node.input[1], *names[1:]]
    return helper.make_node(
        "SmallRows", inputs, list(node.output), domain="zeropoint", name=node.name, block_size=block
    )
