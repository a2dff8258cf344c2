"""The symbolic trace: a model as a graph of calls, with the module that each call stands in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from zeropoint.graph.code_names import check_names
from zeropoint.nn.intrinsic import FusedModule
from zeropoint.nn.quantized import FloatFunctional, FXFloatFunctional
from zeropoint.nn.stubs import DeQuantStub, QuantStub


class QuantizationTracer(fx.Tracer):
    """Traces into modules, but not into those of torch.nn, of zeropoint.nn, fused ones, and those that are named.

    Args:
        skipped_module_names, skipped_module_classes: modules that stay whole.
    """

    def __init__(self, skipped_module_names: Sequence[str] = (), skipped_module_classes: Sequence[Any] = ()) -> None:
        super().__init__()
        self.skipped_module_names = skipped_module_names
        self.skipped_module_classes = skipped_module_classes
        self.scope = fx.proxy.Scope("", None)
        self.record_stack_traces = not getattr(torch.fx.config, "do_not_emit_stack_traces", False)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        known = m.__module__.startswith(("torch.nn", "torch.ao.nn", "zeropoint.nn."))
        return (
            (known and not isinstance(m, (nn.Sequential, QuantStub, DeQuantStub)))  # stubs hand on what they get
            or module_qualified_name in self.skipped_module_names
            or type(m) in self.skipped_module_classes
            or isinstance(m, FusedModule)
        )


def trace(model: nn.Module, tracer: QuantizationTracer) -> fx.GraphModule:
    """A model as a graph; the model's own FloatFunctionals become ones that can be traced.

    Raises:
        torch.fx.proxy.TraceError: if the model decides by values.
    """
    replace_float_functionals(model)
    graph = tracer.trace(model)
    check_names(graph)
    return fx.GraphModule(model, graph)


def replace_float_functionals(model: nn.Module) -> None:
    """Let the FloatFunctionals inside a model be ones that can be traced, in place."""
    for name, module in model.named_children():
        if isinstance(module, FloatFunctional):
            model._modules[name] = FXFloatFunctional()
        else:
            replace_float_functionals(module)
