"""What is asked of the graph of an ONNX file before its operators are read: its inputs, and which nodes matter."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.interop.onnx.node import NotRead, broken, full_name, input_dtype


def given_inputs(graph: Any) -> list[Any]:
    """The inputs of a graph that have no stored value."""
    stored = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in stored]


def zeros(inputs: Iterable[Any]) -> tuple[Tensor, ...]:
    """Tensors of the sizes that the file names."""
    made = []
    for value in inputs:
        shape = sizes_of(value)
        if shape is None:
            raise ValueError(f"from_onnx: the file does not define the shape of {value.name!r}: pass example_inputs")
        sizes = [size if isinstance(size, int) and size > 0 else 2 for size in shape]
        made.append(torch.zeros(sizes, dtype=input_dtype(value.type.tensor_type.elem_type)))
    return tuple(made)


def type_name(value: Any) -> str:
    from onnx import TensorProto

    return TensorProto.DataType.Name(value.type.tensor_type.elem_type)


def sizes_of(value: Any) -> list[int | str | None] | None:
    """A number for each size of a value that is fixed, and None or a name for others; None if nothing is said."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]


def needed(nodes: Any, outputs: set[str]) -> list[Any]:
    """The nodes that results depend on, in their order."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(name in wanted for name in node.output):
            kept.append(node)
            wanted.update(name for name in node.input if name)
    return kept[::-1]


def ordered(nodes: Sequence[Any]) -> list[Any]:
    """The nodes, each behind those that it reads, in the order of the file as far as it allows that.

    ONNX Runtime's quantizers put nodes before those whose results their graphs read. Nodes that read each other come
    last.
    """
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    before = [{makers[name] for name in node.input if name in makers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for number, made_by in enumerate(before):
        for maker in made_by:
            readers[maker].append(number)
    left = [len(made_by) for made_by in before]
    ready = [number for number, count in enumerate(left) if count == 0]
    done: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        done.append(number)
        for reader in readers[number]:
            left[reader] -= 1
            if left[reader] == 0:
                heapq.heappush(ready, reader)
    return [nodes[number] for number in (*done, *(n for n, count in enumerate(left) if count))]


def require_defined(graph: Any, nodes: list[Any], stored: Iterable[str]) -> None:
    """Refuse names that nothing defines before they are read."""
    defined = {"", *stored, *(value.name for value in graph.input)}
    for node in nodes:
        for name in node.input:
            if name not in defined:
                raise broken(f"{node.op_type} {node.name!r} reads {name!r}, which nothing defines before it")
        defined.update(node.output)
    for value in graph.output:
        if value.name not in defined:
            raise broken(f"nothing defines its output {value.name!r}")


def is_readable(node: Any) -> bool:
    """Whether there is a reader for the operator of a node."""
    from onnx import AttributeProto

    from zeropoint.interop.onnx.control_flow import is_control_flow
    from zeropoint.interop.onnx.shape_arithmetic import SIZES
    from zeropoint.operators import ONNX_READS

    if is_control_flow(node):
        return True
    inner = any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute)
    name = full_name(node)
    return not inner and (name in ONNX_READS or name in SIZES or name == "Constant")


def require_readable(nodes: Iterable[Any]) -> None:
    """Name every operator that is not read, at once."""
    found = Counter(full_name(node) for node in nodes if not is_readable(node))
    if found:
        shown = ", ".join(f"{name} ({count} x)" for name, count in found.most_common())
        raise NotRead(
            f"from_onnx: {len(found)} operators of the file are not supported: {shown}. docs/operators.md lists "
            "the supported ones"
        )
