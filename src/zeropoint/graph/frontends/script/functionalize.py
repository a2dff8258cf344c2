"""Which tensors share memory, in-place operators as functional ones, and tensors that are written."""

from __future__ import annotations

import functools
from typing import Any

import torch

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.script.script_module import PATH, path_of, walk
from zeropoint.operators import BY_ATEN

_INPUT, _FRESH, _FOREIGN = "input", "fresh", "foreign"


_CONTAINERS = ("prim::TupleConstruct", "prim::ListConstruct", "prim::DictConstruct")
_SAME = (
    "prim::TupleUnpack", "prim::TupleIndex", "prim::ListUnpack", "prim::unchecked_cast",
    "aten::dropout", "aten::feature_dropout",  # which give their input in evaluation
)  # fmt: skip


class _Memory:
    """The pieces of memory, as numbers, that each value may lie in; a tuple or list lies in those of its parts."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.parent: list[int] = []  # pieces that may be one piece
        self.sources: list[set[str]] = []
        self.pieces: dict[Any, set[int]] = {}
        self.of_path: dict[str, int] = {}
        for value in graph.inputs():
            self.put(value, {self.piece(_INPUT)})
        self.block(graph)

    def piece(self, source: str) -> int:
        self.parent.append(len(self.parent))
        self.sources.append({source})
        return len(self.parent) - 1

    def put(self, value: Any, pieces: set[int]) -> None:
        if "Tensor" in value.type().str():
            self.pieces[value] = pieces

    def find(self, piece: int) -> int:
        while self.parent[piece] != piece:
            piece = self.parent[piece]
        return piece

    def of(self, *values: Any) -> set[int]:
        return {self.find(piece) for value in values for piece in self.pieces.get(value, ())}

    def block(self, block: Any) -> None:
        for node in block.nodes():
            for inner in node.blocks():
                for value in inner.inputs():
                    self.put(value, {self.piece(_FOREIGN)})
                self.block(inner)
            self.node(node)

    def node(self, node: Any) -> None:
        outputs = list(node.outputs())
        schema = _schema(node)
        if node.kind() == "prim::GetAttr":
            path = path_of(self.graph, outputs[0])
            if path is None:
                self.together(node, outputs)
            else:
                if path not in self.of_path:
                    self.of_path[path] = self.piece(_FOREIGN)
                self.put(outputs[0], {self.of_path[path]})
        elif node.kind() in _CONTAINERS:
            self.put(outputs[0], {self.piece(_FRESH), *self.of(*node.inputs())})
        elif node.kind() in _SAME:
            for value in outputs:
                self.put(value, self.of(node.inputsAt(0)))
        elif node.kind() == "prim::If":
            for value, *parts in zip(outputs, *(block.outputs() for block in node.blocks())):
                self.put(value, self.of(*parts))
        elif node.kind() == "prim::Constant":
            self.put(outputs[0], {self.piece(_FOREIGN)})
        elif schema is not None and not _is_wild(schema) and len(schema.returns) == len(outputs):
            shared = self.of(*(v for v, a in zip(node.inputs(), schema.arguments) if a.alias_info is not None))
            for value, result in zip(outputs, schema.returns):
                self.put(value, shared if shared and result.alias_info is not None else {self.piece(_FRESH)})
        else:
            self.together(node, outputs)

    def together(self, node: Any, outputs: list[Any]) -> None:
        """What goes in and out of a node of which nothing else is known is one piece of memory."""
        inner = [v for block in node.blocks() for v in (*block.inputs(), *block.outputs())]
        first, *others = sorted(self.of(*node.inputs(), *inner) | {self.piece(_FRESH)})
        for piece in others:
            self.parent[piece] = first
            self.sources[first] |= self.sources[piece]
        if _schema(node) is None:
            self.sources[first].add(_FOREIGN)
        for value in outputs:
            self.put(value, {first})

    def sources_of(self, value: Any) -> set[str]:
        return set().union(*(self.sources[piece] for piece in self.of(value)))

    def sharing(self, value: Any) -> list[Any]:
        """The values that may share memory with `value`, itself included."""
        own = self.of(value)
        return [other for other in self.pieces if not own.isdisjoint(self.of(other))]


def _schema(node: Any) -> Any:
    text = node.schema()
    return None if text == "(no schema)" else _parsed(text)


@functools.cache
def _parsed(text: str) -> Any:
    return internals.parse_schema(text)


def _is_wild(schema: Any) -> bool:
    """Whether a call may put tensors where it cannot be told, or give some from there."""
    named = [a.alias_info for a in (*schema.arguments, *schema.returns) if a.alias_info is not None]
    return any("*" in str(info.before_set) or "*" in str(info.after_set) for info in named)


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


def functionalize(graph: Any) -> None:
    """Turn ``relu_(x)`` into ``relu(x)``, which later readers of `x` then read, where nothing else shares its memory.

    An operator that will be quantized anyway need not leave its result in an input of the model, which PyTorch's
    quantized operators do not either.
    """
    memory = _Memory(graph)
    for node in list(walk(graph)):
        values = _written_values(node)
        if len(values) == 1 and values[0] == node.inputsAt(0) and _is_alone(memory, node, values[0]):
            _replace(graph, memory, node)


def _is_alone(memory: _Memory, node: Any, value: Any) -> bool:
    name = _functional_name(node)
    sources = memory.sources_of(value)
    if name is None or _FOREIGN in sources:
        return False
    if _INPUT in sources and not (name in BY_ATEN and BY_ATEN[name].alone):
        return False
    block = node.owningBlock()
    if value.node().kind() != "prim::Param" and value.node().owningBlock() != block:
        return False
    for other in memory.sharing(value):
        maker = other.node()
        if other == value or maker == node or maker.isAfter(node) or _contains(maker, node):
            continue  # what was made later was made from what is now the result
        if maker.kind() != "prim::Param" and maker.owningBlock() != block:
            return False
        if any(use.user.isAfter(node) for use in other.uses()):
            return False
    return True


def _contains(outer: Any, node: Any) -> bool:
    return any(inner == node for block in outer.blocks() for inner in walk(block))


def _functional_name(node: Any) -> str | None:
    packet, _, overload = node.schema().split("(")[0].removeprefix("aten::").partition(".")
    if not node.kind().startswith("aten::") or not packet.endswith("_") or packet.startswith("__"):
        return None
    plain = getattr(torch.ops.aten, packet.rstrip("_"), None)
    return f"{packet.rstrip('_')}.{overload or 'default'}" if hasattr(plain, overload or "default") else None


def _replace(graph: Any, memory: _Memory, node: Any) -> None:
    name = _functional_name(node) or ""
    made = graph.create(f"aten::{name.split('.')[0]}", list(node.inputs()), 1)
    made.insertBefore(node)
    made.copyMetadata(node)
    if node.hasAttribute(PATH):
        made.s_(PATH, node.s(PATH))
    written_value = node.inputsAt(0)
    node.output().replaceAllUsesWith(made.output())
    written_value.replaceAllUsesAfterNodeWith(node, made.output())
    memory.pieces[made.output()] = memory.pieces.pop(node.output())
    node.destroy()


def written(graph: Any) -> set[Any]:
    """The values whose memory some operator writes to."""
    memory = _Memory(graph)
    pieces = memory.of(*(value for node in walk(graph) for value in _written_values(node)))
    return {value for value in memory.pieces if not pieces.isdisjoint(memory.of(value))}
