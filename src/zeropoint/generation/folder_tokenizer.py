"""The tokenizer of a folder or of transformers: its tokenizer.json, its first and last tokens, its chat format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zeropoint.described import described
from zeropoint.generation.chat_format import ChatFormat, recognized
from zeropoint.generation.tensor_files import read_json
from zeropoint.regular_file import open_regular


class FolderTokenizer:
    """What a language model needs of a tokenizer.

    Args:
        source: a folder, a tokenizer of transformers, or None for a model of tokens alone.
        config: the config.json of the model.
    """

    def __init__(self, source: Any, config: Mapping[str, Any]) -> None:
        self.text = ""
        settings: Mapping[str, Any] = {}
        if isinstance(source, (str, os.PathLike)):
            self.text, settings = _of_folder(Path(source))
        elif hasattr(source, "backend_tokenizer"):
            self.text = source.backend_tokenizer.to_str()
            names = ("bos_token", "eos_token", "add_bos_token", "chat_template")
            settings = {name: getattr(source, name, None) for name in names}
        elif source is not None:
            raise TypeError(f"tokenizer must be a folder, or a tokenizer of transformers, got {described(source)}")
        template = settings.get("chat_template")
        self.chat: ChatFormat | None = recognized(template) if isinstance(template, str) else None
        numbers = _numbers(self.text)
        ends = config.get("eos_token_id")
        listed = ends if isinstance(ends, list) else [ends]
        named = numbers.get(_content(settings.get("eos_token")))
        self.ends = tuple(sorted({n for n in [*listed, named] if type(n) is int and n >= 0}))
        begin = numbers.get(_content(settings.get("bos_token")))
        self.begin: int | None = begin if self._begins(settings) else None

    def _begins(self, settings: Mapping[str, Any]) -> bool:
        """Whether prompts begin with a token: as the settings say, or the tokenizer.json."""
        said = settings.get("add_bos_token")
        return bool(said) if said is not None else '"TemplateProcessing"' in self.text


def _of_folder(folder: Path) -> tuple[str, Mapping[str, Any]]:
    path, settings = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not path.exists():
        return "", {}
    with open_regular(path) as file:
        text = file.read().decode("utf-8", "strict")
    found = read_json(settings) if settings.exists() else {}
    template = folder / "chat_template.jinja"
    if template.exists():
        with open_regular(template) as file:
            found = {**found, "chat_template": file.read().decode("utf-8", "replace")}
    return text, found


def _content(token: Any) -> Any:
    """The text of a token, which may be written with its properties."""
    return token.get("content") if isinstance(token, dict) else token


def _numbers(text: str) -> dict[Any, int]:
    """Special tokens by their text."""
    if not text:
        return {}
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        from zeropoint.installation import install_command

        raise ImportError(f"tokenizers need the package tokenizers: {install_command('text')}") from error
    try:
        return dict(Tokenizer.from_str(text).get_vocab(with_added_tokens=True))
    except Exception as error:  # the package raises plain exceptions
        raise ValueError(f"the tokenizer.json is damaged: {error}") from error
