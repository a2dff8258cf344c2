"""A folder of images as samples, in the size, the channels and the range of values that an image model takes."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from zeropoint.cli.output import note
from zeropoint.described import shortened
from zeropoint.installation import install_command

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
DEFAULT_SIZE = 224  # if the model takes any
MARGIN = 8 / 7  # the image is resized to this many times the size, and its center is cut out, as 256 is to 224
MOST_SIZE = 8192
# Of pixels, which are 0 to 255: what is subtracted, and what the result is divided by.
_MEAN, _DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
RANGES: dict[str, tuple[Any, Any]] = {
    "imagenet": (255 * _MEAN, 255 * _DEVIATION),
    "unit": (0.0, 255.0),
    "signed": (127.5, 127.5),
    "byte": (0.0, 1.0),
}


def is_images(text: str) -> bool:
    """Whether DATA is a folder, with or without options."""
    return Path(text.partition(",")[0]).is_dir()


def check_images(text: str) -> None:
    """What is checked before any work: the options, that there are images, and what reads them."""
    folder, _, _ = _parts(text)
    if not _files(folder):
        raise typer.BadParameter(f"{folder} has no images: their names end in {', '.join(SUFFIXES)}")
    if importlib.util.find_spec("PIL") is None:
        raise typer.BadParameter(f"{folder} is a folder of images, which need Pillow: {install_command('images')}")


def images(text: str, names: Sequence[str], shapes: Sequence[tuple[Any, ...]], samples: int) -> Any:
    """Images as one array, the first axis the samples: evenly from all of the folder, which may have folders in it.

    Args:
        names, shapes: the inputs of the model; no shapes if they are not known.
    """
    folder, pixels, wanted = _parts(text)
    if len(names) != 1:
        raise ValueError(f"{folder}: a folder of images is for models of one input; this one has {', '.join(names)}")
    channels, last, size = _layout(shapes[0] if shapes else (), names[0], wanted)
    found = _files(folder)
    count = min(samples, len(found))
    chosen = [found[i * len(found) // count] for i in range(count)]
    if not shapes and wanted is None:
        note(f"the model does not say its image size: {DEFAULT_SIZE} is used; for others pass {text},size=N")
    shift, factor = (value if channels == 3 else np.mean(value) for value in RANGES[pixels])
    made = np.stack([(_pixels(path, channels, size) - shift) / factor for path in chosen]).astype(np.float32)
    height, width = size
    note(f"{count} of {len(found)} images, {width}x{height}, pixels={pixels}; they must be prepared as in training")
    return made if last else np.ascontiguousarray(made.transpose(0, 3, 1, 2))


def _parts(text: str) -> tuple[Path, str, int | None]:
    """The folder, the range of values, and the size: of ``photos,pixels=unit,size=256``."""
    folder, *options = text.split(",")
    pixels, size = "imagenet", None
    for option in options:
        name, _, value = option.partition("=")
        if name == "pixels" and value in RANGES:
            pixels = value
        elif name == "size" and value.isdecimal() and 0 < int(value) <= MOST_SIZE:
            size = int(value)
        else:
            raise typer.BadParameter(
                f"{option!r} is not an option of a folder of images: size=N, at most {MOST_SIZE}, or pixels=, one of "
                f"{', '.join(RANGES)}"
            )
    return Path(folder), pixels, size


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _layout(shape: tuple[Any, ...], name: str, wanted: int | None) -> tuple[int, bool, tuple[int, int]]:
    """Channels, whether they are the last axis, and height and width, of what the model says; 3 channels if nothing."""
    if shape and len(shape) != 4:
        raise ValueError(
            f"{name} has {len(shape)} axes {shape}: images are for inputs of four, such as (N, 3, 224, 224)"
        )
    last = bool(shape) and shape[1] not in (1, 3) and shape[3] in (1, 3)
    channels, *sizes = (shape[3], *shape[1:3]) if last else shape[1:] if shape else (3, "", "")
    channels = channels if isinstance(channels, int) else 3
    if channels not in (1, 3):
        raise ValueError(f"{name} has {channels} channels {shape}: images have 3, or 1 in gray")
    for fixed in (size for size in sizes if isinstance(size, int)):
        if wanted not in (None, fixed):
            raise ValueError(f"size={wanted}: the model has the fixed size {fixed} for {name} {shape}")
    height, width = (size if isinstance(size, int) else wanted or DEFAULT_SIZE for size in sizes)
    return channels, last, (height, width)


def _pixels(path: Path, channels: int, size: tuple[int, int]) -> Any:
    """The center of an image in this size: height, width, channels; 0 to 255."""
    from PIL import Image

    height, width = size
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                image = opened.convert("RGB" if channels == 3 else "L")
    except Exception as error:  # readers of formats raise whatever they raise
        raise ValueError(shortened(f"{path} is not an image that can be read: {error}")) from error
    ratio = MARGIN * max(height / image.height, width / image.width)
    across, down = max(width, round(ratio * image.width)), max(height, round(ratio * image.height))
    left, top = (across - width) // 2, (down - height) // 2
    image = image.resize((across, down), Image.Resampling.BILINEAR)
    return np.asarray(image.crop((left, top, left + width, top + height)), np.float64).reshape(height, width, channels)
