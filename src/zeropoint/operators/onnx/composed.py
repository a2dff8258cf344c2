"""ONNX operators that are read as several ATen operators."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from zeropoint.operators.onnx.layers import convolution, product
from zeropoint.operators.onnx.quantize import MICROSOFT
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, Read, ReadNode, reads

# -------------------------------------------------------------------------------------------------- matrices and layers


def _read_einsum(r: OnnxReader, n: ReadNode) -> Any:
    return torch.einsum(n.attribute("equation").replace(" ", ""), *(r.tensor(value) for value in n.every()))


def _read_determinant(r: OnnxReader, n: ReadNode) -> Any:
    return torch.linalg.det(r.tensor(n.input(0)))


def _read_fused_product(r: OnnxReader, n: ReadNode) -> Any:
    a, b = n.input(0), n.input(1)
    if n.attribute("transBatchA", 0) or n.attribute("transBatchB", 0):
        raise r.unsupported("transBatchA and transBatchB are not supported")
    a = r.tensor(a).transpose(-1, -2) if n.attribute("transA", 0) else r.tensor(a)
    b = r.tensor(b).transpose(-1, -2) if n.attribute("transB", 0) else b
    y, alpha = product(r, a, b), n.attribute("alpha", 1.0)
    return y if alpha == 1.0 else y * alpha


_ACTIVATIONS: dict[str, Any] = {
    "Relu": lambda x: F.relu(x), "Sigmoid": torch.sigmoid, "Tanh": torch.tanh, "LeakyRelu": F.leaky_relu,
    "Clip": torch.clamp, "HardSigmoid": lambda x, a=0.2, b=0.5: torch.clamp(x * a + b, 0.0, 1.0),
}  # fmt: skip


def _activated(r: OnnxReader, n: ReadNode, y: Any) -> Any:
    name = n.attribute("activation", "Relu")
    if name not in _ACTIVATIONS:
        raise r.unsupported(f"the activation {name} is not supported")
    return _ACTIVATIONS[name](y, *n.attribute("activation_params", []))


def _read_fused_conv(r: OnnxReader, n: ReadNode) -> Any:
    """A convolution, with something added to it, and an activation."""
    y = convolution(r, n, r.tensor(n.input(0)), r.weight(n.input(1)), r.tensor(n.input(2)))
    return _activated(r, n, y + r.tensor(n.input(3)) if n.has(3) else y)


def _read_fused_gemm(r: OnnxReader, n: ReadNode) -> Any:
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    x = r.tensor(n.input(0))
    x = x.t() if n.attribute("transA", 0) else x
    y = F.linear(x, r.weight(n.input(1), (0, 1) if n.attribute("transB", 0) else (1, 0))) * alpha
    y = y if not n.has(2) else y + r.tensor(n.input(2)) * beta
    n.without_effect("activation_alpha", "activation_beta", "activation_gamma")
    return _activated(r, n, y)


def _read_last_max_pool(r: OnnxReader, n: ReadNode) -> Any:
    """A pool whose channels are the last axis, of integers."""
    x, kernel = r.tensor(n.input(0)), list(n.attribute("kernel_shape"))
    dims = len(kernel)
    stride, dilation = (list(n.attribute(k, [1] * dims)) for k in ("strides", "dilations"))
    pads = list(n.attribute("pads", [0] * (2 * dims)))
    if pads[:dims] != pads[dims:] or n.attribute("auto_pad", "NOTSET") != "NOTSET" or dims != 2:
        raise r.unsupported(f"pads of {pads} are not supported")
    y = F.max_pool2d(x.movedim(-1, 1), kernel, stride, pads[:2], dilation, bool(n.attribute("ceil_mode", 0)))
    return y.movedim(1, -1)


# --------------------------------------------------------------------------------------------------- element by element


def _read_shift(r: OnnxReader, n: ReadNode) -> Any:
    shift = torch.bitwise_left_shift if n.attribute("direction") == "LEFT" else torch.bitwise_right_shift
    return shift(r.tensor(n.input(0)), r.tensor(n.input(1)))


def _of_two(function: Any) -> Read:
    return lambda r, n: function(r.tensor(n.input(0)), r.tensor(n.input(1)))


def _read_selu(r: OnnxReader, n: ReadNode) -> Any:
    alpha, gamma = n.attribute("alpha", 1.6732631921768188), n.attribute("gamma", 1.0507010221481323)
    return gamma * F.elu(r.tensor(n.input(0)), alpha)


def _read_shrink(r: OnnxReader, n: ReadNode) -> Any:
    x, bound, bias = r.tensor(n.input(0)), n.attribute("lambd", 0.5), n.attribute("bias", 0.0)
    return torch.where(x < -bound, x + bias, torch.where(x > bound, x - bias, torch.zeros_like(x)))


def _read_mean(r: OnnxReader, n: ReadNode) -> Any:
    first, *rest = (r.tensor(value) for value in n.every())
    for value in rest:
        first = first + value
    return first / (1 + len(rest))


def _read_gated(r: OnnxReader, n: ReadNode) -> Any:
    x, alpha = r.tensor(n.input(0)), n.attribute("alpha", 1.0)
    gate = F.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x)
    return gate * r.tensor(n.input(1))


def _read_quick_gelu(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    return x * torch.sigmoid(n.attribute("alpha", 1.702) * x)


def _read_bias_gelu(approximate: str) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        x = r.tensor(n.input(0))
        return F.gelu(x + r.tensor(n.input(1)) if n.has(1) else x, approximate=approximate)

    return read


# ------------------------------------------------------------------------------------------------- norms and reductions


def _read_lrn(r: OnnxReader, n: ReadNode) -> Any:
    x, size = r.tensor(n.input(0)), n.attribute("size")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = F.pad(torch.square(x), [0, 0] * (x.dim() - 2) + [before, after])
    total = torch.sum(squares.unfold(1, size, 1), -1)
    factor = n.attribute("alpha", 1e-4) / size
    return x / torch.pow(n.attribute("bias", 1.0) + factor * total, n.attribute("beta", 0.75))


def _read_lp_norm(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    norm = torch.linalg.vector_norm(x, n.attribute("p", 2), [n.attribute("axis", -1)], True)
    return torch.where(norm == 0, torch.zeros_like(x), x / torch.where(norm == 0, torch.ones_like(norm), norm))


def _read_mean_variance(r: OnnxReader, n: ReadNode) -> Any:
    x, axes = r.tensor(n.input(0)), list(n.attribute("axes", [0, 2, 3]))
    centred = x - torch.mean(x, axes, True)
    return centred / torch.sqrt(torch.mean(torch.square(centred), axes, True) + 1e-9)


def _read_reduced(before: Any, after: Any) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        x, (axes, keepdim) = before(r.tensor(n.input(0))), r.axes(n)
        return after(torch.sum(x, axes, keepdim) if axes else x)

    return read


def _read_hardmax(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    axis = n.attribute("axis", -1 if n.version >= 13 else 1)
    shape = x.shape
    flat = x.flatten(axis % x.dim()) if n.version < 13 else x
    axis = flat.dim() - 1 if n.version < 13 else axis % x.dim()
    place = torch.argmax(flat, axis, True)
    at = torch.arange(flat.shape[axis]).reshape([-1 if a == axis else 1 for a in range(flat.dim())])
    return (at == place).to(x.dtype).reshape(shape)


def _read_cumulative_product(r: OnnxReader, n: ReadNode) -> Any:
    x, axis = r.tensor(n.input(0)), int(r.number(n.input(1)))
    x = torch.flip(x, [axis]) if n.attribute("reverse", 0) else x
    if n.attribute("exclusive", 0):
        first = torch.ones_like(x.narrow(axis, 0, 1))
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    made = torch.cumprod(x, axis)
    return torch.flip(made, [axis]) if n.attribute("reverse", 0) else made


# ----------------------------------------------------------------------------------------------------- sizes and places


def _read_identity_like(r: OnnxReader, n: ReadNode) -> Any:
    x, code, k = r.tensor(n.input(0)), n.attribute("dtype", None), n.attribute("k", 0)
    rows, columns = x.shape
    at = torch.arange(columns).reshape(1, -1) - torch.arange(rows).reshape(-1, 1)
    return (at == k).to(x.dtype if code is None else r.torch_dtype(code))


def _read_one_hot(r: OnnxReader, n: ReadNode) -> Any:
    index, depth, values = r.tensor(n.input(0)), int(r.number(n.input(1))), r.tensor(n.input(2))
    index = index.to(torch.int64)
    index = torch.where(index < 0, index + depth, index)
    rank = index.dim() + 1
    axis = n.attribute("axis", -1) % rank
    at = torch.arange(depth).reshape([-1 if a == axis else 1 for a in range(rank)])
    return torch.where(index.unsqueeze(axis) == at, values[1], values[0])


def _read_compress(r: OnnxReader, n: ReadNode) -> Any:
    x, chosen, axis = r.tensor(n.input(0)), r.tensor(n.input(1)), n.attribute("axis", None)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return torch.index_select(x, axis, torch.nonzero(chosen).reshape(-1))


def _read_nonzero(r: OnnxReader, n: ReadNode) -> Any:
    return torch.nonzero(r.tensor(n.input(0))).t()


def _read_unique(r: OnnxReader, n: ReadNode) -> Any:
    """Values that are there, and for each where it is first, which it is, and how often."""
    x, axis = r.tensor(n.input(0)), n.attribute("axis", None)
    flat = x.reshape(-1) if axis is None else x
    along = 0 if axis is None else axis
    values, which, counts = torch.unique(flat, return_inverse=True, return_counts=True, dim=along)
    places = torch.arange(which.numel())
    first = torch.full((counts.numel(),), which.numel()).scatter_reduce(0, which, places, "amin")
    if n.attribute("sorted", 1):
        return [values, first, which, counts]
    order = torch.argsort(first)
    return [torch.index_select(values, along, order), first[order], torch.argsort(order)[which], counts[order]]


def _read_reverse_sequence(r: OnnxReader, n: ReadNode) -> Any:
    x, lengths = r.tensor(n.input(0)), r.tensor(n.input(1))
    time, batch = n.attribute("time_axis", 0), n.attribute("batch_axis", 1)
    at = torch.arange(x.shape[time]).reshape(-1, 1)
    turned = torch.where(at < lengths, lengths - 1 - at, at)  # (time, batch)
    turned = turned if time < batch else turned.t()
    shape = [x.shape[axis] if axis in (time, batch) else 1 for axis in range(x.dim())]
    return torch.gather(x, time, turned.reshape(shape).expand(x.shape))


def _read_centre(r: OnnxReader, n: ReadNode) -> Any:
    """Cut or filled with zeros on both sides, so that axes have these sizes."""
    x, sizes = r.tensor(n.input(0)), r.numbers(n.input(1))
    for axis, size in zip(n.attribute("axes", None) or range(x.dim()), sizes):
        more = size - x.shape[axis]
        if more > 0:
            sides = [0, 0] * (x.dim() - 1 - axis % x.dim()) + [more // 2, more - more // 2]
            x = F.pad(x, sides)
        elif more < 0:
            x = x.narrow(axis, -more // 2, size)
    return x


def _read_tensor_scatter(r: OnnxReader, n: ReadNode) -> Any:
    """New values of a cache, written from a place on that is given for each of the batch."""
    cache, update, first = (r.tensor(value) for value in n.first(3))
    axis, mode = n.attribute("axis", -2) % cache.dim(), n.attribute("mode", "linear")
    at = torch.arange(update.shape[axis]).reshape(1, -1)
    at = at + (torch.zeros(cache.shape[0], 1, dtype=torch.int64) if first is None else first.reshape(-1, 1))
    at = at % cache.shape[axis] if mode == "circular" else at
    shape = [cache.shape[0] if a == 0 else update.shape[axis] if a == axis else 1 for a in range(cache.dim())]
    return torch.scatter(cache, axis, at.reshape(shape).expand(update.shape), update)


# --------------------------------------------------------------------------------------------------------------- images


def _read_grid_sample(r: OnnxReader, n: ReadNode) -> Any:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(n.attribute("mode", "linear"), n.attribute("mode", "linear"))
    x, grid = r.tensor(n.input(0)), r.tensor(n.input(1))
    if mode == "bicubic" and x.dim() != 4:
        raise r.unsupported("mode cubic is supported with two axes")
    return F.grid_sample(x, grid, mode, n.attribute("padding_mode", "zeros"), bool(n.attribute("align_corners", 0)))


def _read_affine_grid(r: OnnxReader, n: ReadNode) -> Any:
    sizes = [int(size) for size in r.numbers(n.input(1))]
    return F.affine_grid(r.tensor(n.input(0)), sizes, bool(n.attribute("align_corners", 0)))


def _read_columns(r: OnnxReader, n: ReadNode) -> Any:
    image, block = ([int(v) for v in r.numbers(n.input(place))] for place in (1, 2))
    dims = len(image)
    dilation, stride = (list(n.attribute(k, [1] * dims)) for k in ("dilations", "strides"))
    pads = list(n.attribute("pads", [0] * (2 * dims)))
    if dims != 2 or pads[:2] != pads[2:]:
        raise r.unsupported(f"{dims} axes with pads of {pads}: two axes with the same on both sides are supported")
    return F.fold(r.tensor(n.input(0)), image, block, dilation, pads[:2], stride)


def _read_unpool(r: OnnxReader, n: ReadNode) -> Any:
    """Places count through the whole tensor."""
    x, places = r.tensor(n.input(0)), r.tensor(n.input(1))
    kernel = list(n.attribute("kernel_shape"))
    stride = list(n.attribute("strides", [1] * len(kernel)))
    pads = list(n.attribute("pads", [0] * (2 * len(kernel))))
    found = [(x.shape[2 + i] - 1) * stride[i] + kernel[i] - pads[i] - pads[len(kernel) + i] for i in range(len(kernel))]
    shape = [*x.shape[:2], *found] if not n.has(2) else [int(size) for size in r.numbers(n.input(2))]
    one = math.prod(found)  # places are those of the smaller image
    inside = places % one
    at, rest = [], inside
    for size in reversed(found):
        at.append(rest % size)
        rest = rest // size
    flat = torch.zeros_like(inside)
    for place, size in zip(reversed(at), shape[2:]):
        flat = flat * size + place
    made = torch.zeros(shape[0], shape[1], math.prod(shape[2:]), dtype=x.dtype)
    return torch.scatter(made, 2, flat.flatten(2), x.flatten(2)).reshape(shape)


def _read_boxes(r: OnnxReader, n: ReadNode) -> Any:
    """Boxes that overlap no better one by more than a threshold, for each image and class, the best first."""
    boxes, scores = r.tensor(n.input(0)), r.tensor(n.input(1))
    most = int(r.number(n.input(2))) if n.has(2) else 0
    overlap = float(r.number(n.input(3))) if n.has(3) else 0.0
    least = float(r.number(n.input(4))) if n.has(4) else None
    first, second = boxes[..., :2], boxes[..., 2:]
    low, high = (
        (first - second / 2, first + second / 2)
        if n.attribute("center_point_box", 0)
        else (torch.minimum(first, second), torch.maximum(first, second))
    )
    kept = []
    for image in range(boxes.shape[0]):
        for kind in range(scores.shape[1]):
            score = scores[image, kind]
            order = torch.argsort(score, descending=True, stable=True).tolist()
            chosen: list[int] = []
            for box in order:
                if len(chosen) >= most or (least is not None and float(score[box]) <= least):
                    break
                if all(_overlap(low[image], high[image], box, other) <= overlap for other in chosen):
                    chosen.append(box)
            kept += [[image, kind, box] for box in chosen]
    return torch.tensor(kept, dtype=torch.int64).reshape(-1, 3)


def _overlap(low: Any, high: Any, a: int, b: int) -> float:
    """The part of two boxes that is in both, of what is in one of them."""
    both = torch.clamp_min(torch.minimum(high[a], high[b]) - torch.maximum(low[a], low[b]), 0).prod()
    total = (high[a] - low[a]).prod() + (high[b] - low[b]).prod() - both
    return float(both / total) if float(total) > 0 else 0.0


# -------------------------------------------------------------------------------------------------------------- signals


def _window(*factors: float) -> Read:
    """A sum of cosines over a size that is known."""

    def read(r: OnnxReader, n: ReadNode) -> Any:
        size, code = int(r.number(n.input(0))), n.attribute("output_datatype", 1)
        steps = size if n.attribute("periodic", 1) else size - 1
        angle = torch.arange(size, dtype=torch.float64) * (2 * math.pi / steps)
        total = sum(((-1) ** k * factor * torch.cos(k * angle) for k, factor in enumerate(factors)), torch.zeros(()))
        return total.to(r.torch_dtype(code))

    return read


def _transform(length: int, count: int, sign: float) -> tuple[Any, Any]:
    """Cosines and sines of a Fourier transform: ``(count, length)``."""
    angle = (torch.arange(count).reshape(-1, 1) * torch.arange(length)) % length * (2 * math.pi / length)
    return torch.cos(angle.double()).float(), (sign * torch.sin(angle.double())).float()


def _read_fourier(r: OnnxReader, n: ReadNode) -> Any:
    """As a product with the matrix of the transform; the last axis has real and imaginary parts."""
    x = r.tensor(n.input(0))
    axis = n.attribute("axis", 1) if n.version < 20 else int(r.number(n.input(2))) if n.has(2) else -2
    axis = axis % x.dim()
    inverse, half = bool(n.attribute("inverse", 0)), bool(n.attribute("onesided", 0))
    whole = 2 * (x.shape[axis] - 1) if inverse and half else x.shape[axis]
    length = int(r.number(n.input(1))) if n.has(1) else whole
    if not isinstance(length, int):
        raise r.unsupported("it needs a length that is fixed here")
    real, imaginary = x[..., :1], x[..., 1:] if x.shape[-1] == 2 else None
    if inverse and half:  # the other half is that of the conjugates
        back = torch.flip(x.narrow(axis, 1, (length - 1) // 2), [axis])
        real = torch.cat([real, back[..., :1]], axis)
        imaginary = torch.cat([x[..., 1:], -back[..., 1:]], axis)
    count = length // 2 + 1 if half and not inverse else length
    cos, sin = _transform(length, count, 1.0 if inverse else -1.0)

    def turned(part: Any, matrix: Any) -> Any:
        size = part.shape[axis]
        part = part.narrow(axis, 0, min(size, length)).movedim(axis, -1)
        part = part if size >= length else F.pad(part, [0, length - size])
        return torch.matmul(part, matrix.t().to(part.dtype)).movedim(-1, axis)

    a, b = turned(real, cos), turned(real, sin)
    if imaginary is not None:
        a, b = a - turned(imaginary, sin), b + turned(imaginary, cos)
    made = a if inverse and half else torch.cat([a, b], -1)
    return made / length if inverse else made


def _read_spectrogram(r: OnnxReader, n: ReadNode) -> Any:
    x, step = r.tensor(n.input(0)), int(r.number(n.input(1)))
    window = r.tensor(n.input(2))
    length = int(r.number(n.input(3))) if n.has(3) else window.shape[0]
    if x.dim() == 3 and x.shape[-1] == 2:
        raise r.unsupported("a signal of complex numbers is not supported")
    frames = x.reshape(x.shape[0], -1).unfold(1, length, step)
    frames = frames if window is None else frames * window
    cos, sin = _transform(length, length // 2 + 1 if n.attribute("onesided", 1) else length, -1.0)
    return torch.stack([torch.matmul(frames, cos.t()), torch.matmul(frames, sin.t())], -1)


def _same(x: Any) -> Any:
    return x


FORMS = {
    "matmul": OnnxForms(
        reads=(
            *reads(_read_einsum, "Einsum"),
            *reads(_read_determinant, "Det"),
            *reads(_read_fused_product, f"{MICROSOFT}.FusedMatMul", f"{MICROSOFT}.TransposeMatMul"),
            *reads(_read_fourier, "DFT"),
            *reads(_read_spectrogram, "STFT"),
        )
    ),
    "conv2d": OnnxForms(reads=reads(_read_fused_conv, f"{MICROSOFT}.FusedConv")),
    "linear": OnnxForms(reads=reads(_read_fused_gemm, f"{MICROSOFT}.FusedGemm")),
    "max_pool2d": OnnxForms(reads=reads(_read_last_max_pool, f"{MICROSOFT}.NhwcMaxPool")),
    "bitwise_left_shift": OnnxForms(reads=reads(_read_shift, "BitShift")),
    "bitwise_and": OnnxForms(reads=reads(_of_two(torch.bitwise_and), "BitwiseAnd")),
    "bitwise_or": OnnxForms(reads=reads(_of_two(torch.bitwise_or), "BitwiseOr")),
    "bitwise_xor": OnnxForms(reads=reads(_of_two(torch.bitwise_xor), "BitwiseXor")),
    "bitwise_not": OnnxForms(reads=reads(lambda r, n: torch.bitwise_not(r.tensor(n.input(0))), "BitwiseNot")),
    "elu": OnnxForms(reads=reads(_read_selu, "Selu")),
    "hardshrink": OnnxForms(reads=reads(_read_shrink, "Shrink")),
    "add": OnnxForms(reads=reads(_read_mean, "Mean")),
    "silu": OnnxForms(reads=(*reads(_read_gated, "SwiGLU"), *reads(_read_quick_gelu, f"{MICROSOFT}.QuickGelu"))),
    "gelu": OnnxForms(
        reads=(
            *reads(_read_bias_gelu("none"), f"{MICROSOFT}.Gelu", f"{MICROSOFT}.BiasGelu"),
            *reads(_read_bias_gelu("tanh"), f"{MICROSOFT}.FastGelu"),
        )
    ),
    "pow": OnnxForms(reads=reads(_read_lrn, "LRN")),
    "vector_norm": OnnxForms(reads=reads(_read_lp_norm, "LpNormalization")),
    "var": OnnxForms(reads=reads(_read_mean_variance, "MeanVarianceNormalization")),
    "sum": OnnxForms(
        reads=(
            *reads(_read_reduced(torch.square, _same), "ReduceSumSquare"),
            *reads(_read_reduced(_same, torch.log), "ReduceLogSum"),
        )
    ),
    "argmax": OnnxForms(reads=reads(_read_hardmax, "Hardmax")),
    "cumprod": OnnxForms(reads=reads(_read_cumulative_product, "CumProd")),
    "eye": OnnxForms(reads=reads(_read_identity_like, "EyeLike")),
    "one_hot": OnnxForms(reads=reads(_read_one_hot, "OneHot")),
    "index_select": OnnxForms(reads=reads(_read_compress, "Compress")),
    "index": OnnxForms(reads=(*reads(_read_nonzero, "NonZero"), *reads(_read_unique, "Unique"))),
    "flip": OnnxForms(reads=reads(_read_reverse_sequence, "ReverseSequence")),
    "pad": OnnxForms(reads=reads(_read_centre, "CenterCropPad")),
    "scatter": OnnxForms(reads=reads(_read_tensor_scatter, "TensorScatter")),
    "grid_sampler": OnnxForms(reads=reads(_read_grid_sample, "GridSample")),
    "affine_grid": OnnxForms(reads=reads(_read_affine_grid, "AffineGrid")),
    "col2im": OnnxForms(reads=reads(_read_columns, "Col2Im")),
    "max_unpool": OnnxForms(reads=reads(_read_unpool, "MaxUnpool")),
    "nms": OnnxForms(reads=reads(_read_boxes, "NonMaxSuppression")),
    "full": OnnxForms(
        reads=(
            *reads(_window(0.5, 0.5), "HannWindow"),
            *reads(_window(25 / 46, 21 / 46), "HammingWindow"),
            *reads(_window(0.42, 0.5, 0.08), "BlackmanWindow"),
        )
    ),
}
