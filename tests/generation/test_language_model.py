"""Language models: text in, text out; many requests at once; the same tokens however they were made."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from gguf_files import WORDS, decoder_file

from zeropoint import generation
from zeropoint.generation.chat_format import ChatFormat, recognized
from zeropoint.generation.drafts import draft_of
from zeropoint.generation.sampling import Sampling
from zeropoint.generation.text_stream import TextStream

pytest.importorskip("tokenizers")
PROMPT = [7, 12, 5, 30, 9]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    generation.compile_decoder(decoder_file(folder / "a.gguf"), folder / "a.zpt", sequences=3)
    return folder / "a.zpt"


@pytest.fixture
def model(path: Path) -> generation.LanguageModel:
    return generation.load(path)


def by_hand(model: generation.LanguageModel, prompt: list[int], count: int) -> list[int]:
    """The most likely tokens, one call after the other in the last sequence."""
    tokens, new, at = list(prompt), list(prompt), 0
    for _ in range(count):
        places = np.arange(at, at + len(new))
        row = model.logits(np.array(new), places, np.full(len(new), 2), np.array([len(new) - 1]))
        at, new = at + len(new), [int(row[0].argmax())]
        tokens += new
    return tokens[len(prompt) :]


def test_tokens_are_the_most_likely_ones(model: generation.LanguageModel) -> None:
    want = by_hand(model, PROMPT, 20)
    found = model.generate(PROMPT, 20)
    end = next((at for at, token in enumerate(want) if token in model.about.ends), 20)
    assert found == want[:end]


def test_stream_gives_what_the_call_gives(model: generation.LanguageModel) -> None:
    assert list(model.generate(PROMPT, 12, stream=True)) == model.generate(PROMPT, 12)
    assert "".join(model.generate("abc", 12, stream=True)) == model.generate("abc", 12)


def test_requests_side_by_side_give_what_they_give_alone(model: generation.LanguageModel) -> None:
    prompts = [[7 + n, *PROMPT[: 1 + n % 4]] for n in range(7)]  # more than there are sequences
    alone = [model.generate(prompt, 5 + n) for n, prompt in enumerate(prompts)]
    assert model.generate_all(prompts, 11)[0][:5] == alone[0]
    together = model.generate_all(prompts, 6)
    assert [row[:5] for row in together] == [row[:5] for row in alone]


def test_threads_share_a_model(model: generation.LanguageModel) -> None:
    prompts = [[n, 9, n] for n in range(5, 13)]
    want = [model.generate(prompt, 15) for prompt in prompts]
    found: dict[int, list[int]] = {}

    def run(number: int) -> None:
        found[number] = model.generate(prompts[number], 15)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[number] for number in range(8)] == want


def test_beginning_that_is_in_the_cache_is_not_run_again(
    model: generation.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    forward = model._scheduler._forward
    monkeypatch.setattr(model._scheduler, "_forward", lambda *parts: (counts.append(len(parts[0])), forward(*parts))[1])
    first = model.generate(PROMPT, 4)
    assert counts[0] == len(PROMPT)
    counts.clear()
    again = model.generate([*PROMPT, *first, 8], 4)
    assert counts[0] <= 2  # the last token of the answer was not run, nor was the new one
    fresh = generation.LanguageModel(model.program.copy(), model.about)
    assert fresh.generate([*PROMPT, *first, 8], 4) == again


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 5, "top_k": 6}])
def test_guesses_do_not_change_the_answer(model: generation.LanguageModel, options: dict[str, float]) -> None:
    prompt = [7, 8, 9, 10, 7, 8, 9, 10, 7, 8]
    assert model.generate(prompt, 40, draft=5, **options) == model.generate(prompt, 40, **options)


def test_guesses_repeat_what_came_before() -> None:
    assert draft_of([5, 6, 7, 8, 1, 5, 6], 3) == [7, 8, 1]
    assert draft_of([5, 6, 7], 3) == []


def test_seed_decides_the_answer(model: generation.LanguageModel) -> None:
    first = model.generate(PROMPT, 20, temperature=2.0, seed=1)
    assert model.generate(PROMPT, 20, temperature=2.0, seed=1) == first
    assert any(model.generate(PROMPT, 20, temperature=2.0, seed=n) != first for n in range(2, 6))


def test_sampling_keeps_what_it_says() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))
    draws = np.random.default_rng(0)

    def seen(**options: float) -> set[int]:
        return {Sampling(temperature=1.0, **options).choose(logits, draws) for _ in range(300)}  # type: ignore[arg-type]

    assert seen() == {0, 1, 2, 3}
    assert seen(top_k=2) == {0, 1}
    assert seen(top_p=0.6) == {0, 1}
    assert seen(top_p=0.5) == {0}
    assert seen(min_p=0.4) == {0, 1}
    assert seen(top_p=0.0) == {0}
    shares = [Sampling(temperature=1.0).choose(logits, draws) for _ in range(4000)]
    assert abs(shares.count(0) / 4000 - 0.5) < 0.04
    with pytest.raises(FloatingPointError, match="not finite"):
        Sampling().choose(np.full(3, np.nan, np.float32), draws)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "no tokens"),
        ([5] * 64, {}, "64 tokens, and the context of the model is 64"),
        ([40], {}, "token 40 is outside the vocabulary of 40"),
        ([5], {"max_new": 0}, "max_new must be at least 1"),
        ([5], {"top_p": 1.5}, "top_p must be from 0 to 1"),
        ([5], {"temperature": -1}, "temperature must be"),
        ([5], {"stop": "x"}, "stop texts need a prompt of text"),
    ],
)
def test_wrong_argument_is_refused(
    model: generation.LanguageModel, prompt: list[int], options: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model.generate(prompt, **options)


def test_answer_ends_where_the_context_does(model: generation.LanguageModel) -> None:
    found = model.generate([5] * 60, 100, temperature=1.0, seed=0)
    assert len(found) <= 4


def test_stream_that_is_left_frees_its_sequence(model: generation.LanguageModel) -> None:
    for _ in range(5):  # there are three
        stream = model.generate(PROMPT, 50, temperature=3.0, stream=True, seed=3)
        next(stream)
        stream.close()
    assert len(model.generate_all([PROMPT] * 3, 3)) == 3


def test_stop_text_ends_the_answer() -> None:
    def pieces(texts: list[str], stop: list[str]) -> tuple[str, bool]:
        stream = TextStream(lambda ids: "".join(texts[n] for n in ids), stop)
        found = ""
        for n in range(len(texts)):
            found += stream.push(n)
            if stream.stopped:
                return found, True
        return found + stream.rest(), stream.stopped

    assert pieces(["one ", "tw", "o thr", "ee"], ["two"]) == ("one ", True)
    assert pieces(["one ", "tw", "ist"], ["two"]) == ("one twist", False)
    assert pieces(["one ", "tw"], ["two"]) == ("one tw", False)
    assert pieces(["one"], []) == ("one", False)


def test_pieces_do_not_end_inside_a_character() -> None:
    raw = "a\u00e9\u4e2d.".encode()
    stream = TextStream(lambda ids: bytes(raw[n] for n in ids).decode("utf-8", "replace"), [])
    found = [stream.push(n) for n in range(len(raw))]
    assert "".join(found) + stream.rest() == "a\u00e9\u4e2d."
    assert all("\ufffd" not in piece for piece in found)


def test_chat_writes_the_marks_of_the_format(model: generation.LanguageModel) -> None:
    tokens = model.chat_prompt([{"role": "user", "content": "abc"}])
    assert tokens[0] == tokens[-len("assistant") - 2 :][0] == WORDS.index("<|im_start|>")
    assert tokens.count(WORDS.index("<|im_end|>")) == 1
    assert isinstance(model.chat("abc", 5), str)


def test_marks_inside_a_message_are_text(model: generation.LanguageModel) -> None:
    tokens = model.chat_prompt([{"role": "user", "content": "<|im_end|>"}])
    assert tokens.count(WORDS.index("<|im_end|>")) == 1
    assert model.encode("<|im_end|>") == [WORDS.index("<|im_end|>")]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("<|im_start|>", "chatml"),
        ("<|start_header_id|>user<|end_header_id|>", "llama3"),
        ("<start_of_turn>", "gemma"),
        ("<|user|> <|end|>", "phi3"),
        ("<|user|> <|assistant|>", "zephyr"),
        ("[INST] [/INST]", "mistral"),
    ],
)
def test_known_templates_are_recognized(template: str, name: str) -> None:
    form = recognized(template)
    assert form is not None
    assert form.name == name
    assert ChatFormat.of(json.loads(json.dumps(form.facts()))).parts([{"role": "user", "content": "x"}])


def test_default_system_message_is_taken_from_the_template() -> None:
    form = recognized("{% if x %}{{ '<|im_start|>system\nYou are kind.<|im_end|>\n' }}{% endif %}<|im_start|>user")
    assert form is not None
    assert form.system == "You are kind."
    assert form.parts([{"role": "user", "content": "x"}])[1] == ("You are kind.", False)


def test_unknown_template_is_none_and_chat_says_so(tmp_path: Path) -> None:
    assert recognized("{{ messages }}") is None
    entries = {"tokenizer.chat_template": "{{ messages }}"}
    generation.compile_decoder(decoder_file(tmp_path / "a.gguf", entries=entries), tmp_path / "a.zpt")
    with pytest.raises(ValueError, match="no chat format that zeropoint knows"):
        generation.load(tmp_path / "a.zpt").chat("hello")


@pytest.mark.parametrize("message", [{"role": "robot", "content": "x"}, {"role": "user", "content": 5}, {}])
def test_wrong_message_is_refused(model: generation.LanguageModel, message: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a message must be"):
        model.chat_prompt([message])  # type: ignore[list-item]


def test_other_program_is_refused() -> None:
    golden = Path(__file__).parents[1] / "golden" / "programs" / "moved.zpt"
    with pytest.raises(ValueError, match="is no language model"):
        generation.load(golden)


@pytest.mark.parametrize(
    "change",
    [
        {"context": "64"},
        {"sequences": 0},
        {"ends": [-1]},
        {"chat": {"name": 3}},
        {"tokenizer": None},
        {"begin": True},
    ],
)
def test_damaged_description_is_refused(path: Path, tmp_path: Path, change: dict[str, object]) -> None:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header["__metadata__"]["zeropoint.generation"]) | change
    header["__metadata__"]["zeropoint.generation"] = json.dumps(about)
    made = json.dumps(header).encode()
    (tmp_path / "b.zpt").write_bytes(struct.pack("<Q", len(made)) + made + content[8 + length :])
    with pytest.raises(ValueError, match="is damaged"):
        generation.load(tmp_path / "b.zpt")


def test_model_runs_without_torch(path: Path) -> None:
    code = (
        "import sys; from zeropoint import generation; m = generation.load(sys.argv[1]);"
        " print(m.generate([7, 12], 3)); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[")


def test_wrong_option_of_compilation_is_refused(tmp_path: Path) -> None:
    source = decoder_file(tmp_path / "a.gguf")
    for options in ({"bits": 3}, {"group": 48}, {"cache": "int4"}, {"context": 0}, {"sequences": "2"}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
            generation.compile_decoder(source, tmp_path / "a.zpt", **options)  # type: ignore[arg-type]


def test_saved_cache_goes_on_in_another_process(path: Path, tmp_path: Path) -> None:
    first = generation.load(path)
    answer = first.generate(PROMPT, 10)
    first.generate([20, 21, 22], 3)
    first.save_cache(tmp_path / "cache")
    prompt = [*PROMPT, *answer, 9, 8]
    want = generation.load(path).generate(prompt, 8)
    second = generation.load(path)
    second.load_cache(tmp_path / "cache")
    counts: list[int] = []
    forward = second._scheduler._forward
    second._scheduler._forward = lambda *parts: (counts.append(len(parts[0])), forward(*parts))[1]
    assert second.generate(prompt, 8) == want
    assert counts[0] <= 3


def test_cache_of_another_model_or_a_damaged_one_is_refused(path: Path, tmp_path: Path) -> None:
    model = generation.load(path)
    model.generate(PROMPT, 4)
    model.save_cache(tmp_path / "cache")
    generation.compile_decoder(decoder_file(tmp_path / "b.gguf", seed=1), tmp_path / "b.zpt", sequences=3)
    with pytest.raises(ValueError, match="was saved by another model"):
        generation.load(tmp_path / "b.zpt").load_cache(tmp_path / "cache")
    content = (tmp_path / "cache").read_bytes()
    (tmp_path / "cut").write_bytes(content[:-10])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        model.load_cache(tmp_path / "cut")
    (tmp_path / "other").write_bytes(content.replace(b"[[7, 12", b"[[7,-12"))
    with pytest.raises(ValueError, match="is damaged: it has tokens"):
        model.load_cache(tmp_path / "other")
    with pytest.raises(ValueError, match="no saved cache"):
        model.load_cache(path)
    assert model.generate(PROMPT, 4)


def test_one_text_is_no_list_of_prompts(model: generation.LanguageModel) -> None:
    with pytest.raises(TypeError, match=r"use generate\(\) for it"):
        model.generate_all("the sky", 3)
    with pytest.raises(TypeError, match="got bytes"):
        model.generate(b"the sky", 3)  # type: ignore[arg-type]
