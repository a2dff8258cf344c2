"""Decoders as transformers keeps them: sizes from config.json, tensors by the names of their modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from zeropoint.generation.decoder import Decoder, Matrix
from zeropoint.generation.group_weights import UNIT, GroupMatrix, quantized
from zeropoint.generation.packed_checkpoint import PackedCheckpoint
from zeropoint.generation.settings import Settings, require_finite
from zeropoint.generation.tensor_files import Tensors

_ROOT, _LAYER = "model.", "model.layers.{i}."
_NAMES = {
    "embedding": _ROOT + "embed_tokens",
    "head": "lm_head",
    "norm": _ROOT + "norm",
    "attention_norm": _LAYER + "input_layernorm",
    "mlp_norm": _LAYER + "post_attention_layernorm",
    "q": _LAYER + "self_attn.q_proj",
    "k": _LAYER + "self_attn.k_proj",
    "v": _LAYER + "self_attn.v_proj",
    "q_norm": _LAYER + "self_attn.q_norm",
    "k_norm": _LAYER + "self_attn.k_norm",
    "o": _LAYER + "self_attn.o_proj",
    "gate": _LAYER + "mlp.gate_proj",
    "up": _LAYER + "mlp.up_proj",
    "down": _LAYER + "mlp.down_proj",
    "qkv": _LAYER + "self_attn.qkv_proj",
    "gate_up": _LAYER + "mlp.gate_up_proj",
}
_GPT2 = {
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "head": "lm_head",
    "norm": "transformer.ln_f",
    "attention_norm": "transformer.h.{i}.ln_1",
    "mlp_norm": "transformer.h.{i}.ln_2",
    "qkv": "transformer.h.{i}.attn.c_attn",
    "o": "transformer.h.{i}.attn.c_proj",
    "up": "transformer.h.{i}.mlp.c_fc",
    "down": "transformer.h.{i}.mlp.c_proj",
}
_PHI = {"norm": _ROOT + "final_layernorm", "o": _LAYER + "self_attn.dense"}
_PHI |= {"up": _LAYER + "mlp.fc1", "down": _LAYER + "mlp.fc2"}
_GEMMA2 = {
    "attention_end_norm": _LAYER + "post_attention_layernorm",
    "mlp_norm": _LAYER + "pre_feedforward_layernorm",
    "mlp_end_norm": _LAYER + "post_feedforward_layernorm",
}
_GEMMA: dict[str, Any] = {"root_embedding": True, "raised_norms": True, "defaults": {"head_dim": 256}}
_GEMMA2_DEFAULTS = {
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
# Families -> what differs from Llama's; `defaults` are settings that a config.json may lack.
_FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"defaults": {"use_sliding_window": False}},
    "qwen3": {"defaults": {"use_sliding_window": False, "head_dim": 128}},
    "phi3": {},
    "gemma": _GEMMA,
    "gemma2": {**_GEMMA, "names": _NAMES | _GEMMA2, "alternates": True, "defaults": _GEMMA2_DEFAULTS},
    "phi": {
        "norm": "layer",
        "gated": False,
        "parallel": True,
        "names": _NAMES | _PHI,
        "defaults": {"partial_rotary_factor": 0.5},
    },
    "gpt2": {"norm": "layer", "gated": False, "rotates": False, "names": _GPT2, "turned": True},
}
_FUNCTIONS = {"silu": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
# What GPT-2 and others call the sizes that Llama names otherwise.
_OTHER_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function",
}
# Settings of these families that change what a model computes, and the value that changes nothing.
_WITHOUT = {
    "use_bidirectional_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "qk_layernorm": False,
}
_KINDS = ("sliding_attention", "full_attention")  # of layers
_SCALINGS = dict.fromkeys(("default", "linear", "llama3"))  # of angles
_PACKED = (".qweight", ".weight_packed", "._weight_qdata")  # parts of packed layers
# Buffers of modules, which are not weights.
_NOT_WEIGHTS = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")


def folder_decoder(config: Mapping[str, Any], context: int | None) -> Decoder:
    """What a config.json says.

    Raises:
        ValueError: if something is missing or wrong, or the family is not supported.
    """
    return _Config(config).decoder(context)


class _Config:
    def __init__(self, config: Mapping[str, Any]) -> None:
        named = "{} of config.json"
        self.family = Settings(config, named).one_of("model_type", _FAMILIES, "family")
        self.differs = _FAMILIES[self.family]
        self.settings = Settings(self.differs.get("defaults", {}) | config, named, others=_OTHER_KEYS)
        for key, neutral in _WITHOUT.items():
            if self.settings.flag(key, neutral) is not neutral:
                raise ValueError(f"{key} of config.json is {not neutral}, which is not supported")

    def decoder(self, context: int | None) -> Decoder:
        s = self.settings
        width, heads = s.whole("hidden_size"), s.whole("num_attention_heads")
        layers = s.whole("num_hidden_layers", most=10_000)
        dim = s.whole("head_dim", width // heads or None)
        trained = s.whole("max_position_embeddings")
        acts = "hidden_activation" if s.get("hidden_activation") is not None else "hidden_act"
        has_scale = "query_pre_attn_scalar" in s.values
        return Decoder(
            family=self.family,
            layers=layers,
            width=width,
            heads=heads,
            shared_heads=s.whole("num_key_value_heads", heads),
            dim=dim,
            vocabulary=s.whole("vocab_size"),
            context=min(context or trained, trained),
            frequencies=self._frequencies(dim),
            norm=self.differs.get("norm", "rms"),
            eps=s.number("layer_norm_eps" if self.family == "phi" else "rms_norm_eps"),
            function=_FUNCTIONS[s.one_of(acts, _FUNCTIONS, "function", "silu")],
            gated=self.differs.get("gated", True),
            parallel=self.differs.get("parallel", False),
            embedding_factor=width**0.5 if self.differs.get("root_embedding") else 1.0,
            scale=s.number("query_pre_attn_scalar") ** -0.5 if has_scale else None,
            windows=self._windows(layers),
            attention_cap=s.bound("attn_logit_softcapping"),
            logit_cap=s.bound("final_logit_softcapping"),
        )

    def _windows(self, layers: int) -> tuple[int, ...]:
        s = self.settings
        if s.get("sliding_window") is None or not s.flag("use_sliding_window", True):
            return ()
        kinds = s.get("layer_types")
        if kinds is None:
            first = s.whole("max_window_layers") if "use_sliding_window" in s.values else 0
            slides = [i >= first and (not self.differs.get("alternates") or i % 2 == 0) for i in range(layers)]
        elif isinstance(kinds, list) and len(kinds) == layers and all(kind in _KINDS for kind in kinds):
            slides = [kind == _KINDS[0] for kind in kinds]
        else:
            raise ValueError(f"layer_types of config.json must be {layers} of {' and '.join(_KINDS)}")
        size = s.whole("sliding_window")
        return tuple(size if slide else 0 for slide in slides)

    def _frequencies(self, dim: int) -> np.ndarray:
        if not self.differs.get("rotates", True):
            return np.zeros(0, np.float32)
        whole = {key: self.settings.get(key) for key in ("rope_theta", "partial_rotary_factor")}
        parts = {**whole, **self.settings.parts("rope_scaling"), **self.settings.parts("rope_parameters")}
        rope = Settings(parts, "{} of rope_scaling or rope_parameters in config.json", others={"rope_type": "type"})
        kind = rope.one_of("rope_type", _SCALINGS, "scaling of angles", "default")
        rotated = int(dim * rope.number("partial_rotary_factor", 1.0, most=1.0)) // 2 * 2
        if rotated == 0:
            raise ValueError(
                f"partial_rotary_factor of config.json must leave some of the {dim} numbers of a head to rotate"
            )
        base = rope.number("rope_theta", 10000.0, most=1e12)
        frequencies = np.power(base, -np.arange(0, rotated, 2, dtype=np.float64) / rotated)
        if kind == "linear":
            frequencies /= rope.number("factor")
        elif kind == "llama3":
            frequencies = _llama3(frequencies, rope)
        rope.require_all_read()
        require_finite(frequencies, "angles")
        return frequencies.astype(np.float32)


def _llama3(frequencies: np.ndarray, rope: Settings) -> np.ndarray:
    """Slow angles are slower by a factor; those in between are a mixture."""
    factor, low, high = (rope.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if high <= low:
        raise ValueError(f"high_freq_factor of config.json must be above low_freq_factor, got {high:g} and {low:g}")
    turns = rope.number("original_max_position_embeddings") * frequencies / (2 * np.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return share * frequencies + (1 - share) * frequencies / factor


class FolderWeights:
    """The tensors of a model, rounded to groups: the embedding and the last layer to 8 bits, the others to `bits`.

    Args:
        packed: how the weights are packed, if they are.
        tied: whether config.json says that the last layer is the embedding again; None if it says nothing.
    """

    def __init__(
        self,
        tensors: Tensors,
        decoder: Decoder,
        bits: int,
        group: int,
        packed: PackedCheckpoint | None = None,
        tied: Any = None,
    ) -> None:
        self.tensors, self.decoder, self.bits, self.group, self.packed = tensors, decoder, bits, group, packed
        self.differs = _FAMILIES[decoder.family]
        self._names: dict[str, str] = self.differs.get("names", _NAMES)
        self._all = set(tensors.names())
        packed_ones = sorted(name for name in self._all if name.endswith(_PACKED))
        if packed is None and packed_ones:
            raise ValueError(f"{packed_ones[0]} has packed weights, and config.json has no quantization_config")
        if tied is False and "lm_head.weight" not in self._all:
            raise ValueError("tie_word_embeddings of config.json is False, so the model needs an lm_head.weight")
        self._used: set[str] = set()
        self.rounded: dict[str, str] = {}  # matrices that were rounded, and their dtype
        prefix = "transformer." if decoder.family == "gpt2" else "model."
        self._prefix = "" if any(name.startswith(prefix) for name in self._all) else prefix

    def unused(self) -> list[str]:
        """Tensors that nothing has read."""
        left = {name for name in self._all - self._used if not name.endswith(_NOT_WEIGHTS)}
        return sorted(left - {"lm_head.weight"} if "lm_head.weight" in self._ties() else left)

    def _ties(self) -> set[str]:
        """The last layer, where it is the embedding again."""
        name, table = "lm_head.weight", f"{self._names['embedding']}.weight".removeprefix(self._prefix)
        if name not in self._all or table not in self._all or self.tensors.shape(name) != self.tensors.shape(table):
            return set()
        return {name} if np.array_equal(self.tensors.raw(name), self.tensors.raw(table)) else set()

    def _find(self, name: str, what: str) -> tuple[str, slice | None] | None:
        """A tensor by our name, and its outputs if it is a part of one."""
        layer, _, short = name.rpartition(".")
        d = self.decoder
        for whole, parts in (("", (short,)), ("qkv", ("q", "k", "v")), ("gate_up", ("gate", "up"))):
            pattern = self._names.get(whole or short)
            if short not in parts or pattern is None:
                continue
            own = self._mark(pattern.format(i=layer)) if what == "weight" else what
            found = f"{pattern.format(i=layer)}.{own}".removeprefix(self._prefix)
            if found not in self._all:
                continue
            self._used.add(found)
            if not whole:
                return found, None
            axis = -1 if self.differs.get("turned") or own == "bias" else 0
            count = self.tensors.shape(found)[
                self.packed.outputs_axis if self.packed is not None and own == self.packed.mark else axis
            ]
            sizes = [d.heads * d.dim] + [d.shared_heads * d.dim] * 2 if whole == "qkv" else [count // 2] * 2
            ends = np.cumsum([0, *sizes])
            at = parts.index(short)
            return found, slice(int(ends[at]), int(ends[at + 1]))
        return None

    def _mark(self, layer: str) -> str:
        """The tensor of a layer's weight that is looked for: that of the packing, if the layer is packed."""
        mark = "weight" if self.packed is None else self.packed.mark
        return mark if f"{layer}.{mark}".removeprefix(self._prefix) in self._all else "weight"

    def vector(self, name: str) -> np.ndarray | None:
        """A float32 vector, or None if the model has none."""
        is_bias = name.endswith(".bias")
        found = self._find(name.removesuffix(".bias"), "bias" if is_bias else "weight")
        if found is None:
            return None
        values = self.tensors.raw(found[0])
        if values.ndim != 1:
            raise ValueError(f"{found[0]} must have one axis, its shape is {values.shape}")
        raised = 1 if self.differs.get("raised_norms") and name.endswith("norm") else 0
        return (values if found[1] is None else values[found[1]]) + np.float32(raised)

    def matrix(self, name: str) -> Matrix | None:
        """A matrix, or None if the model has none."""
        found = self._find(name, "weight")
        if found is None or (name == "head" and found[0] in self._ties()):
            return None
        if self.packed is not None and found[0].endswith(f".{self.packed.mark}"):
            return self._packed_matrix(self.packed, found[0].removesuffix(f".{self.packed.mark}"), found[1])
        turned = self._is_turned(name)
        shape = self.tensors.shape(found[0])
        if len(shape) != 2:
            raise ValueError(f"{found[0]} must have two axes, its shape is {shape}")
        outputs, inputs = shape[::-1] if turned else shape
        rows = slice(0, outputs) if found[1] is None else found[1]
        group = self.group if inputs % self.group == 0 else UNIT
        if inputs % group:
            raise ValueError(f"{found[0]} has {inputs} inputs, which are no groups of {UNIT}")
        self.rounded[found[0]] = "float"
        bits = 8 if name in ("embedding", "positions", "head") else self.bits
        return Matrix(
            len(range(*rows.indices(outputs))),
            inputs,
            bits,
            group,
            False,
            self._maker(found[0], rows, turned, bits, group),
        )

    def floats(self, name: str) -> np.ndarray | None:
        """A matrix in float32, or None if the model has none."""
        made = self.matrix(name)
        if made is None:
            return None
        found = self._find(name, "weight")
        assert found is not None
        if self.packed is not None and found[0].endswith(f".{self.packed.mark}"):
            return made.make().floats()
        values = self.tensors.raw(found[0])
        return (values.T if self._is_turned(name) else values)[slice(None) if found[1] is None else found[1]]

    def _is_turned(self, name: str) -> bool:
        return bool(self.differs.get("turned", False)) and name not in ("embedding", "positions", "head")

    def _packed_matrix(self, packed: PackedCheckpoint, layer: str, rows: slice | None) -> Matrix:
        self._used |= self._all & {f"{layer}.{part}" for part in packed.parts}
        matrix, rounded = packed.matrix(self.tensors, layer)
        if rounded:
            self.rounded[layer] = f"integers, {rounded}"
        if rows is None:
            return matrix
        count = len(range(*rows.indices(matrix.outputs)))
        return replace(matrix, outputs=count, make=lambda: matrix.make().rows(rows))

    def _maker(self, name: str, rows: slice, turned: bool, bits: int, group: int) -> Callable[[], GroupMatrix]:
        def make() -> GroupMatrix:
            values = self.tensors.raw(name)
            try:
                return quantized((values.T if turned else values)[rows], bits, group)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None

        return make
