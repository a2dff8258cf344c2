"""The program of a decoder: steps for some tokens of some sequences, with their keys and values as state.

Inputs are ids, positions and sequences of the tokens, and the numbers of those tokens whose logits are wanted. Equal
matrices that read the same input are one step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zeropoint.generation.decoder import Decoder, Matrix, Weights
from zeropoint.generation.group_weights import PANEL, UNIT, GroupMatrix
from zeropoint.generation.program_file import ProgramFile

CACHES = ("int8", "float16", "float32")
_MOST_HEAD = 512
_BLOCK = 16  # positions of the cache that stand side by side


def decoder_program(decoder: Decoder, weights: Weights, cache: str, sequences: int) -> ProgramFile:
    """The program of a decoder.

    Args:
        cache: the dtype of keys and values, one of `CACHES`.
        sequences: how many the cache is for.
    """
    return _Graph(decoder, weights, cache, sequences).build()


class _Graph:
    def __init__(self, decoder: Decoder, weights: Weights, cache: str, sequences: int) -> None:
        self.decoder, self.weights, self.cache, self.sequences = decoder, weights, cache, sequences
        self.file = ProgramFile()
        self._last: tuple[str, tuple[Any, Any, Any]] = "", (None, None, None)

    def build(self) -> ProgramFile:
        file, d = self.file, self.decoder
        _check(d)
        for name in ("ids", "positions", "sequences", "wanted"):
            size = "wanted" if name == "wanted" else "tokens"
            file.inputs.append({"name": name, "dtype": "int64", "shape": [size], "example": [1]})
        embedding = self._needed("embedding", d.vocabulary, d.width)
        table = self._stored("embedding", [embedding])
        factor = d.embedding_factor
        x = file.add("group_embedding", [*table, "ids"], ["embedded"], **_sizes(embedding), factor=factor)
        if self.weights.matrix("positions") is not None:
            positions = self._needed("positions", None, d.width)
            if positions.outputs < d.context:
                raise ValueError(f"the model has positions for {positions.outputs} tokens, not for {d.context}")
            places = self._stored("positions_table", [positions])
            file.add("group_embedding", [*places, "positions"], ["placed"], **_sizes(positions), factor=1.0)
            x = self._map(["embedded", "placed"], ["float32"] * 2, [["add", "float32", 0, 1]], "tokens_placed")
        self._angles()
        for layer in range(d.layers):
            x = self._layer(layer, x)
        x = file.add("index", [x, "wanted"], ["last"], axis=0)
        x = self._norm("norm", x)
        if self.weights.matrix("head") is not None:
            logits = self._linear("head", {"head": d.vocabulary}, x, d.width)
        else:
            logits = self._step("head", table, embedding, x, None, None, "", gated=False)
        if d.logit_cap:
            logits = self._capped(logits, d.logit_cap)
        file.outputs.append(logits)
        return file

    def _needed(self, name: str, outputs: int | None, inputs: int | None) -> Matrix:
        """A matrix of this shape; None is any size."""
        found = self.weights.matrix(name)
        if found is None:
            raise ValueError(f"the model has no tensor for {name!r}")
        if found.outputs != (outputs or found.outputs) or found.inputs != (inputs or found.inputs):
            raise ValueError(
                f"the tensor for {name!r} has shape {(found.outputs, found.inputs)}, not {(outputs, inputs)}"
            )
        return found

    def _layer(self, i: int, x: str) -> str:
        d = self.decoder
        normed = self._norm(f"{i}.attention_norm", x)
        queries, keys = d.heads * d.dim, d.shared_heads * d.dim
        qkv = self._linear(f"{i}.qkv", {f"{i}.q": queries, f"{i}.k": keys, f"{i}.v": keys}, normed, d.width)
        x = self._added(f"{i}.o", f"{i}.attention_end_norm", self._attention(i, qkv), x, queries)
        if not d.parallel:
            normed = self._norm(f"{i}.mlp_norm", x)
        elif self.weights.vector(f"{i}.mlp_norm") is not None:
            raise NotImplementedError("a parallel feed-forward with a norm of its own")
        hidden = self._needed(f"{i}.up", None, d.width).outputs
        parts = {f"{i}.gate": hidden, f"{i}.up": hidden} if d.gated else {f"{i}.up": hidden}
        inside = self._linear(f"{i}.inside", parts, normed, d.width, function=d.function, gated=d.gated)
        return self._added(f"{i}.down", f"{i}.mlp_end_norm", inside, x, hidden)

    def _added(self, name: str, end_norm: str, x: str, residual: str, inputs: int) -> str:
        """A layer whose result, after a norm if there is one, is added to the residual."""
        parts = {name: self.decoder.width}
        if self.weights.vector(end_norm) is None:
            return self._linear(name, parts, x, inputs, residual)
        y = self._norm(end_norm, self._linear(name, parts, x, inputs))
        return self._map([residual, y], ["float32"] * 2, [["add", "float32", 0, 1]], f"{name}.added")

    def _norm(self, name: str, x: str) -> str:
        width = self.decoder.width
        weight, bias = self._vector(name, width), self._vector(f"{name}.bias", width)
        if weight is None:
            raise ValueError(f"the model has no tensor for {name!r}")
        is_rms = self.decoder.norm == "rms"
        return self.file.add(
            "float_layer_norm", [x, weight, bias], [f"{name}.normed"], axes=1, eps=self.decoder.eps, centered=not is_rms
        )

    def _vector(self, name: str, count: int) -> str | None:
        vector = self.weights.vector(name)
        if vector is not None and vector.shape != (count,):
            raise ValueError(f"the tensor for {name!r} has shape {vector.shape}, not {(count,)}")
        return None if vector is None else self.file.array(name, vector.astype(np.float32))

    def _attention(self, i: int, qkv: str) -> str:
        d, file = self.decoder, self.file
        shape = [self.sequences, d.shared_heads, -(-d.context // _BLOCK) * _BLOCK, d.dim]
        kept = [(f"{i}.keys", self.cache, shape), (f"{i}.values", self.cache, shape)]
        if self.cache == "int8":
            kept += [(f"{i}.key_scales", "float32", shape[:-1]), (f"{i}.value_scales", "float32", shape[:-1])]
        for name, dtype, sizes in kept:
            file.state.append({"name": name, "dtype": dtype, "shape": sizes, "initial": None, "next": f"{name}.next"})
        names: list[str | None] = [name for name, _, _ in kept]
        names += [None] * (4 - len(names))
        inputs = [qkv, "cosines", "sines", "positions", "sequences", *names]
        return file.add(
            "cache_attention",
            [*inputs, self._vector(f"{i}.q_norm", d.dim), self._vector(f"{i}.k_norm", d.dim)],
            [f"{i}.attended", *(f"{name}.next" for name, _, _ in kept)],
            heads=d.heads,
            shared_heads=d.shared_heads,
            interleaved=d.interleaved,
            window=d.window(i),
            scale=d.scale if d.scale is not None else 1 / math.sqrt(d.dim),
            cap=d.attention_cap,
            eps=d.eps,
        )

    def _angles(self) -> None:
        """Cosines and sines of the positions, for all layers."""
        d, file = self.decoder, self.file
        frequencies = file.array("frequencies", np.asarray(d.frequencies, np.float32))
        column = file.add("unsqueeze", ["positions"], ["positions_column"], axis=-1)
        for name, function in (("cosines", "cos"), ("sines", "sin")):
            code: list[list[object]] = [["convert", "float32", 0], ["mul", "float32", 2, 1], [function, "float32", 3]]
            if d.rotation_factor != 1:
                code += [["number", "float32", d.rotation_factor], ["mul", "float32", 4, 5]]
            self._map([column, frequencies], ["int64", "float32"], code, name)

    def _map(self, inputs: Sequence[str], types: list[str], code: list[list[object]], name: str) -> str:
        return self.file.add("map", inputs, [name], types=types, code=code, sizes=[])

    def _capped(self, x: str, cap: float) -> str:
        code: list[list[object]] = [["number", "float32", 1 / cap], ["mul", "float32", 0, 1], ["tanh", "float32", 2]]
        code += [["number", "float32", cap], ["mul", "float32", 3, 4]]
        return self._map([x], ["float32"], code, "capped")

    def _linear(
        self,
        name: str,
        parts: Mapping[str, int],
        x: str,
        inputs: int,
        residual: str | None = None,
        *,
        function: str = "",
        gated: bool = False,
    ) -> str:
        """Layers of the same input, by name with their outputs, as one step, if that takes no more bytes."""
        matrices = [self._needed(part, outputs, inputs) for part, outputs in parts.items()]
        alike = {(m.bits, m.minima) for m in matrices}
        if len(alike) > 1 and not gated:
            made = [
                self._linear(f"{name}.{at}", {part: outputs}, x, inputs)
                for at, (part, outputs) in enumerate(parts.items())
            ]
            return self.file.add("cat", [*made, *[None] * (2 * len(made))], [f"{name}.out"], axis=-1)
        joined = _joined(matrices)
        return self._step(
            name,
            self._stored(name, matrices),
            joined,
            x,
            self._bias(name, list(parts), matrices),
            residual,
            function,
            gated,
        )

    def _step(
        self,
        name: str,
        stored: list[str | None],
        matrix: Matrix,
        x: str,
        bias: str | None,
        residual: str | None,
        function: str,
        gated: bool,
    ) -> str:
        return self.file.add(
            "group_linear",
            [x, *stored, bias, residual],
            [f"{name}.out"],
            **_sizes(matrix),
            function=function,
            gated=gated,
        )

    def _bias(self, name: str, parts: list[str], matrices: list[Matrix]) -> str | None:
        found = [self.weights.vector(f"{part}.bias") for part in parts]
        if all(bias is None for bias in found):
            return None
        filled = [np.zeros(m.outputs, np.float32) if b is None else b for m, b in zip(matrices, found)]
        if [len(bias) for bias in filled] != [m.outputs for m in matrices]:
            raise ValueError(f"the biases of {', '.join(parts)} do not fit their outputs")
        return self.file.array(f"{name}.bias", np.concatenate(filled).astype(np.float32))

    def _stored(self, name: str, matrices: list[Matrix]) -> list[str | None]:
        """The three tensors of matrices below each other: integers, scales, and minima or None."""
        m = _joined(matrices)
        panels, groups = -(-m.outputs // PANEL), m.inputs // m.group
        lines, parameters = (panels, m.inputs // UNIT, PANEL * UNIT * m.bits // 8), (panels, groups, PANEL)

        def part(at: int) -> Callable[[], np.ndarray]:
            return lambda: self._packed(name, m)[at]

        made: list[str | None] = [self.file.tensor(f"{name}.weight", "uint8", lines, part(0))]
        made.append(self.file.tensor(f"{name}.scale", "float16", parameters, part(1)))
        made.append(self.file.tensor(f"{name}.minimum", "float16", parameters, part(2)) if m.minima else None)
        return made

    def _packed(self, name: str, matrix: Matrix) -> tuple[Any, Any, Any]:
        """A matrix as it is stored. The last one is kept, because its tensors are written one after the other."""
        if self._last[0] != name:
            self._last = name, matrix.make().packed()
        return self._last[1]


def _check(d: Decoder) -> None:
    """Refuse sizes that the kernels do not have."""
    if d.dim % _BLOCK or not 0 < d.dim <= _MOST_HEAD:
        raise ValueError(
            f"heads of {d.dim} numbers are not supported: it must be a multiple of 16, {_MOST_HEAD} at most"
        )
    if d.heads % d.shared_heads:
        raise ValueError(f"{d.shared_heads} heads of keys and values do not divide {d.heads} heads of queries")
    if d.rotated > d.dim:
        raise ValueError(f"{d.rotated} numbers of a head are rotated, and it has {d.dim}")


def _joined(matrices: list[Matrix]) -> Matrix:
    if len(matrices) == 1:
        return matrices[0]
    first = matrices[0]
    if {(m.inputs, m.group) for m in matrices} != {(first.inputs, first.group)}:
        raise ValueError("layers of one input have groups of different sizes")
    bits, minima = max(m.bits for m in matrices), any(m.minima for m in matrices)

    def make() -> GroupMatrix:
        return GroupMatrix.joined([m.make() for m in matrices])

    return Matrix(sum(m.outputs for m in matrices), first.inputs, bits, first.group, minima, make)


def _sizes(m: Matrix) -> dict[str, int]:
    return {"bits": m.bits, "outputs": m.outputs, "group": m.group}
