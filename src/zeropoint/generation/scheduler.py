"""Requests that share a decoder: each has a sequence of the cache, and every step runs the next tokens of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from zeropoint.generation.drafts import draft_of
from zeropoint.generation.sampling import Sampling

MOST_TOKENS = 512  # of a step

# Logits of the wanted tokens, from ids, positions, sequences and the numbers of the wanted.
Forward = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(eq=False)
class Request:
    """A prompt and what follows it.

    Args:
        prompt: its tokens.
        max_new: the most tokens that follow.
        ends: tokens that end the answer; they are not part of it.
        draft: how many tokens are guessed at most, see `drafts.py`. The answer is the same.
    """

    prompt: Sequence[int]
    max_new: int
    sampling: Sampling
    random: np.random.Generator
    ends: frozenset[int] = frozenset()
    draft: int = 0
    made: list[int] = field(default_factory=list)
    finished: str = ""  # "stop" or "length"
    sequence: int = -1

    def tokens(self) -> list[int]:
        """The prompt and the answer so far."""
        return [*self.prompt, *self.made]


class Scheduler:
    """Runs requests side by side. A request that waits for a free sequence of the cache begins when there is one, where
    the longest beginning of its prompt is in the cache already.

    Args:
        forward: the decoder.
        sequences: how many the cache has.
        context: the most tokens of each.
    """

    def __init__(self, forward: Forward, sequences: int, context: int) -> None:
        self._forward, self._context = forward, context
        self._cached: list[list[int]] = [[] for _ in range(sequences)]  # the tokens of each
        self._free = list(range(sequences))
        self._waiting: list[Request] = []
        self._running: list[Request] = []

    @property
    def cached(self) -> list[list[int]]:
        """The tokens whose keys and values each sequence has."""
        return self._cached

    @property
    def idle(self) -> list[int]:
        """The sequences that no request has."""
        return self._free

    def check(self, request: Request) -> None:
        """Refuse a request that cannot run.

        Raises:
            ValueError: if its prompt is empty, or has no room in the context.
        """
        if not request.prompt:
            raise ValueError("the prompt has no tokens")
        if len(request.prompt) >= self._context:
            raise ValueError(
                f"the prompt has {len(request.prompt)} tokens, and the context of the model is {self._context}: use a"
                " shorter one, or compile the model with a larger context"
            )
        if request.max_new < 1:
            raise ValueError(f"max_new must be at least 1, got {request.max_new}")

    def add(self, request: Request) -> None:
        """Let a request that was checked run, if it does not already."""
        if request not in self._waiting and request not in self._running and not request.finished:
            self._waiting.append(request)

    def remove(self, request: Request) -> None:
        """Forget a request, wherever it is."""
        if request in self._waiting:
            self._waiting.remove(request)
        if request in self._running:
            self._end(request, request.finished or "length")

    def step(self) -> None:
        """Run the next tokens of every request: one behind an answer, guesses behind it, or parts of prompts."""
        self._begin_waiting()
        ids: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        wanted: list[int] = []
        parts: list[tuple[Request, list[int], int]] = []  # the request, its guesses, and logits that are wanted
        for request in sorted(self._running, key=lambda r: len(r.tokens()) - len(self._cached[r.sequence])):
            room = MOST_TOKENS - len(ids)
            if room <= 0:
                break
            cached, tokens = self._cached[request.sequence], request.tokens()
            new = tokens[len(cached) :]
            pending = len(new)
            new = [*new, *(self._guesses(request, tokens) if pending == 1 else [])][:room]
            guesses = new[pending:]
            reached = len(cached) + len(new) >= len(tokens)
            count = 1 + len(guesses) if reached else 0
            wanted += range(len(ids) + len(new) - count, len(ids) + len(new))
            positions += range(len(cached), len(cached) + len(new))
            sequences += [request.sequence] * len(new)
            ids += new
            parts.append((request, guesses, count))
            cached += new[: len(new) - len(guesses)]
        if not ids:
            return
        try:
            logits = self._forward(*(np.array(part, np.int64) for part in (ids, positions, sequences, wanted)))
        except BaseException:
            for request, _, _ in parts:
                self._cached[request.sequence].clear()
                self._end(request, "stop")
            raise
        at = 0
        for request, guesses, count in parts:
            self._choose(request, guesses, logits[at : at + count])
            at += count

    def _begin_waiting(self) -> None:
        while self._waiting and self._free:
            request = self._waiting.pop(0)
            prompt = list(request.prompt)
            known = {sequence: _common(self._cached[sequence], prompt) for sequence in self._free}
            # Of those that know as much, the one that loses least.
            best = max(self._free, key=lambda sequence: (known[sequence], -len(self._cached[sequence])))
            self._free.remove(best)
            del self._cached[best][min(known[best], len(prompt) - 1) :]
            request.sequence = best
            self._running.append(request)

    def _guesses(self, request: Request, tokens: list[int]) -> list[int]:
        most = min(request.draft, request.max_new - len(request.made) - 1, self._context - len(tokens) - 1)
        return draft_of(tokens, most) if most > 0 else []

    def _choose(self, request: Request, guesses: list[int], logits: np.ndarray) -> None:
        """Tokens from the logits, as long as the guesses were right."""
        for at, row in enumerate(logits):
            token = request.sampling.choose(row, request.random)
            if token in request.ends:
                return self._end(request, "stop")
            request.made.append(token)
            if len(request.made) >= request.max_new or len(request.prompt) + len(request.made) >= self._context:
                return self._end(request, "length")
            if at >= len(guesses) or guesses[at] != token:
                return None
            self._cached[request.sequence].append(token)
        return None

    def _end(self, request: Request, why: str) -> None:
        request.finished = why
        self._running.remove(request)
        self._free.append(request.sequence)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens are the same from the beginning on."""
    return next((at for at, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
