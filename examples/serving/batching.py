"""Several requests as one call of a program: faster where one sample does not keep the kernels busy."""

import threading
from concurrent.futures import Future
from typing import Any

import numpy as np

from zeropoint.runtime import Program


class Batching:
    """A program whose calls are collected, as long as they differ in the first size of their inputs alone.

    The first call of a batch waits until there are `most` samples, but no longer than `seconds`, then runs all in its
    own thread. What is wrong with one call is told to that one alone.

    Args:
        program: one whose samples do not depend on each other, which is tried here with noise.

    Raises:
        ValueError: if they do, or the batch is fixed.
    """

    def __init__(self, program: Program, most: int, seconds: float) -> None:
        self.inputs, self.outputs = program.inputs, program.outputs
        self.calls = self.samples = 0  # of the program, and in them
        self._program, self._most, self._seconds = program, most, seconds
        self._lock = threading.Lock()
        self._open: dict[Any, _Batch] = {}
        _require_independent(program)

    def __call__(self, *given: Any, **named: Any) -> Any:
        arrays = given + tuple(named[name] for name, _, _ in self.inputs if name in named)
        counts = {len(array) if np.ndim(array) else 0 for array in arrays}
        count = counts.pop() if len(counts) == 1 and len(arrays) == len(given) + len(named) else 0
        if not 0 < count < self._most:  # nothing to collect, or wrong, which the program says
            return self._run(given, named, count)
        key = tuple(named), tuple((array.dtype, array.shape[1:]) for array in arrays)
        mine: Future[Any] = Future()
        with self._lock:
            batch = self._open.get(key)
            first = batch is None or batch.samples + count > self._most
            if batch is not None and first:
                batch.full.set()
            if batch is None or first:
                batch = self._open[key] = _Batch()
            batch.calls.append((given, named, count, mine))
            batch.samples += count
            if batch.samples == self._most:
                batch.full.set()
                del self._open[key]
        if first:
            batch.full.wait(self._seconds)
            with self._lock:
                if self._open.get(key) is batch:
                    del self._open[key]
            self._answer(batch)
        return mine.result()

    def _answer(self, batch: "_Batch") -> None:
        if len(batch.calls) > 1:
            try:
                given = tuple(map(np.concatenate, zip(*(call[0] for call in batch.calls))))
                named = {name: np.concatenate([call[1][name] for call in batch.calls]) for name in batch.calls[0][1]}
                results = self._run(given, named, batch.samples)
            except Exception:  # one of them is wrong, or all are too much for the memory: each is told by itself
                results = None
            if results is not None:
                begin = 0
                for _, _, count, future in batch.calls:
                    future.set_result(_part(results, begin, begin + count))
                    begin += count
                return
        for given, named, count, future in batch.calls:
            try:
                future.set_result(self._run(given, named, count))
            except Exception as error:
                future.set_exception(error)

    def _run(self, given: tuple[Any, ...], named: dict[str, Any], count: int) -> Any:
        result = self._program(*given, **named)
        with self._lock:
            self.calls += 1
            self.samples += count
        return result


class _Batch:
    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any], int, Future[Any]]] = []
        self.samples = 0
        self.full = threading.Event()


def _part(results: Any, begin: int, end: int) -> Any:
    """The samples of one call."""
    if isinstance(results, dict):
        return {name: _part(value, begin, end) for name, value in results.items()}
    if isinstance(results, (tuple, list)):
        return type(results)(_part(value, begin, end) for value in results)
    return results[begin:end]


def _require_independent(program: Program) -> None:
    """Refuse programs whose samples get other bytes when they run together, as with dynamic ranges."""
    if program.state:
        raise ValueError("the program has state, so its calls cannot run as one")
    if any(not shape or isinstance(shape[0], int) for _, _, shape in program.inputs):
        raise ValueError(
            "the program has a fixed batch, so its calls cannot run as one: quantize with a free batch size"
        )
    noise = _noise(program)
    together = program(*noise)
    for i in range(len(noise[0])):
        alone = program(*(array[i : i + 1] for array in noise))
        if not _equal(_part(together, i, i + 1), alone):
            raise ValueError(
                "a sample of the program gives other bytes beside others, as with dynamic ranges: its calls cannot run "
                "as one"
            )


def _noise(program: Program) -> list[np.ndarray]:
    """Three samples with different ranges."""
    random, made = np.random.default_rng(0), []
    for (_, dtype, _), shape in zip(program.inputs, program.example_shapes):
        sizes = 3, *shape[1:]
        if np.dtype(dtype).kind == "f":
            scale = np.arange(1, 4).reshape(-1, *[1] * (len(sizes) - 1))
            made.append((scale * random.standard_normal(sizes)).astype(dtype))
        else:
            made.append(random.integers(0, 2, sizes).astype(dtype))
    return made


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, (tuple, list)):
        return all(map(_equal, one, other))
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
