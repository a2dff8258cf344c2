"""PT2E, torchao's quantization of exported graphs: its graphs in, and our choices for its users."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from zeropoint.described import described
from zeropoint.graph.from_qdq import from_qdq_graph
from zeropoint.graph.frontends.export import capture, is_exported
from zeropoint.graph.workflow import Quantized

ours = torch.ops.zeropoint
_NAMESPACES = ("quantized_decomposed", "torchao", "pt2e_quant")


def from_pt2e(exported: Any, example_inputs: Any = None) -> Quantized:
    """Convert a model from torchao's `convert_pt2e` to int8, with the same scales.

    Args:
        exported: the result of `convert_pt2e`, or of `torch.export` applied to it.
        example_inputs: needed only if `exported` is not a graph of operators.

    Raises:
        TypeError: if it is not a graph.
        NotImplementedError: for unsupported torchao operators, with their names.
        ValueError: if no operator would run in int8.

    Example:
        >>> from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        >>> from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
        >>> from torch import nn
        >>> layers, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval(), (torch.randn(16, 4),)
        >>> quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
        >>> prepared = prepare_pt2e(torch.export.export(layers, x).module(), quantizer)
        >>> _ = prepared(*x)
        >>> from_pt2e(convert_pt2e(prepared)).summary().counts()["int8"]
        2
    """
    model = exported.module() if isinstance(exported, ExportedProgram) else exported
    if not isinstance(model, fx.GraphModule):
        raise TypeError(
            f"from_pt2e takes the output of convert_pt2e, or an ExportedProgram of it, got {described(exported)}"
        )
    graph = copy.deepcopy(model)
    _rename(graph)
    graph.recompile()
    if not is_exported(graph) and example_inputs is None:
        raise TypeError("from_pt2e: this graph calls modules: pass example_inputs to capture it")
    return from_qdq_graph(capture(graph, () if example_inputs is None else example_inputs))


def _rename(graph: fx.GraphModule) -> None:
    """Operators of torchao as zeropoint's, which take the same arguments."""
    unknown: list[str] = []
    for node in list(graph.graph.nodes):
        target: Any = node.target
        if node.op != "call_function" or getattr(target, "namespace", "") not in _NAMESPACES:
            continue
        name, overload = target._schema.name.split("::")[1], target._overloadname or "default"
        found = getattr(ours, name, None)
        if found is None or name.split("_per_")[0] not in ("quantize", "dequantize"):
            unknown.append(f"{target.namespace}.{name}")
            continue
        if overload == "tensor" and any(isinstance(v, fx.Node) and v.op != "get_attr" for v in node.args[1:3]):
            unknown.append(f"{target.namespace}.{name} with a scale that is computed")
            continue
        if overload == "tensor":
            numbers = [_number(graph, value) for value in node.args[1:3]]
            node.args = (node.args[0], float(numbers[0]), int(numbers[1]), *node.args[3:])
        node.target = found.default
        node.kwargs = {k: v for k, v in node.kwargs.items() if v is not None}
    if unknown:
        shown = ", ".join(sorted(set(unknown)))
        raise NotImplementedError(f"from_pt2e: unsupported operators: {shown}. Only static quantization is supported")


def _number(graph: fx.GraphModule, value: Any) -> Any:
    if not isinstance(value, fx.Node):
        return value
    found: Any = graph
    for part in str(value.target).split("."):
        found = getattr(found, part)
    return found.item()
