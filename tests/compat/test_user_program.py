"""One old program, unchanged: on PyTorch's own stack, and on zeropoint."""

from __future__ import annotations

import ast
from pathlib import Path

import torch
from forked import run_script

PROGRAM = Path(__file__).parent / "user_program.py"
# How many steps of 7 bits over its results each way may be apart. Float models are the same; in training rounding to 8
# bits or to 7 changes what is learned. (With AVX2 all but the trained and the dynamic way are equal.)
MOST_STEPS = {"float": 0.0, "static": 1.5, "trained": 4.0, "dynamic": 1.0, "script": 1.5, "graph": 1.5}


def numbers(line: str) -> torch.Tensor:
    return torch.tensor(ast.literal_eval(line.split(maxsplit=2)[2]), dtype=torch.float64)


def step(logits: torch.Tensor) -> float:
    return float(logits.max() - logits.min()) / 127


def test_an_old_program_prints_the_same() -> None:
    printed = []
    for under_compat in (False, True):
        ran = run_script(PROGRAM, under_compat=under_compat)
        assert ran.returncode == 0, ran.stderr
        printed.append(ran.stdout.splitlines())
    their_logits, our_logits = (
        {line.split()[1]: numbers(line) for line in lines if line.startswith("logits")} for lines in printed
    )
    theirs, ours = ([line for line in lines if not line.startswith("logits")] for lines in printed)
    assert ours == theirs
    assert our_logits.keys() == their_logits.keys()
    assert our_logits.keys() == MOST_STEPS.keys()
    for name, most in MOST_STEPS.items():
        assert (our_logits[name] - their_logits[name]).abs().max() <= most * step(their_logits[name]), name
    assert [line.split()[0] for line in ours if line.endswith("24")] == [
        "float", "static", "trained", "dynamic", "script", "graph",
    ]  # fmt: skip
