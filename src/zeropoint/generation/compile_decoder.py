"""From a language model to one program file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zeropoint.described import described
from zeropoint.generation.about import ENTRY, About
from zeropoint.generation.calibration import calibrate
from zeropoint.generation.decoder import Decoder
from zeropoint.generation.decoder_program import CACHES, decoder_program
from zeropoint.generation.float_weights import FloatWeights, Rotation
from zeropoint.generation.folder_decoder import FolderWeights, folder_decoder
from zeropoint.generation.folder_tokenizer import FolderTokenizer
from zeropoint.generation.gguf import Gguf
from zeropoint.generation.gguf_decoder import GgufWeights, gguf_decoder
from zeropoint.generation.gguf_tokenizer import gguf_chat, gguf_ends, gguf_tokenizer
from zeropoint.generation.group_weights import UNIT
from zeropoint.generation.packed_checkpoint import packed_checkpoint
from zeropoint.generation.tensor_files import FolderTensors, ModelTensors, Tensors, read_json
from zeropoint.tokenizer_json import tokenizer_of

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
    tokenizer: Any = None,
    rotate: bool = False,
    calibration: Sequence[str] | Sequence[Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Write the program of a language model.

    Args:
        source: a GGUF file, whose integers are kept as they are; a folder with config.json, safetensors files and
            tokenizer.json; or a model of transformers.
        output: the program file, ``.zpt``.
        bits: 4 or 8, for weights that are floats.
        group: inputs that share a scale, for weights that are floats; a multiple of 32.
        cache: the dtype of keys and values: ``"int8"``, ``"float16"`` or ``"float32"``.
        context: the most tokens of a sequence; by default what the model was trained for, 4096 at most. Memory is
            taken as tokens come.
        sequences: how many run side by side at most.
        tokenizer: the folder of a tokenizer, or a tokenizer of transformers, for a model of transformers.
        rotate: multiply the residual stream and the values of heads with orthogonal matrices, which are folded into the
            weights, and round those; integers of the source are not kept. An embedding that is also the last layer
            becomes two matrices.
        calibration: texts, or lists of tokens, for which GPTQ chooses the integers; 8,192 tokens at most are used, and
            integers of the source are not kept.

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
    read = _gguf if _is_gguf(source) else _folder
    decoder, weights, about = read(source, tokenizer, bits, group, context or _MOST_CONTEXT, sequences)
    if context is not None and decoder.context < context:
        raise ValueError(f"context must be at most {decoder.context}, for which the model was trained, got {context}")
    if rotate or calibration is not None:
        taken = FloatWeights(weights, bits, group, Rotation.of(decoder, weights) if rotate else None)
        if calibration is not None:
            calibrate(decoder, taken, _tokens(calibration, about.tokenizer))
        file = decoder_program(decoder, taken, cache, sequences)
    else:
        file = decoder_program(decoder, weights, cache, sequences)
    if left := weights.unused():
        raise ValueError(f"the model has {len(left)} tensors that a decoder of this family does not: {left[0]}, ...")
    file.write(output, {ENTRY: about.text()})
    facts = {"family": decoder.family, "bytes": os.path.getsize(output), "context": decoder.context}
    return facts | {"rounded": weights.rounded}


def _tokens(calibration: Sequence[str] | Sequence[Sequence[int]], tokenizer: str) -> list[int]:
    """The tokens of texts, or of lists of tokens."""
    if isinstance(calibration, str) or not all(isinstance(part, (str, Sequence)) for part in calibration):
        raise TypeError("calibration must be a list of texts, or of lists of tokens: put one text into a list")
    texts = [part for part in calibration if isinstance(part, str)]
    if texts and not tokenizer:
        raise ValueError("the model has no tokenizer for the texts of calibration: pass tokens")
    made: Any = tokenizer_of(tokenizer) if texts else None
    found: list[int] = []
    for part in calibration:
        found += made.encode(part, add_special_tokens=False).ids if isinstance(part, str) else part
    return found


def _is_gguf(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) and not Path(source).is_dir()


def _gguf(
    source: Any, tokenizer: Any, bits: int, group: int, context: int, sequences: int
) -> tuple[Decoder, GgufWeights, About]:
    if tokenizer is not None:
        raise ValueError("a GGUF file has its own tokenizer: omit tokenizer")
    file = Gguf(source)
    decoder = gguf_decoder(file, context)
    begin, ends = gguf_ends(file)
    about = About(decoder.family, decoder.context, sequences, begin, ends, gguf_chat(file), gguf_tokenizer(file))
    return decoder, GgufWeights(file, decoder, bits, UNIT), about


def _folder(
    source: Any, tokenizer: Any, bits: int, group: int, context: int, sequences: int
) -> tuple[Decoder, FolderWeights, About]:
    """Of a folder, or of a model of transformers in memory."""
    folder = Path(source) if isinstance(source, (str, os.PathLike)) else None
    tensors: Tensors
    if folder is not None:
        config, tensors = read_json(folder / "config.json"), FolderTensors(folder)
    elif hasattr(source, "state_dict") and hasattr(getattr(source, "config", None), "to_dict"):
        config, tensors = source.config.to_dict(), ModelTensors(source.state_dict())
    else:
        raise TypeError(f"pass a GGUF file, a folder, or a model of transformers, got {described(source)}")
    packed = packed_checkpoint(config.get("quantization_config"))
    decoder = folder_decoder(config, context)
    kept = tokenizer if tokenizer is not None else folder
    texts = FolderTokenizer(kept, config)
    about = About(decoder.family, decoder.context, sequences, texts.begin, texts.ends, texts.chat, texts.text)
    return decoder, FolderWeights(tensors, decoder, bits, group, packed, config.get("tie_word_embeddings")), about
