"""Programs go where Python objects go: pickles, copies, other processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from torch import nn

import zeropoint
from zeropoint import runtime

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


class Counting(nn.Module):
    """Adds up what it is given, call after call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("total", torch.zeros(3, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += self.layer(x)
        return self.total.clone()


def _compiled(model: nn.Module) -> Any:
    x = torch.from_numpy(X)
    return zeropoint.compile(zeropoint.to_int8(model.eval(), (x,), mode="dynamic"), (x,))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("programs") / "model.zpt"
    _compiled(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))).save(path)
    return path


def _run_elsewhere(program: runtime.Program, results: Any) -> None:
    results.put(program(X))


def _call(program: runtime.Program, x: np.ndarray) -> np.ndarray:
    return program(x)


def test_a_pickled_program_gives_the_same_bytes(path: Path) -> None:
    program = runtime.load(path)
    again = pickle.loads(pickle.dumps(program))
    assert type(again) is runtime.Program
    assert again.inputs == program.inputs
    np.testing.assert_array_equal(again(X), program(X))


def test_a_pickled_program_takes_and_gives_tensors_where_it_did() -> None:
    program = _compiled(nn.Linear(8, 4))
    again = pickle.loads(pickle.dumps(program))
    x = torch.from_numpy(X)
    assert torch.equal(again(x), program(x))
    assert again.nodes == program.nodes


def test_a_program_runs_in_a_process_that_was_spawned(path: Path) -> None:
    program = runtime.load(path)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_run_elsewhere, args=(program, results))
    process.start()
    found = results.get(timeout=120)
    process.join()
    np.testing.assert_array_equal(found, program(X))


def test_joblib_calls_a_program_in_its_workers(path: Path) -> None:
    program = runtime.load(path)
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(_call)(program, X * factor) for factor in (1, 2, 3))
    for factor, result in zip((1, 2, 3), found):
        np.testing.assert_array_equal(result, program(X * factor))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_the_state_goes_along_and_is_then_its_own(way: Any) -> None:
    program = _compiled(Counting())
    first, second = program(X).copy(), program(X).copy()
    taken = way(program)
    third = taken(X)
    assert not np.array_equal(third, second)
    np.testing.assert_array_equal(program(X), third)
    program.reset()
    np.testing.assert_array_equal(program(X), first)


def test_a_copy_method_begins_anew() -> None:
    program = _compiled(Counting())
    first = program(X).copy()
    np.testing.assert_array_equal(program.copy()(X), first)


def test_a_program_that_needs_torch_says_that_it_cannot_travel() -> None:
    class Drawn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + torch.randn(3, 8)

    program = zeropoint.compile(
        zeropoint.to_int8(Drawn(), (torch.from_numpy(X),), mode="dynamic"), (torch.from_numpy(X),), fallback=True
    )
    with pytest.raises(ValueError, match=r"cannot leave its process; PyTorch runs aten\.randn"):
        pickle.dumps(program)


def test_outputs_have_names_dtypes_and_shapes(path: Path) -> None:
    ((_, dtype, shape),) = runtime.load(path).outputs
    assert (dtype, shape) == ("float32", (3, 4))


def test_a_state_of_another_size_is_refused_and_nothing_is_changed() -> None:
    program = _compiled(Counting())
    program(X)
    before = program._state.values()
    with pytest.raises(ValueError, match="has 96 bytes, got 3"):
        program._state.set_values([b"abc"])
    with pytest.raises(ValueError, match="1 tensors, got 2"):
        program._state.set_values([b"abc", b"d"])
    assert program._state.values() == before
