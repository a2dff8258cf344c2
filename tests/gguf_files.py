"""Small GGUF files: written entry by entry, and decoders of random weights."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8}


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    kind, dtype = (5, "<i4") if isinstance(value[0], int) else (6, "<f4")
    return struct.pack("<IIQ", 9, kind, len(value)) + np.asarray(value, dtype).tobytes()


def gguf_bytes(
    entries: dict[str, Any], tensors: dict[str, tuple[str, tuple[int, ...], bytes]], version: int = 3
) -> bytes:
    """A file of these entries and tensors (format, shape, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    head += b"".join(_text(key) + _value(value) for key, value in entries.items())
    data = b""
    for name, (form, shape, content) in tensors.items():
        head += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        head += struct.pack("<IQ", _TYPES[form], len(data))
        data += content + b"\0" * (-len(content) % 32)
    return head + b"\0" * (-len(head) % 32) + data


def _groups(w: np.ndarray) -> np.ndarray:
    return w.astype(np.float32).reshape(-1, 32)


def _nibbles(q: np.ndarray) -> np.ndarray:
    return (q[:, :16] | q[:, 16:] << 4).astype(np.uint8)


def q4_0(w: np.ndarray) -> bytes:
    """Blocks of Q4_0."""
    x = _groups(w)
    d = (np.abs(x).max(-1, keepdims=True) / 7).astype(np.float16)
    q = np.clip(np.rint(x / np.maximum(d.astype(np.float32), 1e-8)) + 8, 0, 15).astype(np.uint8)
    return np.concatenate([d.view(np.uint8), _nibbles(q)], -1).tobytes()


def q4_1(w: np.ndarray) -> bytes:
    """Blocks of Q4_1."""
    x = _groups(w)
    m = x.min(-1, keepdims=True).astype(np.float16)
    d = ((x.max(-1, keepdims=True) - m.astype(np.float32)) / 15).astype(np.float16)
    q = np.clip(np.rint((x - m.astype(np.float32)) / np.maximum(d.astype(np.float32), 1e-8)), 0, 15).astype(np.uint8)
    return np.concatenate([d.view(np.uint8), m.view(np.uint8), _nibbles(q)], -1).tobytes()


def q8_0(w: np.ndarray) -> bytes:
    """Blocks of Q8_0."""
    x = _groups(w)
    d = (np.abs(x).max(-1, keepdims=True) / 127).astype(np.float16)
    q = np.clip(np.rint(x / np.maximum(d.astype(np.float32), 1e-8)), -127, 127).astype(np.int8)
    return np.concatenate([d.view(np.uint8), q.view(np.uint8)], -1).tobytes()


_WRITERS = {"Q4_0": q4_0, "Q4_1": q4_1, "Q8_0": q8_0, "F32": lambda w: w.astype("<f4").tobytes()}


def decoder_file(
    path: Path,
    family: str = "llama",
    form: str = "Q4_0",
    *,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    shared_heads: int = 2,
    words: int = 40,
    seed: int = 0,
    entries: dict[str, Any] | None = None,
) -> Path:
    """A decoder with random weights, and a tokenizer of single letters."""
    random = np.random.default_rng(seed)
    hidden, dim = width + 32, width // heads
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]] = {}

    def matrix(name: str, *shape: int) -> None:
        w = random.normal(0, 0.15, shape)
        tensors[f"{name}.weight"] = form, shape, _WRITERS[form](w)

    def vector(name: str, size: int, around: float = 1.0) -> None:
        tensors[name] = "F32", (size,), random.normal(around, 0.1, size).astype("<f4").tobytes()

    is_layer_norm, gated = family in ("gpt2", "phi2"), family not in ("gpt2", "phi2")

    def norm(name: str) -> None:
        vector(f"{name}.weight", width)
        if is_layer_norm:
            vector(f"{name}.bias", width, 0.0)

    matrix("token_embd", words, width)
    if family == "gpt2":
        matrix("position_embd", 64, width)
    for i in range(layers):
        norm(f"blk.{i}.attn_norm")
        if family == "gpt2" or family == "phi2":
            matrix(f"blk.{i}.attn_qkv", (heads + 2 * shared_heads) * dim, width)
            vector(f"blk.{i}.attn_qkv.bias", (heads + 2 * shared_heads) * dim, 0.0)
        else:
            for name, count in (("q", heads), ("k", shared_heads), ("v", shared_heads)):
                matrix(f"blk.{i}.attn_{name}", count * dim, width)
                if family == "qwen2":
                    vector(f"blk.{i}.attn_{name}.bias", count * dim, 0.0)
        if family == "qwen3":
            vector(f"blk.{i}.attn_q_norm.weight", dim)
            vector(f"blk.{i}.attn_k_norm.weight", dim)
        matrix(f"blk.{i}.attn_output", width, heads * dim)
        if family == "gemma2":
            norm(f"blk.{i}.post_attention_norm")
            norm(f"blk.{i}.post_ffw_norm")
        if family != "phi2":
            norm(f"blk.{i}.ffn_norm")
        for name in ("gate", "up") if gated else ("up",):
            matrix(f"blk.{i}.ffn_{name}", hidden, width)
        matrix(f"blk.{i}.ffn_down", width, hidden)
        if not gated:
            vector(f"blk.{i}.ffn_up.bias", hidden, 0.0)
            vector(f"blk.{i}.ffn_down.bias", width, 0.0)
    norm("output_norm")
    if family not in ("gemma", "gemma2", "gpt2"):
        matrix("output", words, width)
    eps = "attention.layer_norm_epsilon" if is_layer_norm else "attention.layer_norm_rms_epsilon"
    sizes = {
        "context_length": 64,
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": hidden,
        "attention.head_count": heads,
        "attention.head_count_kv": shared_heads,
        eps: 1e-5,
    }
    if family == "gemma2":
        sizes |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.sliding_window": 8}
    if family == "phi2":
        sizes["rope.dimension_count"] = dim // 2
    found: dict[str, Any] = {"general.architecture": family} | {f"{family}.{key}": n for key, n in sizes.items()}
    path.write_bytes(gguf_bytes(found | _tokens(words) | (entries or {}), tensors))
    return path


def _tokens(words: int) -> dict[str, Any]:
    letters = [chr(ord("a") + i) for i in range(26)] + ["\u0120", "\u010a", ".", "ab"]
    tokens = [*WORDS, *letters]
    tokens += [f"<extra {i}>" for i in range(words - len(tokens))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(WORDS) + [1] * len(letters) + [4] * (words - len(WORDS) - len(letters)),
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{% for m in messages %}<|im_start|>{{ m }}<|im_end|>{% endfor %}",
    }


def piece_entries(words: int) -> dict[str, Any]:
    """A tokenizer of SentencePiece's kind, instead of that of GPT-2's: scores in place of pairs."""
    letters = [chr(ord("a") + i) for i in range(26)] + ["\u2581", "\u2581a", "<0x2E>", "ab"]
    tokens = [*WORDS, *letters]
    tokens += [f"<extra {i}>" for i in range(words - len(tokens))]
    scores = [0.0] * words
    scores[tokens.index("ab")], scores[tokens.index("\u2581a")] = -1.0, -2.0
    types = [2] + [3] * (len(WORDS) - 1) + [1] * len(letters) + [4] * (words - len(WORDS) - len(letters))
    types[tokens.index("<0x2E>")] = 6
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": True,
    }
