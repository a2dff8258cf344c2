"""What modules of programs compute, and how alike it is in two of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import zeropoint
from zeropoint.report.diff_page import write_diff_page
from zeropoint.report.module_values import MOST, likeness, module_values
from zeropoint.report.program_facts import example_inputs, program_facts
from zeropoint.runtime import load

PROGRAMS = Path(__file__).parents[1] / "golden" / "programs"


@pytest.mark.parametrize("name", ["residual", "lstm", "image", "moving", "attention"])
def test_the_last_value_of_each_module_is_given(name: str) -> None:
    program = load(PROGRAMS / f"{name}.zpt")
    inputs = example_inputs(program)
    facts = program_facts(program, inputs, runs=0)
    found = module_values(program, facts, inputs)
    assert set(found) == {step.path or step.op for step in facts.steps if step.dtype}
    results = program.copy()._native.run(inputs)
    given = dict(zip(facts.outputs, results if isinstance(results, (list, tuple)) else [results]))
    last = {step.path or step.op: step.name for step in facts.steps if step.dtype}
    for path, value in last.items():
        if value in given:
            assert np.array_equal(found[path], given[value])


def test_likeness_is_that_of_values_up_to_scale_and_zero_point() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(10_000).astype(np.float32)
    noise = random.standard_normal(10_000).astype(np.float32)
    assert likeness(x, x) == MOST
    assert abs(likeness(x, x + 0.1 * noise) - 20) < 0.2
    assert abs(likeness(3 * x - 5, x + 0.1 * noise) - 20) < 0.2
    bytes_of = np.clip(np.round(x / 0.05) + 128, 0, 255).astype(np.uint8)
    step = 0.05**2 / 12  # the energy of rounding to the nearest step
    assert abs(likeness(x, bytes_of) - 10 * np.log10(1 / step)) < 1
    assert likeness(x, x[:5]) is None
    assert likeness(x, np.zeros_like(x)) is None


def test_the_page_of_two_programs_says_where_they_begin_to_differ(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    other = nn.Sequential(*model[:2], nn.Linear(16, 16), *model[3:]).eval()
    x = torch.randn(64, 16)
    programs = [zeropoint.compile(zeropoint.to_int8(m, (x,), [x], progress=False), (x,)) for m in (model, other)]
    rows = {row.path: row.alike for row in write_diff_page(tmp_path / "diff.html", programs, ["a", "b"], [x.numpy()])}
    assert rows["0"] == MOST
    assert rows["2"] is not None
    assert rows["2"] < 10
    assert "results alike" in (tmp_path / "diff.html").read_text()
    assert "equal" in (tmp_path / "diff.html").read_text()


def test_what_one_program_computes_in_a_step_is_compared_with_what_the_other_computes_in_two(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    x = torch.randn(4, 3, 12, 12)
    static = zeropoint.compile(zeropoint.to_int8(model, (x,), [x], progress=False), (x,))
    dynamic = zeropoint.compile(zeropoint.to_int8(model, (x,), mode="dynamic", progress=False), (x,))
    rows = {
        row.path: row for row in write_diff_page(tmp_path / "diff.html", [static, dynamic], ["a", "b"], [x.numpy()])
    }
    assert rows["1"].nbytes[0] is None  # the ReLU is a part of the convolution there
    assert rows["0"].alike > 30
