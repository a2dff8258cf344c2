"""The errors of the compiler: one for all unsupported operators."""

from __future__ import annotations

from torch import fx

_PLACES = 3  # that are named for each operator
_FALLBACK = "; with fallback=True PyTorch runs them, but operators that read them can also be unsupported"


class Unsupported(NotImplementedError):
    """The model has operators that programs do not support."""

    _why = ""


def _place(node: fx.Node) -> str:
    """The line of code or the module that a node comes from."""
    if "line" in node.meta:
        return str(node.meta["line"])
    origin = node.meta.get("origin")
    return f"in module {origin.path!r}" if origin is not None and origin.path else ""


def refusal(node: fx.Node, why: str, who: str = "compile") -> Unsupported:
    """The error for one node; `who` refuses."""
    place = _place(node)
    error = Unsupported(f"{who}: {node.target}{f' ({place})' if place else ''}: {why}")
    error._why = why
    return error


class Missing:
    """The nodes that cannot be taken, while a graph is walked to its end.

    Args:
        who: the function that messages begin with.
        advice: what the user can do.
    """

    def __init__(self, who: str = "compile", advice: str = _FALLBACK) -> None:
        self._who, self._advice = who, advice
        self._found: list[tuple[fx.Node, Unsupported]] = []
        self._lost: set[fx.Node] = set()

    def add(self, node: fx.Node, reason: Unsupported) -> None:
        self._found.append((node, reason))
        self._lost.add(node)

    def is_behind(self, node: fx.Node) -> bool:
        """Whether a node reads what is missing: it is not asked for its own steps then."""
        if any(read in self._lost for read in node.all_input_nodes):
            self._lost.add(node)
        return node in self._lost

    def check(self) -> None:
        """Raise one error for all of them."""
        if not self._found:
            return
        if len(self._found) == 1:
            raise self._found[0][1]
        rows: dict[tuple[str, str], list[str]] = {}
        for node, reason in self._found:
            rows.setdefault((str(node.target), reason._why), []).append(_place(node))
        lines = []
        for (target, why), places in sorted(rows.items(), key=lambda row: -len(row[1])):
            named = [place for place in dict.fromkeys(places) if place]
            shown = ", ".join(named[:_PLACES]) + (", ..." if len(named) > _PLACES else "")
            lines.append(f"  {target}, {len(places)} x{f' ({shown})' if shown else ''}: {why}")
        operators = len({target for target, _ in rows})
        raise Unsupported(
            f"{self._who}: {len(self._found)} calls of {operators} operators are not supported{self._advice}:\n"
            + "\n".join(lines)
        )
