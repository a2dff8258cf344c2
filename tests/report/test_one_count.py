"""The command, the report and the page of a program count the operators of a model alike, and name its modules."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
from zeropoint.report.html import page
from zeropoint.report.program_facts import example_inputs, program_facts
from zeropoint.report.program_page import program_page, write_program_page
from zeropoint.runtime import load
from zeropoint.table import quantized_of


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)) + x)


class Net(nn.Module):
    """Convolutions that a program joins with the sums behind them, and a function that stays in float."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Sequential(Block(), Block())
        self.last_conv = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(self.stem(x))
        return torch.softmax(self.head((self.last_conv(y) + y).mean((2, 3))), -1)


@pytest.fixture(scope="module")
def made() -> tuple[nn.Module, zeropoint.Quantized, Tensor]:
    torch.manual_seed(0)
    model = Net().eval()
    x = torch.randn(2, 3, 12, 12)
    return model, zeropoint.to_int8(model, (x,), [x], progress=False), x


def test_the_summary_the_report_and_the_page_of_the_program_agree(
    made: tuple[nn.Module, zeropoint.Quantized, Tensor], tmp_path: Path
) -> None:
    model, quantized, x = made
    counted = quantized_of(row.precision for row in quantized.summary().rows)
    assert counted == "8 of 9"
    findings = zeropoint.write_report(tmp_path / "report.html", model, quantized, [x], progress=False)
    assert f'Operators quantized</h3><div class="value ">{counted}<' in page(findings)
    zeropoint.compile(quantized, (x,)).save(tmp_path / "net.zpt")
    facts = write_program_page(tmp_path / "net.html", tmp_path / "net.zpt", timed=False)
    assert f'Operators quantized</h3><div class="value ">{counted}<' in program_page(facts, "net")


def test_steps_have_the_paths_of_modules(made: tuple[nn.Module, zeropoint.Quantized, Tensor], tmp_path: Path) -> None:
    _, quantized, x = made
    program = zeropoint.compile(quantized, (x,))
    program.save(tmp_path / "net.zpt")
    layers = ["stem.0", "body.0.conv", "body.1.conv", "last_conv", "head"]
    profile = load(tmp_path / "net.zpt").profile(x.numpy(), runs=1)
    assert [row.path for row in profile if row.macs] == layers
    assert all(path in str(profile) for path in layers)
    assert "_default" not in str(profile)
    facts = program_facts(program, example_inputs(program), runs=0)
    assert [step.path for step in facts.steps if step.macs] == layers
    assert facts.operators[0] == ("stem.0", "conv2d", "int8", "")
    assert facts.operators[-1] == ("", "softmax", "float32", "the model returns what becomes of it")


def test_a_program_has_the_same_bytes_every_time(made: tuple[nn.Module, zeropoint.Quantized, Tensor]) -> None:
    _, quantized, x = made
    files = {zeropoint.compile(quantized, (x,))._native.data() for _ in range(12)}
    assert len(files) == 1
    (length,) = struct.unpack("<Q", next(iter(files))[:8])
    assert length % 8 == 0


class Talkative(Layers):
    """With a method of a name that ours have, too."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)

    def summary(self, depth: int) -> str:
        raise AssertionError("nobody asked")


def test_a_models_own_summary_is_left_alone() -> None:
    x = torch.randn(3, 4)
    dynamic = zeropoint.quantize_dynamic(Talkative(fc=nn.Linear(4, 2)).eval(), {nn.Linear})
    program = zeropoint.compile(dynamic, (x,))
    assert torch.equal(program(x), dynamic(x))
    assert program_facts(program, [x.numpy()], runs=0).operators == ()


@pytest.mark.parametrize("text", ["", "[", "{}", "[[1]]", '[["a", "b", "c", 4]]', "[" * 100_000])
def test_what_a_file_says_about_operators_is_not_trusted(text: str) -> None:
    from zeropoint.report.program_facts import _operators

    assert _operators(text) == ()
