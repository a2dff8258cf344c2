"""ONNX forms of linear layers and convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from zeropoint.numerics.packing import unpack
from zeropoint.operators.node import arguments, each
from zeropoint.operators.onnx.geometry import padded
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes
from zeropoint.ops.weight_only import small_weight

ours = torch.ops.zeropoint


# ------------------------------------------------------------------------------------------------------------- writing


def _weight(w: OnnxWriter, a: dict[str, Any], order: tuple[int, ...] | None = None, axis: int = 0) -> Any:
    """The floats of a layer's weight, its axes in another order; `axis` counts output channels before that."""
    weight = w.parameter(a["weight"])
    order = order or tuple(range(weight.dim()))
    moved = weight.permute(order).contiguous()
    if a.get("weight_scale") is None:
        return w.constant(moved.float(), str(a["weight"].target))
    scale, zero_point = (w.parameter(a[f"weight_{k}"]).reshape(-1) for k in ("scale", "zero_point"))
    return w.dequantized(moved, scale, zero_point, order.index(axis), str(a["weight"].target))


def _bias(w: OnnxWriter, a: dict[str, Any]) -> Any:
    return None if a["bias"] is None else w.constant(w.parameter(a["bias"]).float(), str(a["bias"].target))


def _is_large(w: OnnxWriter, a: dict[str, Any]) -> bool:
    """Whether a bias has no 32 bits in steps of the products, which is what runtimes on integers make of it."""
    if a["bias"] is None or a.get("input_scale") is None:
        return False
    step = float(a["input_scale"]) * float(w.parameter(a["weight_scale"]).double().min())
    return float(w.parameter(a["bias"]).double().abs().max()) >= step * 2.0**31


def _convolved(w: OnnxWriter, a: dict[str, Any], op: str, x: Any, weight: Any, **options: Any) -> Any:
    """A convolution; a bias that is too large for it is added behind."""
    if not _is_large(w, a):
        return w.op(op, x, weight, _bias(w, a), **options)
    bias = w.parameter(a["bias"]).float().reshape(-1, *[1] * (w.found[a["weight"]].dim() - 2))
    return w.op("Add", w.op(op, x, weight, **options), w.constant(bias, str(a["bias"].target)))


def _product(w: OnnxWriter, a: dict[str, Any], x: Any, rounded: bool = True) -> Any:
    """``x W^T + b``: one operator for matrices, which runtimes turn into one on integers; else a product and a sum.

    Where the result is not rounded, ONNX Runtime does that with products that have no bias.
    """
    if not w.is_parameter(a["weight"]):
        product = w.op("MatMul", x, w.op("Transpose", w.floats(a["weight"]), perm=[1, 0]))
        return product if a["bias"] is None else w.op("Add", product, w.floats(a["bias"]))
    is_matrix = w.rank(a["input"]) == 2
    if is_matrix and rounded and not _is_large(w, a):
        return w.op("Gemm", x, _weight(w, a), _bias(w, a), transB=1)
    product = w.op("Gemm", x, _weight(w, a), transB=1) if is_matrix else w.op("MatMul", x, _weight(w, a, (1, 0)))
    return product if a["bias"] is None else w.op("Add", product, _bias(w, a))


