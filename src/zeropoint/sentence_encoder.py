"""Sentence encoders from program files: texts in, vectors out, without PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from zeropoint.described import described
from zeropoint.regular_file import Path
from zeropoint.runtime import Program, load as load_program
from zeropoint.safetensors_header import read_entry
from zeropoint.tokenizer_json import tokenizer_of

ENTRY = "zeropoint.sentence_encoder"  # of the metadata of a program file
_LENGTHS = 8  # texts are padded to a multiple of it, so that programs meet few shapes
_TOGETHER = 1024  # tokens that run as one call: more of them, and values between layers leave the caches
_MOST = 1 << 20


@dataclass(frozen=True)
class About:
    """What a program file says about its encoder beside the program.

    Args:
        width: of a vector.
        max_tokens: of a text; what is beyond is cut off, as sentence-transformers does.
        padding: the token behind shorter texts.
        lowercase: texts are made so first.
        prompts: texts that are put in front of texts, by name.
        default_prompt: the name of the one that is used unless another is named.
        tokenizer: the tokenizer.json.
    """

    width: int
    max_tokens: int
    padding: int = 0
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    tokenizer: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name, least in (("width", 1), ("max_tokens", 1), ("padding", 0)):
            number = getattr(self, name)
            if type(number) is not int or not least <= number < _MOST:
                raise ValueError(f"{name} is {described(number)}")
        texts = [self.tokenizer, *self.prompts, *self.prompts.values()]
        if not all(isinstance(text, str) for text in texts) or type(self.lowercase) is not bool:
            raise TypeError("tokenizer and prompts are texts, lowercase is True or False")
        if self.default_prompt is not None and self.default_prompt not in self.prompts:
            raise ValueError("default_prompt is no name of a prompt")

    def text(self) -> str:
        """The entry of metadata."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: Path) -> About:
        """What a file says.

        Raises:
            OSError: if it cannot be read.
            ValueError: if it is no program of a sentence encoder.
        """
        maker = "zeropoint.integrations.sentence_transformers.compile_encoder"
        return read_entry(path, ENTRY, lambda facts: cls(**facts), "sentence encoder", maker)


def load(path: Path, *, memory_limit: int | None = None) -> SentenceEncoder:
    """Load a sentence encoder.

    Args:
        memory_limit: as for `zeropoint.runtime.load`.

    Raises:
        ImportError: if the package tokenizers is missing.
        OSError: if the file cannot be read.
        ValueError: if it is no sentence encoder, or is damaged.

    Example: ``load("minilm.zpt").encode(["A sentence.", "Another one."])``
    """
    about, program = About.read(path), load_program(path, memory_limit=memory_limit)
    takes = [(dtype, len(shape)) for _, dtype, shape in program.inputs]
    gives = [(dtype, len(shape), shape[-1:]) for _, dtype, shape in program.outputs]
    if takes != [("int64", 2)] * 2 or gives != [("float32", 2, (about.width,))]:
        raise ValueError(f"{path} is damaged: its program is not that of an encoder with vectors of {about.width}")
    return SentenceEncoder(program, about)


class SentenceEncoder:
    """Texts to vectors. Threads can share it.

    Args:
        run: a function of tokens and mask, int64 of shape (texts, tokens), that gives float32 (texts, width).
    """

    def __init__(self, run: Program | Callable[[Any, Any], Any], about: About) -> None:
        self.run, self.about = run, about
        self._tokenizer = tokenizer_of(about.tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(about.max_tokens)

    def __repr__(self) -> str:
        return f"SentenceEncoder({self.about})"

    def tokens(self, texts: Sequence[str], prompt_name: str | None = None) -> list[list[int]]:
        """The tokens of each text, with its prompt, cut to the most that the model takes.

        Raises:
            TypeError: for what is no text.
            ValueError: for an unknown name of a prompt.
        """
        wrong = next((text for text in texts if not isinstance(text, str)), None)
        if wrong is not None:
            raise TypeError(f"texts are of type str, got {described(wrong)}")
        name = self.about.default_prompt if prompt_name is None else prompt_name
        if name is not None and name not in self.about.prompts:
            raise ValueError(f"the encoder has no prompt {name!r}, only {', '.join(self.about.prompts) or 'none'}")
        front = "" if name is None else self.about.prompts[name]
        whole = [front + text for text in texts]
        if self.about.lowercase:
            whole = [text.lower() for text in whole]
        return [found.ids for found in self._tokenizer.encode_batch(whole)]

    def encode(self, texts: str | Sequence[str], *, prompt_name: str | None = None, batch_size: int = 32) -> np.ndarray:
        """A vector for each text, float32 of shape (texts, width); for one text alone, of shape (width,).

        Args:
            prompt_name: of the prompt that is put in front of each text.
            batch_size: the most texts that run together; texts of similar length do, and of long ones fewer.
        """
        if isinstance(texts, str):
            found: np.ndarray = self.encode([texts], prompt_name=prompt_name)[0]
            return found
        if type(batch_size) is not int or batch_size < 1:
            raise ValueError(f"batch_size must be a whole number, at least 1, got {batch_size!r}")
        rows = self.tokens(texts, prompt_name)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        made = np.empty((len(rows), self.about.width), np.float32)
        while order:  # from the longest on
            count = min(batch_size, max(1, _TOGETHER // max(1, len(rows[order[-1]]))))
            places, order = order[-count:], order[:-count]
            made[places] = self.run(*self._padded([rows[i] for i in places]))
        return made

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        most = max(map(len, rows))
        length = max(most, min(-(-most // _LENGTHS) * _LENGTHS, self.about.max_tokens))
        ids = np.full((len(rows), length), self.about.padding, np.int64)
        mask = np.zeros((len(rows), length), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        return ids, mask
