"""A voice detector from PyPI, as the TorchScript file that it comes in: state, branches, exceptions, two sub-models.

The sentence in ``speech.wav`` was spoken by espeak-ng; silence around it and a little noise are added here. The first
convolution is a Fourier transform, and what the encoder reads first are magnitudes, most of them hundreds of times
smaller than the largest: with one scale for all, eight bits lose them. So with static ranges that and the first two
blocks of the encoder stay float.
"""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import Any

import packages
import pytest
import torch

import zeropoint

CHUNK = {16000: 512, 8000: 256}
FLOAT = ("stft", "encoder.0", "encoder.1")
STATIC = {
    "": zeropoint.get_default_qconfig("native"),
    **{f"{model}.{part}": None for model in ("_model", "_model_8k") for part in FLOAT},
}
DYNAMIC = {"": zeropoint.per_channel_dynamic_qconfig}


@pytest.fixture(scope="module")
def detector() -> Any:
    file = Path(packages.load("silero_vad").__file__).parent / "data" / "silero_vad.jit"
    return torch.jit.load(file).eval()


def speech(rate: int = 16000) -> torch.Tensor:
    with wave.open(str(Path(__file__).parent / "speech.wav")) as file:
        samples = torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16) / 32768
    quiet = torch.zeros(8000)
    noise = torch.randn(len(samples) + 16000, generator=torch.Generator().manual_seed(0)) * 3e-3
    return (torch.cat([quiet, samples, quiet]) + noise)[:: 16000 // rate]


def probabilities(model: Any, rate: int = 16000) -> torch.Tensor:
    model.reset_states()
    with torch.no_grad():
        chunks = [c for c in speech(rate).split(CHUNK[rate]) if len(c) == CHUNK[rate]]
        return torch.cat([model(chunk, rate) for chunk in chunks]).flatten()


def size(model: Any) -> int:
    stream = io.BytesIO()
    torch.jit.save(model, stream)
    return len(stream.getvalue())


def quantized(detector: Any, mode: str) -> Any:
    if mode == "dynamic":
        return zeropoint.quantize_dynamic_jit(detector, DYNAMIC)
    return zeropoint.quantize_jit(detector, STATIC, lambda m: [probabilities(m, rate) for rate in CHUNK], ())


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_probabilities_stay_over_the_whole_clip(detector, mode):
    made = quantized(detector, mode)
    for rate in CHUNK:
        expected, found = probabilities(detector, rate), probabilities(made, rate)
        assert (expected > 0.5).any()
        assert (expected < 0.5).any()
        worst = (found - expected).abs().max()
        print(
            f"silero-vad, {mode}, {rate} Hz: {worst:.4f} from float at most; {size(detector)} -> {size(made)} bytes;"
            f" {dict(zeropoint.summary(made).counts())}"
        )
        assert worst <= 0.05
    assert size(made) < {"static": 0.6, "dynamic": 0.3}[mode] * size(detector)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_state_methods_and_exceptions_are_kept(detector, mode):
    made = quantized(detector, mode)
    once, again = probabilities(made), probabilities(made)  # with reset_states in between
    assert torch.equal(once, again)
    continued = made(speech()[8192:8704], 16000)  # without
    made.reset_states()
    assert not torch.equal(made(speech()[8192:8704], 16000), continued)
    whole = made.audio_forward(speech(), 16000).flatten()
    assert torch.equal(whole[: len(once)], once)
    with pytest.raises(torch.jit.Error, match="Provided number of samples is 500"):
        made(torch.zeros(500), 8000)
    with pytest.raises(torch.jit.Error, match="Supported sampling rates"):
        made(torch.zeros(512), 11025)


def test_the_rate_that_calibration_did_not_hear_stays_float(detector):
    made = zeropoint.quantize_jit(detector, STATIC, probabilities, ())
    rows = [row for row in zeropoint.summary(made).rows if row.path.startswith("_model_8k")]
    assert "int8" not in {row.precision for row in rows}
    assert "calibration did not reach it" in {row.reason for row in rows}
    assert (probabilities(made, 8000) - probabilities(detector, 8000)).abs().max() <= 0.05
