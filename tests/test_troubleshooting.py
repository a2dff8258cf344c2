"""Messages that docs/troubleshooting.md explains are messages that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
TABLES = re.findall(r"\| message \| cause \| what to do \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE)
ROWS = [row for table in TABLES for row in table.splitlines()]
MESSAGES = [message for row in ROWS for message in re.findall("`([^`]+)`", row.split(" | ")[0])]


def literals() -> str:
    """The sources with neighbouring string literals joined, as the compilers do."""
    files = [*(ROOT / "src" / "zeropoint").rglob("*.py"), *(ROOT / "native" / "engine").rglob("*.cpp")]
    return "\n".join(re.sub(r'"\s*\+?\s*f?"', "", file.read_text()) for file in files)


SOURCES = literals()


def test_the_page_has_messages() -> None:
    assert len(MESSAGES) > 15


@pytest.mark.parametrize("message", MESSAGES)
def test_message_is_in_the_sources(message: str) -> None:
    assert message in SOURCES
