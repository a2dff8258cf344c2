"""Whole eager models against torch.ao's, on the same float model, qconfig and data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.ao.nn.quantized
import torch.ao.quantization
from torch import Tensor, nn

from bench.timing import CALL, Row
from zeropoint.context import CONTEXT
from zeropoint.demo_digits import CHAINS, OURS, Cnn, Library

THEIRS = Library("torch.ao", torch.ao.quantization, torch.ao.nn.quantized)
ASKED = 1.3
BATCHES = (1, 16)


class Mlp(nn.Module):
    """784 - 512 - 512 - 10."""

    CHAINS = (["fc1", "relu1"], ["fc2", "relu2"])

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.quant, self.dequant = library.quantization.QuantStub(), library.quantization.DeQuantStub()
        self.fc1, self.relu1 = nn.Linear(784, 512), nn.ReLU()
        self.fc2, self.relu2 = nn.Linear(512, 512), nn.ReLU()
        self.fc3 = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.fc1(self.quant(x)))
        return self.dequant(self.fc3(self.relu2(self.fc2(x))))


class Block(nn.Module):
    """A transformer block, 256 wide with 4 heads; softmax in float, because torch.ao has no eager form of it."""

    CHAINS = (["up", "relu"],)

    def __init__(self, library: Library, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.quant, self.dequant = library.quantization.QuantStub(), library.quantization.DeQuantStub()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2, self.softmax = nn.LayerNorm(width), nn.LayerNorm(width), nn.Softmax(-1)
        self.softmax.qconfig = None
        self.quant_weights = library.quantization.QuantStub()
        self.up, self.relu, self.down = nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        self.scores, self.mix, self.add1, self.add2 = (library.nnq.FloatFunctional() for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.quant(x)
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = self.dequant(self.scores.matmul(q, k.permute(0, 1, 3, 2)))
        weights = self.quant_weights(self.softmax(scores))
        mixed = self.mix.matmul(weights, v).permute(0, 2, 1, 3).reshape(x.shape)
        x = self.norm1(self.add1.add(x, self.out(mixed)))
        return self.dequant(self.norm2(self.add2.add(x, self.down(self.relu(self.up(x))))))


def rows() -> Iterator[Row]:
    models: dict[str, tuple[Any, Any, Callable[[int], Tensor]]] = {
        "digits CNN": (Cnn, CHAINS, lambda n: torch.rand(n, 1, 8, 8)),
        "CNN 128 channels, 32x32": (
            lambda library: Cnn(library, 128),
            CHAINS,
            lambda n: torch.rand(n, 1, 32, 32),
        ),
        "MLP 784-512-512-10": (Mlp, Mlp.CHAINS, lambda n: torch.rand(n, 784)),
        "transformer block 256, 64 tokens": (Block, Block.CHAINS, lambda n: torch.randn(n, 64, 256)),
        "static LSTM 64-128, 40 steps": (StaticLstm, StaticLstm.CHAINS, lambda n: torch.randn(n, 40, 64)),
    }
    for name, (make, chains, inputs) in models.items():
        mine, peer = _static(make, chains, inputs(16))
        for batch in BATCHES:
            yield _row(name, batch, mine, peer, inputs(batch))
    lstm = _Lstm()
    for batch in BATCHES:
        mine, peer = (side.quantization.quantize_dynamic(lstm) for side in (OURS, THEIRS))
        yield _row("LSTM 3 layers 256 and linear", batch, mine, peer, torch.randn(batch, 40, 256))
    yield from _dynamic()


FEW = 16  # tokens: with more, both sides spend their time in float operators and products that leave little room
# Shapes of pocket-tts, Whisper and BERT, in fewer layers: (name, layers, width, heads, inner width, tokens).
TRANSFORMERS = (
    ("pocket-tts-like step, 6 layers 1024", 6, 1024, 16, 4096, 1),
    ("Whisper-like step, 4 layers 384", 4, 384, 6, 1536, 1),
    ("Whisper-like encoder, 4 layers 384, 300 frames", 4, 384, 6, 1536, 300),
    ("BERT-like, 4 layers 384, 128 tokens", 4, 384, 12, 1536, 128),
    ("BERT-like, 2 layers 768, 16 tokens", 2, 768, 12, 3072, 16),
)


def _dynamic() -> Iterator[Row]:
    """Transformers with dynamic linear layers, which round their inputs to 7 bits on both sides, as old code has it."""
    for name, layers, width, heads, inner, tokens in TRANSFORMERS:
        torch.manual_seed(0)
        model = nn.Sequential(*(_Layer(width, heads, inner) for _ in range(layers))).eval()
        x = torch.randn(1, tokens, width)
        as_in_compat = CONTEXT.reduces_range
        CONTEXT.reduces_range = True
        try:
            mine, peer = (side.quantization.quantize_dynamic(model) for side in (OURS, THEIRS))
        finally:
            CONTEXT.reduces_range = as_in_compat
        yield _row(f"dynamic {name}", 1, mine, peer, x, asked=ASKED if tokens <= FEW else 1.0)


class _Layer(nn.Module):
    """A layer of a transformer, in plain modules."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        mixed = nn.functional.scaled_dot_product_attention(
            self.split(self.q(y)), self.split(self.k(y)), self.split(self.v(y))
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class StaticLstm(nn.Module):
    """Every step of it on integers."""

    CHAINS = ()

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.quant, self.dequant = library.quantization.QuantStub(), library.quantization.DeQuantStub()
        self.lstm = nn.LSTM(64, 128, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(self.lstm(self.quant(x))[0])


class _Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(256, 256, 3, batch_first=True), nn.Linear(256, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.lstm(x)[0][:, -1])


def _static(make: Callable[[Library], nn.Module], chains: Any, x: Tensor) -> list[nn.Module]:
    """The model, calibrated and converted by each library."""
    torch.manual_seed(0)
    models = [make(library).eval() for library in (OURS, THEIRS)]
    models[1].load_state_dict(models[0].state_dict())
    converted = []
    for library, model in zip((OURS, THEIRS), models, strict=True):
        q = library.quantization
        fused = q.fuse_modules(model, list(chains)) if chains else model
        fused.qconfig = q.get_default_qconfig("fbgemm")
        prepared = q.prepare(fused)
        with torch.no_grad():
            prepared(x)
        converted.append(q.convert(prepared))
    return converted


def _row(name: str, batch: int, mine: nn.Module, peer: nn.Module, x: Tensor, asked: float = ASKED) -> Row:
    ours: CALL = torch.inference_mode()(lambda: mine(x))
    peers = {"torch": torch.inference_mode()(lambda: peer(x))}
    return Row(f"{name}, batch {batch}", ours, peers, {"torch": asked}, alike=name)
