"""Entries of GGUF files: how they are written, and those of a tokenizer and a chat format."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from zeropoint.generation.about import About
from zeropoint.generation.chat_format import known_format
from zeropoint.generation.gguf_tokenizer import BYTE, CONTROL, CUTS, NORMAL, UNKNOWN, UNUSED, USER

_LEAST = -1e9  # the score of a piece that no pair makes
_MARKS = set("{}'\"\\%")


def text_bytes(text: str) -> bytes:
    """A text as files have it."""
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry_bytes(value: Any) -> bytes:
    """The type and the value of an entry; lists of texts, of floats and of whole numbers are arrays."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text_bytes(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text_bytes, value))
    kind, dtype = (5, "<i4") if isinstance(value[0], int) else (6, "<f4")
    return struct.pack("<IIQ", 9, kind, len(value)) + np.asarray(value, dtype).tobytes()


def vocabulary(about: About, count: int) -> dict[str, Any]:
    """The tokenizer of a model whose embedding has `count` rows, and the tokens that begin and end texts.

    Raises:
        ValueError: if there is none, or GGUF files cannot have it.
    """
    if not about.tokenizer:
        raise ValueError("the program has no tokenizer, and a GGUF file must have one: pass it to compile_decoder")
    try:
        found = _entries(json.loads(about.tokenizer), count)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"the tokenizer of the program is damaged ({type(error).__name__})") from error
    found["add_bos_token"] = about.begin is not None
    if about.begin is not None:
        found["bos_token_id"] = about.begin
    # The one behind an answer of the chat format, then others.
    mark = about.chat.around["assistant"][1].strip() if about.chat is not None else None
    ends = sorted(about.ends, key=lambda end: end >= count or found["tokens"][end] != mark)
    found |= dict(zip(("eos_token_id", "eot_token_id"), ends))
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


def _entries(facts: Any, count: int) -> dict[str, Any]:
    model = facts["model"]
    if model["type"] != "BPE":
        raise ValueError(f"tokenizers of the kind {str(model['type'])[:40]!r} cannot be written, only BPE")
    number: dict[str, int] = dict(model["vocab"])
    added = {token["content"]: token for token in facts["added_tokens"]}
    number |= {text: token["id"] for text, token in added.items()}
    text_of = {at: text for text, at in number.items()}
    if not all(type(at) is int and 0 <= at < count for at in text_of) or len(text_of) != len(number):
        raise ValueError(f"the tokenizer has {len(number)} tokens that are no numbers below {count}, the model's rows")
    is_pieces = bool(model.get("byte_fallback"))
    unknown = model.get("unk_token")

    def kind(at: int) -> int:
        text = text_of.get(at)
        if text is None:
            return UNUSED
        if text in added:
            return UNKNOWN if text == unknown else CONTROL if added[text]["special"] else USER
        is_byte = is_pieces and len(text) == 6 and text.startswith("<0x") and text.endswith(">")
        return BYTE if is_byte else UNKNOWN if text == unknown else NORMAL

    merges = [tuple(pair.split(" ", 1)) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
    found: dict[str, Any] = {
        "model": "llama" if is_pieces else "gpt2",
        "tokens": [text_of.get(at, f"[PAD{at}]") for at in range(count)],
        "token_type": [kind(at) for at in range(count)],
    }
    if isinstance(unknown, str):
        found["unknown_token_id"] = number[unknown]
    if not is_pieces:
        return found | {"pre": _cut(facts), "merges": [f"{a} {b}" for a, b in merges]}
    rank: dict[str, int] = {}
    for a, b in merges:
        rank.setdefault(a + b, len(rank))
    scores = [-float(rank[text_of[at]]) if text_of.get(at) in rank else _LEAST for at in range(count)]
    return found | {"scores": scores, "add_space_prefix": _prepends(facts)}


def _cut(facts: Any) -> str:
    """How texts are cut before bytes are paired, as GGUF files call it."""
    before = facts["pre_tokenizer"]
    parts = before["pretokenizers"] if before["type"] == "Sequence" else [before]
    *first, last = parts
    is_alone = last["type"] == "ByteLevel" and not last["add_prefix_space"] and len(first) <= 1
    normalizer = (facts["normalizer"] or {"type": "NFC"})["type"]
    if is_alone and normalizer == "NFC":
        if not first and last["use_regex"]:
            return "gpt-2"
        if first and first[0]["type"] == "Digits" and first[0]["individual_digits"] and last["use_regex"]:
            return "smollm"
        if first and first[0]["type"] == "Split" and first[0]["behavior"] == "Isolated" and not last["use_regex"]:
            pattern = first[0]["pattern"].get("Regex")
            for name, known in CUTS.items():
                if pattern == known:
                    return name
    raise ValueError("the tokenizer cuts texts in a way that GGUF files have no name for that zeropoint knows")


def _prepends(facts: Any) -> bool:
    """Whether texts get a space in front."""
    normalizer = facts["normalizer"]
    steps = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    kinds = [step["type"] for step in steps]
    if kinds not in (["Prepend", "Replace"], ["Replace"]) or facts["pre_tokenizer"] is not None:
        raise ValueError("the tokenizer changes texts in a way that GGUF files cannot have")
    return len(kinds) == 2


def chat_template(about: About) -> dict[str, Any]:
    """A template that writes the chat format, made of zeropoint's own texts; none where the format is another."""
    form = None if about.chat is None else known_format(about.chat.name)
    if form is None or about.chat is None or about.chat.around != form.around:
        return {}
    around = form.around
    cases = "".join(
        f"{{% {'el' if at else ''}if message['role'] == '{role}' %}}"
        f"{{{{ '{before}' + message['content'] + '{behind}' }}}}"
        for at, (role, (before, behind)) in enumerate(around.items())
    )
    system = about.chat.system
    first = ""
    if system and not _MARKS & set(system):
        before, behind = around["system"]
        first = f"{{% if messages[0]['role'] != 'system' %}}{{{{ '{before}{system}{behind}' }}}}{{% endif %}}"
    template = f"{first}{{% for message in messages %}}{cases}{{% endif %}}{{% endfor %}}"
    template += f"{{% if add_generation_prompt %}}{{{{ '{around['assistant'][0]}' }}}}{{% endif %}}"
    return {"tokenizer.chat_template": template}
