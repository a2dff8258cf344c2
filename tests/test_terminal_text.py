"""What files say is text for terminals, not commands."""

from __future__ import annotations

import pytest

from zeropoint.table import plain_table
from zeropoint.terminal_text import printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("layer.0\tweight\nβ 重み", "layer.0\tweight\nβ 重み"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b2J\x07\r\x00", r"\x9b2J\x07\r\x00"),
        ("a\u202egnp.exe\ud800", r"a\u202egnp.exe\ud800"),
    ],
)
def test_control_characters_are_shown_as_python_writes_them(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_tables_are_printable() -> None:
    assert "\x1b" not in plain_table(["name"], [["\x1b]0;title\x07"]])
