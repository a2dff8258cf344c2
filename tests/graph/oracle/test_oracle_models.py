"""Models quantized by graph mode and by torch.ao's FX mode, with the same qconfigs and data: what must be the same.

`pytest -s` shows the figures of each model as a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.ao.quantization as theirs
from oracle_models import CONFIGS, MODELS, Made, expected_differences, mapping_of
from oracle_sides import Forced, Side, differences, engine, our_fx_side, sqnr, their_fx_side

import zeropoint

pytestmark = pytest.mark.oracle

# Signal to noise that graph mode may lose against PyTorch, in dB.
LOSS = 0.5
# PyTorch's own MobileNet is wrong on the engine qnnpack (2.8 dB where ours has 37): no oracle.
CASES = [(model, config) for model in MODELS for config in CONFIGS if (model, config) != ("mobilenet", "qnnpack")]
# Every model, and every qconfig; the others are thorough.
QUICK = {
    ("resnet", "per_channel"),
    ("mobilenet", "fbgemm"),
    ("unet", "per_channel"),
    ("bert", "per_tensor"),
    ("lstm", "qnnpack"),
}


@dataclass
class Compared:
    name: str
    config: str
    made: Made
    ours: Side
    theirs: Side
    forced: Forced
    ours_db: float
    theirs_db: float

    def row(self) -> str:
        _, agree = differences(self.ours, self.theirs)
        return (
            f"{self.name:10} {self.config:12} {self.ours_db:6.2f} {self.theirs_db:6.2f}   "
            f"{agree:3}/{len(self.ours.observers):3}   {len(self.ours.weights):3}   "
            f"{len(self.forced.steps):3}   {max(self.forced.steps.values(), default=0)}   "
            f"{self.forced.equal / max(self.forced.count, 1):.5f}"
        )


HEAD = "model      config         ours theirs   observers weights layers steps equal"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(case, id="-".join(case), marks=[pytest.mark.thorough] * (case not in QUICK)) for case in CASES
    ],
)
def compared(request: Any) -> Compared:
    name, config = request.param
    return compare(name, config)


def compare(name: str, config: str) -> Compared:
    torch.manual_seed(0)
    made = MODELS[name]()
    with engine("qnnpack" if config == "qnnpack" else made.engine), torch.no_grad():
        other = their_fx_side(made.model, mapping_of(theirs, config), made.batches)
        mine, forced = our_fx_side(made.model, mapping_of(zeropoint, config), made.batches, other.values)
        expected = made.model(*made.batches[0])
    found = sqnr(expected, mine.output), sqnr(expected, other.output)
    result = Compared(name, config, made, mine, other, forced, *found)
    print("\n" + HEAD + "\n" + result.row())
    return result


def test_observers_differ_only_where_the_table_says_so(compared: Compared) -> None:
    found, agree = differences(compared.ours, compared.theirs)
    expected = expected_differences(compared.name, compared.config)
    assert {k: v for k, v in found.items() if k not in expected} == {}
    always = {k for k in expected_differences(compared.name, compared.config, always=True) if k[0] != "layer"}
    assert always <= set(found), "the table lists a difference that is none"
    assert agree >= len(compared.ours.observers) / 2


def test_weights_are_the_same_integers(compared: Compared) -> None:
    missing = [w.name for w in compared.ours.weights if not any(w.same(other) for other in compared.theirs.weights)]
    assert missing == []
    layers = [w for w in compared.theirs.weights if w.integers.dim() > 1 and w.name not in ("words", "positions")]
    unmatched = [w.name for w in layers if not any(w.same(mine) for mine in compared.ours.weights)]
    assert unmatched == []
    assert len(compared.ours.weights) == len(layers)


def test_layers_are_within_one_step_of_the_oracle_on_the_same_integers(compared: Compared) -> None:
    expected = expected_differences(compared.name, compared.config)
    steps = {name: n for name, n in compared.forced.steps.items() if ("layer", name) not in expected}
    assert {name: n for name, n in steps.items() if n > 1} == {}
    assert compared.forced.count > 0


def test_model_is_as_accurate_as_that_of_the_oracle(compared: Compared) -> None:
    assert compared.ours_db >= compared.theirs_db - LOSS
