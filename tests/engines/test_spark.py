"""Spark as it is on PyPI, on this machine: two executors' worth of workers, one of which is killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_cases import ROWS, assert_ranges_are_those_of_one_process, prepared
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType

import zeropoint
from zeropoint import runtime
from zeropoint.integrations.spark import calibrate, predictor

BATCHES = [ROWS[i : i + 8] for i in range(0, len(ROWS), 8)]


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master("local[2, 4]")  # two workers, four tries of a task
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield made
    made.stop()


def test_calibration_finds_the_ranges_of_one_process(session: Any) -> None:
    model = prepared()
    found = calibrate(model, session.sparkContext.parallelize(BATCHES, 5))
    assert found.batches == len(BATCHES)
    assert_ranges_are_those_of_one_process(model)


def test_a_worker_that_dies_loses_nothing(session: Any, tmp_path: Path) -> None:
    mark = tmp_path / "died"

    def dies_once(batch: np.ndarray) -> np.ndarray:
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return batch

    model = prepared()
    calibrate(model, session.sparkContext.parallelize(BATCHES, 5).map(dies_once))
    assert mark.exists()
    assert_ranges_are_those_of_one_process(model)


def test_an_rdd_without_batches_is_refused(session: Any) -> None:
    with pytest.raises(ValueError, match="no batches"):
        calibrate(prepared(), session.sparkContext.parallelize([], 2))


def test_programs_are_functions_of_columns(session: Any, tmp_path: Path) -> None:
    model = prepared()
    calibrate(model, session.sparkContext.parallelize(BATCHES, 2))
    path = tmp_path / "model.zpt"
    zeropoint.compile(zeropoint.convert_graph(model), (torch.from_numpy(ROWS),)).save(path)
    scores = predict_batch_udf(
        predictor(path), return_type=ArrayType(FloatType()), batch_size=16, input_tensor_shapes=[[8]]
    )
    frame = session.createDataFrame([(i, row.tolist()) for i, row in enumerate(ROWS)], "id int, x array<float>")
    found = {row["id"]: row["scores"] for row in frame.withColumn("scores", scores("x")).collect()}
    expected = runtime.load(path)(ROWS)
    assert len(found) == len(ROWS)
    for i, result in enumerate(expected):
        np.testing.assert_array_equal(np.float32(found[i]), result)
