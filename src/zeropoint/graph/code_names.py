"""Names that torch.fx writes into generated code: letters, digits, spaces and ``_ - | / :`` only.

torch.fx writes ``self.name`` or ``getattr(self, "name")`` for modules and tensors, and the names of inputs and keywords
plainly; it escapes none of them. A quote or a line break in a name would be code.
"""

from __future__ import annotations

import keyword
import re
from typing import Any

from torch import fx

_PLAIN = re.compile(r"[\w |/:-]+")


def is_plain(part: str) -> bool:
    """Whether one part of a dotted path can stand in code as torch.fx writes it.

    Example:
        >>> [is_plain(part) for part in ("conv1", "0", "my-layer", "a|b", "a/3", "a: 4", 'a"b', "class", "")]
        [True, True, True, True, True, True, False, False, False]
    """
    return _PLAIN.fullmatch(part) is not None and not keyword.iskeyword(part)


def plain(text: str) -> str:
    """A name like `text` that is an identifier.

    Example:
        >>> plain('a"b'), plain("input.1"), plain("class"), plain("0")
        ('a_b', 'input_1', 'class_', '_0')
    """
    made = re.sub(r"\W", "_", text)
    if not made.isidentifier():
        made = re.sub(r"[^0-9a-zA-Z_]", "_", f"_{made}")
    return f"{made}_" if keyword.iskeyword(made) else made


def require_plain(name: Any, what: str) -> None:
    """Refuse a dotted name, of `what`, with a part that is not plain."""
    if not isinstance(name, str) or not all(map(is_plain, name.split("."))):
        raise ValueError(
            f"{what} is named {_shortened(name)}: names in graphs must have letters, digits, spaces and _ - | / : "
            "only, because they become Python code"
        )


def _shortened(name: Any) -> str:
    text = ascii(name)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_names(graph: fx.Graph) -> None:
    """Refuse a graph with a name that is not plain, before code is made of it."""
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module"):
            require_plain(node.target, "a module or tensor")
        elif node.op in ("placeholder", "call_method"):
            name = str(node.target).removeprefix("*").removeprefix("*")
            if not (name.isidentifier() and is_plain(name)):
                raise ValueError(f"an input or method is named {_shortened(node.target)}, which must be a Python name")
        for keyed in node.kwargs:
            if not (keyed.isidentifier() and is_plain(keyed)):
                raise ValueError(f"a keyword is named {_shortened(keyed)}, which must be a Python name")
