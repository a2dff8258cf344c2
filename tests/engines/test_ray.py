"""Ray as it is on PyPI, on this machine: two workers, one of which is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
from engine_cases import ROWS, assert_ranges_are_those_of_one_process, prepared

import zeropoint
from zeropoint import runtime
from zeropoint.integrations.ray import Predictor, calibrate


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    here = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": here}})
    yield
    ray.shutdown()


def test_calibration_finds_the_ranges_of_one_process() -> None:
    model = prepared()
    found = calibrate(model, ray.data.from_numpy(ROWS), workers=3, batch_size=8)
    assert found.batches >= 12
    assert_ranges_are_those_of_one_process(model)


class DiesOnce:
    """Kills the worker that makes the first batch, once."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, batch: Mapping[str, np.ndarray]) -> tuple[torch.Tensor, ...]:
        if not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return (torch.from_numpy(np.array(batch["data"])),)


def test_a_worker_that_dies_loses_nothing(tmp_path: Path) -> None:
    model = prepared()
    mark = tmp_path / "died"
    calibrate(model, ray.data.from_numpy(ROWS), workers=2, batch_size=8, inputs=DiesOnce(mark))
    assert mark.exists()
    assert_ranges_are_those_of_one_process(model)


def test_a_dataset_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        calibrate(prepared(), ray.data.from_numpy(ROWS[:0]), workers=2)


def test_programs_run_as_actors(tmp_path: Path) -> None:
    model = prepared()
    calibrate(model, ray.data.from_numpy(ROWS), workers=2, batch_size=8)
    x = torch.from_numpy(ROWS)
    path = tmp_path / "model.zpt"
    zeropoint.compile(zeropoint.convert_graph(model), (x,)).save(path)
    made = ray.data.from_numpy(ROWS).map_batches(
        Predictor, fn_constructor_args=(path,), concurrency=2, batch_size=16, batch_format="numpy"
    )
    rows = made.take_all()
    found = {row["data"].tobytes(): row["output"] for row in rows}
    expected = runtime.load(path)(ROWS)
    assert len(rows) == len(ROWS)
    for row, result in zip(ROWS, expected):
        np.testing.assert_array_equal(found[row.tobytes()], result)
