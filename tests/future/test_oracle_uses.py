"""Which tests are left out where PyTorch's quantization is gone: those that use it, and no others of their file."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from oracle_uses import oracle_names


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch.{ao}.quantization as tq\ndef test_a(): tq.prepare\ndef test_b(): pass", {"tq", "test_a"}),
        ("from torch.{ao} import nn as theirs\ndef test_a(): theirs.X\ndef test_b(): pass", {"theirs", "test_a"}),
        ("BOTH = [zeropoint, torch.{quint8}]\ndef test_a(): BOTH\ndef test_b(): torch", {"BOTH", "test_a"}),
        ("D: dict = {{1: torch.{quint8}}}\ndef helper(): return D\ndef test_a(): helper()", {"D", "helper", "test_a"}),
        ("@mark(torch.{quint8})\ndef test_a(): pass\ndef test_b(): pass", {"test_a"}),
        ("T = {{}}\nT['a'] = torch.{ao}\ndef test_a(): T\ndef test_b(): pass", {"T", "test_a"}),
        ("def make(): torch.{ao}\ndef test_a(make): pass\ndef test_b(): pass", {"make", "test_a"}),
        ("def test_a():\n    'As torch.{ao} does.'\n    is_gone('torch.{ao}')", set()),
        ("def test_a(): run('import torch.{ao}; torch')", {"test_a"}),
    ],
    ids=["import", "from", "table", "typed table", "decorator", "entry", "fixture", "words", "program"],
)  # fmt: skip
def test_names_that_use_the_oracle(source: str, expected: set[str], tmp_path: Path) -> None:
    path = tmp_path / "test_some.py"
    path.write_text(textwrap.dedent(source.format(ao="ao", quint8="quint8")))
    assert oracle_names(path) == expected
