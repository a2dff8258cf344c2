"""docs/troubleshooting.md and the messages of the code: each has what the other needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "zeropoint"
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
TABLES = re.findall(r"\| message \| cause \| what to do \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE)
ROWS = [row for table in TABLES for row in table.splitlines()]
LISTED = [message for row in ROWS for message in re.findall("`([^`]+)`", row.split(" | ")[0])]

# Words that say what to do, or what is accepted.
WAY_OUT = re.compile(
    r"\b(must|got|expects|expected|supports?|supported|accepts|limit|call|use|pass|set|install|delete|remove|run|wrap"
    r"|move|save|load|choose|omit|change|create|add|put|write|keep|convert|quantize|calibrate|enable|export|repeat|fix"
    r"|fuse|rename|prepare|store|needs?|instead)\b",
    re.IGNORECASE,
)
# Errors that an outer one gives a way out for: reasons why an operator or a model cannot be compiled or read.
REASONS = {"NotStraight", "NotRead", "EndsCapture", "Unavailable", "AssertionError", "AttributeError"}
# Checks of one call's arguments, whose messages have the argument and its value.
CHECKS = ("ops", "qfunctions", "numerics", "tensor", "nn", "observers", "fake_quant", "torch_versions.py")


def words(node: ast.expr) -> str | None:
    """The text of a string that is put together, with a gap for each value; None if it is not one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(words(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (words(node.left) or "{}") + (words(node.right) or "{}")
    return None


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines and messages of errors and warnings, without those that only pass another one on."""
    for node in ast.walk(tree):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = ast.unparse(call.func)
        is_error = isinstance(node, ast.Raise) and name[0].isupper() and name not in REASONS
        text = words(call.args[0]) if is_error or name == "warnings.warn" else None
        if text is not None and len(re.findall(r"\b[a-z]{2,}", text.replace("{}", ""))) >= 2:
            yield node.lineno, text


FOUND = {
    f"{path.relative_to(SOURCE)}:{line}": text
    for path in sorted(SOURCE.rglob("*.py"))
    for line, text in messages(ast.parse(path.read_text()))
}


def literals() -> str:
    """The sources with neighbouring string literals joined, as the compilers do."""
    files = [*SOURCE.rglob("*.py"), *(ROOT / "native").rglob("*.cpp")]
    return "\n".join(re.sub(r'"\s*\+?\s*f?"', "", file.read_text()) for file in files)


SOURCES = literals()


def test_there_are_messages_on_both_sides() -> None:
    assert len(LISTED) > 40
    assert len(FOUND) > 700


@pytest.mark.parametrize("message", LISTED)
def test_listed_message_is_in_the_sources(message: str) -> None:
    assert message in SOURCES


def test_every_message_has_a_way_out_or_is_listed() -> None:
    lost = {
        place: text
        for place, text in FOUND.items()
        if not WAY_OUT.search(text)
        and not any(message in text for message in LISTED)
        and not (place.startswith(CHECKS) and "{}" in text)
    }
    assert not lost, "say what to do, or explain these in docs/troubleshooting.md:\n" + "\n".join(
        f"{place}: {text}" for place, text in lost.items()
    )
