"""MLflow: a program file as a model of the pyfunc flavor, without a pickle."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from zeropoint.runtime import Program, load

_FILE = "model.zpt"


class _Model:
    """What MLflow calls. Takes an array, a list or tuple of arrays, or a dictionary of them by name."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._types = {name: dtype for name, dtype, _ in program.inputs}

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> Any:
        """What the program gives; numbers that are no arrays yet get the dtypes of its inputs."""
        if isinstance(data, dict):
            return self._program(**{k: np.ascontiguousarray(v, self._types.get(k)) for k, v in data.items()})
        given = data if isinstance(data, (tuple, list)) and len(self._types) > 1 else (data,)
        if len(given) != len(self._types):
            raise TypeError(f"the program takes {', '.join(self._types)}; got {len(given)} inputs")
        return self._program(*(np.ascontiguousarray(x, dtype) for x, dtype in zip(given, self._types.values())))


def _load_pyfunc(path: str) -> _Model:
    """MLflow calls it with the folder, or the file, that `save_model` wrote."""
    return _Model(load(Path(path) / _FILE if Path(path).is_dir() else path))


def save_model(program: Program, path: str | os.PathLike[str], **options: Any) -> None:
    """`mlflow.pyfunc.save_model` of a program."""
    import mlflow.pyfunc

    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / _FILE)
        mlflow.pyfunc.save_model(os.fspath(path), **_given(folder, options))


def log_model(program: Program, name: str, **options: Any) -> Any:
    """`mlflow.pyfunc.log_model` of a program, in the active run."""
    import mlflow.pyfunc

    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / _FILE)
        return mlflow.pyfunc.log_model(name=name, **_given(folder, options))


def _given(folder: str, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "loader_module": __name__,
        "data_path": str(Path(folder) / _FILE),
        "pip_requirements": ["zeropoint", "mlflow"],
        **options,
    }
