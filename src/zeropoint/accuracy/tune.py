"""Give a target, get the quickest model that meets it: algorithms from cheap to dear, then mixed precision.

`tune` is a loop over `ALGORITHMS`: each is added to the recipe so far and stays if the metric rises. It stops where the
target is met. Before the dear ones all layers are tried with the ranges of each call, which keeps all of them in int8,
and with their channels divided (`smooth`).
Where all of them are not enough, layers that cost most are computed in other ways, along the Pareto front of
`precision.py`. What is returned is what was measured, as a model and as a program, to the byte.

The metric is measured on batches that nothing was fitted to: those of `validation`, or every fourth of the calibration.
"""

from __future__ import annotations

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
from zeropoint.accuracy.precision import Front, Option, dynamic_layers, precision_front
from zeropoint.accuracy.recipe import ALGORITHMS, Bench, Recipe, Result
from zeropoint.atomic_file import replacing
from zeropoint.compiler import Unsupported, compile
from zeropoint.graph.policy import Policy
from zeropoint.graph.quantize_fx import Quantized
from zeropoint.graph.to_int8 import call_of
from zeropoint.progress import during
from zeropoint.report.compare import finite
from zeropoint.report.findings import Findings, Search
from zeropoint.report.html import write_report
from zeropoint.report.sensitivity import measure_of
from zeropoint.report.table import plain_table, rich_table

__all__ = ["Trial", "Tuned", "tune"]

