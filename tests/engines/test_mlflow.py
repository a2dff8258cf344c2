"""MLflow as it is on PyPI: models are saved, loaded and called through its own functions."""

from __future__ import annotations

from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pytest
import torch
from engine_cases import ROWS
from torch import nn

import zeropoint
from zeropoint.integrations.mlflow import log_model, save_model


@pytest.fixture(scope="module")
def program() -> zeropoint.runtime.Program:
    x = torch.from_numpy(ROWS)
    return zeropoint.compile(zeropoint.to_int8(nn.Linear(8, 4), (x,), [x], progress=False), (x,))


def test_a_saved_model_predicts_what_the_program_gives(program: zeropoint.runtime.Program, tmp_path: Path) -> None:
    save_model(program, tmp_path / "model")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(ROWS), program(ROWS))
    np.testing.assert_array_equal(loaded.predict(ROWS.tolist()), program(ROWS))


def test_a_saved_model_holds_no_pickle(program: zeropoint.runtime.Program, tmp_path: Path) -> None:
    save_model(program, tmp_path / "model")
    assert not [path for path in (tmp_path / "model").rglob("*") if path.suffix in (".pkl", ".pickle")]


def test_a_run_logs_a_model(
    program: zeropoint.runtime.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny has no database
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        logged = log_model(program, "model")
    np.testing.assert_array_equal(mlflow.pyfunc.load_model(logged.model_uri).predict(ROWS), program(ROWS))


def test_too_many_inputs_are_refused(program: zeropoint.runtime.Program, tmp_path: Path) -> None:
    save_model(program, tmp_path / "model")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    with pytest.raises(TypeError, match=r"the program takes \w+; got"):
        loaded.predict({"nothing": ROWS})
