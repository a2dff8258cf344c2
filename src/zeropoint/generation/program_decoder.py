"""A decoder back from its program file: sizes, vectors and matrices as `decoder_program` took them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zeropoint.generation.about import About
from zeropoint.generation.decoder import Decoder, Matrix
from zeropoint.generation.decoder_program import decoder_program
from zeropoint.generation.group_weights import PANEL, UNIT, GroupMatrix
from zeropoint.generation.tensor_files import FolderTensors
from zeropoint.safetensors_header import read_header

_ENTRY = "zeropoint.program"
_QKV = ("q", "k", "v")


def program_decoder(path: Path, about: About) -> tuple[Decoder, ProgramWeights]:
    """The decoder of a program file. What is read makes the same program again, or is refused.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is damaged, or another version of zeropoint made another program of its decoder.
    """
    try:
        program = json.loads(read_header(path)["__metadata__"][_ENTRY])
        weights = ProgramWeights(FolderTensors(path), program)
        decoder = _decoder(program, about, weights)
        again = decoder_program(decoder, weights, program["state"][0]["dtype"], about.sequences)
        is_same = again.program() == program and again.shapes() == weights.shapes()
    except (KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: its program is none of a decoder ({type(error).__name__})") from error
    if not is_same:
        raise ValueError(
            f"{path} is damaged, or another version of zeropoint made it: its steps are not those of its decoder."
            " Compile the model again"
        )
    return decoder, weights


def _decoder(program: Mapping[str, Any], about: About, weights: ProgramWeights) -> Decoder:
    by_output = {step["outputs"][0]: step for step in program["steps"]}
    attentions = [step["attributes"] for step in program["steps"] if step["op"] == "cache_attention"]
    sizes = {state["name"]: state["shape"] for state in program["state"]}
    embedded, inside = by_output["embedded"], by_output["0.inside.out"]
    first, norm = attentions[0], by_output["norm.normed"]["attributes"]
    windows = tuple(int(attention["window"]) for attention in attentions)
    frequencies = weights.tensors.raw("frequencies")
    capped = by_output.get("capped", {"attributes": {"code": []}})["attributes"]["code"]
    caps = [part[2] for part in capped if part[0] == "number"]  # 1 / cap, then cap
    return Decoder(
        family=about.family,
        layers=len(attentions),
        width=weights.stored["embedding"].inputs,
        heads=first["heads"],
        shared_heads=first["shared_heads"],
        dim=sizes["0.keys"][-1],
        vocabulary=embedded["attributes"]["outputs"],
        context=about.context,
        frequencies=frequencies,
        norm="layer" if norm["centered"] else "rms",
        eps=norm["eps"],
        interleaved=first["interleaved"],
        function=inside["attributes"]["function"],
        gated=inside["attributes"]["gated"],
        parallel=weights.vector("0.mlp_norm") is None,
        embedding_factor=embedded["attributes"]["factor"],
        scale=first["scale"],
        windows=windows if any(windows) else (),
        attention_cap=first["cap"],
        logit_cap=caps[1] if caps else 0.0,
    )


@dataclass(frozen=True)
class _Stored:
    """A matrix as it is stored under a name: maybe several, one below the other."""

    name: str
    bits: int
    outputs: int
    inputs: int
    group: int
    minima: bool


class ProgramWeights:
    """The tensors of a program file by the names of `Weights`."""

    def __init__(self, tensors: FolderTensors, program: Mapping[str, Any]) -> None:
        self.tensors, self._names = tensors, set(tensors.names())
        self.stored: dict[str, _Stored] = {}
        for step in program["steps"]:
            if step["op"] in ("group_linear", "group_embedding"):
                weight, _, minimum = step["inputs"][:3] if step["op"] == "group_embedding" else step["inputs"][1:4]
                name = weight.removesuffix(".weight")
                self.stored[name] = self._stored(name, step["attributes"], minimum is not None)

    def _stored(self, name: str, sizes: Mapping[str, int], minima: bool) -> _Stored:
        panels, units, _ = self.tensors.shape(f"{name}.weight")
        found = _Stored(name, sizes["bits"], sizes["outputs"], units * UNIT, sizes["group"], minima)
        shape = (-(-found.outputs // PANEL), units, PANEL * UNIT * found.bits // 8)
        if self.tensors.shape(f"{name}.weight") != shape or found.inputs % found.group or panels < 1:
            raise TypeError(name)
        return found

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The sizes of all tensors."""
        return {name: self.tensors.shape(name) for name in self._names}

    def vector(self, name: str) -> np.ndarray | None:
        """A float32 vector, or None if the program has none."""
        if not name.endswith(".bias") or name in self._names:
            return self.tensors.raw(name) if name in self._names else None
        place = self._place(name.removesuffix(".bias"))
        bias = None if place is None else f"{place[0].name}.bias"
        return self.tensors.raw(bias)[place[1]] if place is not None and bias in self._names else None

    def matrix(self, name: str) -> Matrix | None:
        """A matrix, or None if the program has none."""
        place = self._place(name)
        if place is None:
            return None
        s, rows = place
        count = len(range(*rows.indices(s.outputs)))
        return Matrix(count, s.inputs, s.bits, s.group, s.minima, lambda: self._made(s).rows(rows))

    def _place(self, name: str) -> tuple[_Stored, slice] | None:
        """Where a matrix is stored, and its rows."""
        layer, _, short = name.rpartition(".")
        if short in _QKV:
            at = _QKV.index(short)
            if (alone := self.stored.get(f"{layer}.qkv.{at}")) is not None:
                return alone, slice(0, alone.outputs)
            whole = self.stored[f"{layer}.qkv"]
            queries = self.stored[f"{layer}.o"].inputs
            ends = np.cumsum([0, queries, *[(whole.outputs - queries) // 2] * 2])
            return whole, slice(int(ends[at]), int(ends[at + 1]))
        if short in ("gate", "up"):
            whole, hidden = self.stored[f"{layer}.inside"], self.stored[f"{layer}.down"].inputs
            begin = whole.outputs - hidden if short == "up" else 0
            return whole, slice(begin, begin + hidden)
        found = self.stored.get("positions_table" if short == "positions" else name)
        return None if found is None else (found, slice(0, found.outputs))

    def _made(self, s: _Stored) -> GroupMatrix:
        data, scale = self.tensors.raw(f"{s.name}.weight"), self.tensors.raw(f"{s.name}.scale")
        minimum = self.tensors.raw(f"{s.name}.minimum") if s.minima else None
        return GroupMatrix.unpacked(s.bits, s.outputs, data, scale, minimum)
