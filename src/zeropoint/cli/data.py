"""Batches from files and from code. Files need numpy alone."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from zeropoint.cli.images import check_images, images, is_images
from zeropoint.cli.models import fixed_batch, input_names, input_shapes
from zeropoint.cli.named import is_named, named
from zeropoint.cli.output import note
from zeropoint.cli.paths import existing
from zeropoint.described import described, shortened
from zeropoint.regular_file import Allowance
from zeropoint.safetensors_header import read_header, read_whole

SUFFIXES = (".npy", ".npz", ".safetensors")


def checked_data(text: str | None) -> str | None:
    """What checks the option, before any work: the file is there and begins as one of arrays, or the code is found."""
    if text is None:
        return None
    if is_named(text):
        named(text)
        return text
    if is_images(text):
        check_images(text)
        return text
    path = existing(text)
    if path.suffix not in SUFFIXES:
        raise typer.BadParameter(
            f"{text}: pass a {', '.join(SUFFIXES)} file, a folder of images, or package.module:iterable"
        )
    try:
        if path.suffix == ".npy":
            np.load(path, mmap_mode="r", allow_pickle=False)
        elif path.suffix == ".npz":
            zipfile.ZipFile(path).close()
        else:
            read_header(path)
    except Exception as error:  # numpy's readers raise whatever the parsers of Python raise
        raise typer.BadParameter(shortened(f"{text} is not a file of arrays, or it is cut off: {error}")) from None
    return text


_DATA = typer.Option(
    "--data",
    "-d",
    metavar="DATA",
    help="A .npy, .npz or .safetensors file, package.module:iterable, file.py:iterable, or a folder of images, also as "
    "photos,pixels=unit,size=256.",
    callback=checked_data,
)
Data = Annotated[str, _DATA]
OptionalData = Annotated[str | None, _DATA]
Batch = Annotated[int, typer.Option("--batch", "-b", min=1, help="Batch size.")]
Samples = Annotated[
    int, typer.Option("--samples", "-n", min=1, help="Number of samples of a file, or batches of an iterable, to use.")
]


def load_arrays(text: str) -> dict[str, Any]:
    """The arrays of a file by name; the one of a .npy file has none."""
    path = existing(text)
    if path.suffix in (".npy", ".npz"):
        try:
            return _of_numpy(path)
        except OSError:
            raise
        except Exception as error:  # numpy's readers raise whatever the parsers of Python raise
            raise ValueError(shortened(f"{text} is not a file of arrays: {error}")) from error
    from safetensors.numpy import load

    return dict(load(read_whole(path)[0]))


def _of_numpy(path: Path) -> dict[str, Any]:
    if path.suffix == ".npy":
        return {"": np.load(path, mmap_mode="r", allow_pickle=False)}
    with zipfile.ZipFile(path) as records:
        allowance = Allowance(path.stat().st_size)
        for record in records.infolist():
            allowance.take(record.file_size, f"{record.filename} of {path}")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} in {path} must be an array")
    return arrays


def load_batches(text: str, model: Any, batch: int, samples: int, *, rest: bool = False) -> list[Any]:
    """Tuples of what the model is called with: arrays of a file, or whatever code gives.

    Args:
        batch: samples in each, unless the model fixes it.
        rest: give a last batch that is smaller than the model's fixed one, too; else it is skipped.
    """
    if is_named(text):
        found = named(text)
        given = found() if callable(found) else found
        if not isinstance(given, Iterable):
            raise ValueError(
                f"{text} must be an iterable of batches or a function that returns one, got {described(given)}"
            )
        batches = list(itertools.islice(given, samples))
        if not batches:
            raise ValueError(f"{text} has no batches: pass at least one")
        return [tuple(b) if isinstance(b, (tuple, list)) else b if isinstance(b, dict) else (b,) for b in batches]
    if is_images(text):
        arrays = {"": images(text, input_names(model), input_shapes(model), samples)}
    else:
        arrays = load_arrays(text)
    columns = _ordered(arrays, input_names(model), text)
    _check_sizes(columns, model, text)
    count = min(samples, *(len(column) for column in columns))
    if count == 0:
        raise ValueError(f"{text} has no samples: pass at least one")
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(f"{name}: {len(array)}" for name, array in arrays.items())
        raise ValueError(f"{text}: all arrays must have the same number of samples, got {sizes}")
    fixed = fixed_batch(model)
    batch = fixed or batch
    if fixed is not None and count % fixed and not rest:
        if count < fixed:
            raise ValueError(f"{text}: the model has a fixed batch size of {fixed}, got {count} samples")
        note(f"the model has a fixed batch size of {fixed}: {count % fixed} of {count} samples are skipped")
        count -= count % fixed
    return [tuple(_usual(c[i : min(i + batch, count)]) for c in columns) for i in range(0, count, batch)]


def load_tensors(text: str, model: Any, batch: int, samples: int) -> list[Any]:
    """The same as torch tensors."""
    return [as_tensors(b) for b in load_batches(text, model, batch, samples)]


def as_tensors(batch: Any) -> Any:
    """A batch, its arrays as torch tensors."""
    import torch

    def tensor(value: Any) -> Any:
        return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value

    if isinstance(batch, dict):
        return {k: tensor(v) for k, v in batch.items()}
    return tuple(map(tensor, batch))


def one_sample(text: str | None, batches: list[Any], *models: Any) -> Any:
    """What is timed: the first sample alone, as by `bench`; the first batch of code, or for models that fix theirs."""
    first = batches[0]
    if text is None or is_named(text) or any(fixed_batch(model) is not None for model in models):
        return first
    return tuple(value[:1] for value in first)


def sample_count(batch: Any) -> int:
    """Samples of a batch: along the first axis of its first tensor."""
    values = batch.values() if isinstance(batch, dict) else batch
    return next((len(value) for value in values if getattr(value, "ndim", 0)), 1)


def in_words(count: int) -> str:
    """So many samples at once."""
    return "one sample" if count == 1 else f"a batch of {count}"


def _ordered(arrays: dict[str, Any], names: list[str], text: str) -> list[Any]:
    """The arrays as the model takes them: by name where these fit, else in the order of the file."""
    if not arrays:
        raise ValueError(f"{text} has no arrays: save at least one in it")
    for name, array in arrays.items():
        if array.ndim == 0:
            raise ValueError(f"{text}: {name or 'the array'} is a single number; its first axis must be the samples")
    if set(arrays) <= set(names):
        return [arrays[name] for name in names if name in arrays]
    if set(names) <= set(arrays):
        note(f"{text}: not inputs of the model, and not used: {', '.join(n for n in arrays if n not in names)}")
        return [arrays[name] for name in names]
    if len(arrays) > len(names):
        raise ValueError(
            f"{text} has {len(arrays)} arrays ({', '.join(arrays)}), and the model takes {len(names)} "
            f"({', '.join(names)}): save the arrays under these names"
        )
    if len(arrays) > 1:
        given, wanted = ", ".join(arrays), ", ".join(names)
        note(f"{text}: the names {given} are not those of the inputs ({wanted}): taken in order")
    return list(arrays.values())


def _check_sizes(columns: list[Any], model: Any, text: str) -> None:
    """Refuse arrays whose sizes the model cannot take, as far as it says which; the first axis is the samples."""
    for array, name, shape in zip(columns, input_names(model), input_shapes(model)):
        if array.ndim != len(shape):
            raise ValueError(
                f"{text}: samples for {name} must have {len(shape) - 1} axes {shape[1:]}, got {array.shape[1:]}"
            )
        for axis, (given, wanted) in enumerate(zip(array.shape, shape)):
            if axis and isinstance(wanted, int) and given != wanted:
                raise ValueError(f"{text}: {name} has size {given} along axis {axis}; the model needs {wanted} there")


def _usual(array: Any) -> Any:
    """float64, which files often have and models never want, as float32."""
    return np.asarray(array, dtype=np.float32) if array.dtype == np.float64 else np.array(array)
