"""Tokenizers of program files: the text of a tokenizer.json in their metadata, run by the package tokenizers."""

from __future__ import annotations

from typing import Any

from zeropoint.installation import install_command


def tokenizer_of(text: str) -> Any:
    """The tokenizer that a tokenizer.json describes.

    Raises:
        ImportError: if the package is missing.
        ValueError: if the text is damaged.
    """
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise ImportError(f"text needs the package tokenizers: {install_command('text')}") from error
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the package raises plain exceptions
        raise ValueError(f"the tokenizer of the file is damaged: {str(error)[:200]}") from error
