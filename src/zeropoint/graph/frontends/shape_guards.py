"""What a model asked about the sizes of its inputs while it was captured, and which answer its graph is for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]
import torch
from torch import SymInt, Tensor, fx

from zeropoint.graph import torch_internals as internals

# What numbers are made from sizes with; programs have them too.
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "modulo": operator.mod,
}
_TORCH = Path(torch.__file__).parent
_OURS = Path(__file__).parents[2]
_BY_CLASS = {"Add": "add", "Mul": "multiply", "FloorDiv": "floor_divide", "Mod": "modulo", "PythonMod": "modulo"}


class Place(NamedTuple):
    """A size: the number of an input, and an axis of it."""

    input: int
    axis: int


@dataclass(frozen=True)
class Condition:
    """A number made from sizes that is `low` at least, or exactly if it is `exact`.

    `value` is a number, a `Place`, or (name in OPERATIONS, value, value).
    """

    value: Any
    low: int
    exact: bool
    question: str

    def holds(self, found: Any) -> Any:
        """Whether a number fits."""
        return found == self.low if self.exact else found >= self.low

    @property
    def refusal(self) -> str:
        """What to tell somebody whose sizes do not fit."""
        return f"the sizes of the inputs do not match: the model was captured for inputs with {self.question}"


def value_of(value: Any, size: Callable[[Place], Any], operations: Callable[[str, Any, Any], Any] | None = None) -> Any:
    """The number that the value of a condition stands for.

    Example:
        >>> value_of(("add", Place(0, 1), 2), lambda place: 5)
        7
    """
    if isinstance(value, Place):
        return size(value)
    if isinstance(value, tuple):
        operation, a, b = value
        a, b = (value_of(part, size, operations) for part in (a, b))
        return operations(operation, a, b) if operations is not None else OPERATIONS[operation](a, b)
    return value


def conditions_of(inputs: list[fx.Node]) -> tuple[Condition, ...]:
    """What the graph of a model depends on, of the sizes of these inputs.

    That is what code of the model asked, what PyTorch requires of them, and numbers that PyTorch took them for: how
    many parts ``split`` gives, or the length of ``istft``. What else PyTorch asks below the model, to choose among
    ways to the same result, is left out. A question that conditions cannot say fixes the sizes that it is about.
    """
    places: dict[Any, Place] = {}
    free: SymInt | None = None
    for number, node in enumerate(inputs):
        value = node.meta.get("val")
        for axis, size in enumerate(value.shape if isinstance(value, Tensor) else ()):
            if isinstance(size, SymInt) and internals.expression(size).is_symbol:
                places.setdefault(internals.expression(size), Place(number, axis))
                free = size
    found: dict[Condition, None] = {}
    for asked, where in internals.shape_guards(free) if free is not None else ():
        decides = (_is_of_a_model(where.filename) and not _is_a_check(where)) or _is_a_number(asked)
        if decides and _asks_for_one(asked, where) and not _depends_on_one(inputs[0].graph, asked.free_symbols):
            continue
        if decides or _is_a_check(where):
            line = f" ({Path(where.filename).name}, line {where.lineno})" if _is_of_a_model(where.filename) else ""
            question = _named(asked, places, inputs) + line
            made = list(_conditions(asked, places, question))
            if decides and not made:
                made = [_fixed(size, places, inputs, question) for size in asked.free_symbols if size in places]
            found.update(dict.fromkeys(made))
    return tuple(found)


def _fixed(size: Any, places: dict[Any, Place], inputs: list[fx.Node], question: str) -> Condition:
    """That a size is the one of the example."""
    place = places[size]
    return Condition(place, internals.example_of(inputs[place.input].meta["val"].shape[place.axis]), True, question)


def is_checkable(expression: Any, holds: bool) -> bool:
    """Whether conditions can say that a sympy expression of sizes holds, or that it does not."""
    if not holds:
        expression = sympy.Not(expression)
    places = {symbol: Place(0, 0) for symbol in expression.free_symbols}
    parts = expression.args if isinstance(expression, sympy.And) else (expression,)
    return all(any(True for _ in _conditions(part, places, "")) for part in parts)


def _is_of_a_model(filename: str) -> bool:
    path = Path(filename)
    return not path.is_relative_to(_TORCH) or path.is_relative_to(_TORCH / "nn")


def _is_a_check(where: Any) -> bool:
    """Whether an operator requires something of its inputs, PyTorch's or zeropoint's."""
    return "torch._check" in (where.line or "") or Path(where.filename).is_relative_to(_OURS)


def _is_a_number(asked: Any) -> bool:
    """Whether what is made of sizes was taken for a number: the graph has it."""
    return isinstance(asked, sympy.Eq) and any(side.is_Integer for side in asked.args)


def _asks_for_one(asked: Any, where: Any) -> bool:
    """Whether an operator of PyTorch asked, or took for a number, that a size is 1: the two look alike."""
    is_one = isinstance(asked, sympy.Eq) and sympy.Integer(1) in asked.args and any(p.is_symbol for p in asked.args)
    return is_one and Path(where.filename) == _TORCH / "_ops.py"


def _depends_on_one(graph: fx.Graph, sizes: set[Any]) -> bool:
    """Whether an operator gives as many parts as such a size says, or leaves out or repeats an axis of size 1."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        value = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], fx.Node) else None
        if schema is None or not isinstance(value, Tensor):
            continue
        name = schema.name.partition("::")[2]
        gives_parts = any(str(result.type) == "List[Tensor]" for result in schema.returns)
        if gives_parts or name.startswith(("squeeze", "expand", "broadcast")):
            named = node.args[1] if name == "squeeze" and len(node.args) > 1 else range(value.dim())
            looked_at = [value.shape[axis] for axis in (named if isinstance(named, (list, range)) else [named])]
            if any(sizes & internals.expression(n).free_symbols for n in looked_at if isinstance(n, SymInt)):
                return True
    return False


