"""Programs of decoders: near to float64, the same bytes however the tokens come, and on every instruction set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from decoder_oracle import logits_of
from gguf_files import decoder_file

import zeropoint
from zeropoint import generation
from zeropoint.generation.gguf import Gguf
from zeropoint.generation.gguf_decoder import GgufWeights, gguf_decoder

FAMILIES = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "phi2", "gpt2")
IDS = [7, 12, 5, 30, 9, 9, 14, 22, 31, 6, 8, 17, 11, 25, 13, 28, 10, 19]
# Activations, keys and values are rounded to 8 bits: steps of 1/127 of the largest of a group, which for normal numbers
# leaves about 40 dB in each of some ten layers.
LEAST_DB = {"int8": 25, "float16": 27, "float32": 27}


def model_of(tmp_path: Path, family: str = "llama", form: str = "Q4_0", **options: object) -> generation.LanguageModel:
    path = decoder_file(tmp_path / f"{family}-{form}.gguf", family, form)
    output = tmp_path / "model.zpt"
    generation.compile_decoder(path, output, **options)  # type: ignore[arg-type]
    return generation.load(output)


def logits(model: generation.LanguageModel, ids: list[int], begin: int = 0, sequence: int = 0) -> np.ndarray:
    count = len(ids)
    every = np.arange(count)
    return model.logits(np.array(ids, np.int64), every + begin, np.full(count, sequence, np.int64), every)


def decibels(want: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10(np.square(want).sum() / np.square(want - got).sum()))


@pytest.mark.parametrize("cache", LEAST_DB)
@pytest.mark.parametrize("family", FAMILIES)
def test_program_is_near_float64(tmp_path: Path, family: str, cache: str) -> None:
    model = model_of(tmp_path, family, cache=cache)
    file = Gguf(tmp_path / f"{family}-Q4_0.gguf")
    decoder = gguf_decoder(file, None)
    want = logits_of(decoder, GgufWeights(file, decoder, 4, 32), IDS)
    assert decibels(want, logits(model, IDS)) > LEAST_DB[cache]


@pytest.mark.parametrize("form", ["Q4_1", "Q8_0", "F32"])
def test_formats_are_near_float64(tmp_path: Path, form: str) -> None:
    model = model_of(tmp_path, "llama", form, bits=8)
    file = Gguf(tmp_path / f"llama-{form}.gguf")
    decoder = gguf_decoder(file, None)
    want = logits_of(decoder, GgufWeights(file, decoder, 8, 32), IDS)
    assert decibels(want, logits(model, IDS)) > LEAST_DB["int8"]


def test_tokens_give_the_same_bytes_in_parts_alone_and_beside_others(tmp_path: Path) -> None:
    model = model_of(tmp_path, "qwen3")
    whole = logits(model, IDS)
    one_by_one = [logits(model, [token], at, 1) for at, token in enumerate(IDS)]
    assert np.array_equal(np.concatenate(one_by_one), whole)
    beside = [*IDS, *IDS[::-1]]
    places = np.concatenate([np.arange(len(IDS))] * 2)
    sequences = np.repeat([2, 3], len(IDS))
    both = model.logits(np.array(beside), places, sequences, np.arange(len(beside)))
    assert np.array_equal(both[: len(IDS)], whole)
    assert np.array_equal(both[len(IDS) :], logits(model, IDS[::-1]))


@pytest.mark.parametrize("form", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("cache", ["int8", "float16"])
def test_every_instruction_set_gives_the_same_bytes(tmp_path: Path, form: str, cache: str) -> None:
    want = logits(model_of(tmp_path, "llama", form, cache=cache), IDS)
    for isa in zeropoint.cpu_info().available:
        with zeropoint.use_isa(isa):
            assert np.array_equal(logits(generation.load(tmp_path / "model.zpt"), IDS), want), isa


def test_threads_give_the_same_bytes(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    before = zeropoint.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            zeropoint.set_num_threads(threads)
            found.append(logits(model, IDS))
    finally:
        zeropoint.set_num_threads(before)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ("position", "sequence", "message"),
    [(64, 0, "position 64 is outside a cache for 64 tokens"), (-1, 0, "position -1"), (0, 4, "sequence 4 is outside")],
)
def test_place_outside_the_cache_is_refused_and_the_cache_stays(
    tmp_path: Path, position: int, sequence: int, message: str
) -> None:
    model = model_of(tmp_path)
    logits(model, IDS[:4])
    with pytest.raises(ValueError, match=message):
        model.logits(np.array([3, 4]), np.array([1, position]), np.array([0, sequence]), np.array([0]))
    continued = logits(model, [IDS[4]], 4)
    assert np.array_equal(continued, logits(model, IDS[:5])[4:])


def test_token_without_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="index 40 is outside a table of 40 rows"):
        logits(model_of(tmp_path), [40])


def test_state_begins_anew_after_reset(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    first = logits(model, IDS)
    model.program.reset()
    again = logits(model, [IDS[1]], 1)
    assert not np.array_equal(again, first[1:2])
    assert np.array_equal(logits(model, IDS), first)


def test_program_says_what_it_is(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    assert [name for name, _, _ in model.program.inputs] == ["ids", "positions", "sequences", "wanted"]
    assert "llama" in repr(model)
    rows = model.program.profile(*[np.zeros(1, np.int64)] * 4, runs=1)
    assert {"group_gemm", "cache_attention"} <= {row.kernel for row in rows}
    assert {row.precision for row in rows if row.op == "group_linear"} == {"int8"}
    assert not any("multiply floats" in reason for reason in rows.advice)


def test_mapped_weights_give_the_same_bytes(tmp_path: Path) -> None:
    path = decoder_file(tmp_path / "a.gguf", words=20_000)  # more than a megabyte: less is not mapped
    generation.compile_decoder(path, tmp_path / "a.zpt")
    copied, mapped = (generation.load(tmp_path / "a.zpt", in_place=in_place) for in_place in (False, True))
    assert np.array_equal(logits(copied, IDS), logits(mapped, IDS))
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path / "a.zpt") in maps.read_text()
    again = tmp_path / "again.zpt"
    mapped.program.save(again)
    assert again.read_bytes() == (tmp_path / "a.zpt").read_bytes()
