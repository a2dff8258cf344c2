"""Passes over graphs of TorchScript that old code calls by name, in ``torch._C``."""

from __future__ import annotations

from typing import Any

import torch

from zeropoint.compat.changes import Changes
from zeropoint.compat.script import NAMESPACE
from zeropoint.graph.frontends.script.script_module import walk

_WITH_RELU = {
    "add": "add_relu",
    "add_out": "add_relu_out",
    "add_scalar": "add_scalar_relu",
    "add_scalar_out": "add_scalar_relu_out",
}
_RELU = ("aten::relu", "aten::relu_")


def fuse_quantized_add_relu(graph: Any) -> None:
    """Let additions of quantized tensors compute the ReLU that alone reads their result.

    PyTorch's name of the operator stands in the graph where PyTorch has it: that is what callers look for.
    """
    for relu in [node for node in walk(graph) if node.kind() in _RELU]:
        added = relu.inputsAt(0).node()
        namespace, _, name = added.kind().partition("::")
        if namespace not in ("quantized", NAMESPACE) or name not in _WITH_RELU or len(added.output().uses()) > 1:
            continue
        kind = f"quantized::{_WITH_RELU[name]}"
        if not torch._C._jit_get_schemas_for_operator(kind):
            kind = f"{NAMESPACE}::{_WITH_RELU[name]}"
        fused = graph.create(kind, list(added.inputs()), 1)
        fused.output().setType(relu.output().type())
        fused.insertBefore(added)
        relu.output().replaceAllUsesWith(fused.output())
        relu.destroy()
        added.destroy()


def replace_passes(changes: Changes) -> None:
    """Put the passes where old code finds them."""
    changes.attribute(torch._C, "_jit_pass_fuse_quantized_add_relu", fuse_quantized_add_relu)