def _named(expression: Any, places: dict[Any, Place], inputs: list[fx.Node]) -> str:
    names = {
        symbol: sympy.Symbol(f"{inputs[place.input].target}.size({place.axis})") for symbol, place in places.items()
    }
    return str(expression.xreplace(names))


def _conditions(expression: Any, places: dict[Any, Place], question: str) -> Iterator[Condition]:
    """The parts of a guard; those that are no such comparisons are left out."""
    if isinstance(expression, sympy.And):
        for part in expression.args:
            yield from _conditions(part, places, question)
        return
    if not isinstance(expression, sympy.core.relational.Relational):
        return
    a, b = (_value(side, places) for side in expression.args)
    if a is None or b is None:
        return
    if isinstance(expression, (sympy.Lt, sympy.Le)):
        a, b = b, a
    difference = ("add", a, ("multiply", -1, b))
    if isinstance(expression, sympy.Ne):
        yield Condition(("multiply", difference, difference), 1, False, question)
    else:
        is_strict = isinstance(expression, (sympy.Lt, sympy.Gt))
        yield Condition(difference, int(is_strict), isinstance(expression, sympy.Eq), question)


def _value(expression: Any, places: dict[Any, Place]) -> Any:
    if expression.is_symbol:
        return places.get(expression)
    if expression.is_Integer:
        return int(expression)
    if type(expression).__name__ == "TruncToInt" and type(expression.args[0]).__name__ == "IntTrueDiv":
        expression = sympy.Function("FloorDiv")(*expression.args[0].args)  # sizes are not negative
    operation = _BY_CLASS.get(type(expression).__name__)
    parts = [_value(part, places) for part in expression.args]
    if operation is None or any(part is None for part in parts):
        return None
    made = parts[0]
    for part in parts[1:]:
        made = (operation, made, part)
    return made
