"""Which tensors share memory, in-place operators that may as well be ordinary ones, and tensors that are written."""

from __future__ import annotations

import functools
from typing import Any

import torch

from zeropoint.graph.recipes import BY_ATEN
from zeropoint.graph.script.inline import PATH, path_of, walk

__all__ = ["make_ordinary", "written"]

C: Any = torch._C
_INPUT, _FRESH, _FOREIGN = "input", "fresh", "foreign"


class _Memory:
    """Groups of values that may share memory."""

    def __init__(self, graph: Any) -> None:
        self.parent: dict[Any, Any] = {}
        self.sources: dict[Any, set[str]] = {}
        self.members: dict[Any, list[Any]] = {}
        paths: dict[str, Any] = {}
        nodes = list(walk(graph))
        for value in graph.inputs():
            self.add(value, _INPUT)
        for node in nodes:
            for value in (v for block in node.blocks() for v in block.inputs()):
                self.add(value, _FOREIGN)
            for value in node.outputs():
                self.add(value, _FRESH)
        for node in nodes:
            outputs = list(node.outputs())
            if node.kind() == "prim::GetAttr":
                path = path_of(graph, outputs[0])
                self.join(outputs[0], paths.setdefault(path or "", outputs[0]))
                self.sources[self.find(outputs[0])].add(_FOREIGN)
            else:
                self.connect(node, outputs)

    def add(self, value: Any, source: str) -> None:
        self.parent.setdefault(value, value)
        self.sources.setdefault(value, {source})

    def find(self, value: Any) -> Any:
        while self.parent[value] != value:
            value = self.parent[value]
        return value

    def join(self, a: Any, b: Any) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[b] = a
            self.sources[a] |= self.sources.pop(b)

    def connect(self, node: Any, outputs: list[Any]) -> None:
        together = [value for value in node.inputs() if _holds_tensors(value)]
        schema = _schema(node)
        if schema is not None:
            shares = [r.alias_info is not None for r in schema.returns]
            wild = any(a.alias_info is not None and "*" in str(a.alias_info.before_set) for a in schema.arguments)
            if not wild and len(shares) == len(outputs):
                named = [a.alias_info is not None for a in schema.arguments]
                together = [v for v, is_shared in zip(node.inputs(), named) if is_shared and _holds_tensors(v)]
                together += [v for v, is_shared in zip(outputs, shares) if is_shared]
                if node.kind() in ("aten::dropout", "aten::feature_dropout"):  # give their input in evaluation
                    together = [node.inputsAt(0), *outputs]
            else:
                together += outputs
        elif node.kind() != "prim::Constant":
            together += [v for block in node.blocks() for v in (*block.inputs(), *block.outputs()) if _holds_tensors(v)]
            together += [value for value in outputs if _holds_tensors(value)]
            for value in together:
                self.sources[self.find(value)].add(_FOREIGN)
        for value in together[1:]:
            self.join(together[0], value)

    def group(self, value: Any) -> list[Any]:
        if not self.members:
            for member in self.parent:
                self.members.setdefault(self.find(member), []).append(member)
        return self.members[self.find(value)]


def _holds_tensors(value: Any) -> bool:
    return "Tensor" in value.type().str()


def _schema(node: Any) -> Any:
    text = node.schema()
    return None if text == "(no schema)" else _parsed(text)


@functools.cache
def _parsed(text: str) -> Any:
    return C.parse_schema(text)


def _written_values(node: Any) -> list[Any]:
    """The tensors that a node writes to."""
    schema = _schema(node)
    if schema is None or node.kind() in ("aten::batch_norm", "aten::instance_norm"):
        return []
    return [
        value
        for value, argument in zip(node.inputs(), schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write and value.type().kind() == "TensorType"
    ]


def make_ordinary(graph: Any) -> None:
    """Turn ``relu_(x)`` into ``relu(x)``, which later readers of `x` then read, where nothing else shares its memory.

    An operator that will be quantized anyway need not leave its result in an input of the model, which PyTorch's
    quantized operators do not either.
    """
    changed = True
    while changed:
        changed, memory = False, _Memory(graph)
        touched = set()  # groups in which something changed: what is known about them is no longer true
        for node in list(walk(graph)):
            values = _written_values(node)
            group = memory.find(values[0]) if len(values) == 1 and values[0] == node.inputsAt(0) else None
            if group is None or group in touched or not _is_alone(graph, memory, node, values[0]):
                continue
            if _replace(graph, node):
                touched.add(group)
                changed = True


def _is_alone(graph: Any, memory: _Memory, node: Any, value: Any) -> bool:
    sources = memory.sources[memory.find(value)]
    if sources != {_FRESH}:
        name = _ordinary_name(node)
        row = BY_ATEN.get(name) if name else None
        if sources - {_INPUT, _FRESH} or row is None or not row.alone:
            return False
    block = node.owningBlock()
    for member in memory.group(value):
        if member.node().kind() != "prim::Param" and member.node().owningBlock() != block:
            return False
        if member != value and member != node.output() and any(use.user.isAfter(node) for use in member.uses()):
            return False
    return True


def _ordinary_name(node: Any) -> str | None:
    packet, _, overload = node.schema().split("(")[0].removeprefix("aten::").partition(".")
    if not node.kind().startswith("aten::") or not packet.endswith("_") or packet.startswith("__"):
        return None
    plain = getattr(torch.ops.aten, packet.rstrip("_"), None)
    return f"{packet.rstrip('_')}.{overload or 'default'}" if hasattr(plain, overload or "default") else None


def _replace(graph: Any, node: Any) -> bool:
    name = _ordinary_name(node)
    if name is None:
        return False
    made = graph.create(f"aten::{name.split('.')[0]}", list(node.inputs()), 1)
    made.insertBefore(node)
    made.copyMetadata(node)
    if node.hasAttribute(PATH):
        made.s_(PATH, node.s(PATH))
    written_value = node.inputsAt(0)
    node.output().replaceAllUsesWith(made.output())
    written_value.replaceAllUsesAfterNodeWith(node, made.output())
    node.destroy()
    return True


def written(graph: Any) -> set[Any]:
    """The values whose memory some operator writes to."""
    memory = _Memory(graph)
    roots = {memory.find(value) for node in walk(graph) for value in _written_values(node)}
    return {value for value in memory.parent if memory.find(value) in roots}
