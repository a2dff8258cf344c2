"""Packages with architectures: torchvision, timm, transformers. `make test-zoo` installs them without torch."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_DETECTION = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_KEPT: list[Any] = []  # a library takes its operators along when it is destroyed


def absent(name: str) -> str | None:
    """The package that an architecture needs and that is not here; None if it can be built."""
    package = name.partition("/")[0]
    return package if package != "plain" and importlib.util.find_spec(package) is None else None


def preload(packages: set[str]) -> None:
    """Import packages once, before processes are forked."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.export.export(nn.Identity(), (torch.ones(1),))  # imports most of the compiler
    for package in sorted(packages & {"timm", "torchvision", "transformers"}):
        _import(package)


def _import(package: str) -> Any:
    if importlib.util.find_spec("torchvision") is not None:  # the others import it where it is
        _import_torchvision()
    return importlib.import_module(package)


def _import_torchvision() -> None:
    """Import torchvision where its compiled part does not fit this torch: with the schemas of its operators alone."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        _KEPT.append(library)
        for schema in _DETECTION:
            library.define(schema)
        importlib.import_module("torchvision")


def torchvision_model(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of torchvision with random weights; one of detection without its boxes: backbone and heads."""

    def build() -> nn.Module:
        models = _import("torchvision").models
        model = models.get_model(name, weights=None, **options)
        return _Heads(model) if hasattr(model, "backbone") and hasattr(model, "transform") else model

    return build


class _Heads(nn.Module):
    """What a detector computes before it looks at boxes."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.backbone = detector.backbone
        self.head = detector.rpn.head if hasattr(detector, "rpn") else detector.head

    def forward(self, images: torch.Tensor) -> Any:
        features = self.backbone(images)
        return self.head(list(features.values()))


def timm_model(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of timm with random weights."""
    return lambda: _import("timm").create_model(name, pretrained=False, **options)


_TINY = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def hugging(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of transformers by its class, with a tiny configuration; an option that is None is left out."""

    def build() -> nn.Module:
        transformers = _import("transformers")
        given = {name: value for name, value in {**_TINY, **options}.items() if value is not None}
        made = getattr(transformers, config)(**given)
        return getattr(transformers, model)(made)

    return build
