"""How each operator of a model is computed, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from zeropoint.html_table import html_table


@dataclass(frozen=True)
class Row:
    """One operator: the path of its module, its name, its precision, and the reason if it stays in float."""

    path: str
    operator: str
    precision: str
    reason: str = ""


@dataclass(frozen=True)
class Summary:
    """The operators of a model. Prints as a table.

    Example:
        >>> print(Summary((Row("fc", "linear", "int8"),)))
        module  operator  computed  why
        fc      linear    int8
        1 int8
    """

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # about the whole

    def counts(self) -> Counter[str]:
        """The number of operators in each precision."""
        return Counter(row.precision for row in self.rows)

    def of(self, operator: str) -> tuple[Row, ...]:
        """The rows of one operator."""
        return tuple(row for row in self.rows if row.operator == operator)

    def __str__(self) -> str:
        table = [("module", "operator", "computed", "why")]
        table += [(r.path or "(model)", r.operator, r.precision, r.reason) for r in self.rows]
        widths = [max(len(line[i]) for line in table) for i in range(3)]
        lines = ["  ".join((*(c.ljust(w) for c, w in zip(line, widths)), line[3])).rstrip() for line in table]
        return "\n".join([*lines, self._counted(), *self.notes])

    def _repr_html_(self) -> str:
        rows = [(r.path or "(model)", r.operator, r.precision, r.reason) for r in self.rows]
        return html_table(("module", "operator", "computed", "why"), rows, self._counted(), *self.notes)

    def _counted(self) -> str:
        return ", ".join(f"{n} {precision}" for precision, n in self.counts().items())
