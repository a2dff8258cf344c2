"""A network with residual blocks on scikit-learn's digits, quantized in every way, compiled, next to torch.ao.

What the demonstration shows, and what tests and benchmarks run.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.comparison.sizes import stored_bytes
from zeropoint.comparison.timing import alternating
from zeropoint.interop import torch_ao
from zeropoint.nn import quantized as nnq

BATCH = 64
CALIBRATION = 512  # images


@dataclass(frozen=True)
class Library:
    """One that quantizes: zeropoint or PyTorch's, by the paths that differ."""

    name: str
    quantization: Any
    nnq: Any

    def dtype(self, name: str) -> Any:
        """Its object for a dtype, by name."""
        return getattr(zeropoint if self.quantization is zeropoint else torch, name)


OURS = Library("zeropoint", zeropoint, nnq)


def theirs() -> Library | None:
    """PyTorch's own, while it has one."""
    found = torch_ao.namespaces()
    return None if found is None else Library("torch.ao", *found)


# ------------------------------------------------------------------------------------------------------- the model


class Residual(nn.Module):
    """A depthwise and a 1x1 convolution with batch norm, around which the input goes and is added."""

    def __init__(self, channels: int, library: Library) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu1 = nn.ReLU()
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.add = library.nnq.FloatFunctional()

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.depthwise(x)))
        return self.add.add_relu(self.bn2(self.pointwise(y)), x)


class Cnn(nn.Module):
    """Images ``(N, 1, 8, 8)`` to ten logits, between the stubs of `library`.

    Example:
        >>> Cnn(OURS)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(self, library: Library, channels: int = 32) -> None:
        super().__init__()
        self.quant, self.dequant = library.quantization.QuantStub(), library.quantization.DeQuantStub()
        self.conv = nn.Conv2d(1, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.block1 = Residual(channels, library)
        self.pool = nn.MaxPool2d(2)
        self.block2 = Residual(channels, library)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.flat = nn.Flatten()
        self.fc = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn(self.conv(self.quant(x))))
        x = self.block2(self.pool(self.block1(x)))
        return self.dequant(self.fc(self.flat(self.mean(x))))


# What torch.ao wants to be told; auto_fuse finds it.
CHAINS = [["conv", "bn", "relu"]]
for _block in ("block1", "block2"):
    CHAINS.append([f"{_block}.depthwise", f"{_block}.bn1", f"{_block}.relu1"])
    CHAINS.append([f"{_block}.pointwise", f"{_block}.bn2"])


# ------------------------------------------------------------------------------------------------------- training


@functools.cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images ``(N, 1, 8, 8)`` from 0 to 1 and classes, 1297 to train with and 500 to test with."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    classes = torch.tensor(data.target)
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(0))
    training, test = order[500:], order[:500]
    return images[training], classes[training], images[test], classes[test]


def train(model: nn.Module, epochs: int, rate: float) -> None:
    """Adam, with a rate that falls to zero."""
    images, classes, _, _ = digits()
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    batches = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=generator)
        for i in range(batches):
            picked = order[i * BATCH : (i + 1) * BATCH]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[picked]), classes[picked]).backward()
            optimizer.step()
            schedule.step()


def trained(epochs: int = 8) -> nn.Module:
    """The network, trained in float32, in evaluation mode."""
    torch.manual_seed(0)
    model = Cnn(OURS).train()
    train(model, epochs, 0.01)
    return model.eval()


@torch.no_grad()
def accuracy(model: Callable[[Tensor], Tensor]) -> float:
    """Of the images to test with, how many are named right."""
    _, _, images, classes = digits()
    return float((model(images).argmax(1) == classes).float().mean())


# --------------------------------------------------------------------------------------------------- quantizing


def _fused(library: Library, model: nn.Module, training: bool) -> nn.Module:
    """A copy of `model` for `library`, with its chains fused."""
    made = Cnn(library)
    made.load_state_dict(model.state_dict())
    made.train(training)
    if library is OURS:
        return zeropoint.auto_fuse(made, (torch.zeros(2, 1, 8, 8),))
    q = library.quantization
    return q.fuse_modules_qat(made, CHAINS) if training else q.fuse_modules(made, CHAINS)


def calibrate(library: Library, model: nn.Module) -> nn.Module:
    """Static quantization after training: ranges from some images."""
    q = library.quantization
    fused = _fused(library, model, training=False)
    fused.qconfig = q.get_default_qconfig("fbgemm")
    prepared = q.prepare(fused)
    with torch.no_grad():
        for batch in digits()[0][:CALIBRATION].split(BATCH):
            prepared(batch)
    return q.convert(prepared)


def train_quantized(library: Library, model: nn.Module, epochs: int = 2) -> tuple[nn.Module, nn.Module]:
    """Quantization-aware training: the model that was trained, and the one that is deployed."""
    q = library.quantization
    fused = _fused(library, model, training=True)
    fused.qconfig = q.get_default_qat_qconfig("fbgemm")
    prepared = q.prepare_qat(fused)
    train(prepared, epochs, 0.001)
    prepared.eval().apply(q.disable_observer)
    return prepared, q.convert(prepared)


def quantize_weights(library: Library, model: nn.Module) -> nn.Module:
    """Dynamic quantization: the linear layer's weights now, its inputs as they come."""
    made = Cnn(library)
    made.load_state_dict(model.state_dict())
    return library.quantization.quantize_dynamic(made.eval(), {nn.Linear}, dtype=library.dtype("qint8"))


