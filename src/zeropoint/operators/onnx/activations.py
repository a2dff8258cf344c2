"""ONNX forms of activations, bounds and dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from zeropoint.numerics.affine import BYTE_LIMITS
from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, Read, ReadNode, Write, reads, writes


def one(name: str, **attributes: str) -> Write:
    """Writes an operator of one tensor. `attributes`: those of ONNX, by the names of the arguments they come from."""

    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a = arguments(node)
        given = {k: float(a[v]) for k, v in attributes.items()}
        return w.result(w.op(name, w.floats(node.args[0]), **given))

    return write


def computes(function: Callable[..., Any], **attributes: Any) -> Read:
    """Reads an operator of one tensor as a function. `attributes`: names of ONNX with their defaults, in order."""

    def read(r: OnnxReader, n: ReadNode) -> Any:
        return function(r.tensor(n.input(0)), *(n.attribute(k, v) for k, v in attributes.items()))

    return read


# ------------------------------------------------------------------------------------------------------------- writing


def _write_silu(w: OnnxWriter, node: fx.Node) -> Any:
    x = w.floats(node.args[0])
    return w.result(w.op("Mul", x, w.op("Sigmoid", x)))


def _write_gelu(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    is_tanh = a.get("approximate") == "tanh" or bool(a.get("tanh"))
    return w.result(w.op("Gelu", w.floats(node.args[0]), approximate="tanh" if is_tanh else "none"))


def _write_elu(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    factor, inner = (
        float(a[k] if k in a else a[other]) for k, other in (("factor", "scale"), ("inner_factor", "input_scale"))
    )
    if inner != 1.0:
        raise w.unsupported("ONNX's Elu has no input_scale")
    y = w.op("Elu", w.floats(node.args[0]), alpha=float(a["alpha"]))
    return w.result(y if factor == 1.0 else w.op("Mul", y, w.number(factor)))


def _write_prelu(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    slopes, rank = w.parameter(a["weight"]), w.rank(node.args[0])
    if "weight_scale" in a:
        slopes = (slopes.float() - a["weight_zero_point"]) * a["weight_scale"]
    shape = (-1, *[1] * (rank - 2)) if slopes.numel() > 1 else (1,)
    return w.result(w.op("PRelu", w.floats(node.args[0]), slopes.float().reshape(shape)))


def _write_hard_sigmoid(w: OnnxWriter, node: fx.Node) -> Any:
    return w.result(w.op("HardSigmoid", w.floats(node.args[0]), alpha=1 / 6, beta=0.5))


def _write_bounds(low: str | float | None, high: str | float | None) -> Write:
    """Bounds that are numbers, or arguments of these names; ATen's, of integers with a scale, are integers."""

    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a, x = arguments(node), node.args[0]
        bounds = [a.get(b) if isinstance(b, str) else b for b in (low, high)]
        if any(isinstance(b, fx.Node) for b in bounds):
            raise w.unsupported("its bounds are not constants")
        scale, limits = w.scale_of(x), BYTE_LIMITS.get(w.dtype(x))
        if scale is None or limits is None:
            if bounds == [0, None]:
                return w.op("Relu", w.floats(x))
            return w.op("Clip", w.floats(x), *(None if b is None else w.number(b, w.dtype(x)) for b in bounds))
        if "zeropoint" in str(node.target):
            bounds = [None if b is None else round(b / scale[0]) + scale[1] for b in bounds]
        kept = (d if b is None else min(max(int(b), limits[0]), limits[1]) for b, d in zip(bounds, limits))
        return w.bounded(w.tensor(x), scale, w.dtype(x), *kept)

    return write


def _write_threshold(w: OnnxWriter, node: fx.Node) -> Any:
    a, x = arguments(node), w.floats(node.args[0])
    above = w.op("Greater", x, w.number(float(a["threshold"])))
    return w.result(w.op("Where", above, x, w.number(float(a["value"]))))


def _write_same(w: OnnxWriter, node: fx.Node) -> Any:
    return w.tensor(node.args[0])


# ------------------------------------------------------------------------------------------------------------- reading


def _read_hard_sigmoid(r: OnnxReader, n: ReadNode) -> Any:
    alpha, beta = n.attribute("alpha", 0.2), n.attribute("beta", 0.5)
    x = r.tensor(n.input(0))
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return F.hardsigmoid(x)
    return torch.clamp(x * alpha + beta, 0.0, 1.0)


def _read_gelu(r: OnnxReader, n: ReadNode) -> Any:
    return F.gelu(r.tensor(n.input(0)), approximate=n.attribute("approximate", "none"))


