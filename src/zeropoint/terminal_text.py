"""Text for terminals: a name in a file may hold what moves the cursor, changes colours, or hides the text behind it."""

from __future__ import annotations

import re

# All control characters but line ends and tabs, what turns the direction of text, and halves of characters.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text, with control characters as Python would write them.

    Example:
        >>> print(printable("name\x1b[2J"))
        name\x1b[2J
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)
