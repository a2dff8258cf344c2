"""From the program of a language model to a GGUF file, with the same integers and scales."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from zeropoint.atomic_file import replacing
from zeropoint.generation.about import About
from zeropoint.generation.decoder import Decoder, Matrix
from zeropoint.generation.gguf import FORMATS, Gguf
from zeropoint.generation.gguf_decoder import FAMILIES, FUSED, NAMES, gguf_decoder
from zeropoint.generation.gguf_entries import chat_template, entry_bytes, text_bytes, vocabulary
from zeropoint.generation.group_weights import UNIT, GroupMatrix
from zeropoint.generation.program_decoder import ProgramWeights, program_decoder

_OTHER_NAMES = {"mistral": "llama", "phi": "phi2"}  # families as GGUF files call them
_FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7}
_FUSED_FAMILIES = ("gpt2", "phi2")
_BOUNDARY = 32
_Row = tuple[str, tuple[int, ...], str, Callable[[], np.ndarray]]  # name, shape, format, what gives its bytes


def export_gguf(program: str | os.PathLike[str], output: str | os.PathLike[str]) -> dict[str, Any]:
    """Write the GGUF file of a language model's program, for llama.cpp and others.

    Integers and scales are those of the program: 4 bits become Q4_0, or Q4_1 if they have minima, 8 bits become Q8_0.
    Groups of more than 32 inputs repeat their scale. Norms and biases are F32. The chat template is written if the
    program's format is one that zeropoint knows.

    Args:
        program: a ``.zpt`` file of `compile_decoder`.
        output: the ``.gguf`` file.

    Returns:
        What was written: the family, the bytes of the file, and how many tensors have each format.

    Raises:
        OSError: if a file cannot be read or written.
        ValueError: if the file is no language model, or GGUF files cannot have its family, weights or tokenizer.

    Example: ``export_gguf("model.zpt", "model.gguf")``
    """
    path = Path(program)
    about = About.read(path)
    decoder, weights = program_decoder(path, about)
    family = _OTHER_NAMES.get(decoder.family, decoder.family)
    if family not in FAMILIES:
        raise ValueError(f"GGUF files of the family {family!r} are not supported; these are: {', '.join(FAMILIES)}")
    rows = _Rows(decoder, weights, family).all()
    formats = Counter(form for _, _, form, _ in rows)
    entries = _sizes(decoder, weights, family) | vocabulary(about, decoder.vocabulary) | chat_template(about)
    most = max((form for form in formats if form in _FILE_TYPES), key=lambda form: formats[form])
    entries |= {"general.file_type": _FILE_TYPES[most], "general.quantization_version": 2}
    with replacing(output) as new:
        _write(new, entries, rows)
        _require_same(gguf_decoder(Gguf(new), None), decoder, family)
    return {"family": family, "bytes": os.path.getsize(output), "formats": dict(formats)}


def _sizes(d: Decoder, weights: ProgramWeights, family: str) -> dict[str, Any]:
    hidden = weights.matrix("0.down")
    assert hidden is not None
    is_layer_norm = d.norm == "layer"
    found: dict[str, Any] = {
        "context_length": d.context,
        "embedding_length": d.width,
        "block_count": d.layers,
        "feed_forward_length": hidden.inputs,
        "attention.head_count": d.heads,
        "attention.head_count_kv": d.shared_heads,
        "attention.key_length": d.dim,
        "attention.value_length": d.dim,
        f"attention.layer_norm{'' if is_layer_norm else '_rms'}_epsilon": float(d.eps),
        "vocab_size": d.vocabulary,
    }
    if d.rotated:
        found |= {"rope.dimension_count": d.rotated} | _angles(d.frequencies)
    if d.attention_cap or d.logit_cap:
        found |= {
            "attn_logit_softcapping": float(d.attention_cap),
            "final_logit_softcapping": float(d.logit_cap),
        }
    if d.windows:
        found["attention.sliding_window"] = max(d.windows)
    return {"general.architecture": family} | {f"{family}.{key}": value for key, value in found.items()}


def _angles(frequencies: np.ndarray) -> dict[str, Any]:
    """The base of angles, and by how much all are divided."""
    first, second = (float(f) for f in frequencies[:2])
    base = (second / first) ** -len(frequencies)
    # Bases are numbers such as 10000 and 500000, and frequencies have 24 bits.
    rounded = float(f"{base:.4g}")
    found: dict[str, Any] = {"rope.freq_base": rounded if math.isclose(base, rounded, rel_tol=1e-4) else base}
    if first != 1:
        found |= {"rope.scaling.type": "linear", "rope.scaling.factor": 1 / first}
    return found


class _Rows:
    """The tensors of a GGUF file."""

    def __init__(self, decoder: Decoder, weights: ProgramWeights, family: str) -> None:
        self.decoder, self.weights, self.family = decoder, weights, family
        self._rows: list[_Row] = []

    def all(self) -> list[_Row]:
        d = self.decoder
        for name in ("embedding", "positions"):
            self._add(name)
        for i in range(d.layers):
            for name in ("attention_norm", "attention_end_norm", "mlp_norm", "mlp_end_norm", "q_norm", "k_norm"):
                self._vector(f"{i}.{name}", self._name(f"{i}.{name}") + ".weight")
                self._vector(f"{i}.{name}.bias", self._name(f"{i}.{name}") + ".bias")
            if self.family in _FUSED_FAMILIES:
                self._fused(i)
            for name in ("q", "k", "v", "o", "gate", "up", "down"):
                if (name not in ("q", "k", "v") or self.family not in _FUSED_FAMILIES) and (name != "gate" or d.gated):
                    self._add(f"{i}.{name}")
        self._vector("norm", self._name("norm") + ".weight")
        self._vector("norm.bias", self._name("norm") + ".bias")
        self._add("head")
        return self._rows

    def _name(self, name: str) -> str:
        layer, _, short = name.rpartition(".")
        return NAMES[short].format(i=layer)

    def _order(self, name: str) -> np.ndarray | None:
        """The order of outputs, if rotated pairs are neighbours in the file and are not in the program."""
        d, short = self.decoder, name.rpartition(".")[2]
        if short not in ("q", "k") or d.interleaved or not FAMILIES[self.family].get("interleaved"):
            return None
        head = np.arange(d.dim)
        head[: d.rotated] = np.arange(d.rotated).reshape(2, -1).T.reshape(-1)
        heads = d.heads if short == "q" else d.shared_heads
        return (np.arange(heads)[:, None] * d.dim + head).reshape(-1)

    def _vector(self, name: str, to: str, order: np.ndarray | None = None) -> None:
        values = self.weights.vector(name)
        if values is not None:
            made = np.ascontiguousarray(values if order is None else values[order], "<f4")
            self._rows.append((to, made.shape, "F32", lambda: made))

    def _add(self, name: str) -> None:
        matrix = self.weights.matrix(name)
        if matrix is not None:
            order = self._order(name)
            self._matrix(self._name(name), [matrix], order)
            self._vector(f"{name}.bias", self._name(name) + ".bias", order)

    def _fused(self, i: int) -> None:
        names = [f"{i}.{short}" for short in ("q", "k", "v")]
        self._matrix(FUSED.format(i=i), [m for name in names if (m := self.weights.matrix(name)) is not None], None)
        biases = [bias for name in names if (bias := self.weights.vector(f"{name}.bias")) is not None]
        if biases:
            whole = np.concatenate(biases).astype("<f4")
            self._rows.append((FUSED.format(i=i) + ".bias", whole.shape, "F32", lambda: whole))

    def _matrix(self, name: str, parts: list[Matrix], order: np.ndarray | None) -> None:
        form = _form(max(m.bits for m in parts), any(m.minima for m in parts), name)

        def make() -> np.ndarray:
            matrix = GroupMatrix.joined([m.make() for m in parts])
            return blocks(matrix if order is None else matrix.rows(order))

        self._rows.append((f"{name}.weight", (sum(m.outputs for m in parts), parts[0].inputs), form, make))


def _form(bits: int, minima: bool, name: str) -> str:
    if bits == 8 and minima:
        raise ValueError(
            f"{name} has 8 bits with minima, and no format of GGUF files has: compile the model from floats"
        )
    return "Q8_0" if bits == 8 else "Q4_1" if minima else "Q4_0"


def blocks(matrix: GroupMatrix) -> np.ndarray:
    """The blocks of Q4_0, Q4_1 or Q8_0, as rows of bytes."""
    q = matrix.q.reshape(-1, UNIT)
    repeated = matrix.group // UNIT
    parts = [part for part in (matrix.scale, matrix.minimum) if part is not None]
    heads = [np.ascontiguousarray(part.repeat(repeated, 1).reshape(-1, 1)).view(np.uint8) for part in parts]
    half = UNIT // 2
    integers = q ^ np.uint8(128) if matrix.bits == 8 else q[:, :half] | q[:, half:] << 4
    return np.concatenate([*heads, integers], -1)


def _write(path: Path, entries: dict[str, Any], rows: list[_Row]) -> None:
    head = b"GGUF" + np.array([3], "<u4").tobytes() + np.array([len(rows), len(entries)], "<u8").tobytes()
    head += b"".join(text_bytes(key) + entry_bytes(value) for key, value in entries.items())
    kinds = {name: (number, elements, size) for number, (name, elements, size) in FORMATS.items()}
    at, ends = 0, []
    for name, shape, form, _ in rows:
        number, elements, size = kinds[form]
        head += text_bytes(name) + np.array([len(shape)], "<u4").tobytes() + np.array(shape[::-1], "<u8").tobytes()
        head += np.array([number], "<u4").tobytes() + np.array([at], "<u8").tobytes()
        ends.append(at + math.prod(shape) // elements * size)
        at = -(-ends[-1] // _BOUNDARY) * _BOUNDARY
    with path.open("wb") as file:
        file.write(head + b"\0" * (-len(head) % _BOUNDARY))
        for (name, _, _, make), end in zip(rows, ends):
            begin = file.tell()
            file.write(np.ascontiguousarray(make()).data)
            assert (file.tell() - begin) % _BOUNDARY == end % _BOUNDARY, name
            file.write(b"\0" * (-end % _BOUNDARY))


def _require_same(found: Decoder, wanted: Decoder, family: str) -> None:
    """Refuse a decoder whose sizes and choices the file would not give back."""
    for field in fields(Decoder):
        a, b = (_plain(d, field.name) for d in (found, wanted))
        is_same = np.shape(a) == np.shape(b) and (np.allclose(a, b, 1e-6, 0) if field.name == "frequencies" else a == b)
        if field.name not in ("family", "interleaved") and not is_same:
            raise ValueError(f"GGUF files of the family {family!r} cannot have the model's {field.name}")


def _plain(d: Decoder, name: str) -> Any:
    """What a field means, in the 32 bits that GGUF files have for it."""
    value = getattr(d, name)
    if name == "scale":
        value = d.dim**-0.5 if value is None else value
    return np.float32(value) if isinstance(value, float) else value
