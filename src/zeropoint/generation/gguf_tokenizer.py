"""The tokenizer of a GGUF file as a tokenizer.json, and the tokens that begin and end texts."""

from __future__ import annotations

from typing import Any

from zeropoint.generation.chat_format import ChatFormat, recognized
from zeropoint.generation.gguf import Gguf, GgufError
from zeropoint.installation import install_command

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # types of tokens
_MOST_CHARACTERS = 4096
_LONGEST, _MOST_PAIRS = 256, 5  # characters of a token that are looked at, pairs of pieces for each token
# How texts are cut before bytes are paired, in the syntax of the package tokenizers.
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CUTS = {
    "qwen2": rf"{_ENDINGS}|{_LETTERS}|\p{{N}}|{_REST}",
    "llama-bpe": rf"{_ENDINGS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}",
}
_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")  # single digits, then as GPT-2
_PLAIN = ("gpt-2", "default", "phi-2", "olmo")
# Tokens that end an answer, beside the one that the file names.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "</s>", "<|end_of_text|>")


def gguf_tokenizer(file: Gguf) -> str:
    """The tokenizer.json.

    Raises:
        ImportError: if the package tokenizers is missing.
        GgufError: if the kind is not supported, or its entries are damaged.
    """
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        raise ImportError(f"tokenizers of GGUF files need the package tokenizers: {install_command('text')}") from error
    tokens, types = _tokens(file)
    kind = file.metadata.get("tokenizer.ggml.model")
    try:
        if kind == "gpt2":
            made = _of_bytes(file, tokens)
        elif kind == "llama":
            made = _of_pieces(file, tokens)
        else:
            raise GgufError(f"the tokenizer {str(kind)[:40]!r} is not supported, only gpt2 and llama")
        for mark, special in ((CONTROL, True), (USER, False)):
            added = [text for text, found in zip(tokens, types) if found == mark]
            made.add_tokens([tokenizers.AddedToken(text, special=special, normalized=False) for text in added])
    except GgufError:
        raise
    except Exception as error:  # the package raises plain exceptions
        raise GgufError(f"the tokenizer of the file is damaged: {error}") from error
    if made.get_vocab_size() != len(set(tokens)):
        raise GgufError("the tokenizer of the file has marks that are no tokens")
    text: str = made.to_str()
    return text


def _tokens(file: Gguf) -> tuple[list[str], list[int]]:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    types = file.metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise GgufError("the file has no tokens")
    if (longest := max(map(len, tokens))) > _MOST_CHARACTERS:
        raise GgufError(f"the file has a token of {longest} characters, and more than {_MOST_CHARACTERS} are not read")
    if types is None:
        return tokens, [NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise GgufError(f"the file has {len(tokens)} tokens, and types for {len(types)}")
    return tokens, [int(n) for n in types]


def _of_bytes(file: Gguf, tokens: list[str]) -> Any:
    """A tokenizer that pairs bytes, as that of GPT-2."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    merges = [tuple(text.split(" ", 1)) for text in file.metadata.get("tokenizer.ggml.merges", [])]
    if not merges or any(len(pair) != 2 for pair in merges):
        raise GgufError("the file has no pairs of bytes")
    cut = str(file.metadata.get("tokenizer.ggml.pre", "default"))
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut not in CUTS)
    first: Any = None
    if cut in CUTS:
        first = pre_tokenizers.Split(Regex(CUTS[cut]), "isolated")
    elif cut in _DIGITS:
        first = pre_tokenizers.Digits(individual_digits=True)
    elif cut not in _PLAIN:
        known = ", ".join([*CUTS, *_DIGITS, *_PLAIN])
        raise GgufError(f"texts are cut as {cut[:40]!r}, which is not supported; these are: {known}")
    model = models.BPE({token: at for at, token in enumerate(tokens)}, merges, ignore_merges=cut == "llama-bpe")
    made = Tokenizer(model)
    made.pre_tokenizer = plain if first is None else pre_tokenizers.Sequence([first, plain])
    made.decoder = decoders.ByteLevel()
    return made


def _of_pieces(file: Gguf, tokens: list[str]) -> Any:
    """A tokenizer that pairs characters by the scores of the results, as SentencePiece's."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = file.metadata.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(tokens):
        raise GgufError("the file has no score for each token")
    number = {token: at for at, token in enumerate(tokens)}
    pairs: list[tuple[float, int, int, tuple[str, str]]] = []
    for at, token in enumerate(tokens):
        parts = [(token[:n], token[n:]) for n in range(1, min(len(token), _LONGEST))]
        found = [(a, b) for a, b in parts if a in number and b in number]
        if len(pairs) > _MOST_PAIRS * len(tokens) + _LONGEST:
            raise GgufError(f"the tokenizer has more than {_MOST_PAIRS} pairs for each token")
        pairs += [(-float(scores[at]), number[a], number[b], (a, b)) for a, b in found]
    unknown = tokens[int(file.metadata.get("tokenizer.ggml.unknown_token_id", 0))]
    model = models.BPE(
        number, [pair for *_, pair in sorted(pairs)], unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    made = Tokenizer(model)
    steps: list[Any] = [normalizers.Replace(" ", "\u2581")]
    ends: list[Any] = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    if file.metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("\u2581"))
        ends.append(decoders.Strip(" ", 1, 0))
    made.normalizer, made.decoder = normalizers.Sequence(steps), decoders.Sequence(ends)
    return made


def gguf_ends(file: Gguf) -> tuple[int | None, tuple[int, ...]]:
    """The token that prompts begin with, or None; and the tokens that end answers."""
    tokens, types = _tokens(file)
    begins = file.metadata.get("tokenizer.ggml.add_bos_token", file.metadata.get("tokenizer.ggml.model") == "llama")
    begin = file.metadata.get("tokenizer.ggml.bos_token_id") if begins else None
    ends = {at for at, (token, kind) in enumerate(zip(tokens, types)) if kind == CONTROL and token in _ENDS}
    for key in ("eos_token_id", "eot_token_id"):
        end = file.metadata.get(f"tokenizer.ggml.{key}")
        if isinstance(end, int) and 0 <= end < len(tokens):
            ends.add(end)
    return (begin if isinstance(begin, int) and 0 <= begin < len(tokens) else None), tuple(sorted(ends))


def gguf_chat(file: Gguf) -> ChatFormat | None:
    """How messages become a prompt, if the file has a template that is known."""
    template = file.metadata.get("tokenizer.chat_template", "")
    return recognized(template) if isinstance(template, str) else None