# ------------------------------------------------------------------------------------------------------ the report

HEADER = (
    "model",
    "library",
    "accuracy",
    "bytes",
    "batch 1\nms",
    "speed-up",
    f"batch {BATCH}\nms",
    "speed-up",
    "as in\ntraining",
)


@dataclass(frozen=True)
class Candidate:
    """One way to run the network."""

    name: str
    library: str
    run: Callable[[Tensor], Tensor]
    nbytes: int
    same: str = ""  # logits that equal those in training


def compiled(model: nn.Module, folder: Path) -> Candidate:
    """The network as a program, made without a change to its code, saved as `model.zpt`, with a page about it."""
    images = digits()[0][:CALIBRATION].split(BATCH)
    quantized = zeropoint.to_int8(model, (images[0],), images, progress=False)
    program = zeropoint.compile(quantized, (images[0],))
    program.save(folder / "model.zpt")
    data = digits()[2].split(100)
    zeropoint.write_report(folder / "report.html", model, quantized, data, title="Digits", progress=False)
    return Candidate("compiled", "zeropoint", program, (folder / "model.zpt").stat().st_size)


def answers_without_torch(folder: Path) -> list[int]:
    """What `model.zpt` answers for the test images in a process where torch cannot be imported."""
    return run_without_torch(folder / "model.zpt", (digits()[2].numpy(),)).argmax(1).tolist()


def run_without_torch(path: Path, inputs: tuple[Any, ...]) -> Any:
    """What a program gives for arrays, in a process where torch cannot be imported."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy, zeropoint\n"
        "arrays = numpy.load('inputs.npz')\n"
        "program = zeropoint.runtime.load(sys.argv[1])\n"
        "numpy.save('result.npy', program(*(arrays[name] for name in arrays.files)))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "inputs.npz", *inputs)
        command = [sys.executable, "-c", code, str(path.absolute())]
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return np.load(Path(folder) / "result.npy")


@torch.no_grad()
def agreement(simulated: nn.Module, deployed: nn.Module) -> float:
    """The share of logits on which a model in training and the one made of it agree."""
    images = digits()[2]
    scale = float(deployed.fc.scale)
    steps = ((simulated(images) - deployed(images)) / scale).round()
    return float((steps == 0).float().mean())


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """For networks this small: more threads mostly wait for each other, and for long where the machine is busy."""
    before = torch.get_num_threads(), zeropoint.get_num_threads()
    torch.set_num_threads(1)
    zeropoint.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        zeropoint.set_num_threads(before[1])


@one_thread()
def measure(folder: Path, epochs: int = 8, seconds: float = 1.5) -> list[tuple[str, ...]]:
    """Train, quantize in every way with both libraries, compile, and one row for each; files go to `folder`."""
    warnings.filterwarnings("ignore", module=r"torch\.ao")  # their deprecation is why this project exists
    warnings.filterwarnings("ignore", message="torch.quantize_per_tensor, torch.quantize_per_channel")
    model = trained(epochs)
    libraries = [library for library in (OURS, theirs()) if library is not None]

    def module(name: str, library: str, made: nn.Module, same: str = "") -> Candidate:
        return Candidate(name, library, made, stored_bytes(made.state_dict()), same)

    found = [module("float32", "torch", copy.deepcopy(model)), compiled(model, folder)]
    for library in libraries:
        found.append(module("calibrated", library.name, calibrate(library, model)))
    for library in libraries:
        simulated, deployed = train_quantized(library, model)
        found.append(module("trained (QAT)", library.name, deployed, f"{agreement(simulated, deployed):.1%}"))
    for library in libraries:
        found.append(module("dynamic", library.name, quantize_weights(library, model)))
    times = []
    with torch.inference_mode():
        for count in (1, BATCH):
            images = digits()[2][:count]
            times.append(alternating([functools.partial(c.run, images) for c in found], seconds))
    return [
        (
            *(c.name, c.library, f"{accuracy(c.run):.1%}", f"{c.nbytes:,}"),
            *(text for ms, first in zip(each, firsts) for text in (f"{ms:.3f}", f"{first / ms:.1f}x")),
            c.same,
        )
        for c, each, firsts in zip(found, zip(*times), [tuple(t[0] for t in times)] * len(found))
    ]
