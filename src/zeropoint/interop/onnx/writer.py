"""An ONNX file while it is written: the `OnnxWriter` of the records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.tape import Tape
from torch import Tensor, fx

from zeropoint.compiler.errors import refusal
from zeropoint.graph.provenance import origin
from zeropoint.numerics import scalars
from zeropoint.numerics.affine import BYTE_LIMITS
from zeropoint.operators.node import arguments
from zeropoint.ops.weight_only import SmallWeight

OPSET = 21  # the first with integers of 4 bits and scales for blocks
DTYPES = {
    torch.float32: ir.DataType.FLOAT, torch.float64: ir.DataType.DOUBLE, torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16, torch.uint8: ir.DataType.UINT8, torch.int8: ir.DataType.INT8,
    torch.int16: ir.DataType.INT16, torch.int32: ir.DataType.INT32, torch.int64: ir.DataType.INT64,
    torch.bool: ir.DataType.BOOL,
}  # fmt: skip
_RELU = re.compile(r"^zeropoint\.(?!leaky)\w+_relu")
_SMALL = 64  # elements up to which equal constants are stored once


def _taken_with(given: dict[str, Any], node: fx.Node) -> tuple[float, int] | None:
    """Scale and zero point that a call of zeropoint takes with a tensor: the next two arguments, or those of a list."""
    names = list(given)
    if "axes" in names and "scale" in names and given[names[0]] is node:  # a mean, which keeps the scale
        return float(given["scale"]), int(given["zero_point"])
    for place, name in enumerate(names[:-2]):
        scale, zero_point = (given[n] for n in names[place + 1 : place + 3])
        if not names[place + 1].endswith(("scale", "scales")) or not names[place + 2].rstrip("s").endswith("point"):
            continue
        if given[name] is node:
            return float(scale), int(zero_point)
        if isinstance(given[name], (list, tuple)) and node in given[name]:
            at = list(given[name]).index(node)
            return float(scale[at]), int(zero_point[at])
    return None


class Writer:
    """Writes the nodes of a graph one by one; see `zeropoint.operators.onnx_forms.OnnxWriter`.

    Args:
        found, fixed: what its nodes gave for the example, and the values that are the same for all inputs.
        runtime: whom the file is for.
    """

    def __init__(self, found: dict[fx.Node, Any], fixed: dict[fx.Node, Any], runtime: str) -> None:
        self.found, self.fixed, self.runtime = found, fixed, runtime
        self.tape = Tape()
        self.values: dict[fx.Node, Any] = {}
        self.domains: set[str] = set()
        self._floats: dict[int, Any] = {}  # by the value that they are the floats of
        self._small: dict[Any, Any] = {}
        self._types: dict[int, torch.dtype] = {}
        self._names: Counter[str] = Counter()
        self._node: fx.Node | None = None

    @property
    def node(self) -> fx.Node:
        assert self._node is not None
        return self._node

    def begin(self, node: fx.Node) -> None:
        """Let `node` be the one at hand."""
        self._node = node

    def fresh(self, name: str) -> str:
        """A name that no other value has."""
        name = re.sub(r"[^\w./]", "_", name)
        self._names[name] += 1
        return name if self._names[name] == 1 else self.fresh(f"{name}_{self._names[name] - 1}")

    # ------------------------------------------------------------------------------------------------ operators

    def op(self, name: str, *inputs: Any, domain: Any = "", **attributes: Any) -> Any:
        return self.ops(name, 1, *inputs, domain=domain, **attributes)[0]

    def ops(self, name: str, count: int, *inputs: Any, domain: Any = "", **attributes: Any) -> Sequence[Any]:
        given = [self.constant(value) if isinstance(value, Tensor) else value for value in inputs]
        while given and given[-1] is None:
            given.pop()
        path = origin(self.node).path if self._node is not None else ""
        label = f"{path}/{name}" if path else name
        outputs = [ir.Value(name=self.fresh(label.replace(".", "/"))) for _ in range(count)]
        if domain:
            self.domains.add(domain)
        return self.tape.op_multi_out(
            name, given, attributes, outputs=outputs, domain=domain, name=self.fresh(f"node/{label}")
        )

    def convert(self, value: Any, dtype: torch.dtype) -> Any:
        if self._types.get(id(value)) == dtype:
            return value
        made = self.op("Cast", value, to=DTYPES[dtype].value)
        self._types[id(made)] = dtype
        return made

    def typed(self, value: Any, dtype: torch.dtype) -> Any:
        """Remember the dtype of a value, so that it is not converted to what it is."""
        self._types[id(value)] = dtype
        return value

    # ------------------------------------------------------------------------------------------------ constants

    def constant(self, value: Tensor, name: str = "constant") -> Any:
        array = value.detach().contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16) if (
            value.dtype == torch.bfloat16
        ) else value.detach().contiguous().numpy()  # fmt: skip
        return self.typed(self.array(array, name), value.dtype)

    def array(self, array: Any, name: str, dtype: ir.DataType | None = None) -> Any:
        key = (str(array.dtype), array.shape, array.tobytes()) if array.size <= _SMALL else None
        if key is not None and key in self._small:
            return self._small[key]
        label = self.fresh(name.replace(".", "/"))
        made = self.tape.initializer(ir.Tensor(array, dtype=dtype, name=label), name=label)
        if key is not None:
            self._small[key] = made
        return made

    def number(self, value: float, dtype: torch.dtype = torch.float32) -> Any:
        return self.constant(torch.tensor(value, dtype=dtype), "number")

    def dequantized(self, weight: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, name: str) -> Any:
        scale = scale.float().reshape(-1)
        shifts = torch.zeros_like(scale) if zero_point is None else zero_point.reshape(-1)
        if scale.numel() == 1:
            scale, shifts = scale.reshape(()), shifts.reshape(())
        stored = self.constant(weight, name)
        parameters = self.constant(scale, f"{name}_scale"), self.constant(shifts.to(weight.dtype), f"{name}_zero_point")
        return self.op("DequantizeLinear", stored, *parameters, **({"axis": axis} if scale.dim() else {}))

    def dequantized_blocks(self, small: SmallWeight, integers: Tensor, name: str) -> Any:
        assert small.scale is not None
        assert small.zero_point is not None
        outputs, inputs = integers.shape
        blocks = -(-inputs // small.group_size)
        scale, shift = (t.reshape(outputs, -1).expand(outputs, blocks) if t.numel() > 1 else t.expand(outputs, blocks)
                        for t in (small.scale, small.zero_point))  # fmt: skip
        kind, dtype = {"uint4": (ml_dtypes.uint4, ir.DataType.UINT4)}.get(
            small.storage, (np.dtype(small.storage), None)
        )

        def stored(values: Tensor, part: str) -> Any:
            return self.array(values.round().to(torch.int32).numpy().astype(kind), f"{name}{part}", dtype)

        is_whole = blocks == 1
        scale, shift = (t.reshape(-1) if is_whole else t.t().contiguous() for t in (scale, shift))
        given = stored(integers.t(), ""), self.constant(scale.float(), f"{name}_scale"), stored(shift, "_zero_point")
        if is_whole:
            return self.op("DequantizeLinear", *given, axis=1)
        return self.op("DequantizeLinear", *given, axis=0, block_size=small.group_size)

    # --------------------------------------------------------------------------------------------------- values

    def is_parameter(self, node: Any) -> bool:
        return isinstance(self.fixed.get(node), Tensor)

    def parameter(self, node: Any) -> Tensor:
        if not self.is_parameter(node):
            raise self.unsupported(f"its parameter {node} is not a constant")
        return self.fixed[node].detach()

    def dtype(self, node: fx.Node) -> torch.dtype:
        return self.found[node].dtype

    def rank(self, node: fx.Node) -> int:
        return self.found[node].dim()

    def tensor(self, node: Any) -> Any:
        if node is None or not isinstance(node, fx.Node):
            return node
        if node not in self.values:
            value = self.fixed[node]
            name = str(node.target) if node.op == "get_attr" else str(node)
            value = value if isinstance(value, Tensor) else torch.tensor([value])
            self.values[node] = self.constant(value, name)
        return self.values[node]

    def floats(self, node: Any) -> Any:
        value, scale = self.tensor(node), self.scale_of(node)
        if scale is None:
            found = self.found.get(node)
            return self.typed(value, found.dtype) if isinstance(found, Tensor) else value
        if id(value) not in self._floats:
            dtype = self.dtype(node)
            made = self.op("DequantizeLinear", value, *self._parameters(scale, dtype))
            self._floats[id(value)] = self.typed(made, torch.float32)
        return self._floats[id(value)]

    def result(self, value: Any) -> Any:
        scale, has_relu = self.scale_of(self.node), _RELU.search(str(self.node.target)) is not None
        if scale is None:
            return self.op("Relu", value) if has_relu else value
        found = self.found[self.node]
        dtype = (found[0] if isinstance(found, (tuple, list)) else found).dtype
        low, high = BYTE_LIMITS[dtype]
        if has_relu and scale[1] == low:  # QuantizeLinear cuts off there, which runtimes know
            value, has_relu = self.op("Relu", value), False
        made = self.op("QuantizeLinear", value, *self._parameters(scale, dtype))
        return self.bounded(made, scale, dtype, scale[1], high) if has_relu else made

    def bounded(self, integers: Any, scale: tuple[float, int], dtype: torch.dtype, low: int, high: int) -> Any:
        """Integers between two of them. Behind QuantizeLinear, so that it stays with the layer before it."""
        if self.runtime == "onnxruntime":
            return self.op("Clip", integers, *(self.number(bound, dtype) for bound in (low, high)))
        parameters = self._parameters(scale, dtype)
        x = self.op("DequantizeLinear", integers, *parameters)
        if (low, high) == (scale[1], BYTE_LIMITS[dtype][1]):
            y = self.op("Relu", x)
        else:
            y = self.op("Clip", x, *(self.number((bound - scale[1]) * scale[0]) for bound in (low, high)))
        return self.op("QuantizeLinear", y, *parameters)

    def _parameters(self, scale: tuple[float, int], dtype: torch.dtype) -> tuple[Any, Any]:
        return (
            self.constant(torch.tensor(scale[0], dtype=torch.float32), "scale"),
            self.constant(torch.tensor(scale[1], dtype=dtype), "zero_point"),
        )

    def scale_of(self, node: Any) -> tuple[float, int] | None:
        """Scale and zero point of 8-bit integers: those a call names, or those of what it took them from."""
        if not isinstance(node, fx.Node) or node.op not in ("call_function", "placeholder"):
            return None
        if "scale" in node.meta.setdefault("onnx", {}):
            return node.meta["onnx"]["scale"]
        node.meta["onnx"]["scale"] = None  # whoever asks on the way here learns nothing
        found = self.found[node]
        first = found[0] if isinstance(found, (tuple, list)) and found else found
        scale = None
        if isinstance(first, Tensor) and first.dtype in BYTE_LIMITS:
            scale = self._scale_for_readers(node) if node.op == "placeholder" else self._named_scale(node)
        node.meta["onnx"]["scale"] = scale
        return scale

    def _named_scale(self, node: fx.Node) -> tuple[float, int] | None:
        if not hasattr(node.target, "_schema"):
            return self.scale_of(node.args[0])
        a, name = arguments(node), str(node.target)
        if "add_scalar" in name or "mul_scalar" in name:
            rule = scalars.sum_parameters if "add_scalar" in name else scalars.product_parameters
            dtype = self.dtype(node)
            scale, zero_point = rule(float(a["input_scale"]), int(a["input_zero_point"]), float(a["other"]), dtype)
            return float(scale), int(zero_point)
        if name.startswith("zeropoint.lookup"):
            return self._scale_for_readers(node)
        if "out_scale" in a:
            return float(a["out_scale"]), int(a["out_zero_point"])
        if "scale" in a and "zero_point" in a:
            return float(a["scale"]), int(a["zero_point"])
        if name.startswith("zeropoint.quantize_per_channel"):
            return None
        read = (n for n in node.all_input_nodes if isinstance(self.found.get(n), Tensor))
        return next((s for s in map(self.scale_of, read) if s is not None), None)

    def _scale_for_readers(self, node: fx.Node) -> tuple[float, int] | None:
        """The scale of bytes that only those name who read them, or what they are joined with."""
        for user in node.users:
            found = _taken_with(arguments(user), node) if hasattr(user.target, "_schema") else None
            if found is None and "aten.cat" in str(user.target):
                found = next((s for s in map(self.scale_of, user.all_input_nodes) if s is not None), None)
            if found is None and self._passes_on(node, user):
                found = self._scale_for_readers(user)
            if found is not None:
                return found
        return None

    def _passes_on(self, node: fx.Node, user: fx.Node) -> bool:
        """Whether a call gives the bytes of the node with the scale that they have; tables give others."""
        gives = self.found[user]
        is_table = str(user.target).startswith("zeropoint.lookup")
        return isinstance(gives, Tensor) and gives.dtype == self.dtype(node) and not is_table

    # ---------------------------------------------------------------------------------------------------- sizes

    def ints(self, values: Iterable[Any]) -> Any:
        """A vector of int64: stored if all are known; sizes are vectors of one."""
        given = [self.tensor(value) if isinstance(value, fx.Node) else value for value in values]
        if all(isinstance(value, int) for value in given):
            return self.constant(torch.tensor(given, dtype=torch.int64), "shape")
        parts = [
            self.constant(torch.tensor([v], dtype=torch.int64), "size") if isinstance(v, int) else v for v in given
        ]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def axis_size(self, node: Any, axis: int) -> Any:
        rank = self.rank(node)
        axis = axis % rank
        return self.op("Shape", self.tensor(node), start=axis, end=axis + 1)

    def require_fixed(self, node: fx.Node, axes: Iterable[int]) -> None:
        """Refuse where the sizes of axes are free: what is written holds for the example's only."""
        value = node.meta.get("val")
        free = [a for a in axes if isinstance(value, Tensor) and not isinstance(value.shape[a], int)]
        if free:
            raise self.unsupported(
                f"it depends on the size along axis {free[0]}, which is dynamic: fix it with dynamic_shapes"
            )

    def mark(self, value: Any, name: str, text: str) -> None:
        value.producer().metadata_props[name] = text

    def unsupported(self, why: str) -> Exception:
        return refusal(self.node, why, "export_onnx")
