"""The small architectures of the zoo: all of them are quantized, and what compiles gives the same bytes."""

from __future__ import annotations

import pytest

from . import packages
from .case import examine
from .table import CASES, Case

SMALL = [case for case in CASES if case.small]


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.key.replace(" ", "-"))
def test_a_small_architecture_is_quantized_and_its_program_gives_the_same_bytes(case: Case) -> None:
    missing = packages.absent(case.name)
    if missing is not None:
        pytest.skip(f"{missing} is not installed: run `make test-zoo`")
    found = examine(case)
    if case.refused:
        assert found["error"]["type"] == "CaptureError", found
        assert case.refused in found["error"]["text"], found
        return
    assert found["reached"] in ("quantized", "compiled"), found
    if found["reached"] == "compiled":
        assert found["equal"], found
        assert found["reloads_equal"], found


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case.key for case in CASES}) == len(CASES)
    assert len({case.name for case in CASES}) >= 120
