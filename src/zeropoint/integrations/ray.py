"""Ray: programs as actors of `map_batches`, and calibration on the workers of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor, from_numpy, nn

from zeropoint.distributed import Observations, merge_observations, observe
from zeropoint.runtime import load


class Predictor:
    """A program for `ray.data.Dataset.map_batches`: each actor loads the file once.

    ::

        dataset.map_batches(Predictor, fn_constructor_args=("model.zpt",), concurrency=2, batch_size=64)

    Args:
        path: a program file that every node can read.
        columns: the inputs of the program, in order; by default the names of its inputs, or the only column.
        output: the column for the results. Several results are numbered: ``output_0``, ``output_1``, ...
    """

    def __init__(
        self, path: str | os.PathLike[str], columns: tuple[str, ...] | None = None, output: str = "output"
    ) -> None:
        self._program = load(path)
        self._columns, self._output = columns, output

    def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        columns = self._columns or tuple(name for name, _, _ in self._program.inputs)
        if self._columns is None and len(batch) == len(columns) == 1:
            columns = tuple(batch)
        missing = [name for name in columns if name not in batch]
        if missing:
            raise ValueError(f"Predictor: no column {', '.join(missing)}; the batch has {', '.join(batch)}")
        results = self._program(*(np.ascontiguousarray(batch[name]) for name in columns))
        if isinstance(results, np.ndarray):
            return {**batch, self._output: results}
        return {**batch, **{f"{self._output}_{i}": result for i, result in enumerate(results)}}


def calibrate(
    prepared: nn.Module,
    dataset: Any,
    *,
    workers: int = 2,
    batch_size: int = 32,
    inputs: Callable[[Mapping[str, np.ndarray]], Any] | None = None,
) -> Observations:
    """Calibrate a prepared model on a Ray dataset; its observers then have seen all of it.

    A part whose worker is lost is run again by Ray, on the same batches, so the ranges are those of one process.

    Args:
        prepared: from `prepare_graph`.
        dataset: a `ray.data.Dataset`.
        workers: how many tasks share the dataset.
        inputs: makes what the model is called with of a batch of columns; by default the columns as tensors, in order.
    """
    import ray

    model, observe_part, merge = ray.put(prepared), ray.remote(_observe_part), ray.remote(merge_observations)
    parts = [
        observe_part.options(max_retries=3).remote(model, shard, batch_size, inputs) for shard in dataset.split(workers)
    ]
    while len(parts) > 1:  # a tree: no task gets more than two
        pairs = [tuple(parts[i : i + 2]) for i in range(0, len(parts), 2)]
        parts = [merge.remote(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    found: Observations = ray.get(parts[0])
    if found.batches == 0:
        raise ValueError("calibrate: the dataset has no rows")
    found.put_into(prepared)
    return found


def _tensors(batch: Mapping[str, np.ndarray]) -> tuple[Tensor, ...]:
    return tuple(from_numpy(np.array(column)) for column in batch.values())


def _observe_part(prepared: nn.Module, shard: Any, batch_size: int, inputs: Any) -> Observations:
    batches = shard.iter_batches(batch_size=batch_size, batch_format="numpy")
    return observe(prepared, map(inputs or _tensors, batches))
