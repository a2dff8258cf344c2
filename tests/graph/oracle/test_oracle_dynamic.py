"""Models whose activations get their ranges at run time, quantized by graph mode and by torch.ao's FX mode."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization as theirs
from oracle_models import MODELS, mapping_of
from oracle_sides import engine, our_fx_side, sqnr, their_fx_side

import zeropoint

pytestmark = pytest.mark.oracle

LOSS = 0.5  # dB that ours may lose


@pytest.mark.parametrize("config", ["dynamic", "dynamic_per_channel"])
@pytest.mark.parametrize("name", ["bert", "lstm"])
def test_dynamic_model_is_that_of_the_oracle(name: str, config: str) -> None:
    torch.manual_seed(0)
    made = MODELS[name]()
    with engine("qnnpack"), torch.no_grad():  # fbgemm saturates on AVX2 with these 8 bits
        other = their_fx_side(made.model, mapping_of(theirs, config), made.batches)
        mine, _ = our_fx_side(made.model, mapping_of(zeropoint, config), made.batches)
        expected = made.model(*made.batches[0])
    layers = [w for w in other.weights if w.integers.dim() > 1 and w.name not in ("words", "positions")]
    assert len(mine.weights) == len(layers) > 0
    assert [w.name for w in mine.weights if not any(w.same(v) for v in layers)] == []
    figures = sqnr(expected, mine.output), sqnr(expected, other.output)
    print(f"\n{name:10} {config:20} ours {figures[0]:.2f} dB, theirs {figures[1]:.2f} dB")
    assert figures[0] >= figures[1] - LOSS
