"""Tables for terminals."""

from __future__ import annotations

import sys

import pytest

from zeropoint.table import print_table


def test_without_rich_the_table_is_plain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    print_table(["name", "two\nlines"], [["a", "10"]])
    assert capsys.readouterr().out == "        two\nname  lines\n----  -----\na        10\n"
