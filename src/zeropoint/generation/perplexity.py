"""How well a language model foresees a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zeropoint.generation.language_model import LanguageModel

_AT_ONCE = 256  # tokens of a step: the logits of all of them are made


def perplexity(model: LanguageModel, text: str | Sequence[int], *, window: int | None = None) -> float:
    """The exponential of the mean surprise of each token, given those before it in its window. Less is better; 1 is a
    text that is known by heart.

    Args:
        text: a text, or its tokens.
        window: tokens that are foreseen together, from 2 to the context of the model; by default 512, or the context.
            Nothing before them is known.

    Raises:
        ValueError: if the text has less than two tokens, or the window is out of range.
    """
    ids = model.encode(text) if isinstance(text, str) else list(text)
    window = min(512, model.about.context) if window is None else window
    if not 2 <= window <= model.about.context:
        raise ValueError(f"window must be from 2 to the context of the model, {model.about.context}, got {window!r}")
    if len(ids) < 2:
        raise ValueError(f"the text has {len(ids)} tokens, and two at least are needed")
    surprise, count = 0.0, 0
    program = model.program.copy()  # with a cache of its own
    for begin in range(0, len(ids) - 1, window):
        part = np.array(ids[begin : begin + window], np.int64)
        for at in range(0, len(part) - 1, _AT_ONCE):
            some = part[at : at + _AT_ONCE]
            every = np.arange(len(some))
            logits = program(some, every + at, np.zeros(len(some), np.int64), every)
            wanted = part[at + 1 : at + 1 + len(some)]
            surprise += _surprise(logits[: len(wanted)], wanted)
            count += len(wanted)
    return float(np.exp(surprise / count))


def _surprise(logits: np.ndarray, wanted: np.ndarray) -> float:
    """The sum of the negative logarithms of the probabilities."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    total = np.log(np.exp(wide).sum(-1))
    return float((total - wide[np.arange(len(wanted)), wanted]).sum())
