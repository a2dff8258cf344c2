"""A language model from a program file: text or tokens in, text or tokens out, without PyTorch."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zeropoint.generation.about import About
from zeropoint.generation.sampling import Sampling
from zeropoint.generation.saved_cache import fingerprint_of, read_cache, write_cache
from zeropoint.generation.scheduler import Request, Scheduler
from zeropoint.generation.text_stream import TextStream
from zeropoint.regular_file import Path, open_regular
from zeropoint.runtime import Program, load as load_program
from zeropoint.tokenizer_json import tokenizer_of

Prompt = str | Sequence[int]
Message = Mapping[str, str]


def load(path: Path, *, memory_limit: int | None = None, in_place: bool = False) -> LanguageModel:
    """Load a language model.

    Args:
        memory_limit: as for `zeropoint.runtime.load`.
        in_place: use the weights where the file is mapped, which takes no time, and memory that other processes share;
            the file must not change meanwhile. Else they are copied to large pages, from which they are read faster.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is no language model, or is damaged.

    Example: ``load("model.zpt").generate("The capital of France is", max_new=8)``
    """
    with open_regular(path) as file:
        if file.read(4) == b"GGUF":
            raise ValueError(f"{path} is a GGUF file: make a program of it with compile_decoder, or zeropoint quantize")
    about = About.read(path)
    program = load_program(path, memory_limit=memory_limit, in_place=in_place)
    return LanguageModel(program, about, fingerprint_of(path))


class LanguageModel:
    """A decoder with its cache and tokenizer. Threads can share it: their requests run side by side.

    Text needs the package ``tokenizers``; tokens do not.
    """

    def __init__(self, program: Program, about: About, fingerprint: str = "") -> None:
        self.program, self.about = program, about
        self._fingerprint = fingerprint
        self._tokenizer: Any = None
        self._lock = threading.Lock()
        self._scheduler = Scheduler(self.logits, about.sequences, about.context)

    def __repr__(self) -> str:
        return (
            f"LanguageModel({self.about.family}, context {self.about.context}, sequences {self.about.sequences},"
            f" {self.program.memory().file:,} bytes)"
        )

    def logits(self, ids: np.ndarray, positions: np.ndarray, sequences: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Run tokens, each at a position of a sequence of the cache.

        Args:
            wanted: the numbers of those tokens whose logits are wanted.

        Returns:
            float32 of shape (wanted, vocabulary).
        """
        found: np.ndarray = self.program(ids, positions, sequences, wanted)
        return found

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, of the package ``tokenizers``.

        Raises:
            ImportError: if the package is missing.
            ValueError: if the file has none, or a damaged one.
        """
        if self._tokenizer is None:
            self._tokenizer = _tokenizer_of(self.about)
        return self._tokenizer

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt, with the one that prompts begin with, if there is one. Marks such as
        ``<|im_start|>`` are tokens.
        """
        return [*self._begin(), *self._encoded(text, marks=True)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without marks."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def chat_prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation. What messages contain is text: a mark in it has no effect.

        Raises:
            ValueError: if the model has no known chat format, or for a wrong message.
        """
        if self.about.chat is None:
            raise ValueError(
                "the model has no chat format that zeropoint knows: write the prompt yourself, and use generate()"
            )
        parts = self.about.chat.parts(messages)
        return [*self._begin(), *(token for text, marks in parts for token in self._encoded(text, marks))]

    def _begin(self) -> list[int]:
        return [] if self.about.begin is None else [self.about.begin]

    def _encoded(self, text: str, marks: bool) -> list[int]:
        tokenizer = self.tokenizer
        with self._lock:
            tokenizer.encode_special_tokens = not marks
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def generate(
        self,
        prompt: Prompt,
        max_new: int = 256,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        draft: int = 0,
        stream: bool = False,
    ) -> Any:
        """Continue a prompt.

        Args:
            prompt: text, or tokens.
            max_new: the most tokens that are made.
            temperature: 0 always takes the most likely token; larger numbers vary more.
            top_k: only so many of the most likely tokens; 0 is all.
            top_p: only the most likely tokens that together have this probability.
            min_p: only tokens with this share of the largest probability.
            seed: of the random numbers; None is a new one in each call.
            stop: texts that end the answer; they are not part of it.
            draft: guess so many tokens from earlier text, and check them in one step. The answer is the same.
            stream: give an iterator of pieces.

        Returns:
            The text that follows, or for a prompt of tokens a list of tokens; with `stream` pieces of text, or tokens.

        Raises:
            ValueError: for a prompt that is empty or longer than the context, or a number out of range.
        """
        texts = _several(stop)
        is_text = isinstance(prompt, str)
        if texts and not is_text:
            raise ValueError("stop texts need a prompt of text, not of tokens")
        sampling = Sampling(temperature, top_k, top_p, min_p)
        made = self._tokens(self._request(prompt, max_new, sampling, seed, draft))
        pieces: Iterator[Any] = self._text_of(made, texts) if is_text else made
        if stream:
            return pieces
        return "".join(pieces) if is_text else list(pieces)

    def chat(self, messages: str | Sequence[Message], max_new: int = 512, **options: Any) -> Any:
        """Answer a conversation, or one message of a user. The options are those of `generate`.

        Raises:
            ValueError: as `generate`, and if the model has no known chat format.
        """
        given: Sequence[Message] = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        tokens = self.chat_prompt(given)
        stop = options.pop("stop", ())
        stream = options.pop("stream", False)
        made = self.generate(tokens, max_new, stream=True, **options)
        pieces = self._text_of(made, _several(stop))
        return pieces if stream else "".join(pieces)

    def generate_all(
        self,
        prompts: Sequence[Prompt],
        max_new: int = 256,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int | None = None,
        draft: int = 0,
    ) -> list[Any]:
        """Continue several prompts side by side, which takes less time than one after the other. For the arguments see
        `generate`; each prompt has random numbers of its own, from the same seed.

        Returns:
            A text or a list of tokens for each.
        """
        if isinstance(prompts, (str, bytes)):
            raise TypeError("prompts must be a list of texts or of tokens, got one text: use generate() for it")
        sampling = Sampling(temperature, top_k, top_p, min_p)
        requests = [self._request(prompt, max_new, sampling, seed, draft) for prompt in prompts]
        with self._lock:
            for request in requests:
                self._scheduler.add(request)
        try:
            made = [list(self._tokens(request)) for request in requests]
        finally:
            with self._lock:
                for request in requests:
                    self._scheduler.remove(request)
        return [self.decode(ids) if isinstance(prompt, str) else ids for prompt, ids in zip(prompts, made)]

    def save_cache(self, path: Path) -> None:
        """Write what the cache has of ended requests, for `load_cache`: a long prompt is then not run again.

        Raises:
            OSError: if the file cannot be written.
        """
        with self._lock:
            idle = {n: self._scheduler.cached[n] for n in self._scheduler.idle if self._scheduler.cached[n]}
            write_cache(path, self.program, self._fingerprint, idle)

    def load_cache(self, path: Path) -> None:
        """Take what `save_cache` wrote. What the cache had is lost.

        Raises:
            OSError: if the file cannot be read.
            ValueError: if it is damaged, or of another model.
            RuntimeError: while requests run.
        """
        with self._lock:
            if len(self._scheduler.idle) < self.about.sequences:
                raise RuntimeError("load_cache must not be called while requests run")
            limits = self.about.sequences, self.about.context
            found = read_cache(path, self.program, self._fingerprint, *limits)
            for sequence, cached in enumerate(self._scheduler.cached):
                cached[:] = found[sequence] if sequence < len(found) else []

    def _request(self, prompt: Prompt, max_new: int, sampling: Sampling, seed: int | None, draft: int) -> Request:
        if isinstance(prompt, bytes):
            raise TypeError("a prompt must be text or a list of tokens, got bytes: use bytes.decode()")
        ids = self.encode(prompt) if isinstance(prompt, str) else self._checked(prompt)
        random = np.random.default_rng(seed)
        request = Request(ids, max_new, sampling, random, frozenset(self.about.ends), draft)
        self._scheduler.check(request)
        return request

    def _checked(self, ids: Sequence[int]) -> list[int]:
        found = [int(n) for n in ids]
        vocabulary = self.program.outputs[0][2][-1]
        wrong = next((n for n in found if not 0 <= n < vocabulary), None)
        if wrong is not None:
            raise ValueError(f"the token {wrong} is outside the vocabulary of {vocabulary}")
        return found

    def _tokens(self, request: Request) -> Iterator[int]:
        """The tokens of a request, as they come. Whoever waits runs the next step, for all requests."""
        told = 0
        with self._lock:
            self._scheduler.add(request)
        try:
            while True:
                with self._lock:
                    while told == len(request.made) and not request.finished:
                        self._scheduler.step()
                    new = request.made[told:]
                if not new:
                    return
                told += len(new)
                yield from new
        finally:
            with self._lock:
                self._scheduler.remove(request)

    def _text_of(self, tokens: Iterator[int], stop: Sequence[str]) -> Iterator[str]:
        text = TextStream(self.decode, stop)
        try:
            for token in tokens:
                if piece := text.push(token):
                    yield piece
                if text.stopped:
                    return
            if piece := text.rest():
                yield piece
        finally:
            tokens.close()  # type: ignore[attr-defined]


def _several(stop: str | Sequence[str]) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _tokenizer_of(about: About) -> Any:
    if not about.tokenizer:
        raise ValueError("the file has no tokenizer: pass tokens instead of text")
    return tokenizer_of(about.tokenizer)
