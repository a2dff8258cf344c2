"""Rows of embedding tables, and bags of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx

from zeropoint.compiler.steps.table import row
from zeropoint.operators.node import arguments
from zeropoint.ops.embedding import MODES, NAMES

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


def _bits(node: fx.Node) -> int:
    return next(bits for bits, name in NAMES.items() if f"_{name}" in str(node.target))


@row(*(f"zeropoint.embedding_{name}.default" for name in NAMES.values()))
def _embedding(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("embedding", c.tensor(a["weight"]), c.tensor(a["indices"]), bits=_bits(node))


@row("aten.embedding.default")
def _float_embedding(c: Compiler, node: fx.Node) -> str:
    """Rows of a table of floats."""
    a = arguments(node)
    indices = c.tensor(a["indices"])
    if c.dtype(a["indices"]) != torch.int64:
        indices = c.add("convert", indices, dtype="int64")
    return c.add("index", c.tensor(a["weight"]), indices, axis=0)


@row(*(f"zeropoint.embedding_bag_{name}_rowwise_offsets.default" for name in NAMES.values()))
def _embedding_bags(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if a["pruned_weights"]:
        raise c.unsupported("tables whose rows were pruned have no step")
    tensors = (c.tensor(a[k]) for k in ("weight", "indices", "offsets", "per_sample_weights"))
    numbers = {"mode": MODES[a["mode"]], "include_last_offset": bool(a["include_last_offset"])}
    return c.add("embedding_bags", *tensors, bits=_bits(node), **numbers)
