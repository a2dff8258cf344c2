"""Perplexity is what its definition says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from decoder_oracle import logits_of
from gguf_files import decoder_file

from zeropoint import generation
from zeropoint.generation.gguf import Gguf
from zeropoint.generation.gguf_decoder import GgufWeights, gguf_decoder

IDS = [7, 12, 5, 30, 9, 9, 14, 22, 31, 6, 8, 17]


def by_definition(path: Path, ids: list[int], window: int) -> float:
    file = Gguf(path)
    decoder = gguf_decoder(file, None)
    surprises = []
    for begin in range(0, len(ids) - 1, window):
        part = ids[begin : begin + window]
        logits = logits_of(decoder, GgufWeights(file, decoder, 8, 32), part)
        shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        surprises += [-np.log(shares[at, token]) for at, token in enumerate(part[1:])]
    return float(np.exp(np.mean(surprises)))


@pytest.mark.parametrize("window", [5, 12, 64])
def test_perplexity_is_near_its_definition(tmp_path: Path, window: int) -> None:
    path = decoder_file(tmp_path / "a.gguf", form="Q8_0")
    generation.compile_decoder(path, tmp_path / "a.zpt", cache="float16")
    model = generation.load(tmp_path / "a.zpt")
    want = by_definition(path, IDS, window)
    assert abs(np.log(generation.perplexity(model, IDS, window=window) / want)) < 0.05


def test_wrong_text_or_window_is_refused(tmp_path: Path) -> None:
    generation.compile_decoder(decoder_file(tmp_path / "a.gguf"), tmp_path / "a.zpt")
    model = generation.load(tmp_path / "a.zpt")
    with pytest.raises(ValueError, match="window must be from 2 to the context of the model, 64, got 65"):
        generation.perplexity(model, IDS, window=65)
    with pytest.raises(ValueError, match="the text has 1 tokens"):
        generation.perplexity(model, [5])
