"""The cache of a language model in a file: keys and values of the tokens that it has seen, for another process."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load, save

from zeropoint.atomic_file import replacing
from zeropoint.regular_file import Path, open_regular
from zeropoint.safetensors_header import read_whole

if TYPE_CHECKING:
    from zeropoint.runtime import Program

_ENTRY = "zeropoint.cache"
_BLOCK = 16  # positions of keys that stand side by side
_SAMPLES, _SAMPLE = 64, 4096


def fingerprint_of(path: Path) -> str:
    """A hash of the header of a program file and of parts of its weights."""
    with open_regular(path) as file:
        length = file.read(8)
        found = hashlib.sha256(length + file.read(int.from_bytes(length, "little")))
        size = os.fstat(file.fileno()).st_size
        for part in range(_SAMPLES):
            file.seek(size * part // _SAMPLES)
            found.update(file.read(_SAMPLE))
    return found.hexdigest()


def write_cache(path: Path, program: Program, fingerprint: str, sequences: Mapping[int, Sequence[int]]) -> None:
    """Write the keys and values of the tokens of some sequences."""
    state = program._state
    arrays: dict[str, np.ndarray] = {}
    for number, (sequence, tokens) in enumerate(sequences.items()):
        for tensor, places in _places(program, sequence, len(tokens)):
            content = b"".join(state.part(tensor, offset, count) for offset, count in places)
            arrays[f"{number}.{tensor}"] = np.frombuffer(content, np.uint8)
    about = {"model": fingerprint, "tokens": [list(tokens) for tokens in sequences.values()]}
    content = save(arrays, metadata={_ENTRY: json.dumps(about)})
    with replacing(path) as new:
        new.write_bytes(content)


def read_cache(path: Path, program: Program, fingerprint: str, most: int, context: int) -> list[list[int]]:
    """Put what `write_cache` wrote into the first sequences of a cache; gives the tokens of each.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is no file of a cache, is damaged, or is of another model. Then nothing is changed.
    """
    content, header = read_whole(path)
    tokens = _tokens_of(header.get("__metadata__", {}), fingerprint, path)[:most]
    vocabulary = program.outputs[0][2][-1]
    if any(not 0 <= token < vocabulary for part in tokens for token in part) or any(len(p) > context for p in tokens):
        raise ValueError(f"{path} is damaged: it has tokens that the model does not have")
    arrays = load(content)
    writes: list[tuple[int, int, bytes]] = []
    for sequence, part in enumerate(tokens):
        for tensor, places in _places(program, sequence, len(part)):
            array = arrays.get(f"{sequence}.{tensor}")
            if array is None or array.dtype != np.uint8 or array.size != sum(count for _, count in places):
                raise ValueError(f"{path} is damaged: keys or values of sequence {sequence} are missing")
            data, at = array.tobytes(), 0
            for offset, count in places:
                writes.append((tensor, offset, data[at : at + count]))
                at += count
    for write in writes:
        program._state.set_part(*write)
    return tokens


def _tokens_of(metadata: dict[str, Any], fingerprint: str, path: Path) -> list[list[int]]:
    if _ENTRY not in metadata:
        raise ValueError(f"{path} is no saved cache of a language model")
    try:
        about = json.loads(metadata[_ENTRY])
        model, tokens = about["model"], about["tokens"]
        if not all(type(token) is int for part in tokens for token in part):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} is damaged: its tokens are not right") from None
    if model != fingerprint:
        raise ValueError(f"{path} was saved by another model")
    found: list[list[int]] = tokens
    return found


def _places(program: Program, sequence: int, count: int) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """For each tensor of the state, where the first positions of a sequence lie: offsets and bytes, head by head."""
    filled = -(-count // _BLOCK) * _BLOCK
    for tensor, (_, dtype, (_, heads, context, *inner)) in enumerate(program.state):
        position = math.prod(inner) * np.dtype(dtype).itemsize
        head = context * position
        yield tensor, [((sequence * heads + h) * head, filled * position) for h in range(heads)]
