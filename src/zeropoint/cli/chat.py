"""zeropoint chat"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from zeropoint.cli.output import note, work
from zeropoint.cli.paths import existing
from zeropoint.terminal_text import printable


def chat(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A .zpt file of a language model.")],
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="Answer this message and end, instead of a conversation.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="What the model is told before the first message.")] = (
        None
    ),
    complete: Annotated[
        bool, typer.Option("--complete", help="Continue each text as it stands, without the format of a conversation.")
    ] = False,
    max_new: Annotated[int, typer.Option("--max-new", help="The most tokens of an answer.")] = 512,
    temperature: Annotated[float, typer.Option("--temperature", help="0 always takes the most likely token.")] = 0.7,
    top_p: Annotated[float, typer.Option("--top-p", help="Only the most likely tokens of this probability.")] = 0.95,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="For the same answer again.")] = None,
    draft: Annotated[
        int, typer.Option("--draft", min=0, help="Tokens that are guessed from earlier text at most.")
    ] = 0,
) -> None:
    """Talk to a language model, without PyTorch. Each line of the input is a message; an empty one ends.

    Example: `zeropoint quantize model.gguf -o model.zpt && zeropoint chat model.zpt`
    """
    path = existing(model)
    with work(False):
        from zeropoint import generation

        loaded = generation.load(path)
        options: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "seed": seed, "draft": draft}
        messages = [] if system is None else [{"role": "system", "content": system}]
        for text in [message] if message is not None else _lines():
            if complete:
                _answer(loaded, loaded.generate(text, max_new, stream=True, **options))
                continue
            messages.append({"role": "user", "content": text})
            answer = _answer(loaded, loaded.chat(messages, max_new, stream=True, **options))
            messages.append({"role": "assistant", "content": answer})


def _lines() -> Iterator[str]:
    """Lines that a person or a file gives, until an empty one."""
    while True:
        if sys.stdin.isatty():
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = sys.stdin.readline().strip()
        if not line:
            return
        yield line


def _answer(model: Any, pieces: Iterator[str]) -> str:
    """Print an answer as it comes, and how fast that was; gives its text."""
    start, text, first = time.perf_counter(), "", None
    for piece in pieces:
        first = first or time.perf_counter()
        text += piece
        sys.stdout.write(printable(piece))
        sys.stdout.flush()
    sys.stdout.write("\n")
    if first is not None:
        count, seconds = len(model.encode(text)), time.perf_counter() - first
        note(f"{first - start:.2f} s to the first word, then {count / max(seconds, 1e-9):.0f} tokens/s")
    return text
