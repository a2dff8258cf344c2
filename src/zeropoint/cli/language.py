"""Language models in the command line: what is one, and its options."""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from zeropoint.cli.output import show
from zeropoint.progress import during
from zeropoint.regular_file import open_regular

_MOST_TEXT = 1 << 20
_PANEL = "Language models (a GGUF file or a folder)"


class CacheType(str, Enum):
    """How keys and values are kept."""

    int8 = "int8"
    float16 = "float16"
    float32 = "float32"


Bits = Annotated[
    int, typer.Option("--bits", help="4 or 8: of weights that the file has as floats.", rich_help_panel=_PANEL)
]
Group = Annotated[int, typer.Option("--group", help="Inputs that share a scale: 32 or more.", rich_help_panel=_PANEL)]
Cache = Annotated[CacheType, typer.Option("--cache", help="How keys and values are kept.", rich_help_panel=_PANEL)]
Context = Annotated[
    int | None,
    typer.Option(
        "--context", help="The most tokens of a conversation; by default 4096 at most.", rich_help_panel=_PANEL
    ),
]
Sequences = Annotated[
    int, typer.Option("--sequences", help="Conversations side by side at most.", rich_help_panel=_PANEL)
]
Texts = Annotated[
    list[Path] | None,
    typer.Option(
        "--text",
        metavar="FILE",
        help="A text for which GPTQ chooses the integers; can be repeated.",
        rich_help_panel=_PANEL,
        exists=True,
        dir_okay=False,
    ),
]
Rotate = Annotated[bool, typer.Option("--rotate", help="Round rotated weights; see the guide.", rich_help_panel=_PANEL)]


def is_language_model(text: str) -> bool:
    """Whether it is a GGUF file, or a folder with a config.json."""
    return text.lower().endswith(".gguf") or (Path(text) / "config.json").is_file()


def quantize_language_model(source: str, output: Path, as_json: bool, texts: list[Path] | None, **options: Any) -> None:
    """Write the program of a language model, and say what was made."""
    from zeropoint.generation import compile_decoder
    from zeropoint.table import readable_bytes

    start = time.perf_counter()
    if texts:
        options["calibration"] = [_text(path) for path in texts]
    with during(f"writing {output}", progress=True):
        facts = compile_decoder(source, output, **options)
    facts = {"output": str(output), **facts, "seconds": round(time.perf_counter() - start, 3)}
    facts["next"] = f"zeropoint chat {output}"
    formats = sorted(set(facts["rounded"].values()))
    rounded = f"{len(facts['rounded'])} tensors were rounded: {', '.join(formats)}" if formats else "as in the file"
    lines = [
        f"model      {facts['family']}, up to {facts['context']} tokens",
        f"weights    {rounded}",
        f"size       {output}: {readable_bytes(facts['bytes'])}",
        f"took       {facts['seconds']:.1f} s",
        f"next       {facts['next']}",
    ]
    show("\n".join(lines), facts, as_json)


def _text(path: Path) -> str:
    """The beginning of a text file, more than calibration uses."""
    with open_regular(path) as file:
        return file.read(_MOST_TEXT).decode("utf-8", "replace")
