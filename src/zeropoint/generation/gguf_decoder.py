"""Decoders in GGUF files: their sizes from the entries, their tensors by our names."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeropoint.generation.decoder import Decoder, Matrix
from zeropoint.generation.gguf import Gguf, GgufError
from zeropoint.generation.gguf_weights import floats_of, form_of, matrix_of
from zeropoint.generation.settings import Settings, require_finite

# Our names -> those of the files; {i} is the number of a layer.
NAMES = {
    "embedding": "token_embd",
    "positions": "position_embd",
    "head": "output",
    "norm": "output_norm",
    "attention_norm": "blk.{i}.attn_norm",
    "attention_end_norm": "blk.{i}.post_attention_norm",
    "mlp_norm": "blk.{i}.ffn_norm",
    "mlp_end_norm": "blk.{i}.post_ffw_norm",
    "q_norm": "blk.{i}.attn_q_norm",
    "k_norm": "blk.{i}.attn_k_norm",
    "q": "blk.{i}.attn_q",
    "k": "blk.{i}.attn_k",
    "v": "blk.{i}.attn_v",
    "o": "blk.{i}.attn_output",
    "gate": "blk.{i}.ffn_gate",
    "up": "blk.{i}.ffn_up",
    "down": "blk.{i}.ffn_down",
}
FUSED = "blk.{i}.attn_qkv"
# Families -> what differs from Llama's.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"interleaved": True},
    "qwen2": {},
    "qwen3": {},
    "gemma": {"function": "gelu_tanh", "embedding": "root"},
    "gemma2": {"function": "gelu_tanh", "embedding": "root", "windows": 2},
    "gemma3": {"function": "gelu_tanh", "embedding": "root", "windows": 6},
    "phi2": {"norm": "layer", "function": "gelu_tanh", "gated": False, "parallel": True},
    "gpt2": {"norm": "layer", "function": "gelu_tanh", "gated": False, "rotates": False},
}


def gguf_decoder(file: Gguf, context: int | None) -> Decoder:
    """What the entries of a file say.

    Raises:
        GgufError: if one is missing or wrong, or the family is not supported.
    """
    family = file.metadata.get("general.architecture")
    if not isinstance(family, str) or family not in FAMILIES:
        raise GgufError(f"the family {family!r} is not supported; these are: {', '.join(FAMILIES)}")
    if str(file.metadata.get(f"{family}.expert_count", 0)) != "0":
        raise GgufError(f"the model is a mixture of experts of the family {family!r}, which is not supported")
    return _Entries(file, family).decoder(context)


class _Entries:
    def __init__(self, file: Gguf, family: str) -> None:
        self.file, self.family, self.differs = file, family, FAMILIES[family]
        of_family = {key.removeprefix(f"{family}."): value for key, value in file.metadata.items()}
        self.entries = Settings(of_family, f"the entry {family}.{{}}", GgufError)

    def decoder(self, context: int | None) -> Decoder:
        e = self.entries
        width, heads = e.whole("embedding_length"), e.whole("attention.head_count")
        dim = e.whole("attention.key_length", width // heads or None)
        trained = e.whole("context_length")
        vocabulary = self.file.tensor("token_embd.weight").shape[0] if "token_embd.weight" in self.file else 0
        eps = "layer_norm_epsilon" if self.differs.get("norm") == "layer" else "layer_norm_rms_epsilon"
        layers = e.whole("block_count", most=10_000)
        return Decoder(
            family=self.family,
            layers=layers,
            width=width,
            heads=heads,
            shared_heads=e.whole("attention.head_count_kv", heads),
            dim=dim,
            vocabulary=vocabulary,
            context=min(context or trained, trained),
            frequencies=self._frequencies(dim),
            norm=self.differs.get("norm", "rms"),
            eps=e.number(f"attention.{eps}", 1e-5),
            interleaved=self.differs.get("interleaved", False),
            function=self.differs.get("function", "silu"),
            gated=self.differs.get("gated", True),
            parallel=self.differs.get("parallel", False),
            embedding_factor=width**0.5 if self.differs.get("embedding") == "root" else 1.0,
            windows=self._windows(layers),
            attention_cap=e.bound("attn_logit_softcapping"),
            logit_cap=e.bound("final_logit_softcapping"),
        )

    def _windows(self, layers: int) -> tuple[int, ...]:
        every = self.differs.get("windows")
        if every is None:
            return ()
        if every == 6:
            raise GgufError("gemma3 has two kinds of angles, which is not supported yet")
        window = self.entries.whole("attention.sliding_window", 4096)
        return tuple(0 if (i + 1) % every == 0 else window for i in range(layers))

    def _frequencies(self, dim: int) -> np.ndarray:
        if not self.differs.get("rotates", True):
            return np.zeros(0, np.float32)
        scaling = self.entries.one_of(
            "rope.scaling.type", dict.fromkeys(("none", "linear")), "scaling of angles", "none"
        )
        rotated = self.entries.whole("rope.dimension_count", dim, most=dim)
        base = self.entries.number("rope.freq_base", 10000.0, most=1e12)
        frequencies = np.power(base, -np.arange(0, rotated, 2, dtype=np.float64) / rotated)
        if scaling == "linear":
            frequencies /= self.entries.number("rope.scaling.factor")
        if "rope_freqs.weight" in self.file:
            factors = floats_of(self.file.tensor("rope_freqs.weight"))
            if factors.shape != frequencies.shape or not (factors > 0).all():
                raise GgufError("rope_freqs.weight does not fit the angles")
            frequencies /= factors
        require_finite(frequencies, "angles", GgufError)
        return frequencies.astype(np.float32)


class GgufWeights:
    """The tensors of a file. Floats are rounded to `bits` bits in groups of `group`; integers are kept."""

    def __init__(self, file: Gguf, decoder: Decoder, bits: int, group: int) -> None:
        self.file, self.decoder, self.bits, self.group = file, decoder, bits, group
        self._used: set[str] = set()
        self.rounded: dict[str, str] = {}  # tensors that have not exactly the numbers of the file, and their format

    def unused(self) -> list[str]:
        """Tensors that nothing has read."""
        return [name for name in self.file.names() if name not in self._used and name != "rope_freqs.weight"]

    def _find(self, name: str, what: str) -> tuple[str, slice | None]:
        """The tensor of one of our names, and the rows of it."""
        layer, _, short = name.rpartition(".")
        own = f"{NAMES[short].format(i=layer)}.{what}" if short in NAMES else ""
        fused = f"{FUSED.format(i=layer)}.{what}"
        if own not in self.file and short in ("q", "k", "v") and fused in self.file:
            d = self.decoder
            ends = np.cumsum([0, d.heads * d.dim, d.shared_heads * d.dim, d.shared_heads * d.dim])
            at = "qkv".index(short)
            self._used.add(fused)
            return fused, slice(int(ends[at]), int(ends[at + 1]))
        self._used.add(own)
        return own, None

    def vector(self, name: str) -> np.ndarray | None:
        """A float32 vector, or None if the file has none."""
        is_bias = name.endswith(".bias")
        found, rows = self._find(name.removesuffix(".bias"), "bias" if is_bias else "weight")
        if found not in self.file:
            return None
        vector = floats_of(self.file.tensor(found))
        if vector.ndim != 1:
            raise GgufError(f"{found} must have one axis, its shape is {vector.shape}")
        return vector[rows] if rows is not None else vector

    def matrix(self, name: str) -> Matrix | None:
        """A matrix, or None if the file has none."""
        found, rows = self._find(name, "weight")
        if found not in self.file:
            return None
        tensor = self.file.tensor(found)
        if len(tensor.shape) != 2 or tensor.shape[1] % self.group:
            raise GgufError(f"{found} of shape {tensor.shape} is no matrix with groups of {self.group}")
        bits, minima, exact = form_of(tensor.format, self.bits)
        if not exact:
            self.rounded[found] = tensor.format
        if rows is None:
            return Matrix(*tensor.shape, bits, self.group, minima, lambda: matrix_of(tensor, self.bits, self.group))
        count = len(range(*rows.indices(tensor.shape[0])))
        return Matrix(
            count,
            tensor.shape[1],
            bits,
            self.group,
            minima,
            lambda: matrix_of(tensor, self.bits, self.group).rows(rows),
        )

    def floats(self, name: str) -> np.ndarray | None:
        """A matrix in float32, or None if the file has none."""
        found, rows = self._find(name, "weight")
        if found not in self.file:
            return None
        tensor = self.file.tensor(found)
        if len(tensor.shape) != 2:
            raise GgufError(f"{found} of shape {tensor.shape} is no matrix with groups of {self.group}")
        self.rounded[found] = tensor.format
        return floats_of(tensor)[rows if rows is not None else slice(None)]
