"""Every program that a test of the compiler makes fits the schema."""

from __future__ import annotations

import golden_programs
import program_schema
import pytest

from zeropoint.compiler.program_builder import ProgramBuilder


@pytest.fixture(autouse=True)
def programs_fit_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ProgramBuilder.data

    def checked(self: ProgramBuilder) -> bytes:
        made = data(self)
        program_schema.check_program(golden_programs.text_of(made))
        return made

    monkeypatch.setattr(ProgramBuilder, "data", checked)
