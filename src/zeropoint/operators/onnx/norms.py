"""ONNX forms of norms and softmax."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, Write, reads, writes


def _numbers(w: OnnxWriter, node: Any, size: int, default: float) -> Any:
    """Numbers of a norm for each channel, flat."""
    if node is None:
        return torch.full((size,), default)
    return w.parameter(node).float().reshape(-1)


def _write_batch_norm(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    mean, var = ("mean", "var") if "mean" in a else ("running_mean", "running_var")
    size = w.parameter(a[mean]).numel()
    numbers = [_numbers(w, a[k], size, d) for k, d in (("weight", 1.0), ("bias", 0.0), (mean, 0.0), (var, 1.0))]
    return w.result(w.op("BatchNormalization", w.floats(a["input"]), *numbers, epsilon=float(a["eps"])))


def _write_layer_norm(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    shape = list(a["normalized_shape"])
    if a["weight"] is not None:
        weight = w.floats(a["weight"])
    elif any(isinstance(size, fx.Node) for size in shape):
        weight = w.op("Expand", w.number(1.0), w.ints(shape))
    else:
        weight = torch.ones(shape)
    bias = None if a["bias"] is None else w.floats(a["bias"])
    options = {"axis": -len(shape), "epsilon": float(a["eps"])}
    return w.result(w.op("LayerNormalization", w.floats(a["input"]), weight, bias, **options))


def _write_group_norm(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    channels = int(w.found[a["input"]].shape[1])
    numbers = [_numbers(w, a[k], channels, d) for k, d in (("weight", 1.0), ("bias", 0.0))]
    options = {"num_groups": int(a["num_groups"]), "epsilon": float(a["eps"])}
    return w.result(w.op("GroupNormalization", w.floats(a["input"]), *numbers, **options))


def _write_instance_norm(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    channels = int(w.found[a["input"]].shape[1])
    numbers = [_numbers(w, a[k], channels, d) for k, d in (("weight", 1.0), ("bias", 0.0))]
    return w.result(w.op("InstanceNormalization", w.floats(a["input"]), *numbers, epsilon=float(a["eps"])))


def _write_softmax(name: str) -> Write:
    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a = arguments(node)
        return w.result(w.op(name, w.floats(node.args[0]), axis=a["dim"]))

    return write


def _write_safe_softmax(w: OnnxWriter, node: fx.Node) -> Any:
    """Zeros where every score is minus infinity."""
    a, x = arguments(node), w.floats(node.args[0])
    lowest = w.op("ReduceMax", x, w.ints([a["dim"]]), keepdims=1)
    nothing = w.op("Equal", lowest, w.number(float("-inf")))
    return w.result(w.op("Where", nothing, w.number(0.0), w.op("Softmax", x, axis=a["dim"])))


# ------------------------------------------------------------------------------------------------------------- reading


def _read_batch_norm(r: OnnxReader, n: ReadNode) -> Any:
    if n.attribute("training_mode", 0):
        raise r.unsupported("it is in training mode")
    n.without_effect("momentum", "spatial")  # of training, and of versions in which it is 1
    x, weight, bias, mean, var = (r.tensor(value) for value in n.first(5))
    return F.batch_norm(x, mean, var, weight, bias, False, 0.1, n.attribute("epsilon", 1e-5))


def _read_layer_norm(r: OnnxReader, n: ReadNode) -> Any:
    x, weight = r.tensor(n.input(0)), r.tensor(n.input(1))
    bias = r.tensor(n.input(2))
    axis, epsilon = n.attribute("axis", -1) % x.dim(), n.attribute("epsilon", 1e-5)
    n.without_effect("stash_type")  # sums of floats are float32 here, of halves too
    shape = list(x.shape[axis:])
    y = F.layer_norm(x, shape, weight.expand(shape), None if bias is None else bias.expand(shape), epsilon)
    if not n.wants(1) and not n.wants(2):
        return y
    axes = list(range(axis, x.dim()))
    mean = torch.mean(x, axes, True)
    return [y, mean, torch.rsqrt(torch.mean(torch.square(x - mean), axes, True) + epsilon)]


def _read_group_norm(r: OnnxReader, n: ReadNode) -> Any:
    x, weight, bias = (r.tensor(value) for value in n.first(3))
    groups = n.attribute("num_groups")
    if n.version < 21:
        raise r.unsupported("before opset 21, its scale and bias are per group: convert the file to opset 21")
    return F.group_norm(x, groups, weight, bias, n.attribute("epsilon", 1e-5))


def _read_instance_norm(r: OnnxReader, n: ReadNode) -> Any:
    x, weight, bias = (r.tensor(value) for value in n.first(3))
    return F.instance_norm(x, weight=weight, bias=bias, eps=n.attribute("epsilon", 1e-5))


def _read_softmax(function: Any) -> Any:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        x = r.tensor(n.input(0))
        if n.version >= 13:
            return function(x, n.attribute("axis", -1))
        axis = n.attribute("axis", 1) % x.dim()  # all axes from there on are one
        if axis == x.dim() - 1:
            return function(x, -1)
        return function(x.flatten(axis), -1).reshape(x.shape)

    return read


FORMS = {
    "batch_norm": OnnxForms(
        writes(
            _write_batch_norm, "float_batch_norm", "aten.batch_norm.default",
            *(f"batch_norm{d}{r}" for d in ("", "1d", "2d", "3d") for r in ("", "_relu")),
        ),
        reads(_read_batch_norm, "BatchNormalization"),
    ),
    "layer_norm": OnnxForms(
        writes(_write_layer_norm, "layer_norm", "float_layer_norm", "aten.layer_norm.default"),
        reads(_read_layer_norm, "LayerNormalization"),
    ),
    "group_norm": OnnxForms(
        writes(_write_group_norm, "group_norm", "float_group_norm", "aten.group_norm.default"),
        reads(_read_group_norm, "GroupNormalization"),
    ),
    "instance_norm": OnnxForms(
        writes(_write_instance_norm, "instance_norm", "float_instance_norm", "aten.instance_norm.default"),
        reads(_read_instance_norm, "InstanceNormalization"),
    ),
    "softmax": OnnxForms(
        writes(_write_softmax("Softmax"), "softmax", "float_softmax", "aten.softmax.int", "aten._softmax.default"),
        reads(_read_softmax(torch.softmax), "Softmax"),
    ),
    "log_softmax": OnnxForms(
        writes(_write_softmax("LogSoftmax"), "float_log_softmax", "aten.log_softmax.int", "aten._log_softmax.default"),
        reads(_read_softmax(torch.log_softmax), "LogSoftmax"),
    ),
    "safe_softmax": OnnxForms(writes(_write_safe_softmax, "float_safe_softmax", "aten._safe_softmax.default")),
}  # fmt: skip
