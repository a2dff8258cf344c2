"""A voice encoder from PyPI: three LSTM layers and a linear one.

Its input is mel power, not its logarithm: most values are thousands of times smaller than the largest, and they matter.
The largest input weight of the first layer is hundreds of times the median one. Eight bits lose both, so the first
layer keeps half precision weights.
"""

from __future__ import annotations

import math

import packages
import pytest
import torch
from torch import nn

import zeropoint


@pytest.fixture(scope="module")
def encoder():
    return packages.load("resemblyzer").VoiceEncoder("cpu", verbose=False).eval()


def voice(seed: int, seconds: float) -> torch.Tensor:
    """Vowels of a made-up speaker at -30 dBFS: harmonics under three formants that move, syllables, some noise."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(int(seconds * 16000)) / 16000
    pitch, wobble, syllables, *formants = torch.rand(6, generator=g).tolist()
    pitch = 90 + 150 * pitch
    phase = torch.cumsum(2 * math.pi * pitch * (1 + 0.15 * torch.sin(2 * math.pi * (1 + 2 * wobble) * t)) / 16000, 0)
    places = [(300 + 600 * formants[0], 80), (900 + 1500 * formants[1], 120), (2300 + 900 * formants[2], 180)]
    sound = torch.zeros(len(t))
    for k in range(1, int(7600 / pitch) + 1):
        for i, (place, width) in enumerate(places):
            moving = place * (1 + 0.2 * torch.sin(2 * math.pi * (2 + i) * t + seed))
            sound += torch.sin(k * phase) / math.sqrt(k) / (1 + ((k * pitch - moving) / width) ** 2)
    sound *= torch.sin(2 * math.pi * (2.5 + 2 * syllables) * t).clamp(0) + 0.02
    sound += 0.01 * torch.randn(len(t), generator=g)
    return sound * 10 ** (-30 / 20) / sound.square().mean().sqrt()


def mel_bank() -> torch.Tensor:
    """40 triangles over 201 frequencies, of equal area: linear in Hz up to 1000, then logarithmic."""
    logarithmic = math.log(6.4) / 27
    edges = torch.linspace(0, 15 + math.log(8) / logarithmic, 42)
    edges = torch.where(edges < 15, edges * 200 / 3, 1000 * torch.exp((edges - 15) * logarithmic))
    below, at, above = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    frequencies = torch.linspace(0, 8000, 201)
    triangles = torch.minimum((frequencies - below) / (at - below), (above - frequencies) / (above - at)).clamp(0)
    return triangles * 2 / (above - below)


def spectrograms(seeds: range, frames: int) -> torch.Tensor:
    sound = torch.stack([voice(seed, frames / 100) for seed in seeds])
    window = torch.hann_window(400)
    power = torch.stft(sound, 400, 160, 400, window, pad_mode="constant", return_complex=True).abs() ** 2
    return (mel_bank() @ power).transpose(1, 2)[:, :frames]


def cosines(encoder, mode: str, mapping=None) -> torch.Tensor:
    """To the float embeddings, of other voices than those of the calibration, in two lengths."""
    calibration = [spectrograms(range(4), 160), spectrograms(range(4, 8), 160)] if mode == "static" else None
    example = (spectrograms(range(2), 160),)
    quantized = zeropoint.to_int8(encoder, example, calibration, qconfig=mapping, mode=mode, progress=False)
    assert quantized.summary().of("linear")[0].precision.startswith("int8")
    ways = [row.precision for row in quantized.summary().of("quantized_lstm")]
    if mapping is None:
        assert ways == ["float16 weights", "int8, dynamic"]
        assert quantized.summary().of("quantized_lstm")[0].reason.startswith("layer 0: 8 bits would leave")
    found = []
    for frames in (160, 75):
        mels = spectrograms(range(20, 30), frames)
        with torch.no_grad():
            found.append(torch.cosine_similarity(quantized(mels), encoder(mels)))
    cosine = torch.cat(found)
    print(f"resemblyzer, {mode}, LSTM {' and '.join(ways)}: cosine to float {cosine.min():.5f} at least")
    return cosine


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_embeddings_keep_their_direction(encoder, mode):
    assert cosines(encoder, mode).min() >= 0.995


@pytest.mark.oracle
def test_eight_bit_lstm_is_nearer_to_float_than_that_of_torch(encoder):
    theirs = torch.ao.quantization.quantize_dynamic(encoder, {nn.LSTM, nn.Linear})
    mels = torch.cat([spectrograms(range(20, 30), 160)])
    with torch.no_grad():
        cosine = torch.cosine_similarity(theirs(mels), encoder(mels))
    print(f"resemblyzer, torch.ao dynamic: cosine to float {cosine.min():.5f} at least")
    eight_bits = zeropoint.QConfigMapping().set_global(zeropoint.per_token_dynamic_qconfig)
    assert cosines(encoder, "dynamic", eight_bits).min() > cosine.min()
