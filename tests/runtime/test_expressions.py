"""Expressions of programs: every operation of every type against numpy, and code that is not in order."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from zeropoint import _native
from zeropoint.compiler.program_builder import Input, ProgramBuilder
from zeropoint.runtime import FormatError

INTEGERS = ("uint8", "int8", "int32", "int64")
NUMBERS = (*INTEGERS, "float32")
TYPES = (*NUMBERS, "bool")
SHAPES = ((3, 1, 5), (4, 1), (3, 4, 5))  # of the operands, which broadcast


def program(code: list[Any], types: list[str], shapes: Any = SHAPES, **attributes: Any) -> Any:
    """A program of one expression."""
    builder = ProgramBuilder()
    for number, (dtype, shape) in enumerate(zip(types, shapes)):
        builder.inputs.append(Input(f"x{number}", dtype, [None] * len(shape), list(shape)))
    names = [i.name for i in builder.inputs]
    builder.outputs = [builder.add("map", names, "y", types=types, code=code, **attributes)]
    return _native.Program(builder.data(), foreign=[])


def values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Ordinary ones, and those at the ends."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "float32":
        strange = [0.0, -0.0, 1.0, -2.0, 0.5, math.inf, -math.inf, math.nan, 1e30, 3.0]
        chosen = rng.choice(strange, shape)
        return np.where(rng.random(shape) < 0.3, chosen, rng.normal(0, 3, shape)).astype(np.float32)
    ends = np.iinfo(dtype)
    strange_whole = [ends.min, ends.max, 0, 1, 2, 7, 0 if dtype == "uint8" else -1]
    small = rng.integers(0 if dtype == "uint8" else -9, 10, shape)
    return np.where(rng.random(shape) < 0.3, rng.choice(np.array(strange_whole, dtype), shape), small).astype(dtype)


def _trunc(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == np.float32:
        return np.trunc(a / b)
    quotients = [int(abs(int(m)) // abs(int(n))) * (1 if (m < 0) == (n < 0) else -1) for m, n in zip(a.flat, b.flat)]
    wide = np.array([_wrapped(q, a.dtype) for q in quotients], a.dtype)
    return wide.reshape(a.shape)


def _wrapped(number: int, dtype: Any) -> int:
    ends = np.iinfo(dtype)
    return (number - int(ends.min)) % (int(ends.max) - int(ends.min) + 1) + int(ends.min)


def _shifted(left: bool) -> Any:
    def shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = a.dtype.itemsize * 8
        made = []
        for m, n in zip(a.flat, b.flat):
            outside = not 0 <= int(n) < bits
            if left:
                made.append(0 if outside else _wrapped(int(m) << int(n), a.dtype))
            else:
                made.append(int(m) >> (bits if outside else int(n)))
        return np.array(made, a.dtype).reshape(a.shape)

    return shift


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    made = []
    for m, n in zip(a.flat, b.flat):
        modulus = 1 << (a.dtype.itemsize * 8)
        if n >= 0:
            made.append(_wrapped(pow(int(m), int(n), modulus), a.dtype))
        else:
            made.append(int(m) ** (int(n) % 2 + 2) if abs(int(m)) == 1 else 0)
    return np.array(made, a.dtype).reshape(a.shape)


UNARY: dict[str, tuple[tuple[str, ...], Any]] = {
    "neg": (NUMBERS, np.negative), "abs": (NUMBERS, np.abs), "sign": (NUMBERS, np.sign),
    "bitwise_not": ((*INTEGERS, "bool"), np.invert), "floor": (("float32",), np.floor), "ceil": (("float32",), np.ceil),
    "round": (("float32",), np.round), "trunc": (("float32",), np.trunc), "sqrt": (("float32",), np.sqrt),
    "reciprocal": (("float32",), lambda a: np.float32(1) / a), "isnan": (("float32",), np.isnan),
    "rsqrt": (("float32",), lambda a: np.float32(1) / np.sqrt(a)), "isinf": (("float32",), np.isinf),
}  # fmt: skip
BINARY: dict[str, tuple[tuple[str, ...], Any]] = {
    "add": (NUMBERS, np.add), "sub": (NUMBERS, np.subtract), "mul": (NUMBERS, np.multiply),
    "div": (("float32",), np.divide), "floor_divide": (INTEGERS, np.floor_divide), "trunc_divide": (NUMBERS, _trunc),
    "remainder": (INTEGERS, np.remainder), "fmod": (NUMBERS, np.fmod), "pow": (INTEGERS, _power),
    "minimum": (TYPES, np.minimum), "maximum": (TYPES, np.maximum),
    "bitwise_and": ((*INTEGERS, "bool"), np.bitwise_and), "bitwise_or": ((*INTEGERS, "bool"), np.bitwise_or),
    "bitwise_xor": ((*INTEGERS, "bool"), np.bitwise_xor), "shift_left": (INTEGERS, _shifted(True)),
    "shift_right": (INTEGERS, _shifted(False)), "eq": (TYPES, np.equal), "ne": (TYPES, np.not_equal),
    "lt": (TYPES, np.less), "le": (TYPES, np.less_equal), "gt": (TYPES, np.greater), "ge": (TYPES, np.greater_equal),
}  # fmt: skip
DIVIDES = ("floor_divide", "trunc_divide", "remainder", "fmod")
EXACT = [
    *((op, dtype, 1, compute) for op, (types, compute) in UNARY.items() for dtype in types),
    *((op, dtype, 2, compute) for op, (types, compute) in BINARY.items() for dtype in types),
]


@pytest.mark.parametrize(("op", "dtype", "count", "compute"), EXACT, ids=lambda v: v if isinstance(v, str) else "")
def test_operation_gives_what_numpy_gives(op: str, dtype: str, count: int, compute: Any, isa: str) -> None:
    shapes = SHAPES[:count]
    given = [values(dtype, shape, seed) for seed, shape in enumerate(shapes)]
    if op in DIVIDES and dtype != "float32":
        given[1] = np.where(given[1] == 0, np.array(3, dtype), given[1])
    made = program([[op, dtype, *range(count)]], [dtype] * count, shapes).run(tuple(given))[0]
    with np.errstate(all="ignore"):
        wide = [np.ascontiguousarray(v) for v in np.broadcast_arrays(*given)]
        expected = compute(*wide)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("target", TYPES)
def test_conversion_gives_what_numpy_gives(source: str, target: str) -> None:
    x = values(source, (7, 9), 5)
    if source == "float32" and target != "bool":
        x = np.clip(np.nan_to_num(x), 0 if target == "uint8" else -100, 100).astype(np.float32)
    found = program([["convert", target, 0]], [source], [x.shape]).run((x,))[0]
    np.testing.assert_array_equal(found, x.astype(target))


@pytest.mark.parametrize("dtype", TYPES)
def test_choice_takes_the_first_where_it_is_true(dtype: str) -> None:
    chosen, a, b = values("bool", (3, 1, 5), 1), values(dtype, (4, 1), 2), values(dtype, (3, 4, 5), 3)
    found = program([["where", dtype, 0, 1, 2]], ["bool", dtype, dtype]).run((chosen, a, b))[0]
    np.testing.assert_array_equal(found, np.where(chosen, a, b))


def test_long_expression_reads_numbers_sizes_and_values_before() -> None:
    code = [
        ["number", "float32", 2.5],
        ["mul", "float32", 0, 1],
        ["number", "float32", "-inf"],
        ["size", "float32", 0],
        ["add", "float32", 2, 4],
        ["gt", "float32", 5, 0],
        ["where", "float32", 6, 5, 3],
    ]
    x = values("float32", (50, 60), 4)
    y = program(code, ["float32"], [x.shape], sizes=[7]).run((x,))[0]
    with np.errstate(all="ignore"):
        moved = x * np.float32(2.5) + np.float32(7)
        np.testing.assert_array_equal(y, np.where(moved > x, moved, -np.inf))


@pytest.mark.parametrize("op", DIVIDES)
def test_integer_divided_by_zero_is_an_error_of_the_call(op: str) -> None:
    made = program([[op, "int64", 0, 1]], ["int64", "int64"], [(3,), (3,)])
    with pytest.raises(ValueError, match="divided by zero"):
        made.run((np.array([1, 2, 3]), np.array([1, 0, 1])))


WRONG: dict[str, tuple[Any, str]] = {
    "no code": ([], "must have instructions"),
    "too much code": ([["neg", "float32", 0]] * 193, "192 at most"),
    "no list": (["neg"], "must be a list"),
    "short": ([["neg", "float32"]], "at least three"),
    "no operation": ([["sine", "float32", 0]], "there is no operation 'sine'"),
    "no type": ([["neg", "float64", 0]], "there is no dtype 'float64'"),
    "no such type": ([["neg", "float16", 0]], "there are no expressions of float16"),
    "not of that type": ([["sin", "int64", 0]], "there is no 'sin' of int64"),
    "too many": ([["neg", "float32", 0, 0]], "takes 1 values, not 2"),
    "too few": ([["add", "float32", 0]], "takes 2 values, not 1"),
    "itself": ([["neg", "float32", 1]], "must read values before it"),
    "negative": ([["neg", "float32", -1]], "must read values before it"),
    "a word": ([["neg", "float32", "x"]], "must read values before it"),
    "another type": ([["convert", "int64", 0], ["neg", "float32", 1]], "is of another type"),
    "choice of floats": ([["where", "float32", 0, 0, 0]], "is of another type"),
    "a number last": ([["number", "float32", 1.0]], "must compute something"),
    "half a number": ([["number", "int64", 1.5], ["convert", "float32", 1]], "must be an integer"),
    "no flag": ([["number", "bool", 1], ["convert", "float32", 1]], "must be true or false"),
    "no number": ([["number", "float32", "one"], ["neg", "float32", 1]], "'inf', '-inf' or 'nan'"),
    "no size": ([["size", "float32", 0], ["neg", "float32", 1]], "no such number among 'sizes'"),
    "function of integers": ([["convert", "int64", 0], ["silu", "int64", 1]], "is of float32 only"),
}


@pytest.mark.parametrize(("code", "message"), WRONG.values(), ids=WRONG)
def test_code_that_is_not_in_order_is_refused(code: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        program(code, ["float32"], [(2, 3)])


def test_types_must_be_those_of_the_inputs() -> None:
    builder = ProgramBuilder()
    builder.inputs.append(Input("x", "float32", [None], [3]))
    builder.outputs = [builder.add("map", ["x"], "y", types=["int64"], code=[["neg", "int64", 0]])]
    with pytest.raises(FormatError, match="input 0 must be int64, it is float32"):
        _native.Program(builder.data(), foreign=[])


def test_random_code_is_refused_or_runs() -> None:
    """Whatever is in a file: no crash, and what is not refused gives a result."""
    chance = random.Random(3)
    names = [*UNARY, *BINARY, "where", "convert", "number", "size", "exp", "silu", "nothing"]
    ran = 0
    for _ in range(3000):
        types = [chance.choice(TYPES)] * chance.randint(1, 3)
        code: list[Any] = []
        for place in range(chance.randint(1, 3)):
            rest = [chance.randint(-1, len(types) + place) for _ in range(chance.randint(1, 3))]
            code.append([chance.choice(names), chance.choice(types), *rest])
        try:
            made = program(code, types, [(3, 2)] * len(types), sizes=[3])
        except FormatError:
            continue
        given = tuple(np.maximum(values(t, (3, 2), 1), 1).astype(t) for t in types)
        try:
            made.run(given)
        except ValueError:
            continue
        ran += 1
    assert ran > 50
