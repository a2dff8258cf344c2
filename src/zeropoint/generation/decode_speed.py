"""How fast a language model makes tokens, and how near that is to what memory can deliver."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass

import numpy as np

from zeropoint.cpu import get_num_threads, peaks
from zeropoint.generation.language_model import LanguageModel
from zeropoint.runtime import Profile


@dataclass(frozen=True)
class DecodeSpeed:
    """The time of a token of one sequence.

    Args:
        seconds: of a token, the median.
        weight_bytes, cache_bytes: that a token reads.
        bandwidth: bytes in a second that the threads can read at most, as `zeropoint.cpu.peaks` measures it.
        profile: the time of each step.
    """

    seconds: float
    weight_bytes: int
    cache_bytes: int
    bandwidth: float
    profile: Profile

    @property
    def bytes_per_second(self) -> float:
        """What is read in a second."""
        return (self.weight_bytes + self.cache_bytes) / self.seconds

    @property
    def share(self) -> float:
        """The share of the bandwidth that is used."""
        return self.bytes_per_second / self.bandwidth

    def __str__(self) -> str:
        megabytes, cache = self.weight_bytes / 1e6, self.cache_bytes / 1e6
        return (
            f"{1 / self.seconds:.1f} tokens/s: {megabytes:.1f} MB of weights and {cache:.1f} MB of cache for a token,"
            f" {self.bytes_per_second / 1e9:.1f} GB/s, {self.share:.0%} of the measured {self.bandwidth / 1e9:.1f} GB/s"
        )


def decode_speed(model: LanguageModel, before: int = 128, tokens: int = 16) -> DecodeSpeed:
    """Measure the decoding of one sequence, in a cache of its own.

    Args:
        before: tokens in the cache.
        tokens: that are made.

    Raises:
        ValueError: if they do not fit in the context of the model.
    """
    if before < 0 or tokens < 1 or before + tokens > model.about.context:
        raise ValueError(
            f"before and tokens must fit in the context of the model, {model.about.context}, got {before!r} and"
            f" {tokens!r}"
        )
    program = model.program.copy()
    if before:
        every = np.arange(before)
        program(every * 0, every, every * 0, every[-1:])
    seconds = []
    for at in range(before, before + tokens):
        inputs = [np.array([n]) for n in (0, at, 0, 0)]
        start = time.perf_counter()
        program(*inputs)
        seconds.append(time.perf_counter() - start)
    found = program.profile(*inputs, runs=3)
    weights = sum({row.step: row.stored for row in found if row.macs}.values())
    rates = peaks()
    return DecodeSpeed(
        statistics.median(seconds),
        weights,
        (before + tokens // 2) * sum(_position_bytes(dtype, shape) for _, dtype, shape in program.state),
        rates.all_memory if get_num_threads() > 1 else rates.memory,
        found,
    )


def _position_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of one position of a tensor of the cache (sequences, heads, positions, ...)."""
    return shape[1] * math.prod(shape[3:]) * np.dtype(dtype).itemsize