def _write_linear(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    return w.result(_product(w, a, w.floats(a["input"]), node.target is not ours.linear_to_float.default))


def _write_linear_dynamic(w: OnnxWriter, node: fx.Node) -> Any:
    """A product of integers, with the range of the input found when it runs."""
    a = arguments(node)
    weight = w.parameter(a["weight"]).t().contiguous()
    scale, zero_point = (w.parameter(a[f"weight_{k}"]).reshape(-1) for k in ("scale", "zero_point"))
    stored, x = w.constant(weight, str(a["weight"].target)), w.floats(a["input"])
    shift = zero_point.to(weight.dtype) if zero_point.numel() > 1 else zero_point.reshape(()).to(weight.dtype)
    weights = (stored, shift) if zero_point.any() else (stored, None)
    q, x_scale, x_shift = _rounded_when_run(w, x, bool(a["per_token"]), bool(a["reduce_range"]))
    product = w.op("MatMulInteger", q, weights[0], x_shift, weights[1])
    y = w.convert(product, torch.float32)
    if a["per_token"]:  # one by one: ONNX Runtime 1.31 takes the product of the two for that of one scale and a vector
        y = w.op("Mul", w.op("Mul", y, x_scale), scale.float())
    else:
        y = w.op("Mul", y, w.op("Mul", x_scale, scale.float()))
    return w.result(y if a["bias"] is None else w.op("Add", y, _bias(w, a)))


def _rounded_when_run(w: OnnxWriter, x: Any, by_row: bool, reduce_range: bool) -> Any:
    """Integers, their scale and zero point: by DynamicQuantizeLinear, or what it has not in parts.

    A scale for each row is that of its largest size, of 127 steps; the integers are moved up by 128, as products of
    unsigned ones are what runtimes are fastest at. In 7 bits the range is that of all values.
    """
    if not by_row and not reduce_range:
        return w.ops("DynamicQuantizeLinear", 3, x)
    smallest = w.number(torch.finfo(torch.float32).eps)
    if by_row:
        most = w.op("ReduceMax", w.op("Abs", x), w.ints([-1]), keepdims=1)
        scale = w.op("Max", w.op("Div", most, w.number(127.0)), smallest)
        steps = w.op("Add", w.op("Round", w.op("Div", x, scale)), w.number(128.0))
        return w.convert(steps, torch.uint8), scale, torch.tensor(128, dtype=torch.uint8)
    zero, top = w.number(0.0), w.number(127.0)
    low, high = w.op("Min", w.op("ReduceMin", x, keepdims=0), zero), w.op("Max", w.op("ReduceMax", x, keepdims=0), zero)
    scale = w.op("Max", w.op("Div", w.op("Sub", high, low), top), smallest)
    shift = w.op("Clip", w.op("Round", w.op("Neg", w.op("Div", low, scale))), zero, top)
    steps = w.op("Clip", w.op("Add", w.op("Round", w.op("Div", x, scale)), shift), zero, top)
    return w.convert(steps, torch.uint8), scale, w.convert(shift, torch.uint8)


def _geometry(a: dict[str, Any], dims: int) -> dict[str, Any]:
    padding = each(a["padding"], dims)
    return {
        "strides": each(a["stride"], dims), "dilations": each(a["dilation"], dims), "group": int(a["groups"]),
        "pads": padding * 2,
    }  # fmt: skip


def _write_conv(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    dims = w.found[a["weight"]].dim() - 2
    x = w.floats(a["input"])
    is_single = w.rank(a["input"]) == dims + 1
    if is_single:
        x = w.op("Unsqueeze", x, w.ints([0]))
    weight = _weight(w, a) if w.is_parameter(a["weight"]) else w.floats(a["weight"])
    kernel = list(w.found[a["weight"]].shape[2:])
    y = _convolved(w, a, "Conv", x, weight, kernel_shape=kernel, **_geometry(a, dims))
    return w.result(w.op("Squeeze", y, w.ints([0])) if is_single else y)


def _write_conv_transpose(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    weight = w.parameter(a["weight"])
    dims = weight.dim() - 2
    options = _geometry(a, dims) | {"output_padding": each(a["output_padding"], dims)}
    stored = _weight(w, a, axis=1)
    x = w.floats(a["input"])
    return w.result(_convolved(w, a, "ConvTranspose", x, stored, kernel_shape=list(weight.shape[2:]), **options))


def _write_conv_dynamic(w: OnnxWriter, node: fx.Node) -> Any:
    """On integers; a transposed one, which ONNX has not on integers, as one of the floats that were rounded."""
    a = arguments(node)
    dims = w.parameter(a["weight"]).dim() - 2
    rounded = _rounded_when_run(w, w.floats(a["input"]), False, bool(a["reduce_range"]))
    transposed = "output_padding" in a
    shifts = w.parameter(a["weight_zero_point"]).reshape(-1)
    if not transposed and bool((shifts == shifts[0]).all()):
        return w.result(_integer_conv(w, a, rounded, int(shifts[0]), _geometry(a, dims)))
    x = w.op("DequantizeLinear", *rounded)
    options = _geometry(a, dims) | ({"output_padding": each(a["output_padding"], dims)} if transposed else {})
    weight = _weight(w, a, axis=1 if transposed else 0)
    return w.result(w.op("ConvTranspose" if transposed else "Conv", x, weight, _bias(w, a), **options))


def _integer_conv(w: OnnxWriter, a: dict[str, Any], rounded: Any, shift: int, options: dict[str, Any]) -> Any:
    """Weights are unsigned, which is what ONNX Runtime has it for: integers of zeropoint are moved up by 128."""
    weight = w.parameter(a["weight"])
    q, x_scale, x_shift = rounded
    if weight.dtype == torch.int8:
        weight, shift = (weight.to(torch.int16) + 128).to(torch.uint8), shift + 128
    stored = w.constant(weight.contiguous(), str(a["weight"].target))
    product = w.op("ConvInteger", q, stored, x_shift, torch.tensor(shift, dtype=torch.uint8), **options)
    shape = (1, -1, *[1] * (weight.dim() - 2))
    scale = w.parameter(a["weight_scale"]).float().reshape(-1).expand(weight.shape[0]).reshape(shape).contiguous()
    y = w.op("Mul", w.convert(product, torch.float32), w.op("Mul", x_scale, scale))
    if a["bias"] is None:
        return y
    bias = w.parameter(a["bias"]).float().reshape(shape)
    return w.op("Add", y, w.constant(bias.contiguous(), str(a["bias"].target)))


def _write_weight_only(w: OnnxWriter, node: fx.Node) -> Any:
    """Weights in blocks of inputs, with the inputs along the first axis, as runtimes with such products ask for."""
    a = arguments(node)
    parts = (None if a[k] is None else w.parameter(a[k]) for k in ("weight", "scale", "zero_point", "bias"))
    weight, scale, zero_point, bias = parts
    inputs, bits = int(w.found[a["input"]].shape[-1]), 4 if "4bit" in str(node.target) else 8
    small = small_weight(str(node.target), weight, inputs, bits, scale, zero_point, bias, a["group_size"])
    if small.shift is not None:
        raise w.unsupported("its weight has float zero points, which DequantizeLinear does not support")
    integers = unpack(small.weight, inputs, 4) if bits == 4 else small.weight
    stored = w.dequantized_blocks(small, integers, str(a["weight"].target))
    product = w.op("MatMul", w.floats(a["input"]), stored)
    return w.result(product if a["bias"] is None else w.op("Add", product, _bias(w, a)))


def _write_half(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    stored = w.constant(w.parameter(a["weight"]).to(torch.float16).t().contiguous(), str(a["weight"].target))
    product = w.op("MatMul", w.floats(a["input"]), w.convert(stored, torch.float32))
    return w.result(product if a["bias"] is None else w.op("Add", product, _bias(w, a)))


# ------------------------------------------------------------------------------------------------------------- reading


def _read_conv(r: OnnxReader, n: ReadNode) -> Any:
    return convolution(r, n, r.tensor(n.input(0)), r.weight(n.input(1)), r.tensor(n.input(2)))


def convolution(r: OnnxReader, n: ReadNode, x: Any, weight: Any, bias: Any) -> Any:
    """One of the size, the stride and the borders that a node says."""
    dims = weight.dim() - 2
    _require_kernel(r, n, weight)
    stride, dilation = (list(n.attribute(k, [1] * dims)) for k in ("strides", "dilations"))
    x, padding = padded(r, n, x, list(weight.shape[2:]), stride, dilation)
    conv = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    return conv(x, weight, bias, stride, padding, dilation, n.attribute("group", 1))


def _require_kernel(r: OnnxReader, n: ReadNode, weight: Any) -> None:
    """The file may say the size of the kernel once more."""
    said = n.attribute("kernel_shape", None)
    if said is not None and list(said) != list(weight.shape[2:]):
        raise r.unsupported(f"kernel_shape is {list(said)}, and its weight has {list(weight.shape)}")


def _read_conv_transpose(r: OnnxReader, n: ReadNode) -> Any:
    """Pads cut the result; where those of the two sides differ, what is too much is cut behind."""
    x, weight = r.tensor(n.input(0)), r.weight(n.input(1))
    bias = r.tensor(n.input(2))
    dims = weight.dim() - 2
    _require_kernel(r, n, weight)
    stride, dilation = (list(n.attribute(k, [1] * dims)) for k in ("strides", "dilations"))
    more = list(n.attribute("output_padding", [0] * dims))
    full = [
        (x.shape[2 + i] - 1) * stride[i] + dilation[i] * (weight.shape[2 + i] - 1) + 1 + more[i] for i in range(dims)
    ]
    pads = _pads_of_transposed(n, x, full, stride)
    least = [min(pads[i], pads[dims + i]) for i in range(dims)]
    conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    if any(few < 0 for few in least):
        raise r.unsupported(f"pads of {pads}: its output_shape is larger than what it gives")
    if pads[:dims] == pads[dims:]:
        return conv(x, weight, bias, stride, least, more, n.attribute("group", 1), dilation)
    y = conv(x, weight, bias, stride, least, more, n.attribute("group", 1), dilation)
    for i in range(dims):
        y = y.narrow(2 + i, pads[i] - least[i], full[i] - pads[i] - pads[dims + i])
    return y


def _pads_of_transposed(n: ReadNode, x: Any, full: list[Any], stride: list[int]) -> list[Any]:
    """All before, then all after: as said, or so that the result has the size that is said."""
    dims, auto = len(full), n.attribute("auto_pad", "NOTSET")
    size, pads = n.attribute("output_shape", None), list(n.attribute("pads", [0] * (2 * dims)))
    if size is None and auto in ("NOTSET", "VALID"):
        return pads if auto == "NOTSET" else [0] * (2 * dims)
    wanted = list(size)[-dims:] if size is not None else [x.shape[2 + i] * stride[i] for i in range(dims)]
    total = [whole - part for whole, part in zip(full, wanted)]
    small, large = [t // 2 for t in total], [t - t // 2 for t in total]
    return small + large if auto == "SAME_UPPER" else large + small


def _read_gemm(r: OnnxReader, n: ReadNode) -> Any:
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    x = r.tensor(n.input(0))
    x = x.t() if n.attribute("transA", 0) else x
    c = r.tensor(n.input(2))
    if r.is_known(n.input(1)) and alpha == beta == 1.0 and (c is None or c.dim() == 1):
        return F.linear(x, r.weight(n.input(1), (0, 1) if n.attribute("transB", 0) else (1, 0)), c)
    b = r.tensor(n.input(1))
    product = torch.matmul(x, b.t() if n.attribute("transB", 0) else b)
    product = product if alpha == 1.0 else product * alpha
    return product if c is None else product + (c if beta == 1.0 else c * beta)


def _read_matmul(r: OnnxReader, n: ReadNode) -> Any:
    return product(r, *n.first(2))


def product(r: OnnxReader, a: Any, b: Any) -> Any:
    """Of two tensors, or of a tensor and a weight."""
    if r.is_known(b) and r.rank(b) == 2 and not r.is_known(a):
        return F.linear(r.tensor(a), r.weight(b, (1, 0)))
    return torch.matmul(r.tensor(a), r.tensor(b))


def _convolution(dims: int) -> OnnxForms:
    kinds = ("", "_relu")
    calls = [f"conv{dims}d{kind}" for kind in kinds]
    return OnnxForms(
        writes=(
            *writes(_write_conv, calls, f"aten.conv{dims}d.default", *(["float_conv"] if dims == 2 else [])),
            *writes(_write_conv_dynamic, f"conv{dims}d_dynamic"),
        ),
        reads=reads(_read_conv, "Conv"),
    )


def _transposed(dims: int) -> OnnxForms:
    name = f"conv_transpose{dims}d"
    float_call = ["float_conv_transpose"] if dims == 2 else []
    return OnnxForms(
        writes=(
            *writes(_write_conv_transpose, name, *float_call, f"aten.{name}.{'default' if dims == 1 else 'input'}"),
            *writes(_write_conv_dynamic, f"{name}_dynamic"),
        ),
        reads=reads(_read_conv_transpose, "ConvTranspose"),
    )


FORMS = {
    **{f"conv{dims}d": _convolution(dims) for dims in (1, 2, 3)},
    **{f"conv_transpose{dims}d": _transposed(dims) for dims in (1, 2, 3)},
    "linear": OnnxForms(
        writes=(
            *writes(_write_linear, "linear", "linear_relu", "linear_to_float", "float_linear", "aten.linear.default"),
            *writes(_write_linear_dynamic, "linear_dynamic", "linear_relu_dynamic"),
            *writes(_write_weight_only, "weight_only_linear", "weight_only_linear_4bit"),
            *writes(_write_half, "linear_dynamic_fp16", "linear_relu_dynamic_fp16"),
        ),
        reads=(
            *reads(_read_gemm, "Gemm"),
            *reads(_read_matmul, "MatMul"),
        ),
    ),
}
