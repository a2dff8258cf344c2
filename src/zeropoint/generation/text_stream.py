"""The text of tokens as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_UNFINISHED = "\ufffd"  # what decoders write for a character whose bytes are not all there


class TextStream:
    """Turns tokens into pieces of text; a piece never ends inside a character, nor inside what may be a stop text.

    Args:
        decode: gives the text of tokens.
        stop: texts that end the answer; they are not part of it.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        self._decode, self._stop = decode, [text for text in stop if text]
        self._tokens: list[int] = []
        self._begin = self._told = 0  # of the tokens that are decoded together, and of those that were told
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """One more token; gives the text that is certain."""
        self._tokens.append(token)
        before = self._decode(self._tokens[self._begin : self._told])
        now = self._decode(self._tokens[self._begin :])
        if now.endswith(_UNFINISHED):
            return ""
        self._begin, self._told = self._told, len(self._tokens)
        self._held += now[len(before) :]
        return self._released()

    def rest(self) -> str:
        """What is left at the end."""
        left = self._decode(self._tokens[self._begin :])[len(self._decode(self._tokens[self._begin : self._told])) :]
        self._told = len(self._tokens)
        self._held += left
        text = self._released()
        if not self.stopped:
            text, self._held = text + self._held, ""
        return text

    def _released(self) -> str:
        if self.stopped:
            return ""
        places = [at for at in (self._held.find(text) for text in self._stop) if at >= 0]
        if places:
            self.stopped = True
            return self._held[: min(places)]
        keep = max((_overlap(self._held, text) for text in self._stop), default=0)
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text begin the stop text."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
