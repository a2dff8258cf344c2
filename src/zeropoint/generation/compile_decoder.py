"""From a language model to one program file."""

from __future__ import annotations

import os
from typing import Any

from zeropoint.generation.about import ENTRY, About
from zeropoint.generation.decoder_program import CACHES, decoder_program
from zeropoint.generation.gguf import Gguf
from zeropoint.generation.gguf_decoder import GgufWeights, gguf_decoder
from zeropoint.generation.gguf_tokenizer import gguf_chat, gguf_ends, gguf_tokenizer
from zeropoint.generation.group_weights import UNIT

__all__ = ["compile_decoder"]

_MOST_CONTEXT = 4096  # unless another is asked for: the cache takes memory for as many tokens as come


def compile_decoder(
    source: Any,
    output: str | os.PathLike[str],
    *,
    bits: int = 4,
    group: int = UNIT,
    cache: str = "int8",
    context: int | None = None,
    sequences: int = 4,
) -> dict[str, Any]:
    """Write the program of a language model.

    Args:
        source: a GGUF file, whose integers are kept as they are.
        output: the program file, ``.zpt``.
        bits: 4 or 8, for weights that are floats.
        group: inputs that share a scale, for weights that are floats; a multiple of 32.
        cache: the dtype of keys and values: ``"int8"``, ``"float16"`` or ``"float32"``.
        context: the most tokens of a sequence; by default what the model was trained for, 4096 at most. Memory is
            taken as tokens come.
        sequences: how many run side by side at most.

    Returns:
        What was made: the family, the bytes of the file, and the tensors that do not have exactly the numbers of the
        source, with their format there.

    Raises:
        OSError: if a file cannot be read or written.
        ValueError: if an argument or the model is wrong or not supported.

    Example: ``compile_decoder("model.gguf", "model.zpt")``
    """
    if bits not in (4, 8):
        raise ValueError(f"bits must be 4 or 8, got {bits!r}")
    if group not in (32, 64, 128, 256):
        raise ValueError(f"group must be 32, 64, 128 or 256, got {group!r}")
    if cache not in CACHES:
        raise ValueError(f"cache must be one of {', '.join(CACHES)}, got {cache!r}")
    for name, number in (("context", context), ("sequences", sequences)):
        if number is not None and not (isinstance(number, int) and 1 <= number <= 1 << 20):
            raise ValueError(f"{name} must be a whole number from 1 to {1 << 20}, got {number!r}")
    file = Gguf(source)
    decoder = gguf_decoder(file, context or _MOST_CONTEXT)
    weights = GgufWeights(file, decoder, bits, UNIT)
    begin, ends = gguf_ends(file)
    about = About(decoder.family, decoder.context, sequences, begin, ends, gguf_chat(file), gguf_tokenizer(file))
    decoder_program(decoder, weights, cache, sequences).write(output, {ENTRY: about.text()})
    return {"family": decoder.family, "bytes": os.path.getsize(output), "context": decoder.context} | {
        "rounded": dict(weights.rounded)
    }
