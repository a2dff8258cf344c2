"""Decoders of transformers: programs give the tokens and the scores of the quantized graph, step by step."""

from __future__ import annotations

import pytest
import torch
from decoder_models import generated

import zeropoint

from . import packages
from .generation import DECODERS, decoder

PROMPT = torch.tensor([[5, 17, 3, 42, 8]])
LENGTH, NEW = 16, 6


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", DECODERS)
def test_a_program_generates_what_the_quantized_graph_does(name: str, bits: int) -> None:
    if packages.absent("transformers") is not None:
        pytest.skip("transformers is not installed: run `make test-zoo`")
    given = {"qconfig": zeropoint.float_qparams_weight_only_qconfig_4bit} if bits == 4 else {}
    quantized = zeropoint.to_int8(decoder(name, LENGTH), (PROMPT,), mode="weight_only", progress=False, **given)
    tokens, scores = generated(quantized, PROMPT, NEW)
    program = zeropoint.compile(quantized, (PROMPT,))
    found, given_scores = generated(program, PROMPT, NEW)
    assert found == tokens
    assert all(map(torch.equal, given_scores, scores))
    program.reset()
    assert generated(program, PROMPT, NEW)[0] == tokens
