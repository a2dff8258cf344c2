"""A node of an ONNX file while it is read: it refuses every attribute, input and output that its reader does not read.

Readers of operators ask the node for what the file says (`ReadNode`); what was not asked for would be ignored, and the
result would be another one. What ONNX says about dtypes holds for every operator: a result whose dtype is that of an
input has it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zeropoint.described import shortened
from zeropoint.interop.onnx.imported_value import dtype_of

# Names of dtypes that PyTorch has for nothing, or converts to in another way than ONNX.
_UNLIKE = ("int2", "int4", "uint2", "uint4", "float4", "float8_e8m0")


class NotRead(NotImplementedError):
    """Operators of an ONNX file that are not read."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


def broken(why: str) -> ValueError:
    from zeropoint.interop.onnx.files import OnnxFileError

    return OnnxFileError(f"from_onnx: the file is broken: {why}")


def full_name(proto: Any) -> str:
    """``Conv``, or ``com.microsoft.DynamicQuantizeLSTM``."""
    return proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"


def torch_dtype(code: int) -> torch.dtype:
    from onnx import helper

    try:
        name = str(helper.tensor_dtype_to_np_dtype(code))
    except KeyError as error:
        raise broken(f"unknown dtype number {code}") from error
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or name.startswith(_UNLIKE):
        raise NotRead(f"from_onnx: the dtype {name.replace('object', 'string')} is not supported")
    return found


def input_dtype(code: int) -> torch.dtype:
    """Of an input of the model: integers of 4 bits lie in bytes."""
    from onnx import TensorProto

    small: dict[int, torch.dtype] = {TensorProto.INT4: torch.int8, TensorProto.UINT4: torch.uint8}
    return small.get(code) or torch_dtype(code)


class Rules:
    """What ONNX says about an operator of a version: defaults of attributes, and which dtypes are the same."""

    def __init__(self, schema: Any) -> None:
        from onnx import helper

        self.defaults: dict[str, Any] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.least = 0
        if schema is None:
            return
        for name, attribute in schema.attributes.items():
            if attribute.default_value.type:
                self.defaults[name] = plain(helper.get_attribute_value(attribute.default_value))
        variables = {constraint.type_param_str for constraint in schema.type_constraints}
        self.inputs, self.outputs = (
            [value.type_str if value.type_str in variables else "" for value in values]
            for values in (schema.inputs, schema.outputs)
        )
        self.least = schema.min_input


def plain(value: Any) -> Any:
    """An attribute as Python has it: text for bytes, lists for several."""
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, (int, float)) or not hasattr(value, "__iter__") else [plain(v) for v in value]


def rules_of(proto: Any, version: int) -> Rules:
    """Of a node; of operators that ONNX does not define there are none."""
    from onnx import defs

    domain = "" if proto.domain == "ai.onnx" else proto.domain
    try:
        return Rules(defs.get_schema(proto.op_type, version, domain))
    except defs.SchemaError:
        return Rules(None)


class Node:
    """A node of the file with its inputs: what functions of the records see as `ReadNode`."""

    def __init__(self, proto: Any, version: int, given: list[Any], attributes: dict[str, Any], rules: Rules) -> None:
        self.op_type, self.version, self.given = proto.op_type, version, given
        self.outputs = len(proto.output)
        self._attributes, self._proto, self._rules = attributes, proto, rules
        self._asked: set[str] = set()
        self._read: set[int] = set()
        self._keeps = False
        if len(given) < rules.least:
            raise broken(f"{self.op_type} {proto.name!r} has {len(given)} inputs, and needs {rules.least}")

    def attribute(self, name: str, *default: Any) -> Any:
        self._asked.add(name)
        if name in self._attributes:
            return self._attributes[name]
        if default:
            return default[0]
        raise NotRead(f"from_onnx: {self.op_type} has no attribute {name!r}")

    def without_effect(self, *names: str) -> None:
        self._asked.update(names)

    def input(self, place: int) -> Any:
        self._read.add(place)
        return self.given[place] if place < len(self.given) else None

    def first(self, count: int) -> list[Any]:
        return [self.input(place) for place in range(count)]

    def every(self) -> list[Any]:
        return self.first(len(self.given))

    def has(self, place: int) -> bool:
        return place < len(self.given) and self.given[place] is not None

    def wants(self, place: int) -> bool:
        return place < self.outputs and bool(self._proto.output[place])

    def keeps_dtype(self) -> None:
        self._keeps = True

    def mark(self, name: str) -> str:
        return next((str(entry.value) for entry in self._proto.metadata_props if entry.key == name), "")

    def torch_dtype(self, code: int) -> torch.dtype:
        return torch_dtype(code)

    # ------------------------------------------------------------------------------------------------ when it is read

    def results(self, made: Any) -> list[Any]:
        """What a reader made, one for each output of the file, once all that the file says was read."""
        results = list(made) if isinstance(made, (list, tuple)) else [made]
        unread = [
            f"the attribute {name}={value!r}"
            for name, value in self._attributes.items()
            if name not in self._asked and self._rules.defaults.get(name, _NOTHING) != value
        ]
        unread += [
            f"its input {place}"
            for place, value in enumerate(self.given)
            if value is not None and place not in self._read
        ]
        unread += [f"its output {place}" for place in range(len(results), self.outputs) if self.wants(place)]
        if unread:
            raise NotRead(
                f"from_onnx: {full_name(self._proto)} {self._proto.name!r}: {', '.join(unread)} not supported"
            )
        return [self._as_said(place, result) for place, result in enumerate(results[: self.outputs])]

    def _as_said(self, place: int, result: Any) -> Any:
        """A result in the dtype of the input that ONNX gives the same type."""
        if not isinstance(result, Tensor) or not self._rules.outputs or self._keeps:
            return result
        kind = self._rules.outputs[min(place, len(self._rules.outputs) - 1)]
        if not kind:
            return result
        same = [
            value
            for at, value in enumerate(self.given)
            if value is not None and self._rules.inputs[min(at, len(self._rules.inputs) - 1)] == kind
        ]
        if not same:
            return result
        wanted = _dtype(same[0])
        return result if wanted in (None, result.dtype) else result.to(wanted)


_NOTHING = object()


def _dtype(value: Any) -> torch.dtype | None:
    return None if value is None else dtype_of(value)
