"""A method of a ScriptModule as a graph of torch.export: a straight line of operators.

The method is evaluated in Python, node by node, while torch.export follows. Lists, numbers and conditions on what is
known (options, ranks, dtypes) happen in Python and leave no trace. Sizes stay free; what the method checks about them
becomes a check of the graph.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections import UserDict
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint import torch_versions
from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.dynamic_shapes import ALL, EndsCapture
from zeropoint.graph.frontends.export import CaptureError, capture
from zeropoint.graph.frontends.script.inline import simplify
from zeropoint.graph.frontends.script.method import Block, Method, Node, add_tensor
from zeropoint.graph.frontends.script.scalar_operators import ARITHMETIC, DTYPES, SCALAR_OPERATORS, TENSOR_PROPERTIES
from zeropoint.graph.frontends.script.script_module import script_module
from zeropoint.graph.frontends.shape_guards import is_checkable
from zeropoint.graph.passes.unwrap_tensors import unwrap_tensors
from zeropoint.graph.provenance import Origin

_LINE, _MODULE = "script_line", "script_module"  # annotations of nodes while a model is exported
_READ: dict[str, Any] = {
    "aten::Bool": bool,
    "aten::Int": int,
    "aten::Float": float,
    "aten::IntImplicit": int,
    "aten::FloatImplicit": float,
    "aten::ScalarImplicit": lambda value: value,
    "aten::item": lambda value: value,
    "aten::tolist": lambda value: value,
    "prim::tolist": lambda value: value,
}
_CONTROL = ("prim::If", "prim::Loop", "prim::RaiseException", "aten::tensor", "aten::to")
_MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
_SETTINGS = {"ScalarType": DTYPES, "Layout": {0: torch.strided}, "MemoryFormat": dict(enumerate(_MEMORY_FORMATS))}


class NotStraight(EndsCapture, NotImplementedError):
    """A model whose way depends on data, or that changes while it runs."""


def straight_graph(name: str, model: Any, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    """The operators that a ScriptModule calls for such inputs, sizes free; `name` is who asks, for messages.

    Of each node ``meta["origin"]`` is the module that it came from, ``meta["line"]`` the line of code, if it is known.

    Raises:
        NotStraight: if what it calls depends on data or on sizes, or if it changes while it runs.
        ValueError: if it does not run on the example inputs.

    Example:
        >>> import torch
        >>> script = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).eval())
        >>> graph = straight_graph("example", script, (torch.ones(1, 2),))
        >>> [(node.name, node.meta["origin"].path) for node in graph.graph.nodes if node.op == "call_function"]
        [('linear', '0'), ('relu', '1')]
    """
    try:
        with internals.keeping_annotations():
            graph = capture(evaluator(name, model), example_inputs, dynamic_shapes=ALL)
    except ValueError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, NotStraight):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            raise cause from error
        if isinstance(error, CaptureError):
            raise NotStraight(str(error)) from error
        raise
    for node in graph.graph.nodes:
        known = internals.annotation(node)
        if known.get(_LINE):
            node.meta["line"] = known[_LINE]
        if known.get(_MODULE):
            node.meta["origin"] = Origin(known[_MODULE], None)
    unwrap_tensors(graph)
    return graph


def evaluator(name: str, model: Any, method: str = "forward") -> Evaluator:
    """A method of a ScriptModule as a module that runs it in Python; `name` is who asks, for messages.

    Raises:
        TypeError: if `model` is no ScriptModule.
        NotStraight: if the method assigns attributes, or calls what cannot be looked into.

    Example:
        >>> script = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval())
        >>> x = torch.randn(3, 2)
        >>> torch.equal(evaluator("example", script)(x), script(x))
        True
    """
    module = script_module(name, model)
    called = module._get_method(method)
    graph = simplify(module, called.graph.copy())
    return _with_signature(called.schema.arguments[1:])(Method(module, graph)).eval()


class _Stored:
    """A tensor of the model. Of one with a single element, which may stand for a number, also that number."""

    def __init__(self, path: str, tensor: Tensor) -> None:
        self.path = path
        self.has_axes = tensor.dim() > 0
        self.number = tensor.item() if tensor.numel() == 1 and not tensor.is_complex() else None


class _Constants(UserDict[Any, Any]):
    """What is known of a method, by TorchScript value. (No dict: torch.export looks into those of a module.)"""


class Evaluator(nn.Module):
    """What `evaluator` gives."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method
        self.constants = _Constants()
        self.tensors = nn.Module()
        self.prepare(method.body)

    def __deepcopy__(self, memo: Any) -> Evaluator:
        return self  # it never changes

    # -------------------------------------------------------------------------------------------- what is known

    def prepare(self, block: Block) -> None:
        """Find the constants of a block, and refuse what cannot be evaluated."""
        for node in block.nodes:
            if node.kind == "prim::Constant":
                path = f"constant_{len(self.constants)}"
                self.constants[node.outputs[0]] = self.kept(self.method.constant(node), path)
            elif node.kind == "prim::GetAttr":
                self.constants[node.outputs[0]] = self.attribute(node)
            elif node.kind == "prim::SetAttr":
                name = node.script.s("name")
                raise NotStraight(f"{node.where} assigns {name!r}: the model changes while it runs")
            elif node.target is None and node.kind not in (*SCALAR_OPERATORS, *TENSOR_PROPERTIES, *_READ, *_CONTROL):
                raise NotStraight(f"{node.where} cannot be inspected")
            for inner in node.blocks:
                self.prepare(inner)

    def attribute(self, node: Node) -> Any:
        path = self.method.path(node.outputs[0])
        if path is None:
            name = node.script.s("name")
            raise NotStraight(f"{node.where} reads an attribute {name!r} of a computed value")
        if self.method.is_written(node):
            raise NotStraight(f"{node.where} reads {path!r}, which is written to: the model changes while it runs")
        return self.kept(self.method.constant(node), path)

    def kept(self, value: Any, path: str) -> Any:
        """A value of the model; tensors become buffers."""
        if isinstance(value, Tensor):
            add_tensor(self.tensors, path, value.detach())
            return _Stored(path, value.detach())
        if isinstance(value, list) and any(isinstance(part, Tensor) for part in value):
            return [self.kept(part, f"{path}.{i}") for i, part in enumerate(value)]
        return value

    def tensor(self, value: Any) -> Any:
        """A value; of a constant, its tensor."""
        return self.tensors.get_buffer(value.path) if isinstance(value, _Stored) else value

    # ---------------------------------------------------------------------------------------------------- blocks

    def run(self, inputs: tuple[Any, ...]) -> Any:
        # A list is a new one in each run, which may append to it.
        lists = {key: [self.tensor(part) for part in v] for key, v in self.constants.items() if type(v) is list}
        (result,) = self.block(self.method.body, [None, *inputs], self.constants.data | lists)
        return result

    def block(self, block: Block, inputs: list[Any], values: dict[Any, Any]) -> list[Any]:
        values.update(zip(block.inputs, inputs))
        for node in block.nodes:
            if node.kind not in ("prim::Constant", "prim::GetAttr"):
                values.update(zip(node.outputs, self.node(node, values)))
        return [self.tensor(values[value]) for value in block.outputs]

    def node(self, node: Node, values: dict[Any, Any]) -> Any:
        if node.kind == "prim::If":
            return self.condition(node, values)
        if node.kind == "prim::Loop":
            return self.loop(node, values)
        args = [values[value] for value in node.inputs]
        if node.kind == "prim::RaiseException":
            raise RuntimeError(f"{args[0]} ({node.where})")
        with internals.annotated({_LINE: node.line, _MODULE: node.path}):
            try:
                result = self.call(node, args)
            except NotStraight:
                raise
            except Exception as error:
                if not torch_versions.is_exporting():
                    raise
                raise NotStraight(f"{node.where}: {str(error).strip().partition(chr(10))[0]}") from error
        return [result] if len(node.outputs) == 1 else result or ()

    def condition(self, node: Node, values: dict[Any, Any]) -> Any:
        chosen = values[node.inputs[0]]
        if internals.is_free(chosen):
            if any(value.type().kind() != "BoolType" for value in node.outputs):
                raise NotStraight(f"{node.where}: a condition on a dynamic size of an input")
            chosen = self.checked(node, chosen)
        return self.block(node.blocks[0 if chosen else 1], [], values)

    def checked(self, node: Node, condition: Any) -> bool:
        """What a condition on sizes is for the example. The graph checks that it is the same for other inputs."""
        found = re.search(r"File (.+?), line (\d+)", node.line)
        file, line = (found[1], int(found[2])) if found else ("TorchScript", 1)
        asked = internals.expression(condition)
        holds = internals.truth(condition, file, line)
        if not is_checkable(asked, holds):
            raise NotStraight(f"{node.where}: a check of sizes that a program does not support")
        return holds

    def loop(self, node: Node, values: dict[Any, Any]) -> Any:
        count, goes_on, *carried = (values[value] for value in node.inputs)
        if internals.is_free(count):
            raise NotStraight(f"{node.where}: a loop over a dynamic size of an input")
        number = 0
        while number < int(count) and goes_on:
            goes_on, *carried = self.block(node.blocks[0], [number, *carried], values)
            number += 1
            if internals.is_free(goes_on):
                raise NotStraight(f"{node.where}: a loop whose end depends on a dynamic size of an input")
        return carried

    # ----------------------------------------------------------------------------------------------------- calls

    def call(self, node: Node, args: list[Any]) -> Any:
        kind = node.kind
        if (target := _with_numbers(node.target, args)) is not None:
            return self.operator(node, target, [v.number if isinstance(v, _Stored) else v for v in args])
        args = [self.argument(kind, value) for value in args]
        about: Any = args[0] if args else None
        if kind in _READ and isinstance(about, Tensor):
            if torch_versions.is_exporting():
                raise NotStraight(f"{node.where} reads the value of a tensor")
            return _READ[kind](about.tolist() if "tolist" in kind else about.item())
        if kind in TENSOR_PROPERTIES and isinstance(about, Tensor):
            return TENSOR_PROPERTIES[kind](*args)
        if kind in SCALAR_OPERATORS and (kind.startswith("prim::") or not isinstance(about, Tensor)):
            return SCALAR_OPERATORS[kind](*args)
        if kind == "aten::to" and not isinstance(about, Tensor):
            return about  # a number of a trace
        if kind == "aten::to" and (node.target is None or "prim_" in str(node.target)):  # only TorchScript has it
            dtype = next((DTYPES[a] for a in args[1:] if isinstance(a, int) and not isinstance(a, bool)), None)
            return about if dtype is None else about.to(dtype)
        if kind == "aten::tensor":
            return torch.tensor(about, dtype=DTYPES.get(args[1]))
        if node.target is None:
            raise NotStraight(f"{node.where}: it has no Python equivalent")
        return self.operator(node, node.target, args)

    def argument(self, kind: str, value: Any) -> Any:
        """What a node of a kind gets for a value: of constants that stand for numbers, the number."""
        if not isinstance(value, _Stored):
            return value
        is_number = kind in _READ or (kind in ARITHMETIC and not value.has_axes)
        return value.number if is_number and value.number is not None else self.tensor(value)

    def operator(self, node: Node, target: Any, args: list[Any]) -> Any:
        given, named = [], {}
        symbolic = _symbolic(target)
        for argument, value in zip(target._schema.arguments, args):
            parts = value if isinstance(value, list) else [value]
            if argument.name not in symbolic and any(map(internals.is_free, parts)):
                raise NotStraight(f"{node.where}: {argument.name} is a dynamic size of an input")
            setting = _SETTINGS.get(str(argument.real_type).removeprefix("Optional[").removesuffix("]"))
            if setting is not None and isinstance(value, int):
                value = setting.get(value, value)
            elif str(argument.type) == "Tensor" and isinstance(value, (int, float)) and node.kind not in ARITHMETIC:
                value = torch.tensor(value)
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                given.append(value)
        return target(*given, **named)


