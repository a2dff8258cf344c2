"""A voice encoder from PyPI: three LSTM layers and a linear one."""

from __future__ import annotations

import packages
import pytest
import torch

import zeropoint


@pytest.fixture(scope="module")
def encoder():
    return packages.load("resemblyzer").VoiceEncoder("cpu", verbose=False).eval()


def spectrograms(seed: int, batch: int, frames: int) -> torch.Tensor:
    """Like mel spectrograms of speech: harmonics that move, much silence, a wide range."""
    g = torch.Generator().manual_seed(seed)
    time, band = torch.arange(frames)[None, :, None], torch.arange(40)[None, None, :]
    pitch = 3 + 5 * torch.rand(batch, 1, 1, generator=g)
    moving = pitch * (1 + 0.2 * torch.sin(time / (5 + 20 * torch.rand(batch, 1, 1, generator=g))))
    harmonics = torch.cos(2 * torch.pi * band / moving).clamp(0) ** 4
    loud = torch.sin(time / (4 + 8 * torch.rand(batch, 1, 1, generator=g))).clamp(0) ** 2
    tilt = torch.exp(-band / (5 + 15 * torch.rand(batch, 1, 1, generator=g)))
    return 0.3 * harmonics * loud * tilt + 1e-4 * torch.rand(batch, frames, 40, generator=g)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_embeddings_keep_their_direction(encoder, mode):
    calibration = [spectrograms(seed, 4, 160) for seed in (1, 2)] if mode == "static" else None
    quantized = zeropoint.to_int8(encoder, (spectrograms(0, 2, 160),), calibration, mode=mode, progress=False)
    computed = {row.operator: row.way for row in quantized.summary().rows}
    assert computed["quantized_lstm"] == "int8, dynamic"
    assert computed["linear"].startswith("int8")
    for frames in (160, 75):  # lengths are not fixed to that of the example
        mels = spectrograms(9, 8, frames)
        with torch.no_grad():
            cosine = torch.cosine_similarity(quantized(mels), encoder(mels))
        print(f"resemblyzer, {mode}, {frames} frames: cosine to float {cosine.min():.5f} at least")
        assert cosine.min() >= 0.995
