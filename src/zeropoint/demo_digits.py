"""A network with residual blocks on scikit-learn's digits, quantized in every eager way, next to torch.ao.

What the demonstration shows, and what tests and benchmarks run.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from zeropoint.interop import torch_ao
from zeropoint.nn import quantized as nnq
from zeropoint.report.sizes import stored_bytes
from zeropoint.report.timing import alternating

BATCH = 64
CALIBRATION = 512  # images


@dataclass(frozen=True)
class Library:
    """One that quantizes: ours or PyTorch's, by the paths that differ."""

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
def accuracy(model: nn.Module) -> float:
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

HEADER = ("model", "library", "accuracy", "bytes", "batch 1\nms", f"batch {BATCH}\nms", "as in\ntraining")


@torch.no_grad()
def agreement(simulated: nn.Module, deployed: nn.Module) -> float:
    """The share of logits on which a model in training and the one made of it agree."""
    images = digits()[2]
    scale = float(deployed.fc.scale)
    steps = ((simulated(images) - deployed(images)) / scale).round()
    return float((steps == 0).float().mean())


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """For a network this small: more threads only wait for each other."""
    before = torch.get_num_threads(), zeropoint.get_num_threads()
    torch.set_num_threads(1)
    zeropoint.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        zeropoint.set_num_threads(before[1])


@one_thread()
def measure(epochs: int = 8, seconds: float = 1.5) -> list[tuple[str, ...]]:
    """Train, quantize in every way with both libraries, and one row for each."""
    warnings.filterwarnings("ignore", module=r"torch\.ao")  # their deprecation is why this project exists
    warnings.filterwarnings("ignore", message="torch.quantize_per_tensor, torch.quantize_per_channel")
    model = trained(epochs)
    libraries = [library for library in (OURS, theirs()) if library is not None]
    found: list[tuple[str, str, nn.Module, str]] = [("float32", "torch", copy.deepcopy(model), "")]
    for library in libraries:
        found.append(("calibrated", library.name, calibrate(library, model), ""))
    for library in libraries:
        simulated, deployed = train_quantized(library, model)
        found.append(("trained (QAT)", library.name, deployed, f"{agreement(simulated, deployed):.1%}"))
    for library in libraries:
        found.append(("dynamic", library.name, quantize_weights(library, model), ""))
    times = []
    with torch.inference_mode():
        for count in (1, BATCH):
            images = digits()[2][:count]
            times.append(alternating([functools.partial(m, images) for _, _, m, _ in found], seconds))
    return [
        (name, library, f"{accuracy(m):.1%}", f"{stored_bytes(m.state_dict()):,}", f"{one:.2f}", f"{many:.2f}", same)
        for (name, library, m, same), one, many in zip(found, *times)
    ]
