"""What a program file says about its decoder beside the program: the metadata entry ``zeropoint.generation``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from zeropoint.generation.chat_format import ChatFormat
from zeropoint.regular_file import Path
from zeropoint.safetensors_header import read_entry

ENTRY = "zeropoint.generation"


@dataclass(frozen=True)
class About:
    """A decoder in a program file.

    Args:
        family: of models, for people.
        context: the most tokens of a sequence.
        sequences: how many the cache is for.
        begin: the token that every prompt begins with, or None.
        ends: the tokens that end an answer.
        chat: how messages become a prompt, or None.
        tokenizer: the tokenizer.json, or an empty text.
    """

    family: str
    context: int
    sequences: int
    begin: int | None = None
    ends: tuple[int, ...] = ()
    chat: ChatFormat | None = None
    tokenizer: str = field(default="", repr=False)

    def text(self) -> str:
        """The entry."""
        facts = {name: getattr(self, name) for name in ("family", "context", "sequences", "begin", "ends", "tokenizer")}
        return json.dumps(facts | {"chat": None if self.chat is None else self.chat.facts()})

    @classmethod
    def read(cls, path: Path) -> About:
        """What a file says.

        Raises:
            OSError: if it cannot be read.
            ValueError: if it is no program of a decoder.
        """
        maker = "`zeropoint quantize` from a GGUF file or a folder, or with zeropoint.generation.compile_decoder"
        return read_entry(path, ENTRY, cls._of, "language model", maker)

    @classmethod
    def _of(cls, facts: Any) -> About:
        numbers = [facts["context"], facts["sequences"], *facts["ends"]]
        if facts["begin"] is not None:
            numbers.append(facts["begin"])
        if not all(type(n) is int and 0 <= n < 1 << 32 for n in numbers) or min(numbers[:2]) < 1:
            raise ValueError("numbers")
        if not isinstance(facts["family"], str) or not isinstance(facts["tokenizer"], str):
            raise TypeError("texts")
        chat = None if facts["chat"] is None else ChatFormat.of(facts["chat"])
        named = {name: facts[name] for name in ("family", "context", "sequences", "begin", "tokenizer")}
        return cls(**named, ends=tuple(facts["ends"]), chat=chat)
