"""The JSON schema of programs: what is written fits it, and it names the steps that the native core has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import golden_programs
import jsonschema
import program_schema
import pytest

from zeropoint import _native, runtime

PATHS = golden_programs.paths()


def test_schema_names_the_steps_of_the_native_core() -> None:
    assert program_schema.PATH.read_text() == program_schema.expected(), "run .venv/bin/python tests/program_schema.py"


def test_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(program_schema.PATH.read_text()))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_kept_programs_fit(path: Path) -> None:
    program_schema.check_program(golden_programs.text_of(path.read_bytes()))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 5},
        {"state": []},
        {"version": 2, "state": [{"name": "s", "dtype": "int8", "shape": [-1], "initial": None, "next": "s"}]},
        {"version": 2, "state": [{"name": "s", "dtype": "int8", "shape": [1], "next": "s"}]},
        {"version": 2, "state": [{"name": "s", "dtype": "int8", "shape": [1], "initial": 0, "next": "s"}]},
        {"version": 1.5},
        {"outputs": []},
        {"outputs": [1]},
        {"result": 0},
        {"result": '["set",[0]]'},
        {"result": "-1"},
        {"steps": [{"op": "unknown", "inputs": [], "outputs": []}]},
        {"steps": [{"op": "contiguous", "inputs": [1], "outputs": ["y"]}]},
        {"steps": [{"op": "contiguous", "inputs": ["x"], "outputs": ["y"], "more": 1}]},
        {"inputs": [{"name": "x", "dtype": "float64", "shape": [], "example": []}]},
        {"inputs": [{"name": "x", "dtype": "uint8", "shape": [-1], "example": [1]}]},
        {"inputs": [{"name": "x", "dtype": "uint8", "shape": [1], "example": [1], "more": 1}]},
        {"more": 1},
    ],
    ids=str,
)
def test_what_does_not_fit_the_runtime_refuses_too(change: dict[str, Any]) -> None:
    header, program, data = golden_programs.parts_of((golden_programs.FOLDER / "moved.zpt").read_bytes())
    program.update(change)
    with pytest.raises(jsonschema.ValidationError):
        program_schema.check_program(program)
    with pytest.raises(runtime.FormatError):
        _native.Program(golden_programs.joined(header, program, data))
