"""Packages with models, without what they need to read audio files: only their networks are run here."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import pytest

_NEEDED_FOR_FILES = ("librosa", "resampy", "torchaudio", "webrtcvad", "tqdm", "scipy.ndimage.morphology")


def load(name: str) -> Any:
    """The package `name`; the test is skipped where it is not installed (`make test-models` installs it)."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: run `make test-models`")
    stand_ins = {}
    for needed in _NEEDED_FOR_FILES:
        if needed not in sys.modules:
            stand_ins[needed] = types.ModuleType(needed)
            stand_ins[needed].binary_dilation = None  # type: ignore[attr-defined]
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module(name)
    finally:
        for needed in stand_ins:
            del sys.modules[needed]
