"""Graphs of torch.fx from files: their Python code is read as syntax, and never run.

torch.fx saves a graph as the code of its forward method: one assignment for each node, then a return. `graph_module`
reads these lines into a graph again. Functions are looked up in what torch itself lists as functions of tensors, and in
the table of old names; any other name, and any other kind of line, is refused.
"""

from __future__ import annotations

import ast
import functools
import operator
from typing import Any

import torch
from torch import fx, nn

import zeropoint
from zeropoint.compat import lookup, names
from zeropoint.compat.modules import resolve
from zeropoint.graph.code_names import check_names, is_plain
from zeropoint.numerics.dtypes import DTYPES, quantized_dtype

_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.USub: operator.neg, ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip
_NUMBERS = {"inf": float("inf"), "nan": float("nan")}


class _Code(fx.graph.CodeGen):
    """Code that can name quantized dtypes as they name themselves, ``zeropoint.quint8``."""

    def additional_globals(self) -> list[tuple[str, Any]]:
        return [("zeropoint", zeropoint)]


def graph_module(body: dict[str, Any]) -> fx.GraphModule:
    """The graph that torch.fx saved as `body`: attributes of the module, and its code as ``_code``.

    Raises:
        NotImplementedError: if the code has a line, or names a function, that is not known.
        ValueError: if it is no code of a graph.
    """
    code = body.pop("_code", None)
    if not isinstance(code, str):
        raise ValueError("the file is damaged: a graph has no code")
    root = nn.Module()
    training = bool(body.pop("training", False))
    for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
        vars(root)[name] = body.pop(name, vars(root)[name])
    for name, value in body.items():
        if not name.startswith("_") or name.startswith("_packed_weight"):
            vars(root)[name] = value
    graph = _Reader(root).graph_of(code)
    graph.set_codegen(_Code())
    return _train(fx.GraphModule(root, graph), training)


def _train(module: fx.GraphModule, training: bool) -> fx.GraphModule:
    module.training = training  # of this module alone: the others have their own
    return module


@functools.cache
def _functions_of_tensors() -> frozenset[Any]:
    """Functions that torch lists as functions of tensors: no files, no networks, no processes."""
    listed = torch.overrides.get_overridable_functions()
    places = (torch, torch.nn.functional, torch._C._nn, torch.linalg, torch.special, torch.fft)
    return frozenset(f for place in places for f in listed.get(place, ()))


@functools.cache
def _replaced() -> dict[str, Any]:
    """Old functions and operators that are zeropoint's now, by their old paths."""
    found = {f"torch.{name}": c.path for name, c in lookup.entries(names.FUNCTIONS)}
    found |= {f"torch.ops.quantized.{name}": c.path for name, c in lookup.entries(names.OPERATORS)}
    return {name: path for name, path in found.items() if path}


def _function(path: str) -> Any:
    """The function that code calls as `path`."""
    if path in _replaced():
        return resolve(_replaced()[path])
    if path.startswith("torch.ops.aten."):
        found: Any = torch.ops.aten
        for part in path.removeprefix("torch.ops.aten.").split("."):
            found = getattr(found, part, None)
        if isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) and "from_file" not in path:
            return found
    elif path.startswith("torch."):
        found = torch
        for part in path.split(".")[1:]:
            found = getattr(found, part, None)
        if found is not None and any(found is f for f in _functions_of_tensors()):
            return found
    elif path.startswith(("operator.", "_operator.")):
        found = getattr(operator, path.partition(".")[2], None)
        if found in (operator.getitem, *_OPERATORS.values()):
            return found
    elif path == "getattr":
        return getattr
    raise NotImplementedError(
        f"a graph in the file calls {path}. zeropoint does not load it: only tensor functions that a file names "
        "are executed"
    )


