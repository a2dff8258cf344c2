"""Functions, norms, softmax and products of float32 tensors, which graphs compute with the same kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import fx

from zeropoint.compiler.steps.norms import flat_numbers
from zeropoint.compiler.steps.table import ours, row
from zeropoint.operators.node import arguments

if TYPE_CHECKING:
    from zeropoint.compiler.compiler import Compiler


@row(*ours("float_tanh", "float_sigmoid", "float_silu"))
def _function(c: Compiler, node: fx.Node) -> str:
    return c.add(str(node.target).split(".")[1], c.tensor(node.args[0]))


@row(*ours("float_gelu"))
def _gelu(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("float_gelu_tanh" if a["approximate"] == "tanh" else "float_gelu", c.tensor(a["input"]))


@row(*ours("float_layer_norm"))
def _layer_norm(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    if any(a[k] is not None and not c.is_parameter(a[k]) for k in ("weight", "bias")):
        raise c.unsupported("its weight or bias is computed")
    numbers = (flat_numbers(c, a[k]) for k in ("weight", "bias"))
    return c.add("float_layer_norm", c.tensor(a["input"]), *numbers, axes=len(a["normalized_shape"]), eps=a["eps"])


@row(*ours("float_softmax", "float_safe_softmax"))
def _softmax(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("float_softmax", c.tensor(a["input"]), axis=a["dim"], safe="safe" in str(node.target))


@row(*ours("float_log_softmax"))
def _log_softmax(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("float_log_softmax", c.tensor(a["input"]), axis=a["dim"])


@row(*ours("float_matmul"))
def _matmul(c: Compiler, node: fx.Node) -> str:
    a = arguments(node)
    return c.add("float_matmul", c.tensor(a["a"]), c.tensor(a["b"]))
