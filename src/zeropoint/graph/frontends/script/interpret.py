"""A method of a ScriptModule run in Python, node by node, so that torch.export can follow it.

Lists, numbers and conditions on what is known (options, ranks, dtypes) happen in Python and leave no trace; what is
left is a straight line of operators. Sizes stay free.
"""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint import torch_versions
from zeropoint.graph.frontends.script.copying import private_copy
from zeropoint.graph.frontends.script.guards import raise_first
from zeropoint.graph.frontends.script.in_place import make_ordinary, written
from zeropoint.graph.frontends.script.inline import PATH, at_path, path_of, simplify
from zeropoint.graph.frontends.script.plain_values import ARITHMETIC, DTYPES, PLAIN, QUESTIONS

__all__ = ["LINE", "MODULE", "Interpreted", "NotStraight", "interpreted"]

C: Any = torch._C
LINE, MODULE = "script_line", "script_module"  # in ``node.meta["custom"]``, while a model is exported
_READ = frozenset(
    ("aten::Bool", "aten::Int", "aten::Float", "aten::IntImplicit", "aten::FloatImplicit", "aten::ScalarImplicit",
     "aten::item", "aten::tolist", "prim::tolist")
)  # fmt: skip
_CONVERTED: dict[str, Any] = {"aten::Bool": bool, "aten::Int": int, "aten::Float": float}
_SETTINGS = {
    "ScalarType": DTYPES,
    "Layout": {0: torch.strided},
    "MemoryFormat": dict(
        enumerate(
            (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
        )
    ),
}  # fmt: skip


class NotStraight(NotImplementedError):
    """A model whose way depends on data, or that changes while it runs."""


@dataclass
class _Node:
    """A node: what it computes, the values it reads and makes, by number, its line of code and its module's path."""

    kind: str
    target: Any  # of torch.ops, if it is such an operator
    reads: list[int]
    makes: list[int]
    line: str
    path: str
    blocks: list[_Block] = field(default_factory=list)
    raises: tuple[bool, ...] = ()  # for each block of an If: whether it only raises

    @property
    def where(self) -> str:
        return f"{self.kind} ({self.line})" if self.line else self.kind


@dataclass
class _Block:
    takes: list[int]
    nodes: list[_Node]
    gives: list[int]


@dataclass(frozen=True)
class _Stored:
    """A tensor of the model; of one without axes, which is what traces make of numbers, also its number."""

    buffer: str
    number: Any = None


class Interpreted(nn.Module):
    """What `interpreted` gives."""

    body: _Block
    constants: dict[int, Any]

    def run(self, inputs: tuple[Any, ...]) -> Any:
        lists = {number: [self.tensor(part) for part in v] for number, v in self.constants.items() if type(v) is list}
        values = self.constants | lists
        (result,) = self.run_block(self.body, list(inputs), values)
        return result

    def run_block(self, block: _Block, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        values.update(zip(block.takes, inputs))
        for node in block.nodes:
            results = self.run_node(node, values)
            values.update(zip(node.makes, results))
        return [self.tensor(values[number]) for number in block.gives]

    def run_node(self, node: _Node, values: dict[int, Any]) -> Any:
        if node.kind == "prim::If":
            return self.condition(node, values)
        if node.kind == "prim::Loop":
            return self.loop(node, values)
        args = [values[number] for number in node.reads]
        if node.kind == "prim::RaiseException":
            raise RuntimeError(f"{args[0]} ({node.where})")
        with torch_versions.annotated({LINE: node.line, MODULE: node.path}):
            try:
                result = self.call(node, args)
            except NotStraight:
                raise
            except Exception as error:
                if not torch_versions.is_exporting():
                    raise
                raise NotStraight(f"{node.where}: {str(error).strip().partition(chr(10))[0]}") from error
        results = [result] if len(node.makes) == 1 else result or ()
        return results

    # ---------------------------------------------------------------------------------------------------- calls

    def tensor(self, value: Any) -> Any:
        """A value; of a constant, its tensor."""
        return self.get_buffer(value.buffer) if isinstance(value, _Stored) else value

    def number(self, value: Any) -> Any:
        """A value; of a constant without axes, its number."""
        return value.number if isinstance(value, _Stored) and value.number is not None else self.tensor(value)

    def call(self, node: _Node, args: list[Any]) -> Any:
        kind = node.kind
        by_number = kind in ARITHMETIC or kind in _READ
        args = [self.number(value) if by_number else self.tensor(value) for value in args]
        about = args[0] if args else None
        if kind in _READ and isinstance(about, Tensor):
            return self.read(node, about)
        if kind in QUESTIONS and isinstance(about, Tensor):
            return QUESTIONS[kind](*args)
        if kind in PLAIN and (kind.startswith("prim::") or not isinstance(about, Tensor)):
            return PLAIN[kind](*args)
        if kind == "aten::to" and not isinstance(about, Tensor):
            return about  # a number of a trace
        if kind == "aten::to" and "prim_" in str(node.target):
            return self.converted(args)
        if kind == "aten::tensor":
            return torch.tensor(about, dtype=DTYPES.get(args[1]))
        if node.target is None:
            raise NotStraight(f"{node.where}: nothing in Python does that")
        return self.operator(node, args)

    def read(self, node: _Node, tensor: Tensor) -> Any:
        if torch_versions.is_exporting():
            raise NotStraight(f"{node.where} reads the value of a tensor")
        return _CONVERTED.get(node.kind, lambda value: value)(tensor.tolist())

    def converted(self, args: list[Any]) -> Tensor:
        """``x.to`` in the spellings that only TorchScript has."""
        dtype = next((DTYPES[a] for a in args[1:] if isinstance(a, int) and not isinstance(a, bool)), None)
        return args[0] if dtype is None else args[0].to(dtype)

    def operator(self, node: _Node, args: list[Any]) -> Any:
        given, named = [], {}
        symbolic = _symbolic(node.target)
        for argument, value in zip(node.target._schema.arguments, args):
            if argument.name not in symbolic and any(map(_is_free, value if isinstance(value, list) else [value])):
                raise NotStraight(f"{node.where}: {argument.name} is a size of an input, which is free")
            setting = _SETTINGS.get(str(argument.real_type).removeprefix("Optional[").removesuffix("]"))
            if setting is not None and isinstance(value, int):
                value = setting[value]
            elif str(argument.type) == "Tensor" and isinstance(value, (int, float)) and node.kind not in ARITHMETIC:
                value = torch.tensor(value)
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                given.append(value)
        return node.target(*given, **named)

    # --------------------------------------------------------------------------------------------- control flow

    def decided(self, node: _Node, value: Any) -> bool | None:
        """What a condition is, if that does not depend on sizes that are free."""
        if isinstance(value, torch.SymBool):
            known = value.node.maybe_as_bool()
            return known if known is None else bool(known)
        return bool(value)

    def condition(self, node: _Node, values: dict[int, Any]) -> Any:
        chosen = self.decided(node, values[node.reads[0]])
        if chosen is None:
            if any(node.raises):  # a check of sizes: steps of a program have their own
                chosen = node.raises[1]
            else:
                raise NotStraight(f"{node.where}: a condition on a size of an input, which is free")
        return self.run_block(node.blocks[0 if chosen else 1], [], values)

    def loop(self, node: _Node, values: dict[int, Any]) -> Any:
        count, goes_on, *carried = (values[number] for number in node.reads)
        if isinstance(count, torch.SymInt) and count.node.maybe_as_int() is None:
            raise NotStraight(f"{node.where}: a loop that runs as often as an input is long")
        number = 0
        while number < int(count) and self.decided(node, goes_on):
            goes_on, *carried = self.run_block(node.blocks[0], [number, *carried], values)
            number += 1
            if isinstance(goes_on, torch.SymBool) and self.decided(node, goes_on) is None:
                raise NotStraight(f"{node.where}: a loop whose end depends on a size of an input, which is free")
        return carried


# ------------------------------------------------------------------------------------------------------------ making


def interpreted(name: str, model: Any, method: str = "forward") -> Interpreted:
    """A method of a ScriptModule as a module that runs it in Python; `name` is who asks, for messages.

    Raises:
        TypeError: if `model` is no ScriptModule that can be saved.
        NotStraight: if the method assigns attributes, or calls what cannot be looked into.

    Example:
        >>> script = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval())
        >>> x = torch.randn(3, 2)
        >>> torch.equal(interpreted("example", script)(x), script(x))
        True
    """
    module = private_copy(name, model)
    graph = simplify(module, method, [])
    raise_first(graph)
    make_ordinary(graph)
    return _Maker(module, graph).run(module._get_method(method).schema)


class _Maker:
    def __init__(self, module: Any, graph: Any) -> None:
        self.module, self.graph = module, graph
        self.numbers: dict[Any, int] = {}
        self.constants: dict[int, Any] = {}
        self.buffers: dict[str, Tensor] = {}
        self.written = written(graph)

    def run(self, schema: Any) -> Interpreted:
        body = self.block(self.graph)
        body.takes = body.takes[1:]
        made = _with_signature(schema.arguments[1:])()
        made.body, made.constants = body, self.constants
        for name, tensor in self.buffers.items():
            made.register_buffer(name, tensor)
        return made.eval()

    def number(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def block(self, block: Any) -> _Block:
        takes = [self.number(value) for value in block.inputs()]
        nodes = [made for node in block.nodes() if (made := self.node(node)) is not None]
        return _Block(takes, nodes, [self.number(value) for value in block.outputs()])

    def node(self, node: Any) -> _Node | None:
        kind = node.kind()
        if kind == "prim::Constant":
            self.constant(node)
            return None
        if kind == "prim::GetAttr":
            self.attribute(node)
            return None
        if kind == "prim::SetAttr":
            raise self.not_straight(node, f"assigns {node.s('name')!r}: the model changes while it runs")
        target = _target(node)
        if target is None and kind not in (*PLAIN, *QUESTIONS, *_READ, *_CONTROL):
            raise self.not_straight(node, "is nothing that can be looked into")
        reads, makes = ([self.number(v) for v in values] for values in (node.inputs(), node.outputs()))
        path = node.s(PATH) if node.hasAttribute(PATH) else ""
        blocks = list(node.blocks())
        raises = tuple(any(inner.kind() == "prim::RaiseException" for inner in block.nodes()) for block in blocks)
        return _Node(kind, target, reads, makes, _line(node), path, [self.block(block) for block in blocks], raises)

    def not_straight(self, node: Any, why: str) -> NotStraight:
        line = _line(node)
        return NotStraight(f"{node.kind()} ({line}) {why}" if line else f"{node.kind()} {why}")

    def constant(self, node: Any) -> None:
        output = node.output()
        value = output.toIValue() if output.type().kind() != "FunctionType" else None
        self.constants[self.number(output)] = self.kept(value, f"constant_{len(self.buffers)}")

    def kept(self, value: Any, name: str) -> Any:
        """A value of the model; tensors become buffers."""
        if isinstance(value, Tensor):
            self.buffers[name] = value.detach()
            is_number = value.dim() == 0 and not value.is_complex()
            return _Stored(name, value.item() if is_number else None)
        if isinstance(value, list) and any(isinstance(part, Tensor) for part in value):
            return [self.kept(part, f"{name}_{i}") for i, part in enumerate(value)]
        return value

    def attribute(self, node: Any) -> None:
        output = node.output()
        path = path_of(self.graph, output)
        if path is None:
            raise self.not_straight(node, f"reads an attribute {node.s('name')!r} of something computed")
        value = at_path(self.module, path)
        if output in self.written and "Tensor" in output.type().str():
            raise self.not_straight(node, f"reads {path!r}, which is written to: the model changes while it runs")
        if isinstance(value, C.ScriptModule):
            value = None  # what reads it has its own path
        self.constants[self.number(output)] = self.kept(value, path.replace(".", "_"))


_CONTROL = ("prim::If", "prim::Loop", "prim::RaiseException", "aten::tensor", "aten::to")


def _line(node: Any) -> str:
    """The line of code that a node came from, as far as it is known, as ``File model.py, line 7: x.relu()``."""
    lines = [line.strip() for line in node.sourceRange().splitlines() if line.strip()]
    file = next((line for line in lines if line.startswith("File ")), "")
    marked = next((i for i, line in enumerate(lines) if set(line) <= set("~ <-HERE")), None)
    return ": ".join(part for part in (file.replace('"', ""), lines[marked - 1] if marked else "") if part)


def _target(node: Any) -> Any:
    """The operator of torch.ops that a node calls."""
    text = node.schema()
    if text == "(no schema)" or text.startswith("prim::"):
        return None
    space, _, name = text.split("(")[0].partition("::")
    packet, _, overload = name.partition(".")
    found = getattr(getattr(getattr(torch.ops, space), packet, None), overload or "default", None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def _is_free(value: Any) -> bool:
    """Whether a number is a symbol for what depends on sizes of inputs."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) and not value.node.is_constant()


@functools.cache
def _symbolic(target: Any) -> frozenset[str]:
    """The arguments of an operator that may be symbols."""
    return frozenset(re.findall(r"\b(?:SymInt\S*|Scalar\??|Tensor\S*) (\w+)", str(target._schema)))


def _with_signature(arguments: list[Any]) -> type[Interpreted]:
    """A class whose forward has the arguments of the method, by name."""
    missing = inspect.Parameter.empty
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for argument in arguments:
        default = argument.default_value if argument.has_default_value() else missing
        parameters.append(inspect.Parameter(argument.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    signature = inspect.Signature(parameters)

    def forward(self: Interpreted, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        return self.run(tuple(given.arguments.values())[1:])

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return type("Interpreted", (Interpreted,), {"forward": forward})
