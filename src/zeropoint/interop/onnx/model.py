"""ONNX files as models of PyTorch: every node a module of its own, which computes it with operators of ATen."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zeropoint.installation import install_command
from zeropoint.interop.onnx.bounded import Bounded, TooManyElements
from zeropoint.interop.onnx.graph_reading import (
    given_inputs,
    needed,
    ordered,
    require_defined,
    require_readable,
    sizes_of,
    type_name,
    zeros,
)
from zeropoint.interop.onnx.imported_value import (
    Constant,
    JoinedWeight,
    Numbers,
    Rounded,
    StoredWeight,
    as_tensor,
    dtype_of,
    tensor_of,
)
from zeropoint.interop.onnx.node import Node, NotRead, broken, full_name, input_dtype, plain, rules_of, torch_dtype

_MOST_FOLDED, _MOST_PER_STORED = 2**26, 16  # elements of constants that are computed when a file is read
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64}  # what PyTorch computes with these in
_WIDER_OUTPUTS = {4: torch.uint16, 5: torch.int16}  # by numbers of ONNX: what is computed in wider integers
_GIVES_DTYPE = {"CastLike": 1, "QuantizeLinear": 2}  # inputs whose dtype is that of the result
_KEPT = "DequantizeLinear"  # the integers that weights are made of stay visible
_QUANTIZED = ("QuantizeLinear", "DynamicQuantizeLSTM")


class _Call(nn.Module):
    """One node: what it is called with goes through the function of its record."""

    def __init__(self, proto: Any, version: int, attributes: dict[str, Any], read: Any) -> None:
        super().__init__()
        self.proto, self.version, self.attributes, self.read = proto, version, attributes, read
        self.rules = rules_of(proto, version)

    def __deepcopy__(self, memo: Any) -> _Call:
        return self  # it has no numbers of its own

    def __reduce__(self) -> Any:
        return _restored, (self.proto.SerializeToString(), self.version)

    def forward(self, inputs: list[Any]) -> Any:
        from zeropoint.interop.onnx.shape_arithmetic import SIZES, compute

        inputs = self._in_floats(inputs)
        if isinstance(inputs, tuple):
            rounded, floats = inputs
            return [rounded.of(result) for result in self(floats)]
        n = Node(self.proto, self.version, inputs, self.attributes, self.rules)
        try:
            if n.op_type in SIZES:
                return n.results(SIZES[n.op_type](n, as_tensor(n.input(0))))
            known = compute(n)
            return n.results(self.read(_Reader(n), n) if known is None else known)
        except NotRead:
            raise
        except NotImplementedError as error:  # of PyTorch, for a dtype
            raise NotRead(f"from_onnx: {n.op_type} {self.proto.name!r}: PyTorch has no operator: {error}") from error
        except (LookupError, AttributeError, ArithmeticError) as error:  # an input or an attribute that it lacks
            why = f"{type(error).__name__}: {error}"
            raise broken(f"{n.op_type} {self.proto.name!r} cannot be computed ({why})") from error

    def _in_floats(self, inputs: list[Any]) -> Any:
        """For an operator that moves integers or chooses some: what they stand for, so that it is one on floats."""
        from zeropoint.operators import ONNX_KEEPS_SCALE

        rounded = [value for value in inputs if isinstance(value, Rounded)]
        if not rounded or full_name(self.proto) not in ONNX_KEEPS_SCALE:
            return inputs
        same = all((r.scale, r.zero_point, r.tensor.dtype) == _key(rounded[0]) for r in rounded)
        others = (dtype_of(v) for v in inputs if v is not None and not isinstance(v, Rounded))
        # Of integers, the 0 of these two is an integer.
        fills = self.proto.op_type == "Relu" or (
            self.proto.op_type == "Pad" and self.attributes.get("mode", "constant") == "constant"
        )
        if not same or any(dtype == rounded[0].tensor.dtype for dtype in others) or (fills and rounded[0].zero_point):
            return inputs
        return rounded[0], [value.floats if isinstance(value, Rounded) else value for value in inputs]


def _key(value: Rounded) -> tuple[float, int, torch.dtype]:
    return value.scale, value.zero_point, value.tensor.dtype


def _restored(data: bytes, version: int) -> _Call:
    from onnx import NodeProto

    proto = NodeProto()
    proto.ParseFromString(data)
    return _call(proto, version)


def _call(proto: Any, version: int) -> _Call:
    from zeropoint.operators import ONNX_READS

    attributes = {a.name: _attribute(a) for a in proto.attribute}
    return _Call(proto, version, attributes, ONNX_READS.get(full_name(proto)))


def _is_dynamic(proto: Any) -> bool:
    """Whether it is a layer of zeropoint that rounds its inputs."""
    from zeropoint.operators.onnx.recurrent import DYNAMIC

    return any(entry.key == DYNAMIC for entry in proto.metadata_props)


def _attribute(proto: Any) -> Any:
    from onnx import AttributeProto, helper, numpy_helper

    if proto.type == AttributeProto.TENSOR:
        return tensor_of(numpy_helper.to_array(proto.t))
    value = helper.get_attribute_value(proto)
    return value if proto.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) else plain(value)


class _Reader:
    """Inputs of a node in the forms that functions of the records ask for: their `OnnxReader`."""

    def __init__(self, n: Node) -> None:
        self.n = n

    def tensor(self, value: Any) -> Any:
        tensor = as_tensor(value)
        return tensor if tensor is None or tensor.dtype not in _WIDER else tensor.to(_WIDER[tensor.dtype])

    def is_known(self, value: Any) -> bool:
        return isinstance(value, (Constant, JoinedWeight, Numbers, StoredWeight))

    def array(self, value: Any) -> Any:
        if self.is_known(value):
            return value.array
        try:  # read when the model runs
            return as_tensor(value).detach().numpy()
        except RuntimeError as error:  # while it is captured for a program
            raise self.unsupported("one of its inputs must be a constant, or follow from sizes") from error

    def numbers(self, value: Any) -> list[Any]:
        return list(self.array(value).reshape(-1).tolist())

    def number(self, value: Any) -> Any:
        return self.numbers(value)[0]

    def count(self, value: Any) -> int:
        return int(self.array(value).size)

    def operand(self, value: Any) -> Any:
        is_number = isinstance(value, (Constant, Numbers)) and value.array.size == 1 and value.array.ndim <= 1
        others = [other for other in self.n.given if other is not value]
        return self.number(value) if is_number and any(isinstance(o, Tensor) for o in others) else self.tensor(value)

    def dtype(self, value: Any) -> torch.dtype:
        return dtype_of(value)

    def storage(self, value: Any) -> str:
        return str(value.array.dtype if isinstance(value, Constant) else self.dtype(value)).removeprefix("torch.")

    def storage_of(self, code: int) -> str:
        from onnx import helper

        return str(helper.tensor_dtype_to_np_dtype(code))

    def rank(self, value: Any) -> int:
        return value.array.ndim if self.is_known(value) else as_tensor(value).dim()

    def weight(self, value: Any, order: Sequence[int] | None = None) -> Any:
        if isinstance(value, StoredWeight):
            return value.turned(range(value.array.ndim) if order is None else order)
        tensor = as_tensor(value)
        return tensor if order is None or list(order) == sorted(order) else tensor.permute(*order)

    def stored(self, integers: Any, scale: Any, zero_point: Any, axis: int | None, block: int) -> Any:
        if not all(isinstance(v, Constant) or v is None for v in (integers, scale, zero_point)):
            raise self.unsupported("its scale or zero point is not a constant")
        axis = None if axis is None else axis % integers.array.ndim
        return StoredWeight(integers, scale, zero_point, axis, block)

    def constant(self, number: float) -> Any:
        owner = nn.Module()
        owner.register_buffer("number", torch.tensor(number))
        return Constant(np.asarray(number, np.float32), "number", owner)

    def rounded(self, integers: Tensor, scale: float, zero_point: int) -> Any:
        return Rounded(integers, scale, zero_point)

    def stored_parts(self, value: Any) -> list[tuple[Tensor, Tensor, Tensor, int | None]] | None:
        parts = value.parts if isinstance(value, JoinedWeight) else (value,)
        if not all(isinstance(part, StoredWeight) and not part.block and part.bits == 8 for part in parts):
            return None
        return [_numbers_of(part) for part in parts]

    def joined(self, values: Sequence[Any], axis: int) -> Any:
        if axis == 0 and all(isinstance(value, StoredWeight) and value.array.ndim == 3 for value in values):
            return JoinedWeight(tuple(values))
        return torch.cat([as_tensor(value) for value in values], axis)

    def axes(self, n: Node) -> tuple[list[int], bool]:
        given = n.attribute("axes", None)
        if n.has(1):
            given = [int(axis) for axis in self.numbers(n.input(1))]
        nothing = n.attribute("noop_with_empty_axes", 0)
        if not given:
            given = [] if nothing else list(range(self.rank(n.input(0))))
        return list(given), bool(n.attribute("keepdims", 1))

    def torch_dtype(self, code: int) -> torch.dtype:
        return torch_dtype(code)

    def unsupported(self, why: str) -> NotRead:
        return NotRead(f"from_onnx: {self.n.op_type}: {why}")


def _numbers_of(weight: StoredWeight) -> tuple[Tensor, Tensor, Tensor, int | None]:
    scale = weight.scale.tensor
    shift = torch.zeros_like(scale) if weight.zero_point is None else weight.zero_point.tensor
    return weight.integers.tensor, scale, shift, weight.axis


class OnnxModel(nn.Module):
    """A model that was read from an ONNX file. It is called with its inputs in the order of the file, or by name.

    Its modules are the nodes of the file by their names, ``layer1.conv.Conv`` for ``/layer1/conv/Conv``, so that
    `summary()` and QConfigMappings speak of these. What was stored in the file lies in `stored`.

    Attributes:
        input_names, output_names: as the file has them.
        input_shapes: for each input, a number for each size that is fixed and None or a name for others.
        is_quantized: whether the file has operators on integers, or weights of them.
    """

    is_quantized: bool

    def __init__(self, proto: Any) -> None:
        from zeropoint.interop.onnx.control_flow import control_flow, is_control_flow, with_outer_inputs
        from zeropoint.interop.onnx.patterns import join_dynamic
        from zeropoint.interop.onnx.small_weights import join_small_weights

        super().__init__()
        self.stored = nn.Module()
        self._constants: dict[str, str] = {}
        self._known: dict[str, Any] = {}
        versions = {entry.domain: entry.version for entry in proto.opset_import}
        version = versions.get("", versions.get("ai.onnx", 1))
        for tensor in proto.graph.initializer:
            self._store(tensor.name, _array(tensor))
        for node in proto.graph.node:
            if node.op_type == "Constant":
                self._store(node.output[0], _constant_of(_call(node, version).attributes))
        stored = sum(array.size for array in self._known.values())
        self._left_to_fold = _MOST_FOLDED + _MOST_PER_STORED * stored
        given_nodes = ordered(with_outer_inputs(proto.graph.node))
        require_defined(proto.graph, given_nodes, self._constants)
        inputs = given_inputs(proto.graph)
        self.input_names = [value.name for value in inputs]
        self.input_shapes = [sizes_of(value) for value in inputs]
        self.input_dtypes = [input_dtype(value.type.tensor_type.elem_type) for value in inputs]
        self.output_names = [value.name for value in proto.graph.output]
        small = {value.name for value in inputs if "INT4" in type_name(value)}
        self._output_dtypes = [_WIDER_OUTPUTS.get(value.type.tensor_type.elem_type) for value in proto.graph.output]
        wanted = set(self.output_names)
        try:
            nodes = join_dynamic(needed(given_nodes, wanted), self._known, wanted)
            nodes = needed(join_small_weights(nodes, self._known, self._store), wanted)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # weights of other shapes than is said
            raise broken(f"a layer with weights of integers cannot be read ({error})") from error
        require_readable(nodes)
        for node in nodes:
            place = _GIVES_DTYPE.get(node.op_type, len(node.input))
            if small.intersection(node.input[place : place + 1]):
                raise NotRead(
                    f"from_onnx: {node.op_type}: its dtype is that of {node.input[place]!r}, which has 4 bits"
                )
        self._calls: list[tuple[str, list[str], list[str]]] = []
        names: Counter[str] = Counter()
        for node in nodes:
            has_graphs = is_control_flow(node)
            call = control_flow(node, proto.opset_import) if has_graphs else _call(node, version)
            if has_graphs or not self._fold(node, call):
                path = self._add(_path(node, names), call)
                self._calls.append((path, list(node.input), list(node.output)))
        inner = (
            module.is_quantized for module in self.modules() if isinstance(module, OnnxModel) and module is not self
        )
        self.is_quantized = any(inner) or any(self._rounds(node) for node in nodes)
        self.eval()

    def _rounds(self, node: Any) -> bool:
        """Whether it is computed on integers, or with weights of integers."""
        from zeropoint.operators.onnx.quantized import NAMES

        stored = node.op_type == "DequantizeLinear" and node.input[0] in self._known
        return stored or node.op_type in _QUANTIZED or full_name(node) in NAMES or _is_dynamic(node)

    def _store(self, name: str, array: Any) -> None:
        place = f"t{len(self._constants)}_{re.sub(r'[^0-9a-zA-Z_]', '_', name)[-60:]}"
        tensor = tensor_of(array)
        if tensor.is_floating_point() and tensor.dim() > 0:
            self.stored.register_parameter(place, nn.Parameter(tensor, requires_grad=False))
        else:
            self.stored.register_buffer(place, tensor)
        self._constants[name] = place
        self._known[name] = array

    def _constant(self, name: str) -> Constant:
        return Constant(self._known[name], self._constants[name], self.stored)

    def _fold(self, node: Any, call: _Call) -> bool:
        """Compute at once what reads constants alone, but for the integers that weights are made of."""
        if node.op_type == "Constant":
            return True
        if node.op_type == _KEPT or not all(name in self._constants for name in node.input if name):
            return False
        inputs = [self._constant(name) if name else None for name in node.input]
        try:
            with torch.no_grad(), Bounded(self._left_to_fold):
                made = call(inputs)
                tensors = [as_tensor(value) for value in (made if isinstance(made, (list, tuple)) else [made])]
        except NotImplementedError:
            raise
        except TooManyElements as error:
            raise NotRead(
                f"from_onnx: {node.op_type} {node.name!r} computes a constant of {error}. All constants that are "
                f"computed may have {_MOST_FOLDED} and {_MOST_PER_STORED} for each element that the file stores"
            ) from None
        except RuntimeError as error:  # of PyTorch, for sizes that do not fit
            raise broken(f"{node.op_type} {node.name!r} cannot be computed ({error})") from error
        self._left_to_fold -= sum(tensor.numel() for tensor in tensors)
        for name, tensor in zip(node.output, tensors):
            self._store(name, tensor.detach().numpy())
        return True

    def _add(self, path: str, call: _Call) -> str:
        """Put a call at its path, with plain modules above it."""
        owner: nn.Module = self
        *above, last = path.split(".")
        for part in above:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner._modules[part]
        while last in owner._modules or hasattr(owner, last):
            last += "_"
        owner.add_module(last, call)
        return ".".join([*above, last])

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        from zeropoint.interop.onnx.control_flow import begin_turns

        given = dict(zip(self.input_names, inputs), **named)
        missing = [name for name in self.input_names if name not in given]
        if missing or len(given) != len(self.input_names):
            raise ValueError(f"the model takes {', '.join(self.input_names)}, got {len(inputs) + len(named)} inputs")
        begin_turns()
        results = [as_tensor(value) for value in self.run(given)]
        results = [
            result if dtype in (None, result.dtype) else result.to(dtype)
            for result, dtype in zip(results, self._output_dtypes)
        ]
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, given: dict[str, Any]) -> list[Any]:
        """What the outputs are, from values for the inputs: tensors, or numbers that are known."""
        values: dict[str, Any] = {name: self._constant(name) for name in self._constants} | given
        values[""] = None
        for path, read, written in self._calls:
            made = self.get_submodule(path)([values[name] for name in read])
            for name, value in zip(written, made if isinstance(made, (list, tuple)) else [made]):
                values[name] = value
        return [values[name] for name in self.output_names]


def _array(tensor: Any) -> Any:
    from onnx import numpy_helper

    from zeropoint.interop.onnx.files import OnnxFileError

    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:
        raise OnnxFileError(f"from_onnx: the tensor {tensor.name!r} is damaged: {error}") from error


def _constant_of(attributes: dict[str, Any]) -> Any:
    if not attributes:
        raise broken("a Constant has no value")
    name, value = next(iter(attributes.items()))
    if name == "value":
        return value.numpy()
    return np.asarray(value, dtype=np.float32 if "float" in name else np.int64)


def _path(node: Any, names: Counter[str]) -> str:
    """``layer1.conv.Conv`` for ``/layer1/conv/Conv``; nodes without a name have that of their operator and a number."""
    parts = [re.sub(r"\W", "_", part) for part in re.split(r"[/.]", node.name) if part]
    if not parts:
        parts = [node.op_type]
    names[".".join(parts)] += 1
    count = names[".".join(parts)] - 1
    parts[-1] += f"_{count}" if count else ""
    return ".".join(f"_{part}" if part[:1].isdigit() else part for part in parts)


def from_onnx(path: str | os.PathLike[str], example_inputs: Any = None) -> nn.Module:
    """Import a model from an ONNX file.

    A float model becomes a module, for `to_int8` and other functions. A model with QuantizeLinear, from ONNX Runtime's
    `quantize_static`, NNCF or `export_onnx`, becomes a quantized model with the scales of the file, for `compile`.

    Args:
        path: the file. External weights are read only from its folder. Nothing in the file is executed.
        example_inputs: for a quantized model, a tuple of positional arguments. By default, tensors with the sizes in
            the file, and 2 for dynamic sizes.

    Raises:
        NotImplementedError: for unsupported operators; the message lists all of them.
        ValueError: if the file is invalid, or needs sizes that it does not contain.

    Example:
        >>> import tempfile, zeropoint
        >>> layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
        >>> model = zeropoint.to_int8(layers, (x,), [x], progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     zeropoint.export_onnx(model, (x,), f"{folder}/model.onnx")
        ...     again = zeropoint.from_onnx(f"{folder}/model.onnx")
        >>> torch.equal(again(x), model(x))
        True
    """
    try:
        from zeropoint.interop.onnx.files import read_model
    except ImportError as error:
        raise ImportError(f"from_onnx needs onnx: {install_command('onnx')}") from error
    proto = read_model(path)
    model = OnnxModel(proto)
    if not model.is_quantized:
        return model
    from zeropoint.graph.from_qdq import NothingQuantized, from_qdq

    example = zeros(given_inputs(proto.graph)) if example_inputs is None else example_inputs
    try:
        return from_qdq(model, example)
    except NothingQuantized:
        return model
