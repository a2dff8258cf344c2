"""Give a target, get the quickest model that meets it: cheap algorithms, then mixed precision, then better integers.

`tune` begins with plain int8 and adds the cheap ones of `ALGORITHMS`; each stays if the metric rises. Then all layers
are tried with the ranges of each call, without and with their channels divided (`smooth`). Where the target is met by
int8 with ranges of calibration, nothing is quicker, and the search is over.

Otherwise every layer is measured in every precision (`precision.py`), which says what is quickest within an error of
the output. How large this may be for the target is found by trying: errors and the metric are taken to go together, and
each trial says how far. Once the target is met, `gptq` makes quicker choices possible. It is slow, so what it found for
a layer is taken again in the next trial. Of those that meet the target, the one whose program is quickest is returned.
It is what was measured, as a model and as a program, to the byte.

The metric is measured on batches that nothing was fitted to: those of `validation`, or every fourth of the calibration.
Of many trials, the one that just meets the target there has been lucky, and may miss it elsewhere. So the search wants
more than the target, by `margin`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from zeropoint.accuracy.layers import Change, held_out
from zeropoint.accuracy.precision import Front, Option, Point, dynamic_layers, precision_front
from zeropoint.accuracy.recipe import ALGORITHMS, Bench, Recipe, Result
from zeropoint.atomic_file import replacing
from zeropoint.comparison.layers import finite
from zeropoint.comparison.sensitivity import measure_of
from zeropoint.comparison.timing import alternating
from zeropoint.compiler import Unsupported, compile
from zeropoint.graph.policy import Policy
from zeropoint.graph.to_int8 import call_of
from zeropoint.graph.workflow import Quantized
from zeropoint.html_table import Bar, html_table
from zeropoint.progress import during, said
from zeropoint.regular_file import open_regular
from zeropoint.report.findings import Findings, Search
from zeropoint.report.html import write_report
from zeropoint.table import plain_table, rich_table

Metric = Callable[[nn.Module], float]
_FAR = 2.0  # times what may be lost: better ranges of calibration do not halve an error
_LEAST = 5.0  # seconds for a slow algorithm without a target
_COMPARED = 3  # models that meet the target and are timed against each other, at most
_SECONDS = 1.0  # for that


@dataclass(frozen=True)
class Trial:
    """One recipe that was tried: the metric of its model, the seconds it took, and what that meant."""

    recipe: Recipe
    metric: float
    seconds: float
    verdict: str


@dataclass(frozen=True)
class Tuned:
    """What `tune` found; prints as a table of all that was tried.

    Attributes:
        model: on integers, the best that was found.
        program: the same as a program, with the same bytes; None if a step is missing for it (`note` says which).
        recipe: how it was made.
        metric: of the model; `float_metric` of the float model.
        met: whether the target was reached; None without one.
        changes: of the algorithms of the recipe, layer by layer.
        front: time against error, where mixed precision was tried.
        graph: the float graph that `model` stands for; its channels are scaled if layers were equalized.
        judged_by: the data that the metric was measured on, in words.
    """

    model: Quantized
    program: Any
    recipe: Recipe
    metric: float
    float_metric: float
    target: float | None
    trials: tuple[Trial, ...]
    changes: tuple[Change, ...] = field(repr=False)
    front: Front | None = field(repr=False)
    graph: Any = field(repr=False)
    title: str = "sqnr"
    note: str = ""
    judged_by: str = ""

    HEADER = ("tried", "metric", "seconds", "verdict")

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None without one."""
        return None if self.target is None else self.metric >= self.target

    def table(self) -> list[tuple[str, ...]]:
        """A row for each trial."""
        return [(str(t.recipe), f"{t.metric:.5g}", f"{t.seconds:.1f}", t.verdict) for t in self.trials]

    def _last(self) -> str:
        goal = "" if self.target is None else f", target {self.target:.5g}: {'met' if self.met else 'not met'}"
        found = f"{self.recipe}: {self.title} {self.metric:.5g} (float {self.float_metric:.5g}){goal}"
        judged = f"measured on {self.judged_by}" if self.judged_by else ""
        return "\n".join(line for line in (found, judged, self.note) if line)

    def __str__(self) -> str:
        return "\n".join([plain_table(self.HEADER, self.table()), self._last()])

    def __rich__(self) -> Any:
        from rich.console import Group

        parts = [rich_table(self.HEADER, self.table()), self._last()]
        return Group(*parts, *([self.front] if self.front is not None else []))

    def _repr_html_(self) -> str:
        metrics = [trial.metric for trial in self.trials if math.isfinite(trial.metric)]
        low, high = min(metrics, default=0.0), max(metrics, default=1.0)
        share = lambda metric: 0.1 + 0.9 * (metric - low) / ((high - low) or 1.0)  # noqa: E731
        rows = [(row[0], Bar(row[1], share(trial.metric)), *row[2:]) for row, trial in zip(self.table(), self.trials)]
        return html_table(self.HEADER, rows, *self._last().splitlines())

    def write_report(self, path: str | Path, data: Iterable[Any], **options: Any) -> Findings:
        """The page of `zeropoint.write_report` about the model, with all that was tried and the Pareto front.

        Args:
            data: batches to compare with.
            options: of `zeropoint.write_report`.
        """
        points = () if self.front is None else self.front.described_points()
        search = Search(self.HEADER, tuple(self.table()), self._last(), points)
        return write_report(path, self.graph, self.model, data, search=search, **options)

    def to_json(self) -> str:
        """Everything but the model and the program, as JSON; what is infinite is null."""
        names = (
            "recipe",
            "metric",
            "float_metric",
            "target",
            "trials",
            "changes",
            "front",
            "title",
            "note",
            "judged_by",
        )
        facts = {name: getattr(self, name) for name in names}
        plain = {k: asdict(v) if hasattr(v, "__dataclass_fields__") else v for k, v in facts.items()}
        for name in ("trials", "changes"):
            plain[name] = [asdict(item) for item in facts[name]]
        return json.dumps(finite({**plain, "met": self.met}))


