"""A pitch tracker from PyPI: six convolutions with pads, batch norms after their ReLUs, and pools."""

from __future__ import annotations

import math

import packages
import pytest
import torch

import zeropoint


def glide(first: float, last: float, seconds: float = 2.0) -> torch.Tensor:
    """A tone with overtones whose pitch goes from `first` to `last` Hz."""
    t = torch.arange(int(seconds * 16000)) / 16000
    phase = 2 * math.pi * (first * t + (last - first) * t * t / (2 * seconds))
    return sum(torch.sin(k * phase) / k for k in range(1, 5))[None] / 2


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("capacity", ["tiny", "full"])
def test_pitch_of_a_glide_is_within_five_cents(capacity, mode, monkeypatch):
    crepe = packages.load("torchcrepe")
    monkeypatch.setattr(crepe.convert, "dither", lambda cents: cents)  # it adds noise by chance to the pitches of bins
    crepe.load.model("cpu", capacity)
    model = crepe.infer.model
    step = 4 if capacity == "tiny" else 12

    def frames(sound: torch.Tensor) -> torch.Tensor:
        return torch.cat(list(crepe.preprocess(sound, 16000, 160)))[::step]

    def pitch(probabilities: torch.Tensor) -> torch.Tensor:
        return crepe.decode.weighted_argmax(torch.logit(probabilities.t()[None], 1e-9))[1][0]

    x, calibration = frames(glide(110, 440)), [frames(glide(700, 90))] if mode == "static" else None
    quantized = zeropoint.to_int8(model, (x[:2],), calibration, mode=mode, progress=False)
    heavy = [row for row in quantized.summary().rows if row.operator in ("conv2d", "linear")]
    assert len(heavy) == 7
    assert all(row.precision.startswith("int8") for row in heavy)
    with torch.no_grad():
        cents = 1200 * torch.log2(pitch(quantized(x)) / pitch(model(x))).abs()
    print(f"torchcrepe {capacity}, {mode}: {cents.max():.2f} cents at most, {cents.median():.2f} in the middle")
    assert cents.max() <= 5