def _read_prelu(r: OnnxReader, n: ReadNode) -> Any:
    """Slopes broadcast from the last axis on; PyTorch has them along the second."""
    x, slopes = r.tensor(n.input(0)), r.weight(n.input(1))
    axes = [axis for axis, size in enumerate(slopes.shape, x.dim() - slopes.dim()) if size != 1]
    if axes not in ([], [1]):
        return torch.clamp_min(x, 0) + slopes * torch.clamp_max(x, 0)
    return F.prelu(x, slopes.reshape(-1))


def _read_clip(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    if n.version < 11:
        low, high = n.attribute("min", None), n.attribute("max", None)
    else:
        given = [n.input(1), n.input(2)]
        if any(b is not None and not r.is_known(b) for b in given):
            low_tensor, high_tensor = (r.tensor(b) for b in given)
            return torch.clamp(x, low_tensor, high_tensor)
        low, high = (None if b is None else r.number(b) for b in given)
    if low is None and high is None:
        return x
    return F.relu6(x) if (low, high) == (0.0, 6.0) else torch.clamp(x, low, high)


def _read_dropout(r: OnnxReader, n: ReadNode) -> Any:
    """Nothing is dropped when a model runs; the mask keeps all."""
    n.without_effect("seed", "ratio")
    n.input(1)
    if n.has(2) and (not r.is_known(n.input(2)) or r.number(n.input(2))):
        raise r.unsupported("training_mode must be the constant false")
    return [n.input(0), torch.ones_like(r.tensor(n.input(0)), dtype=torch.bool)] if n.wants(1) else n.input(0)


def _read_thresholded_relu(r: OnnxReader, n: ReadNode) -> Any:
    return F.threshold(r.tensor(n.input(0)), n.attribute("alpha", 1.0), 0.0)


def _function(
    name: str, write: Write, read: Read | None = None, *, onnx: str = "", more: tuple[str, ...] = ()
) -> OnnxForms:
    calls = (name, f"float_{name}", f"aten.{name}.default", *more)
    return OnnxForms(writes(write, *calls), reads(read, onnx) if read is not None else ())


FORMS = {
    "relu": OnnxForms(writes(one("Relu"), "aten.relu.default"), reads(computes(F.relu), "Relu")),
    "hardswish": _function("hardswish", one("HardSwish"), computes(F.hardswish), onnx="HardSwish"),
    "silu": _function("silu", _write_silu, computes(F.silu), onnx="Swish"),
    "mish": _function("mish", one("Mish"), computes(F.mish), onnx="Mish"),
    "gelu": _function("gelu", _write_gelu, _read_gelu, onnx="Gelu"),
    "elu": _function("elu", _write_elu, computes(F.elu, alpha=1.0), onnx="Elu"),
    "celu": _function("celu", one("Celu", alpha="alpha"), computes(F.celu, alpha=1.0), onnx="Celu"),
    "leaky_relu": _function(
        "leaky_relu", one("LeakyRelu", alpha="negative_slope"), computes(F.leaky_relu, alpha=0.01), onnx="LeakyRelu"
    ),
    "prelu": _function("prelu", _write_prelu, _read_prelu, onnx="PRelu"),
    "sigmoid": _function("sigmoid", one("Sigmoid"), computes(torch.sigmoid), onnx="Sigmoid"),
    "hardsigmoid": _function("hardsigmoid", _write_hard_sigmoid, _read_hard_sigmoid, onnx="HardSigmoid"),
    "tanh": _function("tanh", one("Tanh"), computes(torch.tanh), onnx="Tanh"),
    "softsign": OnnxForms(
        writes(one("Softsign"), "float_softsign", "softsign"), reads(computes(F.softsign), "Softsign")
    ),
    "softplus": OnnxForms(reads=reads(computes(F.softplus), "Softplus")),
    "relu6": OnnxForms(writes(_write_bounds(0.0, 6.0), "relu6", "aten.relu6.default")),
    "hardtanh": OnnxForms(writes(_write_bounds("min_val", "max_val"), "aten.hardtanh.default")),
    "clamp": OnnxForms(
        writes(_write_bounds("min", "max"), "clamp", "aten.clamp.default", "aten.clip.default"),
        reads(_read_clip, "Clip"),
    ),
    "clamp_min": OnnxForms(writes(_write_bounds("min", None), "aten.clamp_min.default")),
    "clamp_max": OnnxForms(writes(_write_bounds(None, "max"), "aten.clamp_max.default")),
    "threshold": OnnxForms(
        writes(_write_threshold, "threshold", "aten.threshold.default"),
        reads(_read_thresholded_relu, "ThresholdedRelu"),
    ),
    "dropout": OnnxForms(writes(_write_same, "aten.dropout.default"), reads(_read_dropout, "Dropout")),
}  # fmt: skip
