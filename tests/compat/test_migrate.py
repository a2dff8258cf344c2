"""`zeropoint migrate`, and the flows of PyTorch's tutorials: on PyTorch's own stack, under compat, and rewritten."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import run_script
from typer.testing import CliRunner

from zeropoint.cli.app import app
from zeropoint.compat.migrate import migrate, python_files

FLOWS = Path(__file__).parent / "flows"
NAMES = sorted(path.stem for path in FLOWS.glob("*.py") if path.stem != "run_all")
# Sums of float32 in another order may move a value over the edge between two steps.
STEPS_APART = 1.01


def ran(directory: Path, under_compat: bool = False) -> dict[str, Any]:
    done = run_script(FLOWS / "run_all.py", directory, under_compat=under_compat)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def stock() -> dict[str, Any]:
    return ran(FLOWS)


@pytest.fixture(scope="module")
def under_compat() -> dict[str, Any]:
    return ran(FLOWS, under_compat=True)


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("rewritten")
    for name in NAMES:
        done = migrate((FLOWS / f"{name}.py").read_text(), name)
        assert not done.left
        assert "torch.ao" not in done.after.split('"""', 2)[2]
        (directory / f"{name}.py").write_text(done.after)
    return ran(directory)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", ["under_compat", "rewritten"])
def test_a_flow_computes_what_it_did(
    name: str, way: str, stock: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    found, expected = request.getfixturevalue(way)[name], stock[name]
    assert found["step"] == pytest.approx(expected["step"], rel=1e-3)
    apart = [abs(a - b) for a, b in zip(found["result"], expected["result"], strict=True)]
    assert max(apart) <= STEPS_APART * expected["step"]


# ------------------------------------------------------------------------------------------------------------ rewriting


def test_names_imported_one_by_one_are_imported_from_where_they_are_now() -> None:
    done = migrate(
        "from torch.ao.quantization import prepare as p, QuantStub\nfrom torch.nn import Linear\np(QuantStub())\n"
    )
    assert done.after == "from zeropoint import prepare as p, QuantStub\nfrom torch.nn import Linear\np(QuantStub())\n"
    assert done.left == ()


def test_names_through_modules_are_written_out() -> None:
    source = "import torch\nimport torch.ao.nn.quantized as nnq\nx = nnq.Linear(2, 3, dtype=torch.qint8)  # stays\n"
    after = migrate(source).after
    assert "x = zeropoint.nn.quantized.Linear(2, 3, dtype=zeropoint.qint8)  # stays\n" in after
    assert "import zeropoint.nn.quantized\n" in after
    assert "torch.ao" not in after


def test_operators_and_functions_of_torch_are_found() -> None:
    after = migrate(
        "import torch\nq = torch.quantize_per_tensor(x, 1.0, 0, torch.quint8)\ntorch.ops.quantized.add(q, q)\n"
    ).after
    assert "q = zeropoint.quantize_per_tensor(x, 1.0, 0, zeropoint.quint8)\n" in after
    assert "zeropoint.qfunctions.add(q, q)\n" in after


def test_names_from_several_places_become_several_imports() -> None:
    after = migrate("from torch.ao.quantization import prepare, default_eval_fn\n").after
    assert after == "from zeropoint import prepare\nfrom zeropoint.compat.old_functions import default_eval_fn\n"


def test_what_has_no_counterpart_is_named_with_its_line_and_stays() -> None:
    source = "import torch\nimport torch.ao.quantization as tq\n\ntorch.backends.quantized.engine = 'x86'\nuse(tq)\n"
    done = migrate(source)
    assert done.after == source
    assert [(finding.line, finding.name) for finding in done.left] == [
        (4, "torch.backends.quantized.engine"),
        (5, "torch.ao.quantization"),
    ]


def test_a_star_import_is_named() -> None:
    (finding,) = migrate("from torch.ao.quantization import *\n").left
    assert finding.name == "torch.ao.quantization.*"


def test_other_code_is_left_alone() -> None:
    source = "import torch\nfrom torch import nn\n\nmodel = nn.Linear(2, 3)  # torch.ao.quantization in a comment\n"
    assert migrate(source).after == source
    assert migrate(source).diff() == ""


def test_what_is_not_python_is_refused() -> None:
    with pytest.raises(ValueError, match=r"broken\.py cannot be parsed as Python: fix the syntax of line 1"):
        migrate("def (:\n", "broken.py")


def test_a_directory_is_searched_and_hidden_folders_are_not(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", ".venv/d.py", "e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [str(path.relative_to(tmp_path)) for path in python_files(tmp_path)] == ["a.py", "b/c.py"]


def test_the_command_shows_a_diff_and_writes_when_told(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("from torch.ao.quantization import prepare\n")
    command = [sys.executable, "-W", "ignore", "-m", "zeropoint.cli", "migrate", str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert "+from zeropoint import prepare" in shown.stdout
    assert path.read_text() == "from torch.ao.quantization import prepare\n"
    assert CliRunner().invoke(app, ["migrate", str(path), "--write"]).exit_code == 0
    assert path.read_text() == "from zeropoint import prepare\n"


def test_a_name_that_changed_is_imported_under_the_old_one() -> None:
    old = "from torch.ao.quantization.fx._equalize import get_layer_sqnr_dict\n\nget_layer_sqnr_dict(1, 2, 3)\n"
    first, *rest = migrate(old, "old.py").after.splitlines()
    assert first == "from zeropoint.compat.numeric_suite.graph.ranking import layer_sqnr as get_layer_sqnr_dict"
    assert rest == ["", "get_layer_sqnr_dict(1, 2, 3)"]


DEEP = {
    "brackets": lambda n: "x = " + "(" * n + "1" + ")" * n,
    "signs": lambda n: "x = " + "-" * n + "1",
    "sums": lambda n: "x = 1" + "+1" * n,
    "attributes": lambda n: "x = a" + ".b" * n,
    "functions": lambda n: "x = " + "lambda: " * n + "1",
    "conditions": lambda n: "x = 1" + " and 1" * n,
    "branches": lambda n: "if a:\n  pass\n" + "elif b:\n  pass\n" * n,
}


def test_deep_nesting_is_refused_and_does_not_end_the_process(tmp_path: Path) -> None:
    for name, code in DEEP.items():
        for count in (1000, 5000, 100_000):
            (tmp_path / f"{name}{count}.py").write_text(code(count))
    program = """
import pathlib, sys
from zeropoint.compat.migrate import migrate
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    try:
        migrate(path.read_text(), path.name)
        print(path.name, "was rewritten")
    except ValueError as error:
        print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr[-500:]
    lines = ran.stdout.splitlines()
    assert len(lines) == 3 * len(DEEP)
    assert all("nested too deeply" in line for line in lines), ran.stdout
