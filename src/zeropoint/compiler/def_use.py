"""Producers and consumers of the values of a program, for fusions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zeropoint.compiler.program_builder import ProgramBuilder, Step

Fresh = Callable[[str], str]  # gives a name that no value has, like the one given


class StepUses:
    """Makers and readers of values, as they are when this is made."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self._makers: dict[str, Step] = {}
        self._readers: dict[str, list[Step]] = {}
        self._outputs = set(builder.results())
        for step in builder.steps:
            self._makers.update(dict.fromkeys(step.outputs, step))
            for name in step.reads():
                self._readers.setdefault(name, []).append(step)

    def any_maker(self, name: str | None) -> Step | None:
        """The step that makes a value, whoever reads it."""
        return self._makers.get(str(name))

    def maker(self, name: str | None, *ops: str) -> Step | None:
        """The step of one of these kinds that makes a value, if no other step reads the value and no user gets it."""
        step = self._makers.get(str(name))
        return step if step is not None and step.op in ops and self.reader(name) is not None else None

    def reader(self, name: str | None, *ops: str) -> Step | None:
        """The only step that reads a value, if it is of one of these kinds (or of any); None if a user gets it, too."""
        readers = self._readers.get(str(name), [])
        if len(readers) != 1 or name in self._outputs or (ops and readers[0].op not in ops):
            return None
        return readers[0]

    def readers(self, name: str) -> list[Step]:
        """All steps that read a value."""
        return self._readers.get(name, [])

    def is_output(self, name: str) -> bool:
        return name in self._outputs


def replace_steps(builder: ProgramBuilder, replaced: Iterable[Step], last: Step, *steps: Step) -> None:
    """Put steps where `last` was; all that it replaces, `last` among them, go."""
    gone = {id(old) for old in replaced}
    kept: list[Step] = []
    for old in builder.steps:
        if old is last:
            kept += steps
        elif id(old) not in gone:
            kept.append(old)
    builder.steps = kept
