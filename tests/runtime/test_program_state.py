"""Programs that keep tensors from call to call: what replaces them, in which order, and files that are wrong."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
import torch

from zeropoint import _native, runtime
from zeropoint.compiler.program_builder import Input, ProgramBuilder, State

SIZE = 4
START = np.arange(SIZE, dtype=np.float32)


class Made:
    """A program over one input `x` of four numbers and states of the same size."""

    def __init__(self, *states: str) -> None:
        self.builder = ProgramBuilder()
        self.builder.inputs.append(Input(self.builder.fresh("x"), "float32", [SIZE], [SIZE]))
        for name in states:
            self.builder.state[self.builder.fresh(name)] = State("float32", [SIZE], name)

    def add(self, a: str, b: str) -> str:
        return self.builder.add("map", [a, b], "sum", types=["float32"] * 2, code=[["add", "float32", 0, 1]])

    def put(self, x: str, values: str, *places: int) -> str:
        index = self.builder.constant("places", torch.tensor(places))
        return self.builder.add("index_put", [x, values, index], "put", mode="set", axis=0)

    def part(self, x: str, begin: int, end: int) -> str:
        return self.builder.add("slice", [x], "part", axis=0, begin=begin, end=end, step=1)

    def start(self, name: str, value: np.ndarray) -> None:
        self.builder.state[name].initial = self.builder.constant(f"{name}_initial", torch.from_numpy(value))

    def program(self, *outputs: str, **following: str) -> runtime.Program:
        for name, value in following.items():
            self.builder.state[name].next = value
        self.builder.outputs = list(outputs)
        self.builder.result = ["list", list(range(len(outputs)))]
        return runtime.Program(_native.Program(self.builder.data()))


def of(value: float) -> np.ndarray:
    return np.full(SIZE, value, np.float32)


def test_a_sum_goes_on_from_call_to_call() -> None:
    made = Made("total")
    total = made.add("total", "x")
    program = made.program(total, total=total)
    assert [program(of(v))[0][0] for v in (1, 2, 3)] == [1, 3, 6]
    program.reset()
    assert program(of(5))[0][0] == 5


def test_states_that_change_places_are_both_read_before_they_are_written() -> None:
    made = Made("a", "b")
    made.start("a", START)
    program = made.program("a", "b", a="b", b="a")
    seen = [[r.tolist() for r in program(of(0))] for _ in range(3)]
    assert seen == [[START.tolist(), [0] * SIZE], [[0] * SIZE, START.tolist()], [START.tolist(), [0] * SIZE]]


def test_a_delay_line_passes_values_on() -> None:
    made = Made("a", "b", "c")
    program = made.program("c", a="x", b="a", c="b")
    assert [program(of(v))[0][0] for v in (1, 2, 3, 4, 5)] == [0, 0, 0, 1, 2]


def test_what_was_read_before_a_write_keeps_its_value() -> None:
    made = Made("kept")
    old = made.part("kept", 0, 2)
    new = made.put("kept", made.part("x", 0, 1), 0)
    program = made.program(old, new, made.add("kept", "x"), kept=new)
    program(of(7))
    before, after, total = program(of(9))
    assert before.tolist() == [7, 0]
    assert after.tolist() == [9, 0, 0, 0]
    assert total.tolist() == [16, 9, 9, 9]


def test_a_write_whose_middle_another_state_keeps() -> None:
    made = Made("a", "b")
    middle = made.put("a", made.part("x", 0, 1), 0)
    last = made.put(middle, made.part("x", 0, 1), 1)
    program = made.program("a", "b", a=last, b=middle)
    program(of(5))
    assert [r.tolist() for r in program(of(6))] == [[5, 5, 0, 0], [5, 0, 0, 0]]
    assert [r.tolist() for r in program(of(0))] == [[6, 6, 0, 0], [6, 5, 0, 0]]


def test_writes_go_to_the_state_itself() -> None:
    made = Made("kept")
    new = made.put(made.put("kept", made.part("x", 0, 1), 0), made.part("x", 0, 1), 1)
    program = made.program(made.part(new, 0, 1), kept=new)
    assert program.memory().values < 5 * 64  # indices, twice, and parts of the input; no copy of the state
    program(of(3))
    assert program(of(4))[0].tolist() == [4]


def test_a_state_that_is_turned_around() -> None:
    made = Made("kept")
    made.start("kept", START)
    program = made.program("kept", kept=made.builder.add("flip", ["kept"], "flipped", axes=[0]))
    assert [program(of(0))[0].tolist() for _ in range(2)] == [START.tolist(), START[::-1].tolist()]


def test_an_output_that_is_the_next_state_is_memory_of_its_own() -> None:
    made = Made("kept")
    new = made.put("kept", made.part("x", 0, 1), 0)
    program = made.program(new, kept=new)
    first = program(of(1))[0]
    program(of(2))
    assert first.tolist() == [1, 0, 0, 0]


def test_an_index_that_is_wrong_leaves_the_state_as_it_was() -> None:
    made = Made("kept")
    made.builder.inputs.append(Input(made.builder.fresh("at"), "int64", [1], [1]))
    new = made.builder.add("index_put", ["kept", made.part("x", 0, 1), "at"], "put", mode="set", axis=0)
    program = made.program(new, kept=new)
    program(of(1), np.array([0]))
    with pytest.raises(ValueError, match="index 4 is outside an axis of 4"):
        program(of(2), np.array([4]))
    assert program(of(3), np.array([1]))[0].tolist() == [1, 3, 0, 0]


def test_a_profile_leaves_the_state_alone() -> None:
    made = Made("total")
    total = made.add("total", "x")
    program = made.program(total, total=total)
    program(of(1))
    program.profile(of(1), runs=2)
    assert program(of(1))[0][0] == 2


def test_threads_with_copies_do_not_disturb_each_other() -> None:
    made = Made("total")
    total = made.add("total", "x")
    program = made.program(total, total=total)
    found: dict[int, list[float]] = {}

    def run(number: int) -> None:
        mine = program.copy()
        found[number] = [float(mine(of(number))[0][0]) for _ in range(50)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number * i for i in range(1, 51)] for number in range(1, 5)}


class Again:
    """A step that calls the program it is in."""

    program: runtime.Program
    refusal = ""

    def plan(self, inputs: list[Any], numbers: list[int]) -> list[Any]:
        return inputs

    def run(self, inputs: list[Any], numbers: list[int], outputs: list[Any]) -> None:
        for call in (lambda: self.program(of(0)), self.program.reset):
            with pytest.raises(RuntimeError, match=r"another call is running.*program\.copy\(\)"):
                call()
            self.refusal += "refused "


def test_a_state_that_is_in_use_is_not_taken_by_another_call() -> None:
    made, again = Made("total"), Again()
    total = made.add("total", "x")
    made.builder.add("foreign", ["x"], "again", function=0, numbers=[])
    made.builder.outputs, made.builder.state["total"].next = [total, "again"], total
    again.program = runtime.Program(_native.Program(made.builder.data(), foreign=[again]))
    again.program(of(1))
    assert again.refusal == "refused refused "


def test_a_child_process_goes_on_with_a_copy_of_the_state() -> None:
    made = Made("total")
    total = made.add("total", "x")
    program = made.program(total, total=total)
    program(of(1))
    child = os.fork()
    if child == 0:
        os._exit(int(program(of(10))[0][0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    assert program(of(1))[0][0] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next": "nothing"}, "state: there is no value 'nothing'"),
        ({"next": "part"}, r"what replaces the state 'total' must be a tensor of float32 and \(4,\), it is .*\(1,\)"),
        ({"shape": [-1]}, "a size of 'total' must be an integer that is not negative"),
        ({"shape": [2] * 9}, "state: 'total'"),
        ({"shape": [2**40, 2]}, "state: 'total'"),
        ({"shape": [2**36]}, "more than the memory limit"),
        ({"initial": "nothing"}, "'initial' must be null or the name of a stored tensor"),
        ({"initial": "x"}, "'initial' must be null or the name of a stored tensor"),
        ({"initial": "stored", "dtype": "int32"}, "'total' has another type or shape than its initial value"),
        ({"name": "x"}, "value 'x' is made twice"),
        ({"dtype": "float64"}, "there is no dtype 'float64'"),
        ({"more": 1}, "'more' is not known"),
    ],
    ids=str,
)
def test_wrong_states_are_refused(change: dict[str, Any], message: str) -> None:
    made = Made("total")
    made.builder.constant("stored", torch.from_numpy(START))
    made.builder.outputs.append("stored")
    made.builder.state["total"].next = made.add("total", "x")
    made.builder.outputs.append(made.part("x", 0, 1))
    state = made.builder.state["total"]
    for key, value in change.items():
        if key == "name":
            made.builder.state = {value: state}
        else:
            setattr(state, key, value)
    with pytest.raises(runtime.FormatError, match=message):
        _native.Program(made.builder.data())


WRITERS = {
    "scatter": ("scatter", {"axis": 0}),
    "index_put": ("index_put", {"axis": 0}),
    "slice_scatter": ("slice_scatter", {"axis": 0, "begin": 1, "end": 3, "step": 1}),
}


@pytest.mark.parametrize("mode", ["set", "add"])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_call_that_fails_leaves_the_state_as_it_was(writer: str, mode: str) -> None:
    """A wrong index in the write itself, and one in a later step."""
    op, attributes = WRITERS[writer]
    made = Made("kept")
    made.start("kept", START)
    for name in ("places", "read"):
        made.builder.inputs.append(Input(made.builder.fresh(name), "int64", [2], [2]))
    values = made.part("x", 0, 2)
    if op == "slice_scatter":
        new = made.builder.add(op, ["kept", values], "new", **attributes)
    else:
        order = ["kept", values, "places"] if op == "index_put" else ["kept", "places", values]
        new = made.builder.add(op, order, "new", mode=mode, **attributes)
        new = made.builder.add(op, [new, *order[1:]], "again", mode="add", **attributes)
    program = made.program(made.builder.add("gather", [new, "read"], "found", axis=0), kept=new)
    whole, wrong = np.array([0, 1]), np.array([1, 99])
    before = program.copy()(of(0), whole, whole)
    for places, read in [(whole, wrong)] if op == "slice_scatter" else [(wrong, whole), (whole, wrong)]:
        with pytest.raises(ValueError, match="index 99 is outside an axis of 4"):
            program(of(7), places, read)
    assert np.array_equal(program(of(0), whole, whole), before)