def tune(
    model: nn.Module,
    example_inputs: Any,
    calibration: Iterable[Any],
    metric: str | Metric = "sqnr",
    target: float | None = None,
    budget: float | None = None,
    *,
    validation: Iterable[Any] | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
    mixed_precision: bool = True,
    margin: float = 0.2,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Tuned:
    """Quantize a model to an accuracy target: find the fastest model that meets it.

    Starts with plain int8, then tries `scaling`, `equalize`, `bias` and `ranges`, then ranges computed at run time,
    without and with `smooth`, and keeps each one that improves the metric. Then mixed precision finds a model that
    meets the target, and `gptq` faster ones. Stops when plain ranges meet the target, when nothing faster is found,
    when the budget is spent, or at Ctrl-C, and returns the fastest model that meets the target, or the most accurate
    one.

    Args:
        model: any module that `torch.export` can capture, or TorchScript without data-dependent control flow.
        example_inputs: a tuple of positional arguments, or a dictionary of keyword arguments.
        calibration: batches without labels, for ranges and for all algorithms.
        metric: "sqnr" (dB), "cosine" or "agreement" with the float model, or a function that takes a model and returns
            a number. Larger is better.
        target: stop when the metric reaches this value. Without a target, `tune` tries everything except mixed
            precision; `gptq` and `adaround` then get no more time than all before them took.
        budget: minutes after which `tune` starts nothing new; `gptq` and `adaround` then skip the remaining layers.
        validation: batches for the metrics "sqnr", "cosine" and "agreement". By default, every fourth calibration batch
            is held out for them; a single batch serves both purposes, and the result says so. If the metric is a
            function, use other data than the calibration data.
        policy: a dictionary that changes some fields of the `Policy`.
        mixed_precision: whether layers can use other precisions than static int8; needs scipy. Without it, `gptq` and
            `adaround` follow the cheap algorithms.
        margin: the share of the loss that the target allows to leave unused, as new data may lose more than validation
            data. The loss is the metric of the float model minus that of the quantized one. "sqnr" has no margin.
        checkpoint: a file for the measurements. The same call resumes from it. `tune` does not remove it.
        progress: show the current attempt and the best one so far on a terminal.

    Raises:
        ValueError: without a batch, for an unknown metric, or for a checkpoint of another model.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
        >>> batches = [torch.randn(32, 16) for _ in range(4)]
        >>> tuned = tune(model, (batches[0],), batches, target=30.0, progress=False)
        >>> tuned.met, str(tuned.recipe)
        (True, 'plain')
        >>> torch.equal(tuned.program(batches[0]), tuned.model(batches[0]))
        True
    """
    if not 0 <= margin < 1:
        raise ValueError(f"tune: margin must be at least 0 and less than 1, got {margin!r}")
    fitted, measured, judged_by = _parts(list(calibration), validation, metric)
    bench = Bench(model, example_inputs, fitted, policy)
    title = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric").replace("<lambda>", "metric")
    kept = None if checkpoint is None else _Checkpoint(Path(checkpoint), _fingerprint(bench, measured, title))
    measure = measure_of(model, measured, metric)
    with torch.no_grad():
        float_metric = float(measure(model))
    goal = _Goal(target, float_metric, margin)
    search = _Search(bench, measure, goal, budget, kept, progress)
    front, note = None, ""
    try:
        front, note = _explore(search, mixed_precision, progress)
    except KeyboardInterrupt:
        note = "interrupted: the best so far"
    if search.best is None:
        raise KeyboardInterrupt
    result = search.quickest_result()
    program, missing = _program(result.quantized, example_inputs)
    notes = "; ".join(text for text in (note, missing) if text)
    return Tuned(
        result.quantized, program, search.best.recipe, search.best.metric, float_metric, target,
        tuple(search.trials), result.changes, front, result.graph, title, notes, judged_by,
    )  # fmt: skip


def _parts(
    batches: list[Any], validation: Iterable[Any] | None, metric: str | Metric
) -> tuple[list[Any], list[Any], str]:
    """Batches to tune with, batches to measure with, and in words what these are."""
    if callable(metric):
        return batches, [], ""
    if validation is not None:
        measured = list(validation)
        if not measured:
            raise ValueError("tune: validation is empty: pass at least one batch")
        return batches, measured, _counted(len(measured), "validation batch")
    held = held_out(len(batches))
    if not held:
        return batches, batches, "the calibration batch: pass more batches, or validation=[...]"
    judging = [batch for i, batch in enumerate(batches) if i in held]
    words = f"{_counted(len(held), 'calibration batch')} of {len(batches)}, held out from tuning"
    return [batch for i, batch in enumerate(batches) if i not in held], judging, words


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("es" if count > 1 else "")


def _explore(search: _Search, mixed_precision: bool, progress: bool) -> tuple[Front | None, str]:
    """Try everything until the search is over; the front, if one was made, and why the search ended."""
    search.attempt(Recipe(), "plain int8")
    mixed = mixed_precision and search.goal.target is not None
    for algorithm in ALGORITHMS:
        if search.over:
            break
        recipe = search.best_recipe
        if algorithm.for_dynamic:
            if mixed:
                _try_dynamic(search, algorithm.name)
        elif not mixed or not (algorithm.slow or (algorithm.refines and search.is_far)):
            search.attempt(recipe.with_algorithm(algorithm.name))
    if search.spent or not mixed or (search.met and not search.best_recipe.precisions):
        return None, search.why
    recipe = search.best_recipe
    with during(f"mixed precision; {search.so_far}", progress):
        front = search.front(recipe)
    # What the target allows, if the metric follows the error as in plain int8, the first trial.
    all_int8 = sum(option.error for option in front.options if option.precision == "int8")
    error = all_int8 * search.goal.share(search.trials[0].metric) ** 2
    known = front.milliseconds(recipe.precisions) if search.met else math.inf
    quick = _narrow(search, front, recipe.algorithms, error, known)
    if not search.spent:
        rounded = recipe.with_algorithm("gptq")
        with during(f"mixed precision with gptq; {search.so_far}", progress):
            front = search.front(rounded, front)
        _narrow(search, front, rounded.algorithms, quick.error, quick.milliseconds)
    if not search.over:
        search.attempt(search.best_recipe.with_algorithm("adaround"))
    return front, search.why


def _try_dynamic(search: _Search, algorithm: str) -> None:
    """All layers with the ranges of each call, and an algorithm that is for those alone."""
    precisions = dynamic_layers(search.bench)
    recipe = Recipe(search.best_recipe.algorithms, precisions)
    if precisions:
        search.attempt(recipe)
    if precisions and not search.over:
        search.attempt(recipe.with_algorithm(algorithm))


_TRIALS = 6  # for quicker choices than one that meets the target
_QUICKER = 0.95  # of the time, at most, for a choice to be worth a trial


def _narrow(search: _Search, front: Front, algorithms: tuple[str, ...], error: float, milliseconds: float) -> Point:
    """Find a point of the front that meets the target with some algorithms; then quicker ones, if one was known before.

    Args:
        error: that the target may allow.
        milliseconds: of what is known to meet the target; infinite if nothing is.

    Returns:
        The quickest point that meets the target; one that takes `milliseconds` if none does.
    """
    points, good = front.points, Point((), error, milliseconds, 0)
    is_first, tried = math.isinf(milliseconds), 0
    quickest, slowest = 0, len(points) - 1
    while not search.spent and (is_first or tried < _TRIALS):
        near = [i for i in range(quickest, slowest + 1) if points[i].milliseconds < _QUICKER * good.milliseconds]
        if not near:
            break
        # The point that would be right if the metric followed the error; where that does not end it soon, the middle.
        at = near[len(near) // 2] if tried % 3 == 2 else min(near, key=lambda i: _apart(points[i].error, error))
        precisions = tuple((path, precision) for path, precision in points[at].precisions if precision != "int8")
        trial = search.attempt(Recipe(algorithms, precisions), quicker_wins=True)
        tried += 1
        metric = float("nan") if trial is None else trial.metric
        error = points[at].error * search.goal.share(metric) ** 2
        if not search.goal.is_met(metric):
            quickest = at + 1
            continue
        good, slowest = points[at], at - 1
        if is_first:
            break
    return good


def _apart(a: float, b: float) -> float:
    """How far two errors are from each other, in orders of magnitude."""
    tiny = 1e-300
    return abs(math.log10(max(a, tiny)) - math.log10(max(b, tiny)))


@dataclass(frozen=True)
class _Goal:
    """What is looked for: the target, and more by a share of what it may lose."""

    target: float | None
    float_metric: float
    margin: float

    @property
    def wanted(self) -> float:
        assert self.target is not None
        spare = self.float_metric - self.target
        return self.target + self.margin * spare if 0 < spare < math.inf else self.target

    def is_met(self, metric: float) -> bool:
        return self.target is not None and metric >= self.wanted

    def is_far(self, metric: float) -> bool:
        """Whether a model loses more than twice what it may."""
        if math.isinf(self.float_metric):
            return self.share(metric) < 1 / _FAR
        return self.float_metric - metric > _FAR * (self.float_metric - self.wanted)

    def share(self, metric: float) -> float:
        """What may be lost, in terms of what a model with this metric loses; of dB, in amplitudes."""
        if math.isinf(self.float_metric):
            return min(10 ** ((metric - self.wanted) / 20), 1e6) if math.isfinite(metric) else 0.5
        lost, allowed = self.float_metric - metric, self.float_metric - self.wanted
        if lost > 0 and math.isfinite(lost) and allowed > 0:
            return allowed / lost
        return 2.0 if self.is_met(metric) else 0.5


class _Search:
    """What was tried so far, and the best of it."""

    def __init__(
        self,
        bench: Bench,
        measure: Metric,
        goal: _Goal,
        budget: float | None,
        file: _Checkpoint | None,
        progress: bool,
    ) -> None:
        self.bench, self.measure, self.goal = bench, measure, goal
        self.trials: list[Trial] = []
        self.best: Trial | None = None
        self._good: list[tuple[Trial, Result]] = []  # those that meet the target, the last ones
        self._result: tuple[Recipe, Result] | None = None
        self._progress = progress
        self._end = None if budget is None else time.monotonic() + 60 * budget
        self._cheap = 0.0  # seconds that cheap algorithms took
        self._file = file

    @property
    def spent(self) -> bool:
        """Whether the budget is spent."""
        return self._end is not None and time.monotonic() >= self._end

    @property
    def _left(self) -> float:
        """Seconds for one trial: with a target, half of what there is, as mixed precision comes last.

        Without one, it is unknown whether more is worth it: no more than the cheap algorithms took.
        """
        left = math.inf if self._end is None else max(self._end - time.monotonic(), 0.0)
        return min(left, max(self._cheap, _LEAST)) if self.goal.target is None else left / 2

    @property
    def met(self) -> bool:
        """Whether the best meets the target, with the margin."""
        return self.best is not None and self.goal.is_met(self.best.metric)

    @property
    def over(self) -> bool:
        """Whether there is nothing more accurate to look for."""
        return self.spent or self.met

    @property
    def is_far(self) -> bool:
        """Whether the best loses so much more than it may that finer ranges or rounding cannot be enough."""
        assert self.best is not None
        return self.goal.target is not None and self.goal.is_far(self.best.metric)

    @property
    def best_recipe(self) -> Recipe:
        assert self.best is not None
        return self.best.recipe

    @property
    def why(self) -> str:
        return "the budget is spent" if self.spent and not self.met else ""

    @property
    def so_far(self) -> str:
        return "nothing yet" if self.best is None else f"best {self.best.metric:.5g} ({self.best.recipe})"

    def attempt(self, recipe: Recipe, first: str = "", quicker_wins: bool = False) -> Trial | None:
        """Make the model of a recipe and measure it, unless the checkpoint knows it.

        Args:
            first: the verdict, if there is nothing to compare with.
            quicker_wins: take it, as it is quicker than the best, if both meet the target.
        """
        started = time.monotonic()
        known = None if self._file is None else self._file.known(recipe)
        if known is None:
            with during(f"trying {recipe}; {self.so_far}", self._progress):
                try:
                    made = self.bench.make(recipe, self._left)
                except NotImplementedError as error:
                    self.trials.append(Trial(recipe, float("nan"), time.monotonic() - started, f"skipped: {error}"))
                    return None
                with torch.no_grad():
                    metric = float(self.measure(made.quantized))
            seconds = time.monotonic() - started
            if not recipe.is_slow:
                self._cheap += seconds
        else:
            metric, seconds, made = *known, None
        better = self.best is None or metric > self.best.metric
        if quicker_wins and self.met:
            better = self.goal.is_met(metric)
        verdict = first if self.best is None else "kept" if better else "not better: rejected"
        trial = Trial(recipe, metric, seconds, verdict)
        self.trials.append(trial)
        said(f"{recipe}: {metric:.5g}, {verdict} ({seconds:.1f} s)", self._progress)
        if self._file is not None and known is None:
            self._file.add(recipe, metric, seconds)
        if better:
            self.best = trial
            self._result = None if made is None else (recipe, made)
        if made is not None and self.goal.is_met(metric):
            self._good = [*self._good[1 - _COMPARED :], (trial, made)]
        return trial

    def front(self, recipe: Recipe, known: Front | None = None) -> Front:
        """Time against error of layers in all ways, for the algorithms of a recipe.

        Args:
            known: the front without `gptq`, if the recipe has it; without one, that of the checkpoint is taken.
        """
        if known is not None:
            return precision_front(self.bench, recipe, progress=False, known=known, seconds=self._left)
        stored = None if self._file is None else self._file.front
        front = precision_front(self.bench, recipe, progress=False) if stored is None else stored
        if self._file is not None and stored is None:
            self._file.add_front(front)
        return front

    def quickest_result(self) -> Result:
        """The model of the best recipe: of the last ones that meet the target, the one whose program is quickest."""
        if self.met and any(trial is self.best for trial, _ in self._good) and len(self._good) > 1:
            inputs = self.bench.inputs[0]
            try:
                programs = [compile(made.quantized, inputs) for _, made in self._good]
            except Unsupported:
                return self._best_result()
            times = alternating([functools.partial(program, *inputs) for program in programs], _SECONDS)
            self.best, made = self._good[times.index(min(times))]
            self._result = self.best.recipe, made
        return self._best_result()

    def _best_result(self) -> Result:
        """The model of the best recipe, made anew where only the checkpoint knew it."""
        assert self.best is not None
        if self._result is None or self._result[0] != self.best.recipe:
            self._result = self.best.recipe, self.bench.make(self.best.recipe, self._left)
            with torch.no_grad():  # with less time left than it had, it may be another model
                self.best = replace(self.best, metric=float(self.measure(self._result[1].quantized)))
        return self._result[1]


class _Checkpoint:
    """A file of recipes and their metrics, for one model, one metric and the same data."""

    def __init__(self, path: Path, model: str) -> None:
        self._path, self._model = path, model
        self._known: dict[str, tuple[float, float]] = {}
        self.front: Front | None = None
        if path.exists():
            try:
                with open_regular(path) as file:
                    facts = json.load(file)
                is_ours = facts["model"] == self._model
                if is_ours:
                    self._restore(facts["trials"], facts["front"])
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise ValueError(f"{path} is not a checkpoint of tune ({error}): use another path") from error
            if not is_ours:
                raise ValueError(
                    f"{path} belongs to another model, metric or calibration data. Delete it, or use another path"
                )

    def _restore(self, known: Any, front: Any) -> None:
        self._known = {key: (float(metric), float(seconds)) for key, (metric, seconds) in known.items()}
        self.front = None if front is None else Front.of([Option(*option) for option in front[0]], front[1])

    def known(self, recipe: Recipe) -> tuple[float, float] | None:
        """Metric and seconds of a recipe that was tried before."""
        return self._known.get(_key(recipe))

    def add(self, recipe: Recipe, metric: float, seconds: float) -> None:
        """Write down what was measured."""
        self._known[_key(recipe)] = metric, seconds
        self._write()

    def add_front(self, front: Front) -> None:
        """Write down what was measured of all layers."""
        self.front = front
        self._write()

    def _write(self) -> None:
        front = None if self.front is None else ([astuple(o) for o in self.front.options], self.front.signal)
        facts = {"model": self._model, "trials": self._known, "front": front}
        with replacing(self._path) as new:
            new.write_text(json.dumps(facts), encoding="utf-8")


def _key(recipe: Recipe) -> str:
    return json.dumps([recipe.algorithms, recipe.precisions])


def _fingerprint(bench: Bench, measured: list[Any], title: str) -> str:
    """Of the weights, of the data that is tuned with, and of the data and the name of the metric."""
    digest = hashlib.sha256(title.encode())
    tensors = [value for _, value in sorted(bench.graph.state_dict().items())]
    tensors += [t for t in pytree.tree_leaves((bench.inputs, measured)) if isinstance(t, torch.Tensor)]
    for value in tensors:
        digest.update(repr((tuple(value.shape), value.dtype)).encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _program(quantized: Quantized, example_inputs: Any) -> tuple[Any, str]:
    """The program of a model and its bytes checked, or why there is none."""
    try:
        program = compile(quantized, example_inputs)
    except Unsupported as error:
        return None, f"no program: {error}"
    args, kwargs = call_of(example_inputs)
    with torch.no_grad():
        wanted, got = quantized(*args, **kwargs), program(*args, **kwargs)
    same = pytree.tree_leaves(pytree.tree_map(torch.equal, wanted, got))
    assert all(same), "the program does not give the same bytes as the tuned model"
    return program, ""