def _with_numbers(target: Any, args: list[Any]) -> Any:
    """The overload of an operator that takes numbers where it is given constants, such as the scale of quantize."""
    known = [i for i, value in enumerate(args) if isinstance(value, _Stored) and value.number is not None]
    if target is None or len(known) < 2 or len(known) != sum(isinstance(value, _Stored) for value in args):
        return None
    kinds = [str(argument.type) for argument in target._schema.arguments]
    wanted = [type(args[i].number).__name__ if i in known else kind for i, kind in enumerate(kinds)]
    packet = target.overloadpacket
    overloads = (getattr(packet, name) for name in packet.overloads())
    return next((o for o in overloads if [str(a.type) for a in o._schema.arguments] == wanted), None)


@functools.cache
def _symbolic(target: Any) -> frozenset[str]:
    """The arguments of an operator that may be symbols."""
    return frozenset(re.findall(r"\b(?:SymInt\S*|Scalar\??|Tensor\S*) (\w+)", str(target._schema)))


def _with_signature(arguments: list[Any]) -> type[Evaluator]:
    """A class whose forward has the arguments of the method, by name."""
    kind, missing = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    parameters = [inspect.Parameter("self", kind)]
    for argument in arguments:
        default = argument.default_value if argument.has_default_value() else missing
        parameters.append(inspect.Parameter(argument.name, kind, default=default))
    signature = inspect.Signature(parameters)

    def forward(self: Evaluator, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        return self.run(tuple(given.arguments.values())[1:])

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return type("Evaluator", (Evaluator,), {"forward": forward})
