"""The programs of docs/guides/engines.md and docs/guides/transformers.md, as a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
PAGE = (GUIDES / "engines.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n.*?```py\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
BEFORE = {"Ray": "", "Spark": "", "MLflow": SECTIONS["Ray"]}


@pytest.mark.parametrize("engine", ["Ray", "Spark", "MLflow"])
def test_the_program_of_an_engine_runs(engine: str, tmp_path: Path) -> None:
    _run(SECTIONS["A model and its data"] + BEFORE[engine] + SECTIONS[engine], tmp_path)


def test_the_program_of_transformers_runs(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes)).save_pretrained(tmp_path / "my-model")
    (program,) = re.findall(r"```py\n(.*?)```", (GUIDES / "transformers.md").read_text(), re.DOTALL)
    _run(program, tmp_path)


def _run(program: str, folder: Path) -> None:
    script = folder / "script.py"
    script.write_text(program + "print('done')\n")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, env=environment)
    assert ran.stdout.splitlines()[-1:] == ["done"], ran.stderr[-2000:]
