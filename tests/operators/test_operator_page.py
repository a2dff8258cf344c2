"""docs/operators.md is made from the records. Run this file to write it."""

from __future__ import annotations

from pathlib import Path

from zeropoint.operators.page import page

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def test_page_is_current() -> None:
    assert PAGE.read_text() == page(), "python tests/operators/test_operator_page.py writes it"


if __name__ == "__main__":
    PAGE.write_text(page())