Metric = Callable[[nn.Module], float]


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
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Tuned:
    """Quantize a model to an accuracy target, trying cheap algorithms first.

    Starts with plain int8, then tries `ranges`, `scaling`, `equalize` and `bias`, then ranges computed at run time,
    without and with `smooth`, then `gptq` and `adaround`, and keeps each one that improves the metric. Then tries mixed
    precision. Stops when the metric reaches the target, when the budget is spent, or at Ctrl-C, and returns the best
    model so far.

    Args:
        model: any module that `torch.export` can capture, or TorchScript without data-dependent control flow.
        example_inputs: a tuple of positional arguments, or a dictionary of keyword arguments.
        calibration: batches without labels, for ranges and for all algorithms.
        metric: "sqnr" (dB), "cosine" or "agreement" with the float model, or a function that takes a model and returns
            a number. Larger is better.
        target: stop when the metric reaches this value. Without a target, `tune` tries everything except mixed
            precision.
        budget: minutes after which `tune` starts nothing new; `gptq` and `adaround` then skip the remaining layers.
        validation: batches for the metrics "sqnr", "cosine" and "agreement". By default, every fourth calibration batch
            is held out for them; a single batch serves both purposes, and the result says so. If the metric is a
            function, use other data than the calibration data.
        policy: a dictionary that changes some fields of the `Policy`.
        mixed_precision: whether layers can use other precisions than static int8; needs scipy.
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
    fitted, measured, judged_by = _parts(list(calibration), validation, metric)
    bench = Bench(model, example_inputs, fitted, policy)
    title = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric").replace("<lambda>", "metric")
    kept = None if checkpoint is None else _Checkpoint(Path(checkpoint), _fingerprint(bench, measured, title))
    search = _Search(bench, measure_of(model, measured, metric), target, budget, kept, progress)
    with torch.no_grad():
        float_metric = search.measure(model)
    front, note = None, ""
    try:
        front, note = _explore(search, mixed_precision, progress)
    except KeyboardInterrupt:
        note = "interrupted: the best so far"
    if search.best is None:
        raise KeyboardInterrupt
    result = search.best_result()
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
    dynamic: tuple[tuple[str, str], ...] = ()
    for algorithm in ALGORITHMS:
        if search.over:
            break
        assert search.best is not None
        recipe = search.best.recipe
        if algorithm.for_dynamic and search.target is not None and mixed_precision:
            dynamic = dynamic or dynamic_layers(search.bench)
            if dynamic and recipe.ways != dynamic:
                recipe = Recipe(recipe.algorithms, dynamic)
                search.attempt(recipe)
        if search.over or (algorithm.for_dynamic and not recipe.dynamic):
            continue
        search.attempt(recipe.with_algorithm(algorithm.name))
        if algorithm.name == "gptq":
            _again_with_rounding(search)
    if search.over or search.target is None or not mixed_precision:
        return None, search.why
    assert search.best is not None
    with during(f"mixed precision; {search.so_far}", progress):
        front = search.front()
    _bisect(search, front)
    return front, search.why


def _again_with_rounding(search: _Search) -> None:
    """Try once more what makes activations easier to round and weights harder: `gptq` may have made up for these."""
    assert search.best is not None
    recipe = search.best.recipe
    dropped = tuple(a.name for a in ALGORITHMS if a.for_dynamic and a.name not in recipe.algorithms)
    if not search.over and recipe.dynamic and dropped and "gptq" in recipe.algorithms:
        search.attempt(Recipe((*dropped, *recipe.algorithms), recipe.ways))


def _bisect(search: _Search, front: Front) -> None:
    """Find the quickest point of the front that meets the target: with each step the half that it is not in is gone."""
    assert search.best is not None
    assert search.target is not None
    algorithms = search.best.recipe.algorithms
    quickest, slowest = 0, len(front.points) - 1
    while quickest <= slowest and not search.spent:
        middle = (quickest + slowest) // 2
        ways = tuple((path, way) for path, way in front.points[middle].ways if way != "int8")
        trial = search.attempt(Recipe(algorithms, ways), quicker_wins=True)
        if trial is not None and trial.metric >= search.target:
            slowest = middle - 1
        else:
            quickest = middle + 1


class _Search:
    """What was tried so far, and the best of it."""

    def __init__(
        self,
        bench: Bench,
        measure: Metric,
        target: float | None,
        budget: float | None,
        file: _Checkpoint | None,
        progress: bool,
    ) -> None:
        self.bench, self.measure, self.target = bench, measure, target
        self.trials: list[Trial] = []
        self.best: Trial | None = None
        self._result: tuple[Recipe, Result] | None = None
        self._progress = progress
        self._end = None if budget is None else time.monotonic() + 60 * budget
        self._file = file

    @property
    def spent(self) -> bool:
        """Whether the budget is spent."""
        return self._end is not None and time.monotonic() >= self._end

    @property
    def _left(self) -> float:
        """Seconds for one trial: with a target, half of what there is, as mixed precision comes last."""
        left = math.inf if self._end is None else max(self._end - time.monotonic(), 0.0)
        return left if self.target is None else left / 2

    @property
    def over(self) -> bool:
        """Whether there is nothing left to look for."""
        return self.spent or self._met(self.best)

    @property
    def why(self) -> str:
        return "the budget is spent" if self.spent and not self._met(self.best) else ""

    @property
    def so_far(self) -> str:
        return "nothing yet" if self.best is None else f"best {self.best.metric:.5g} ({self.best.recipe})"

    def _met(self, trial: Trial | None) -> bool:
        return trial is not None and self.target is not None and trial.metric >= self.target

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
        else:
            metric, seconds, made = *known, None
        better = self.best is None or metric > self.best.metric
        if quicker_wins and self.best is not None and self._met(self.best):
            better = self.target is not None and metric >= self.target
        verdict = first if self.best is None else "kept" if better else "not better: rejected"
        trial = Trial(recipe, metric, seconds, verdict)
        self.trials.append(trial)
        if self._file is not None and known is None:
            self._file.add(recipe, metric, seconds)
        if better:
            self.best = trial
            self._result = None if made is None else (recipe, made)
        return trial

    def front(self) -> Front:
        """Time against error of layers in all ways, for the best recipe; from the checkpoint if it knows it."""
        assert self.best is not None
        known = None if self._file is None else self._file.front
        front = precision_front(self.bench, self.best.recipe, progress=False) if known is None else known
        if self._file is not None and known is None:
            self._file.add_front(front)
        return front

    def best_result(self) -> Result:
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
                facts = json.loads(path.read_text(encoding="utf-8"))
                model, known, front = facts["model"], facts["trials"], facts["front"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path} is not a checkpoint of tune ({error}): use another path") from error
            if model != self._model:
                raise ValueError(
                    f"{path} belongs to another model, metric or calibration data. Delete it, or use another path"
                )
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
    return json.dumps([recipe.algorithms, recipe.ways])


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
