"""Some operators of PyTorch's database, and examples of torch.export: no result is wrong, every refusal is in words."""

from __future__ import annotations

import json
from pathlib import Path

from forked import run_forked

ROOT = Path(__file__).parents[2]
COUNT, SEED = 40, 61
RUN = "import sys; from tests.oracles.run import main; sys.exit(main(sys.argv[1:]))"


def test_a_sample_of_operators_gives_what_pytorch_gives_or_is_refused_in_words(tmp_path: Path) -> None:
    output = tmp_path / "oracles.json"
    ran = run_forked(RUN, "--some", COUNT, "--seed", SEED, "--samples", 1, "-o", output, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    totals = json.loads(output.read_text())["totals"]
    assert totals["wrong"] == totals["internal"] == 0
    assert totals["equal"] >= COUNT, ran.stdout