class _Reader:
    """A graph while its code is read."""

    def __init__(self, root: nn.Module) -> None:
        self._root, self._graph = root, fx.Graph()
        self._values: dict[str, Any] = {}

    def graph_of(self, code: str) -> fx.Graph:
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"the file is damaged: cannot parse the code of a graph: {error}") from error
        forward = next((s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == "forward"), None)
        if forward is None or len(tree.body) != 1:
            raise ValueError("the file is damaged: the code of a graph is not one function forward")
        self._arguments(forward.args)
        for statement in forward.body:
            self._statement(statement)
        check_names(self._graph)
        self._graph.lint()
        return self._graph

    def _arguments(self, given: ast.arguments) -> None:
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs:
            raise NotImplementedError("a graph in the file has keyword arguments, which are not supported")
        plain = given.args[1:]
        defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
        for argument, default in zip(plain, defaults):
            rest = {} if default is None else {"default_value": self._constant(default)}
            self._values[argument.arg] = self._graph.placeholder(argument.arg, **rest)

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return):
            self._graph.output(self._value(statement.value))
        elif isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
            if isinstance(statement.value, ast.Constant) and statement.value.value is None:
                return  # ``x = None``: that a value is not needed any more
            made = self._value(statement.value, statement.targets[0].id)  # type: ignore[attr-defined]
            for target in statement.targets:
                self._values[target.id] = made  # type: ignore[attr-defined]
        else:
            raise self._refusal(statement)

    def _refusal(self, part: ast.AST) -> NotImplementedError:
        text = ast.unparse(part)
        return NotImplementedError(f"a graph in the file has an unsupported line: {text[:120]}")

    # -------------------------------------------------------------------------------------------------- expressions

    def _value(self, part: Any, name: str | None = None) -> Any:
        if part is None or isinstance(part, ast.Constant):
            return None if part is None else part.value
        if isinstance(part, ast.Name):
            if part.id in self._values:
                return self._values[part.id]
            if part.id in _NUMBERS:
                return _NUMBERS[part.id]
            raise self._refusal(part)
        if isinstance(part, (ast.Tuple, ast.List)):
            return (tuple if isinstance(part, ast.Tuple) else list)(self._value(p) for p in part.elts)
        if isinstance(part, ast.Dict):
            return {self._value(k): self._value(v) for k, v in zip(part.keys, part.values)}
        if isinstance(part, ast.Attribute):
            return self._attribute(part, name)
        if isinstance(part, ast.Subscript):
            return self._made(operator.getitem, (self._value(part.value), self._value(part.slice)), {}, name)
        if isinstance(part, ast.BinOp) and type(part.op) in _OPERATORS:
            return self._made(_OPERATORS[type(part.op)], (self._value(part.left), self._value(part.right)), {}, name)
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub):
            value = self._value(part.operand)
            return self._made(operator.neg, (value,), {}, name) if isinstance(value, fx.Node) else -value
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and type(part.ops[0]) in _OPERATORS:
            sides = self._value(part.left), self._value(part.comparators[0])
            return self._made(_OPERATORS[type(part.ops[0])], sides, {}, name)
        if isinstance(part, ast.Call):
            return self._call(part, name)
        raise self._refusal(part)

    def _made(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> fx.Node:
        return self._graph.create_node("call_function", function, args, kwargs, name)

    def _constant(self, part: Any) -> Any:
        value = self._value(part)
        if isinstance(value, fx.Node):
            raise self._refusal(part)
        return value

    def _attribute(self, part: ast.Attribute, name: str | None) -> Any:
        path = _dotted(part)
        if path.startswith("self."):
            return self._graph.create_node("get_attr", path.removeprefix("self."), (), {}, name)
        if path.startswith("torch."):
            last = path.removeprefix("torch.")
            if last in DTYPES:
                return quantized_dtype(last)
            found = getattr(torch, last, None)
            if isinstance(found, (torch.dtype, torch.memory_format, torch.layout)):
                return found
        value = self._value(part.value) if isinstance(part.value, ast.Name) else None
        if isinstance(value, fx.Node) and part.attr in ("shape", "dtype", "device", "ndim", "T", "mT"):
            return self._made(getattr, (value, part.attr), {}, name)
        raise self._refusal(part)

    def _call(self, part: ast.Call, name: str | None) -> Any:
        if any(isinstance(a, ast.Starred) for a in part.args) or any(k.arg is None for k in part.keywords):
            raise self._refusal(part)
        read = _dotted(part)
        if read.startswith("self."):  # ``getattr(self, "0")``
            return self._graph.create_node("get_attr", read.removeprefix("self."), (), {}, name)
        path = _dotted(part.func)
        args = tuple(self._value(a) for a in part.args)
        kwargs = {str(k.arg): self._value(k.value) for k in part.keywords}
        if path == "slice":
            return slice(*args)
        if path in ("torch.device", "device"):
            return torch.device(*args, **kwargs)
        if path.startswith("self."):
            return self._graph.create_node("call_module", self._module(path, part), args, kwargs, name)
        head = path.partition(".")[0]
        if head in self._values:
            return self._method(part, args, kwargs, name)
        if path == "getattr" and (len(args) < 2 or args[1] not in ("shape", "dtype", "device", "ndim", "T", "mT")):
            raise self._refusal(part)
        return self._made(_function(path), args, kwargs, name)

    def _module(self, path: str, part: ast.Call) -> str:
        """The path of a submodule; graphs write the parts that are numbers as ``getattr(self.layers, "0")``."""
        target = path.removeprefix("self.")
        try:
            self._root.get_submodule(target)
        except AttributeError:
            raise ValueError(
                f"the file is damaged: a graph calls {ast.unparse(part.func)[:80]}, which it does not have"
            ) from None
        return target

    def _method(self, part: ast.Call, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> fx.Node:
        method = part.func.attr  # type: ignore[attr-defined]
        owner = self._value(part.func.value)  # type: ignore[attr-defined]
        if not isinstance(owner, fx.Node) or method.startswith("_") or not callable(_tensor_method(method)):
            raise self._refusal(part)
        return self._graph.create_node("call_method", method, (owner, *args), kwargs, name)


def _tensor_method(name: str) -> Any:
    """A method of tensors, those that QTensors have included; not those that write memory elsewhere or run code."""
    if name in ("apply_", "map_", "map2_", "register_hook", "backward", "share_memory_", "numpy", "set_"):
        return None
    from zeropoint.tensor.qtensor import QTensor

    return getattr(QTensor, name, None)


def _dotted(part: ast.AST) -> str:
    """``a.b.c`` for a chain of attributes, with ``getattr(a.b, "c")`` in it, or ''."""
    if isinstance(part, ast.Name):
        return part.id
    if isinstance(part, ast.Attribute):
        base = _dotted(part.value)
        return f"{base}.{part.attr}" if base else ""
    if isinstance(part, ast.Call) and _dotted(part.func) == "getattr" and len(part.args) == 2:
        base, last = _dotted(part.args[0]), part.args[1]
        if base and isinstance(last, ast.Constant) and isinstance(last.value, str) and is_plain(last.value):
            return f"{base}.{last.value}"
    return ""
