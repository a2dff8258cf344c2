"""The models and qconfigs for which graph mode is compared with PyTorch, and where the two differ by design."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from graph_models import Bert, MobileNet, Recurrent, ResNet, UNet, with_statistics
from torch import nn


@dataclass(frozen=True)
class Made:
    """A float model, batches to calibrate with, and the engine whose operators are right for it on every CPU."""

    model: nn.Module
    batches: list[tuple[Any, ...]]
    engine: str = "fbgemm"


def _images(model: Callable[[], nn.Module], engine: str = "fbgemm") -> Made:
    batches = [(torch.randn(2, 3, 32, 32),) for _ in range(2)]
    return Made(with_statistics(model(), batches[0][0]), batches, engine)


def _bert() -> Made:
    batches = [(torch.randint(0, 100, (2, 12)), torch.ones(2, 12)) for _ in range(2)]
    return Made(Bert().eval(), batches)


def _lstm() -> Made:
    return Made(Recurrent(nn.LSTM).eval(), [(torch.randn(4, 9, 20),) for _ in range(2)])


# fbgemm's transposed convolution of 64 channels is wrong (up to 157 of 255 steps, not always the same): qnnpack.
MODELS: dict[str, Callable[[], Made]] = {
    "resnet": lambda: _images(lambda: ResNet((8, 16, 24, 32), 2, 10)),
    "mobilenet": lambda: _images(MobileNet),
    "unet": lambda: _images(UNet, "qnnpack"),
    "bert": _bert,
    "lstm": _lstm,
}

# fbgemm saturates on AVX2 with 8 bits of activations. All of these but qnnpack have 7; qnnpack's engine is exact for 8.
CONFIGS = ("per_tensor", "per_channel", "fbgemm", "qnnpack")


def mapping_of(library: Any, config: str) -> Any:
    """The qconfigs of a library by their name; recurrent layers are dynamic and embeddings have rows of 8 bits."""
    if config in ("fbgemm", "qnnpack"):
        mapping = library.get_default_qconfig_mapping(config)
    else:
        qconfig = {
            "per_tensor": library.default_qconfig,
            "per_channel": library.default_per_channel_qconfig,
            "dynamic": library.default_dynamic_qconfig,
            "dynamic_per_channel": library.per_channel_dynamic_qconfig,
        }[config]
        mapping = library.QConfigMapping().set_global(qconfig)
        # torch.ao wants a transposed convolution per tensor; its default mappings say the same.
        mapping.set_object_type(nn.ConvTranspose2d, library.default_qconfig)
    mapping.set_object_type(nn.LSTM, library.default_dynamic_qconfig)
    mapping.set_object_type(nn.Embedding, library.float_qparams_weight_only_qconfig)
    return mapping


# ------------------------------------------------------------------------------------------------------- differences


@dataclass(frozen=True)
class Difference:
    """Places whose observers differ by design, by the name of the value watched.

    `side`: "ours" or "theirs" if only one of them watches the value, "both" if both do and find something else,
    "layer" if the value is then computed with another number of roundings. `always` False: for some data only.
    """

    model: str
    side: str
    places: tuple[str, ...]
    reason: str
    configs: tuple[str, ...] = CONFIGS
    always: bool = True


_ONE_LAYER = "ours computes a linear layer and torch.relu behind it as one, with one rounding; theirs with two"
_OUTSIDE = "theirs quantizes sums and norms of float embeddings; ours leaves float what comes from float"

DIFFERENCES: tuple[Difference, ...] = (
    Difference("mobilenet", "theirs", ("classifier_0",), "a dropout, which ours takes out of the graph"),
    Difference("bert", "theirs", ("words", "positions", "add", "sub"), _OUTSIDE),
    Difference(
        "bert", "ours", ("matmul_default", "_safe_softmax_default", "matmul_default_2", "_safe_softmax_default_1"),
        "ours takes attention apart and computes its products on integers; theirs leaves it float",
    ),
    Difference(
        "bert", "ours", ("tanh",), "theirs leaves it float: a qconfig for all has no observer with fixed parameters",
        ("per_tensor", "per_channel"),
    ),
    Difference("lstm", "theirs", ("inputs",), _ONE_LAYER),
    Difference("lstm", "layer", ("relu",), _ONE_LAYER),
)  # fmt: skip


def expected_differences(model: str, config: str, *, always: bool = False) -> dict[tuple[str, str], str]:
    """(side, place) -> the reason; with `always` only those that any data shows."""
    return {
        (d.side, place): d.reason
        for d in DIFFERENCES
        if d.model == model and config in d.configs and (d.always or not always)
        for place in d.places
    }
