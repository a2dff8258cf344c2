"""Rotations change nothing in floats, and calibration lowers the error of the layers that it rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from decoder_oracle import logits_of
from folder_files import folder_of, tensors_of
from gguf_files import decoder_file

from zeropoint import generation
from zeropoint.generation.calibration import calibrate, rounded_for
from zeropoint.generation.decoder import Decoder, Matrix
from zeropoint.generation.float_weights import FloatWeights, Rotation
from zeropoint.generation.folder_decoder import FolderWeights, folder_decoder
from zeropoint.generation.gguf import Gguf
from zeropoint.generation.gguf_decoder import GgufWeights, gguf_decoder
from zeropoint.generation.group_weights import quantized
from zeropoint.generation.tensor_files import FolderTensors, read_json

IDS = [7, 12, 5, 30, 9, 9, 14, 22, 31, 6]
MANY = np.random.default_rng(8).integers(0, 40, 512).tolist()


class Floats:
    """Weights whose matrices are the floats themselves, for the oracle."""

    def __init__(self, weights: FloatWeights) -> None:
        self.weights = weights

    def vector(self, name: str) -> np.ndarray | None:
        return self.weights.vector(name)

    def matrix(self, name: str) -> Matrix | None:
        found = self.weights.floats(name)
        if found is None:
            return None
        made = type("Made", (), {"floats": lambda _: found})
        return Matrix(*found.shape, 8, 32, False, made)  # type: ignore[arg-type]


def floats_of_file(path: Path, rotate: bool) -> tuple[Decoder, Floats]:
    file = Gguf(path)
    decoder = gguf_decoder(file, None)
    source = GgufWeights(file, decoder, 8, 32)
    return decoder, Floats(FloatWeights(source, 8, 32, Rotation.of(decoder, source) if rotate else None))


def behind_the_last_layer(decoder: Decoder, weights: FloatWeights, x: np.ndarray) -> np.ndarray:
    """The logits of a residual stream."""
    weight, bias = weights.vector("norm"), weights.vector("norm.bias")
    head = weights.matrix("head") or weights.matrix("embedding")
    assert weight is not None
    assert head is not None
    x = x.astype(np.float64)
    centered = x - x.mean(-1, keepdims=True) if decoder.norm == "layer" else x
    normed = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + decoder.eps) * weight
    logits = (normed + (0 if bias is None else bias)) @ head.make().floats().T
    return np.tanh(logits / decoder.logit_cap) * decoder.logit_cap if decoder.logit_cap else logits


@pytest.mark.parametrize("width", [64, 96])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma"])
def test_rotated_decoder_gives_the_same_logits_in_floats(tmp_path: Path, family: str, width: int) -> None:
    path = decoder_file(tmp_path / "a.gguf", family, "F32", width=width, heads=width // 16)
    (decoder, plain), (_, rotated) = (floats_of_file(path, rotate) for rotate in (False, True))
    want, got = (logits_of(decoder, weights, IDS) for weights in (plain, rotated))
    assert np.abs(want - got).max() < 1e-5 * np.abs(want).max()
    q = plain.weights.floats("0.q")
    assert q is not None
    assert not np.allclose(q, rotated.weights.floats("0.q"))


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("calibration", [None, [MANY]])
def test_program_is_near_float64(tmp_path: Path, rotate: bool, calibration: list[list[int]] | None) -> None:
    path = decoder_file(tmp_path / "a.gguf", "gemma", "F32")
    generation.compile_decoder(path, tmp_path / "a.zpt", bits=8, rotate=rotate, calibration=calibration)
    decoder, plain = floats_of_file(path, False)
    want = logits_of(decoder, plain, IDS)  # type: ignore[arg-type]
    every = np.arange(len(IDS))
    got = generation.load(tmp_path / "a.zpt").logits(np.array(IDS), every, np.zeros(len(IDS), np.int64), every)
    assert 10 * np.log10(np.square(want).sum() / np.square(want - got).sum()) > 25


def test_integers_for_inputs_that_go_together_lose_less() -> None:
    random = np.random.default_rng(2)
    w = random.standard_normal((24, 96)).astype(np.float32)
    x = (random.standard_normal((512, 12)) @ random.standard_normal((12, 96))).astype(np.float32)
    h = x.T @ x
    nearest, found = quantized(w, 4, 32), rounded_for(w, h, 4, 32)
    errors = [np.square(x @ (made.floats() - w).T).sum() for made in (nearest, found)]
    assert errors[1] < errors[0] / 5
    # Of inputs that were never seen nothing is known: the nearest integers.
    assert np.array_equal(rounded_for(w, np.zeros_like(h), 4, 32).q, nearest.q)


def test_scales_are_those_of_the_inputs_that_matter() -> None:
    w = np.random.default_rng(3).standard_normal((16, 32)).astype(np.float32)
    importance = np.where(np.arange(32) < 4, 100.0, 1.0)
    plain, weighted = (quantized(w, 4, 32, weight) for weight in (None, importance))
    errors = [(np.square(made.floats() - w) * importance).sum() for made in (plain, weighted)]
    assert errors[1] < errors[0]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "phi2", "gpt2"])
def test_pass_of_texts_is_that_of_the_decoder(tmp_path: Path, family: str) -> None:
    file = Gguf(decoder_file(tmp_path / "a.gguf", family, "Q8_0"))
    decoder = gguf_decoder(file, None)
    weights = FloatWeights(GgufWeights(file, decoder, 8, 32), 8, 32)
    x = calibrate(decoder, weights, MANY)
    assert len(x) == len(MANY)
    for begin in (0, 64):  # windows of the context, with the rounded layers
        want = logits_of(decoder, weights, MANY[begin : begin + 64])
        got = behind_the_last_layer(decoder, weights, x[begin : begin + 64])
        assert np.abs(want - got).max() < 1e-4 * np.abs(want).max()


def test_folders_are_rotated_and_calibrated_too(tmp_path: Path) -> None:
    path = decoder_file(tmp_path / "a.gguf", "qwen3", "F32")
    folder = folder_of(tmp_path / "folder", tensors_of(path), {"model_type": "qwen3"})
    decoder = folder_decoder(read_json(folder / "config.json"), None)
    source = FolderWeights(FolderTensors(folder), decoder, 4, 32)
    for name in ("0.q", "1.down", "embedding", "head"):
        file = Gguf(path)
        want = GgufWeights(file, gguf_decoder(file, None), 4, 32).floats(name)
        assert np.array_equal(want, source.floats(name))  # type: ignore[arg-type]
    facts = generation.compile_decoder(folder, tmp_path / "a.zpt", rotate=True, calibration=[MANY])
    assert "model.layers.0.mlp.up_proj.weight" in facts["rounded"]
    assert len(generation.load(tmp_path / "a.zpt").generate(IDS, 3)) == 3


def test_text_is_calibrated_with_the_tokenizer_of_the_model(tmp_path: Path) -> None:
    path = decoder_file(tmp_path / "a.gguf")
    generation.compile_decoder(path, tmp_path / "a.zpt", calibration=["abcdefgh " * 60])
    generation.compile_decoder(path, tmp_path / "b.zpt", bits=4, calibration=[MANY])
    assert (tmp_path / "a.zpt").read_bytes() != (tmp_path / "b.zpt").read_bytes()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"calibration": "one text"}, TypeError, "calibration must be a list of texts"),
        ({"calibration": [3]}, TypeError, "calibration must be a list of texts"),
        ({"calibration": [[1, 2]]}, ValueError, "calibration has 2 tokens, and needs 64 at least"),
        ({"calibration": [[40] * 64]}, ValueError, "outside the vocabulary of 40"),
    ],
)
def test_wrong_calibration_is_refused(
    tmp_path: Path, options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        generation.compile_decoder(decoder_file(tmp_path / "a.gguf"), tmp_path / "a.zpt", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "a.zpt").exists()


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_rotation_of_other_norms_is_refused(tmp_path: Path, family: str) -> None:
    with pytest.raises(ValueError, match="rotate needs a decoder whose norms are RMS norms"):
        generation.compile_decoder(decoder_file(tmp_path / "a.gguf", family), tmp_path / "a.zpt", rotate=True)
