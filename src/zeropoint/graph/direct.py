"""Graphs on integers without torch's dispatcher: kernels of our operators, called one after the other.

A call through the dispatcher costs as much as the arithmetic of a small layer. Where nothing watches what is called and
nothing is differentiated, the same graph runs with our kernels in the place of the operators that they were registered
for. The results are the same: the dispatcher would call the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph.torch_internals import (
    copy_codegen,
    forward_of,
    graph_code,
    is_operator,
    is_profiled,
    is_transformed,
    own_buffers,
    plain_arguments,
)
from zeropoint.ops.library import NAMESPACE, kernel_of
from zeropoint.tensor.recording import has_hooks, is_watched


def run(module: fx.GraphModule, known: Direct | None, args: tuple[Any, ...]) -> tuple[Any, Direct | None]:
    """The result of a graph module, and its code without the dispatcher, to be given to the next call."""
    if not _is_plain(args) or is_watched() or is_transformed() or is_profiled() or has_hooks(module):
        return module(*args), known
    if known is None or not known.is_of(module):
        known = Direct(module)
    if torch.is_grad_enabled() and (known.has_parameters or any(x.requires_grad for x in args)):
        return module(*args), known
    return known.run(known.attributes, *args), known


def _is_plain(args: tuple[Any, ...]) -> bool:
    return all(type(x) is Tensor and x.is_cpu for x in args)


class Direct:
    """The code of a graph module with kernels in the place of operators, and the attributes that it reads."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module, self.forward = module, forward_of(module)
        self.run: Callable[..., Any] = graph_code(with_kernels(module.graph))
        self.attributes = _Attributes(module)
        self.has_parameters = any(True for _ in module.parameters())

    def is_of(self, module: fx.GraphModule) -> bool:
        """Whether this is the code of `module` as it is now."""
        return (
            self.module is module
            and self.forward is forward_of(module)
            and vars(self.attributes) is own_buffers(module)
        )


class _Attributes:
    """What generated code reads of its module: a buffer, at the cost of a look into the module's own dictionary."""

    __slots__ = ("__dict__", "_module_of_attributes")

    def __init__(self, module: fx.GraphModule) -> None:
        self.__dict__ = own_buffers(module)
        self._module_of_attributes = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module_of_attributes, name)


def with_kernels(graph: fx.Graph) -> fx.Graph:
    """The graph with our kernels in the place of the operators that they are registered for."""
    made, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        copied = copies[node] = made.node_copy(node, copies.__getitem__)
        if node.op != "call_function" or not is_operator(node.target):
            continue
        kernel = kernel_of(node.target.name()) if node.target.namespace == NAMESPACE else None
        arguments = None if kernel is None else plain_arguments(node.target, copied.args, copied.kwargs)
        if arguments is not None:
            copied.target, (copied.args, copied.kwargs) = kernel, arguments
    copy_codegen(graph, made)
    return made
