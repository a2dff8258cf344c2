"""What type checkers and editors know of the public names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import zeropoint

SCRIPT = """\
import torch
import zeropoint

x = torch.randn(2, 4)
quantized = zeropoint.to_int8(torch.nn.Linear(4, 4), (x,), [x])
program = zeropoint.compile(quantized, (x,))
reveal_type(quantized)
reveal_type(program)
reveal_type(zeropoint.runtime.load("model.zpt"))
reveal_type(zeropoint.quint8)
zeropoint.to_int8(torch.nn.Linear(4, 4), (x,), [x], dynamc=True)
zeropoint.compile(quantized, (x,), fallbck=True)
zeropoint.HistogramObservr()
"""


@pytest.mark.slow
def test_a_misspelled_argument_is_found_and_results_have_types(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--cache-dir", str(tmp_path / "cache"), str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    errors = [line.partition(" error: ")[2] for line in found.stdout.splitlines() if " error: " in line]
    shown = [line.split('"')[1] for line in found.stdout.splitlines() if "Revealed type" in line]
    assert [error.split("  ")[0].split(";")[0] for error in errors] == [
        'Unexpected keyword argument "dynamc" for "to_int8"',
        'Unexpected keyword argument "fallbck" for "compile"',
        'Module has no attribute "HistogramObservr"',
    ], found.stdout
    assert shown == [
        "zeropoint.graph.workflow.Quantized",
        "zeropoint.compiler.program.Program",
        "zeropoint.runtime.program.Program",
        "zeropoint.numerics.dtypes.QuantizedDtype",
    ]


def test_every_name_of_the_stub_exists() -> None:
    missing = [name for name in zeropoint.__all__ if not hasattr(zeropoint, name)]
    assert len(zeropoint.__all__) > 200
    assert not missing
