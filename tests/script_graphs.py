"""Making TorchScript of models, quantizing it, and looking at its graphs."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zeropoint

STATIC = {"": zeropoint.get_default_qconfig("native")}
BOTH_WAYS = pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])


def scripted(model: nn.Module, traced: bool, *inputs: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        return torch.jit.trace(model, inputs, check_trace=False) if traced else torch.jit.script(model)


def nodes(block: Any) -> Iterator[Any]:
    """The nodes of a graph or block, those in blocks included."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes(inner)


def kinds(model: Any) -> list[str]:
    """The kinds of the nodes of a model, those in blocks included, without constants."""
    return [node.kind() for node in nodes(model.graph) if node.kind() != "prim::Constant"]


def calls(model: Any) -> list[str]:
    """Our operators in a graph, in order, without the namespace."""
    return [kind.removeprefix("zeropoint::") for kind in kinds(model) if kind.startswith("zeropoint::")]


def quantized(model: Any, *batch: Any, qconfigs: Mapping[str, Any] = STATIC, debug: bool = False) -> Any:
    """A ScriptModule through calibration on one batch."""
    prepared = zeropoint.prepare_jit(model, qconfigs)
    prepared(*batch)
    return zeropoint.convert_jit(prepared, debug=debug)


def reloaded(model: Any) -> Any:
    stream = io.BytesIO()
    torch.jit.save(model, stream)
    stream.seek(0)
    return torch.jit.load(stream)
