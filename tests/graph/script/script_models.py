"""What the tests of TorchScript models share."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor, nn


def scripted(model: nn.Module, traced: bool, *inputs: Tensor) -> Any:
    return torch.jit.trace(model, inputs) if traced else torch.jit.script(model)


def operators(model: Any) -> list[str]:
    """The kinds of the nodes of a model, those in blocks included, without constants."""

    def walk(block: Any) -> list[str]:
        found = []
        for node in block.nodes():
            found.append(node.kind())
            for inner in node.blocks():
                found += walk(inner)
        return found

    return [kind for kind in walk(model.graph) if kind != "prim::Constant"]


def reloaded(model: Any) -> Any:
    stream = io.BytesIO()
    torch.jit.save(model, stream)
    stream.seek(0)
    return torch.jit.load(stream)
