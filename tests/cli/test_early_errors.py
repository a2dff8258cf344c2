"""What can be checked before the work is checked before it, and errors of the user's code say where they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from command_line import Ran, run
from forked import run_forked

from zeropoint.cli import models
from zeropoint.cli.app import app

CODE = """
import torch
from torch import nn

def broken():
    raise KeyError("weights.bin")

def breaking():
    yield torch.randn(2, 1, 8, 8)
    raise ZeroDivisionError("in the data")

def number():
    return 3

def nothing():
    return iter([])

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(6, 4)

    def forward(self, left, right):
        return self.a(left) - self.b(right)
"""


@pytest.fixture(scope="module", autouse=True)
def _files(folder: Path) -> None:
    (folder / "own_code.py").write_text(CODE)
    (folder / "a_folder").mkdir(exist_ok=True)
    for name in ("model.pt2", "images.npy", "images.npz"):
        data = (folder / name).read_bytes()
        (folder / f"cut_{name}").write_bytes(data[: len(data) // 2])
    rows = np.random.RandomState(0).randn(8, 6).astype(np.float32)
    np.save(folder / "wide.npy", np.zeros((8, 3, 8, 8), np.float32))
    np.save(folder / "flat.npy", np.zeros((8, 64), np.float32))
    np.savez(folder / "labelled.npz", right=rows, left=rows[:, :4], label=np.arange(8))
    np.savez(folder / "unnamed.npz", rows, rows[:, :4], np.arange(8))


def words(ran: Ran) -> str:
    return " ".join(ran.err.replace("│", " ").split())


QUANTIZE = "quantize", "model.pt2", "-d", "images.npy"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*QUANTIZE, "-o", "none/x.zpt"), "none/x.zpt cannot be written: create the folder none first"),
        ((*QUANTIZE, "-o", "x.zpt", "-r", "none/x.html"), "create the folder none first"),
        ((*QUANTIZE, "-o", "x.zpt", "-r", "a_folder"), "a_folder is a folder: pass the name of a file"),
        (("quantize", "model.pt2", "-d", "none.npy", "-o", "x.zpt"), "no such file: none.npy"),
        (("quantize", "model.pt2", "-d", "a_folder", "-o", "x.zpt"), "a_folder has no images: their names end in .jpg"),
        (("quantize", "model.pt2", "-d", "cut_images.npy", "-o", "x.zpt"), "cut_images.npy is not a file of arrays"),
        (("quantize", "model.pt2", "-d", "cut_images.npz", "-o", "x.zpt"), "cut_images.npz is not a file of arrays"),
        (("quantize", "model.pt2", "-d", "own_code:none", "-o", "x.zpt"), "own_code has no 'none'"),
        (("quantize", "model.pt2", "-d", "none.py:data", "-o", "x.zpt"), "there is no file none.py"),
        (("tune", "model.pt2", "-d", "images.npy", "-o", "none/x.zpt"), "create the folder none first"),
        (("report", "model.pt2", "-d", "images.npy", "-o", "none/x.html"), "create the folder none first"),
        (("run", "model.pt2", "-d", "images.npy", "-o", "none/x.npy"), "create the folder none first"),
        (("inspect", "a_folder"), "a_folder is a folder: pass a file"),
    ],
)
def test_files_are_checked_before_a_model_is_read(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "load_exported", None)
    ran = run(*arguments)
    assert ran.code == 2
    assert message in words(ran)


def test_every_file_that_a_command_reads_or_writes_is_checked() -> None:
    for command in app.registered_commands:
        assert command.callback is not None
        hints = get_type_hints(command.callback, include_extras=True)
        for name, hint in hints.items():
            if name == "data" or ("Path" in str(get_args(hint)[:1]) and command.callback.__name__ != "migrate"):
                option = hint.__metadata__[0]  # `exists`: typer checks it
                assert option.callback is not None or option.exists, f"{command.callback.__name__}: {name}"


def test_a_folder_without_permission_is_found_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "you may not create files in ." in words(run(*QUANTIZE, "-o", "new.zpt"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cut_model.pt2", "-d", "images.npy"), "cut_model.pt2 is no file of torch.export, or it is cut off"),
        (("none.zpt", "-d", "images.npy"), "none.zpt is a program: it is quantized already"),
        (("model.pt2", "-d", "wide.npy"), "wide.npy: input has size 3 along axis 1; the model needs 1"),
        (("model.pt2", "-d", "flat.npy"), "samples for input must have 3 axes (1, 8, 8), got (64,)"),
        (("model.pt2", "-d", "own_code:number"), "must be an iterable of batches or a function that returns"),
        (("model.pt2", "-d", "own_code:nothing"), "own_code:nothing has no batches"),
        (("own_code:Two", "-d", "unnamed.npz"), "has 3 arrays (arr_0, arr_1, arr_2), and the model takes 2"),
        (("own_code:broken", "-d", "images.npy"), "own_code.py, line 6, in broken: KeyError: 'weights.bin'"),
        (("model.pt2", "-d", "own_code:breaking"), "own_code.py, line 10, in breaking: ZeroDivisionError"),
    ],
)
def test_what_does_not_fit_is_said_in_a_line(arguments: tuple[str, ...], message: str) -> None:
    ran = run("quantize", *arguments, "-o", "x.zpt")
    assert ran.code == 1
    assert message in words(ran)


def test_arrays_are_taken_by_name_and_the_others_named() -> None:
    ran = run("quantize", "own_code:Two", "-d", "labelled.npz", "-o", "x.zpt", "--json")
    assert ran.code == 0
    assert "not inputs of the model, and not used: label" in words(ran)


def test_data_and_models_come_from_a_python_file(folder: Path) -> None:
    (folder / "a_folder" / "nearby.py").write_text((folder / "my_code.py").read_text())
    code = "a_folder/nearby.py"
    assert run("quantize", f"{code}:make", "-d", f"{code}:batches", "-o", "x.zpt", "--json").code == 0


def test_a_traceback_is_shown_if_asked_for(folder: Path) -> None:
    arguments = "quantize", "own_code:broken", "-d", "images.npy", "-o", "x.zpt", "--traceback"
    ran = run_forked("from zeropoint.cli import main\nmain()", *arguments, cwd=folder)
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
    assert 'own_code.py", line 6' in ran.stderr


def test_inspect_lists_arrays() -> None:
    (array,) = run("inspect", "images.npy", "--json").json()["tensors"]
    assert array == {"name": "array", "dtype": "float64", "shape": [10, 1, 8, 8], "bytes": 5120}
    assert [array["name"] for array in run("inspect", "images.npz", "--json").json()["tensors"]] == ["input"]


def test_inspect_lists_operators_and_weights_of_onnx_files() -> None:
    import onnx

    weight = onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), "weight")
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2, size]) for name, size in (("x", 2), ("y", 3)))
    node = onnx.helper.make_node("MatMul", ["x", "weight"], ["y"])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "net", [x], [y], [weight])), "net.onnx")
    facts = run("inspect", "net.onnx", "--json").json()
    assert facts["kind"] == "ONNX"
    assert facts["operators"] == {"MatMul": 1}
    assert facts["tensors"] == [{"name": "weight", "dtype": "float32", "shape": [2, 3], "bytes": 24}]


def test_frames_of_libraries_are_not_the_users_code() -> None:
    from zeropoint.cli.output import _place_in_users_code

    with pytest.raises(ValueError, match="larger than 0") as raised:
        np.array_split(np.zeros(2), 0)
    place = _place_in_users_code(raised.value)
    assert place is not None
    assert "test_early_errors.py" in place
    assert sys.prefix not in place
