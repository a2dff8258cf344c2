"""Decoders with a cache: programs keep their state from call to call and give the tokens of the quantized graph."""

from __future__ import annotations

import copy
import functools
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from decoder_models import KINDS, WORDS, Decoder, decoder, generated
from torch import Tensor, nn

import zeropoint

PROMPT = torch.tensor([[3, 14, 15, 9, 2, 6]])
NEW = 8
MODES: dict[str, dict[str, Any]] = {
    "static": {"mode": "static", "calibration": [PROMPT, PROMPT.flip(1)]},
    "dynamic": {"mode": "dynamic"},
    "weight_only": {"mode": "weight_only"},
    "int4": {"mode": "weight_only", "qconfig": zeropoint.float_qparams_weight_only_qconfig_4bit},
}


@functools.cache
def _quantized(kind: str, mode: str) -> Any:
    return zeropoint.to_int8(decoder(kind), (PROMPT,), progress=False, **MODES[mode])


def quantized(kind: str, mode: str) -> Any:
    """A copy of its own, which has not run yet."""
    return copy.deepcopy(_quantized(kind, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_programs_give_the_scores_of_the_graph_token_by_token(kind: str, mode: str, tmp_path: Path) -> None:
    model = quantized(kind, mode)
    tokens, scores = generated(model, PROMPT, NEW)
    program = zeropoint.compile(model, (PROMPT,))
    found, programs_scores = generated(program, PROMPT, NEW)
    assert found == tokens
    assert all(map(torch.equal, programs_scores, scores))
    program.save(tmp_path / "decoder.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "decoder.zpt")
    assert all(map(torch.equal, generated(lambda x: torch.from_numpy(loaded(x.numpy())), PROMPT, NEW)[1], scores))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_gives_what_all_words_at_once_give(kind: str) -> None:
    program = zeropoint.compile(quantized(kind, "weight_only"), (PROMPT,))
    words = torch.arange(12).reshape(1, 12) % WORDS
    at_once = program(words)
    program.reset()
    parts = [program(words[:, :5]), *(program(words[:, i : i + 1]) for i in range(5, 12))]
    # Sums of float matrix products have one order for each row; those over the cache are of the same places.
    assert torch.allclose(torch.cat(parts, 1), at_once, atol=1e-5)


def test_the_graph_is_as_near_to_float_as_a_decoder_without_cache_would_be() -> None:
    """From step to step nothing adds up: 8-bit weights are 40 dB away in the first call and in the last."""
    _, expected = generated(decoder("gpt"), PROMPT, 1)
    model = quantized("gpt", "weight_only")
    with torch.no_grad():
        first = model(PROMPT)
    noise = (first - expected[0]).square().mean()
    assert 10 * torch.log10(expected[0].square().mean() / noise) > 35


def test_reset_begins_anew() -> None:
    model = quantized("gpt", "weight_only")
    program = zeropoint.compile(model, (PROMPT,))
    for runs in (model, program):
        first = generated(runs, PROMPT, NEW)[0]
        assert not torch.equal(runs(PROMPT[:, :2]), runs(PROMPT[:, :2]))
        runs.reset()
        assert generated(runs, PROMPT, NEW)[0] == first
        runs.reset()


def test_a_copy_has_a_state_of_its_own() -> None:
    program = zeropoint.compile(quantized("gpt", "weight_only"), (PROMPT,))
    alone = generated(program, PROMPT, NEW)[1]
    program.reset()
    one, other = program.copy(), program.copy()
    one(PROMPT)
    assert torch.equal(other(PROMPT), alone[0])
    assert torch.equal(program(PROMPT), alone[0])
    assert torch.equal(one(alone[0][:, -1:].argmax(-1)), alone[1])


def test_to_int8_and_compile_leave_the_model_and_the_graph_as_they_were() -> None:
    model = decoder("gpt")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = zeropoint.to_int8(model, (PROMPT,), progress=False, **MODES["static"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    graph(PROMPT)
    expected = copy.deepcopy(graph)(PROMPT[:, :1])
    zeropoint.compile(graph, (PROMPT,))
    assert torch.equal(graph(PROMPT[:, :1]), expected)


def test_a_program_of_a_graph_that_has_run_begins_at_the_beginning() -> None:
    model = quantized("gpt", "weight_only")
    expected = model(PROMPT)
    assert torch.equal(zeropoint.compile(model, (PROMPT,))(PROMPT), expected)


def test_graphs_with_state_are_pickled() -> None:
    model = quantized("gpt", "weight_only")
    expected = generated(model, PROMPT, NEW)[1]
    again = pickle.loads(pickle.dumps(model))
    again.reset()
    assert all(map(torch.equal, generated(again, PROMPT, NEW)[1], expected))


def test_an_initial_state_that_is_not_zero_is_stored(tmp_path: Path) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("total", torch.tensor([[1.0, 2.0, 3.0, 4.0]]))

        def forward(self, x: Tensor) -> Tensor:
            self.total += x
            return self.layer(self.total)

    x = torch.ones(1, 4)
    model = zeropoint.to_int8(Counter().eval(), (x,), mode="dynamic", progress=False)
    program = zeropoint.compile(model, (x,))
    program.save(tmp_path / "counter.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "counter.zpt")
    for _ in range(3):
        expected = model(x)
        assert torch.equal(program(x), expected)
        assert torch.equal(torch.from_numpy(loaded(x.numpy())), expected)
    assert loaded.state == [("total", "float32", (1, 4))]
    model.reset()
    loaded.reset()
    assert torch.equal(torch.from_numpy(loaded(x.numpy())), model(x))


def test_a_cache_is_written_where_it_is() -> None:
    """Memory for a run does not grow with the cache: nothing copies it."""
    sizes = []
    for length in (64, 4096):
        torch.manual_seed(0)
        model = zeropoint.to_int8(Decoder(length).eval(), (PROMPT,), mode="weight_only", progress=False)
        program = zeropoint.compile(model, (PROMPT[:, :1],))
        sizes.append(program.memory((1, 1)).values)
        cache = 4 * length * 32
    assert sizes[1] - sizes[0] < 4 * cache  # scores and masks grow, four bytes a place; two layers have four caches


def test_more_words_than_the_cache_holds_are_refused_and_change_nothing() -> None:
    program = zeropoint.compile(quantized("llama", "weight_only"), (PROMPT,))
    words = torch.arange(20).reshape(1, 20)
    program(words)
    follows = program.copy()
    follows(words)
    with pytest.raises(ValueError, match=r"index 24 is outside an axis of 24"):
        program(words[:, :6])
    assert torch.equal(program(words[:, :2]), follows(words[:, :2]))
