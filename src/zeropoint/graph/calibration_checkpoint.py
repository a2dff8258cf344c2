"""Calibration that can stop and go on: what the observers have seen, in a file beside it.

The file holds the state of every observer, how many batches that is, and a fingerprint of the model. It is written
about once a minute and when calibration stops before its end; calibration that ends removes it.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from zeropoint.atomic_file import remove_unfinished
from zeropoint.graph.passes.insert_observers import OBSERVER
from zeropoint.tensor.safetensors_file import read_safetensors, write_safetensors

_SECONDS = 60.0  # between two writes: the most that is lost if the process is killed
_SETTINGS = ("dtype", "qscheme", "quant_min", "quant_max", "averaging_constant", "bins")
_BATCHES, _MODEL = "zeropoint.batches", "zeropoint.model"


class CalibrationCheckpoint:
    """The file of one calibration.

    Args:
        prepared: the model that is calibrated, with its observers.

    Raises:
        ValueError: if the file belongs to another model, or is no checkpoint.
    """

    def __init__(self, path: str | os.PathLike[str], prepared: nn.Module) -> None:
        self.path = Path(path)
        self._prepared = prepared
        self._model = _fingerprint(prepared)
        self._written = time.monotonic()
        self._state: dict[str, Tensor] = {}
        self.batches = 0  # that the file has seen
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        try:
            self._state, facts = read_safetensors(self.path)
        except (ValueError, OSError) as error:
            raise ValueError(f"{self.path} is not a calibration checkpoint ({error}): use another path") from error
        if not facts.get(_BATCHES, "").isdigit() or facts.get(_MODEL) != self._model:
            raise ValueError(
                f"{self.path} belongs to the calibration of another model or qconfig. Delete it, or use another path"
            )
        self.batches = int(facts[_BATCHES])

    def restore(self) -> None:
        """Give the observers what the file has of them."""
        expected = _observers(self._prepared)
        if expected.keys() != self._state.keys():
            raise ValueError(f"{self.path} belongs to the calibration of another model. Delete it, or use another path")
        try:
            self._prepared.load_state_dict(self._state, strict=False)
        except RuntimeError as error:
            raise ValueError(f"{self.path} is damaged ({error}). Delete it, or use another path") from error

    def seen(self, batches: int) -> None:
        """So many batches are done; writes the file if it is time."""
        # A copy: a batch that is interrupted has been seen by some of the observers only. Both change at once: Ctrl-C
        # while it is made leaves what was there before.
        state = {key: value.clone().contiguous() for key, value in _observers(self._prepared).items()}
        self._state, self.batches = state, batches
        if time.monotonic() - self._written >= _SECONDS:
            self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        write_safetensors(self._state, self.path, {_BATCHES: str(self.batches), _MODEL: self._model})
        self._written = time.monotonic()

    def remove(self, batches: int) -> None:
        """Calibration is over, after so many batches.

        Raises:
            ValueError: if the file has seen more.
        """
        if batches < self.batches:
            raise ValueError(
                f"{self.path} has {self.batches} batches, but calibration has {batches}: it belongs to other data. "
                "Delete it, or use another path"
            )
        self.path.unlink(missing_ok=True)
        remove_unfinished(self.path)


def _observers(prepared: nn.Module) -> dict[str, Tensor]:
    return {key: value for key, value in prepared.state_dict().items() if OBSERVER in key}


def _fingerprint(prepared: nn.Module) -> str:
    """Of the weights, and of the kinds of the observers."""
    digest = hashlib.sha256()
    for key, value in prepared.state_dict().items():
        digest.update(key.encode())
        if OBSERVER not in key and isinstance(value, Tensor):
            digest.update(repr((tuple(value.shape), value.dtype)).encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    for name, module in prepared.named_modules():
        if OBSERVER in name:
            settings = [str(getattr(module, key, "")) for key in _SETTINGS]
            digest.update(repr((name, type(module).__name__, settings)).encode())
    return digest.hexdigest()
