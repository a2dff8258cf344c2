"""The numbers that stand in a graph's calls, as a tensor for its state_dict.

Weights of a quantized model are buffers, but the scales and zero points of its activations are arguments of calls. A
state_dict that left them out would load into a model that was calibrated on other data, and compute something else.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph.provenance import represented

_KINDS = (bool, int, float, str, type(None))


def constants_of(graph: fx.GraphModule) -> Tensor:
    """Every call of a graph with its numbers, as compressed JSON in a tensor, which every file can hold."""
    text = json.dumps([_call(node) for node in graph.graph.nodes], separators=(",", ":"))
    return torch.frombuffer(bytearray(zlib.compress(text.encode(), 9)), dtype=torch.uint8).clone()


def set_constants(graph: fx.GraphModule, state: Tensor) -> None:
    """Give the calls of a graph the numbers that `constants_of` found in one of the same structure.

    Raises:
        ValueError: if the graph calls other operators, or on other values.
    """
    saved = json.loads(zlib.decompress(bytes(state.cpu().tolist())))
    nodes = list(graph.graph.nodes)
    own = [_call(node) for node in nodes]
    for node, mine, other in zip(nodes, own, saved):
        if _shape_of(mine) != _shape_of(other):
            raise ValueError(
                f"the state dict belongs to another graph: at {node.name}, this graph has {mine['target']}, the "
                f"state dict {other['target']}. Convert the same model in the same way, or save the whole model "
                "with torch.save"
            )
    if len(own) != len(saved):
        raise ValueError(
            f"the state dict belongs to another graph: it has {len(saved)} nodes, this graph "
            f"{len(own)}. Convert the same model in the same way, or save the whole model with "
            "torch.save"
        )
    by_name = {node.name: node for node in nodes}
    for node, other in zip(nodes, saved):
        node.args = tuple(_decoded(other["args"], by_name))
        node.kwargs = _decoded(other["kwargs"], by_name)
        held = represented(node)
        if held is not None:
            node.meta["represented"] = dataclasses.replace(held, scale=other["held"][0], zero_point=other["held"][1])
    graph.recompile()


def _call(node: fx.Node) -> dict[str, Any]:
    held = represented(node)
    return {
        "target": str(node.target),
        "args": _encoded(tuple(node.args)),
        "kwargs": _encoded(dict(node.kwargs)),
        "held": None if held is None else [held.scale, held.zero_point],
    }


def _encoded(value: Any) -> Any:
    """A value as JSON has it: what is no number, string or list is a list of its kind and its text."""
    if isinstance(value, fx.Node):
        return {"node": value.name}
    if isinstance(value, (list, tuple)):
        return [_encoded(v) for v in value]
    if isinstance(value, dict):
        return {"dict": {k: _encoded(v) for k, v in value.items()}}
    if isinstance(value, slice):
        return {"slice": [_encoded(v) for v in (value.start, value.stop, value.step)]}
    return value if isinstance(value, _KINDS) else {"torch": str(value).removeprefix("torch.")}


def _decoded(value: Any, by_name: dict[str, fx.Node]) -> Any:
    if isinstance(value, list):
        return [_decoded(v, by_name) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "node":
        return by_name[held]
    if kind == "dict":
        return {k: _decoded(v, by_name) for k, v in held.items()}
    if kind == "slice":
        return slice(*(_decoded(v, by_name) for v in held))
    return torch.device(held) if held.split(":")[0] in ("cpu", "cuda", "meta") else getattr(torch, held)


def _shape_of(value: Any) -> Any:
    """`value` with nothing in the place of numbers: what two graphs of one structure have in common."""
    if isinstance(value, list):
        return [_shape_of(v) for v in value]
    if isinstance(value, dict):
        return {k: v if k in ("node", "target") else None if k == "held" else _shape_of(v) for k, v in value.items()}
    return None if isinstance(value, (int, float)) else value
