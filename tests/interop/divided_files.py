"""Quantized ONNX files of two convolutions with other nodes between them, some of which no program has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper, save

STEP = 0.05  # of all activations
_OPSET = 21


def _rounded(name: str) -> list[NodeProto]:
    """A value, rounded: ``<name>_r``."""
    return [
        helper.make_node("QuantizeLinear", [name, "step", "zero"], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", "step", "zero"], [f"{name}_r"]),
    ]


def _convolution(x: str, weight: str, y: str) -> list[NodeProto]:
    return [
        helper.make_node("DequantizeLinear", [weight, "weight_step"], [f"{weight}_f"]),
        helper.make_node("Conv", [x, f"{weight}_f"], [y]),
    ]


def two_convolutions(
    path: Path, between: Sequence[NodeProto] = (), stored: Sequence[Any] = (), batch: int | str = "batch"
) -> Path:
    """A file with input ``x`` and output ``y_r``. The nodes between read ``a_r`` and write ``b``."""
    random = np.random.default_rng(0)
    middle = list(between) or [helper.make_node("Relu", ["a_r"], ["b"])]
    nodes = [
        *_rounded("x"), *_convolution("x_r", "first", "a"), *_rounded("a"), *middle,
        *_rounded("b"), *_convolution("b_r", "second", "y"), *_rounded("y"),
    ]  # fmt: skip
    weights = {
        "step": np.float32(STEP),
        "zero": np.uint8(128),
        "weight_step": np.float32(0.004),
        "first": random.integers(-127, 127, (4, 3, 3, 3), dtype=np.int8),
        "second": random.integers(-127, 127, (2, 4, 1, 1), dtype=np.int8),
    }
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 6, 6])
    y = helper.make_tensor_value_info("y_r", TensorProto.FLOAT, [batch, 2, 4, 4])
    graph = helper.make_graph(nodes, "two", [x], [y], [*arrays, *stored])
    opsets = [helper.make_opsetid("", _OPSET)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def by_condition() -> tuple[list[NodeProto], list[Any]]:
    """Nodes between that choose by what the first convolution gives; their graphs read it from outside."""

    def branch(factor: str, result: str) -> Any:
        node = helper.make_node("Mul", ["a_r", factor], [result])
        return helper.make_graph([node], result, [], [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)])

    stored = [numpy_helper.from_array(np.float32(value), name) for name, value in (("half", 0.5), ("more", 1.5))]
    stored.append(numpy_helper.from_array(np.float32(0), "nothing"))
    nodes = [
        helper.make_node("ReduceMean", ["a_r"], ["mean"], keepdims=0),
        helper.make_node("Greater", ["mean", "nothing"], ["is_positive"]),
        helper.make_node(
            "If", ["is_positive"], ["b"], then_branch=branch("half", "b_then"), else_branch=branch("more", "b_else")
        ),
    ]
    return nodes, stored
