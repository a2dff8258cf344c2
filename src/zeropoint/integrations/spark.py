"""Spark: programs as functions of `predict_batch_udf`, and calibration on the executors of a cluster."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from torch import Tensor, from_numpy, nn

from zeropoint.distributed import Observations, merge_observations, observe
from zeropoint.runtime import load


def predictor(path: str | os.PathLike[str]) -> Callable[[], Callable[..., np.ndarray]]:
    """What `pyspark.ml.functions.predict_batch_udf` takes as `make_predict_fn`: each executor loads the file once.

    ::

        classify = predict_batch_udf(
            predictor("model.zpt"),
            return_type=ArrayType(FloatType()),
            batch_size=64,
            input_tensor_shapes=[[3, 224, 224]],
        )
        frame.withColumn("scores", classify("image"))

    Args:
        path: a program file that every node can read.
    """
    return functools.partial(_prediction, os.fspath(path))


def _prediction(path: str) -> Callable[..., np.ndarray]:
    program = load(path)
    types = [dtype for _, dtype, _ in program.inputs]

    def predict(*inputs: np.ndarray) -> np.ndarray:
        return program(*(np.ascontiguousarray(x, dtype=dtype) for x, dtype in zip(inputs, types)))

    return predict


def calibrate(prepared: nn.Module, batches: Any, *, depth: int = 2) -> Observations:
    """Calibrate a prepared model on an RDD of batches; its observers then have seen all of it.

    A partition whose executor is lost is run again by Spark, on the same batches, so the ranges are those of one
    process.

    Args:
        prepared: from `prepare_graph`.
        batches: an RDD whose elements are arrays, or tuples of the arrays that the model is called with.
        depth: of the tree in which partitions are merged.
    """
    model = batches.context.broadcast(prepared)
    parts = batches.mapPartitions(lambda part: _observe_part(model.value, part))
    if parts.isEmpty():
        raise ValueError("calibrate: the RDD has no batches")
    found: Observations = parts.treeReduce(merge_observations, depth)
    found.put_into(prepared)
    return found


def _tensors(batch: Any) -> tuple[Tensor, ...]:
    return tuple(from_numpy(np.array(x)) for x in (batch if isinstance(batch, tuple) else (batch,)))


def _observe_part(prepared: nn.Module, batches: Iterable[Any]) -> Iterator[Observations]:
    found = observe(prepared, map(_tensors, batches))
    if found.batches:
        yield found
