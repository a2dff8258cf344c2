"""Operators as functions of others that are known: what PyTorch composes in another way, or not at all.

A function is called as its operator is, on tensors without data, and the operators that it calls stand in the graph. It
must not ask how large a free size is; what refuses a call raises `NotComposed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["COMPOSITIONS", "NotComposed", "WITH_WEIGHTS"]

aten = torch.ops.aten


class NotComposed(Exception):
    """A call that a function does not compose: its operator stays as it is."""


def _axis(x: Tensor, axis: int) -> int:
    return axis % max(x.dim(), 1)


# ---------------------------------------------------------------------------------------------------- parts and copies


def _equal_parts(x: Tensor, count: int, axis: int) -> list[Tensor]:
    """So many parts of one size; the reshape refuses a size that they do not divide."""
    return list(x.unflatten(axis, (count, -1)).unbind(axis))


def _parts_at(x: Tensor, places: Sequence[int], axis: int) -> list[Tensor]:
    if any(place < 0 for place in places):
        raise NotComposed
    begins, ends = [0, *places], [*places, None]
    return [x[(slice(None),) * axis + (slice(begin, end),)] for begin, end in zip(begins, ends)]


def _first_axes(*axes: int) -> Callable[[Tensor], int]:
    """The axis that is split: the first of them for a line, else the second."""
    return lambda x: axes[0] if x.dim() == 1 else axes[-1]


def _split(axis: Callable[[Tensor], int]) -> Callable[..., list[Tensor]]:
    return lambda x, sections: _equal_parts(x, sections, axis(x))


def _split_at(axis: Callable[[Tensor], int]) -> Callable[..., list[Tensor]]:
    return lambda x, indices: _parts_at(x, indices, axis(x))


def _broadcast(tensors: Sequence[Tensor]) -> list[Tensor]:
    """All in the shape of their sum."""
    total = tensors[0]
    for other in tensors[1:]:
        total = torch.logical_or(total, other)
    return [tensor.expand_as(total) for tensor in tensors]


def _narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x.narrow(dim, start, length).clone()


def _sum_to_size(x: Tensor, size: Sequence[int]) -> Tensor:
    """Sums over the axes that a tensor of this size would be broadcast along."""
    if x.dtype == torch.bool:
        raise NotComposed
    more = x.dim() - len(size)
    axes = [*range(more), *(more + i for i, n in enumerate(size) if isinstance(n, int) and n == 1)]
    return (x.sum(axes, keepdim=True) if axes else x).reshape(size)


def _shifted(back: bool) -> Callable[..., Tensor]:
    """Axes turned by half of their size, so that the middle is the first, or back."""

    def made(x: Tensor, dim: Any = None) -> Tensor:
        axes = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        for axis in axes:
            size = x.shape[axis]
            begin = size // 2 if back else size - size // 2
            x = torch.cat([x.narrow(axis, begin, size - begin), x.narrow(axis, 0, begin)], axis)
        return x

    return made


def _doubles(make: Callable[..., Tensor], value: float | None = None) -> Callable[..., Tensor]:
    """A number in float64 everywhere, as float32, which has it too."""

    def made(*args: Any, **options: Any) -> Tensor:
        number = args[-1] if value is None else value
        exact = isinstance(number, (bool, int, float)) and float(torch.tensor(number, dtype=torch.float32)) == number
        if options.get("dtype") != torch.float64 or not exact:
            raise NotComposed
        return make(*args, **{**options, "dtype": torch.float32}).to(torch.float64)

    return made


# ----------------------------------------------------------------------------------------------------------- diagonals


def _is_diagonal(x: Tensor, offset: int) -> Tensor:
    """Which places of matrices lie on a diagonal; counted, because `arange` would fix a free size."""
    ones = torch.ones_like(x, dtype=torch.int64)
    return ones.cumsum(-1) - ones.cumsum(-2) == offset


def _diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    if x.dim() == 0:
        raise NotComposed
    below, above = max(-offset, 0), max(offset, 0)
    padded = aten.constant_pad_nd(x, [below, above], 0)
    rows = padded.unsqueeze(-1).expand(*padded.shape, padded.shape[-1])
    made = torch.where(_is_diagonal(rows, offset), rows, torch.zeros_like(rows))
    rank = x.dim() + 1
    first, second = dim1 % rank, dim2 % rank
    order = list(range(x.dim() - 1))
    for axis, source in sorted(((first, rank - 2), (second, rank - 1))):
        order.insert(axis, source)
    return made.permute(order)


def _diag(x: Tensor, diagonal: int = 0) -> Tensor:
    return _diag_embed(x, diagonal) if x.dim() == 1 else x.diagonal(diagonal)


def _diagflat(x: Tensor, offset: int = 0) -> Tensor:
    return _diag_embed(x.reshape(-1), offset)


def _diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    first, second = _axis(x, dim1), _axis(x, dim2)
    order = [axis for axis in range(x.dim()) if axis not in (first, second)] + [first, second]
    turned = x.permute(order)
    rows, begin = turned.shape[-2], max(-offset, 0)
    src = src.reshape_as(turned.diagonal(offset, -2, -1))  # which refuses another size
    values = aten.constant_pad_nd(src, [begin, rows - begin - src.shape[-1]], 0).unsqueeze(-1)
    made = torch.where(_is_diagonal(turned, offset), values, turned)
    return made.permute([order.index(axis) for axis in range(x.dim())])


def _block_diag(tensors: Sequence[Tensor]) -> Tensor:
    blocks = [t if t.dim() == 2 else t.reshape(1, -1) for t in tensors]
    dtype = blocks[0].dtype
    for block in blocks[1:]:
        dtype = torch.promote_types(dtype, block.dtype)
    rows, before = [], 0
    after = sum(block.shape[1] for block in blocks)
    for block in blocks:
        after = after - block.shape[1]
        rows.append(aten.constant_pad_nd(block.to(dtype), [before, after], 0))
        before = before + block.shape[1]
    return torch.cat(rows)


# ----------------------------------------------------------------------------------------------- values by their place


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat, places = x.reshape(-1), index.reshape(-1)
    places = torch.where(places < 0, places + flat.shape[0], places)
    return aten.index_put(flat, [places], source.reshape(-1), accumulate).reshape(x.shape)


def _masked_index(x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any) -> Tensor:
    """Values at places that may lie outside where a mask is false."""
    inside = [
        None if index is None else torch.where(mask, index, torch.zeros_like(index))
        for axis, index in enumerate(indices)
    ]
    taken = aten.index(x, inside)
    mask = mask.reshape(*mask.shape, *([1] * (taken.dim() - mask.dim())))
    return torch.where(mask, taken, torch.full_like(taken, fill))


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any = 1) -> Tensor:
    if alpha == 1 or x.dim() == 0:
        raise NotComposed
    return aten.index_add(x, dim, index, source * _in_dtype(alpha, x))


def _isin(elements: Tensor, tests: Tensor, assume_unique: bool = False, invert: bool = False) -> Tensor:
    found = (elements.unsqueeze(-1) == tests.reshape(-1)).any(-1)
    return found.logical_not() if invert else found


def _isin_number(elements: Tensor, test: Any, assume_unique: bool = False, invert: bool = False) -> Tensor:
    return elements != test if invert else elements == test


def _windows(size: int, count: int) -> list[list[int]]:
    """The places of the windows that an axis is divided into; short ones repeat their last."""
    bounds = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
    longest = max(end - begin for begin, end in bounds)
    return [[min(begin + i, end - 1) for i in range(longest)] for begin, end in bounds]


def _adaptive_maxima(dims: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """The largest value of each window, and where it is; of fixed sizes."""

    def made(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
        wanted = list(output_size) * (dims if len(output_size) == 1 else 1)
        sizes = x.shape[-dims:]
        if not all(isinstance(n, int) and n > 0 for n in (*sizes, *wanted)):
            raise NotComposed
        windows = [_windows(int(size), count) for size, count in zip(sizes, wanted)]
        first = x.dim() - dims
        flat = torch.zeros([1] * (2 * dims), dtype=torch.int64)
        for number, (size, places) in enumerate(zip(sizes, windows)):
            table = torch.tensor(places)
            shape = [1] * (2 * dims)
            shape[number], shape[dims + number] = table.shape
            flat = flat * int(size) + table.reshape(shape)
            x = x.index_select(first + 2 * number, table.reshape(-1)).unflatten(first + 2 * number, tuple(table.shape))
        order = [*range(first), *range(first, x.dim(), 2), *range(first + 1, x.dim(), 2)]
        values, found = x.permute(order).flatten(first + dims).max(-1)
        places = torch.zeros_like(found).unsqueeze(-1) + flat.flatten(dims)
        return values, places.gather(-1, found.unsqueeze(-1)).squeeze(-1)

    return made


# -------------------------------------------------------------------------------------------------- element by element


def _in_dtype(number: Any, x: Tensor) -> Any:
    """A factor as PyTorch takes it for integers: without what is behind the point."""
    return number if x.is_floating_point() or x.is_complex() else int(number)


def _rounded(x: Tensor, decimals: int) -> Tensor:
    if decimals == 0 or not x.is_floating_point():
        return x.round() if x.is_floating_point() else x.clone()
    tens = float(10 ** abs(decimals))
    return (x * tens).round() / tens if decimals > 0 else (x / tens).round() * tens


def _heaviside(x: Tensor, values: Tensor) -> Tensor:
    return torch.where(x == 0, values, (x > 0).to(x.dtype))


def _extreme_of_integers(extreme: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def made(x: Tensor, y: Tensor) -> Tensor:
        if x.is_floating_point() or y.is_floating_point():
            raise NotComposed
        return extreme(x, y)

    return made


def _both_extremes(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    axes = list(range(x.dim())) if dim is None else [dim]
    return x.amin(axes, keepdim), x.amax(axes, keepdim)


def _leaky(x: Tensor, weight: Tensor) -> Tensor:
    """``prelu`` with slopes that are computed."""
    if weight.dim() and x.dim() > 1:
        weight = weight.reshape([1, -1] + [1] * (x.dim() - 2))
    return torch.where(x > 0, x, weight * x)


def _differences(
    x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    if n < 2:
        raise NotComposed
    given = [part for part in (prepend, x, append) if part is not None]
    x = torch.cat(given, dim) if len(given) > 1 else x
    for _ in range(n):
        x = aten.diff(x, 1, dim)
    return x


# ------------------------------------------------------------------------------------------------------------ products


def _cross(x: Tensor, y: Tensor, dim: int | None = -1) -> Tensor:
    if x.dim() != y.dim():
        raise NotComposed
    if dim is None:
        fixed = [axis for axis, n in enumerate(x.shape) if isinstance(n, int) and n == 3]
        if not fixed:
            raise NotComposed
        dim = fixed[0]
    (a, b, c), (d, e, f) = x.unbind(dim), y.unbind(dim)
    return torch.stack([b * f - c * e, c * d - a * f, a * e - b * d], dim)


def _linalg_cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    return _cross(x, y, dim)


def _inner(x: Tensor, y: Tensor) -> Tensor:
    if not x.dim() or not y.dim():
        return x * y
    return torch.tensordot(x, y, dims=([-1], [-1]))


def _kron(x: Tensor, y: Tensor) -> Tensor:
    rank = max(x.dim(), y.dim())
    x = x.reshape([1] * (rank - x.dim()) + list(x.shape))
    y = y.reshape([1] * (rank - y.dim()) + list(y.shape))
    shape = [m * n for m, n in zip(x.shape, y.shape)]
    for axis in range(rank):
        x, y = x.unsqueeze(2 * axis + 1), y.unsqueeze(2 * axis)
    return (x * y).reshape(shape)


def _matrix_power(x: Tensor, n: int) -> Tensor:
    if n < 1:
        raise NotComposed
    result: Tensor | None = None
    square = x
    while n:
        if n % 2:
            result = square if result is None else result @ square
        n //= 2
        square = square @ square if n else square
    assert result is not None
    return result.clone()


def _matrix_norm(
    x: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, **options: Any
) -> Tensor:
    """Those that are sums and extremes of the elements."""
    if options.get("dtype") is not None or not x.is_floating_point():
        raise NotComposed
    rows, columns = (_axis(x, axis) for axis in dim)
    if ord == "fro":
        return torch.linalg.vector_norm(x, 2, [rows, columns], keepdim)
    if isinstance(ord, str) or abs(ord) not in (1, math.inf):
        raise NotComposed
    summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = x.abs().sum(summed, keepdim=True)
    found = sums.amax(other, keepdim=True) if ord > 0 else sums.amin(other, keepdim=True)
    return found if keepdim else found.squeeze([rows, columns])


# --------------------------------------------------------------------------------------------------------------- norms


def _of_channels(value: Tensor | None, x: Tensor) -> Tensor | None:
    """One value for each channel, in the shape that it is broadcast in."""
    return None if value is None else value.reshape([1, -1] + [1] * (x.dim() - 2))


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _normalized(
    x: Tensor, axes: list[int], eps: float, mean: Tensor | None = None, var: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(var + eps)``, the mean, and the factor."""
    if mean is None or var is None:
        mean = x.mean(axes, keepdim=True)
        var = (x - mean).square().mean(axes, keepdim=True)
    factor = (var + eps).rsqrt()
    return (x - mean) * factor, mean, factor


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Tensor:
    """A norm whose weights are computed; one that trains writes to its statistics, and is not composed."""
    if training and mean is not None:
        raise NotComposed
    kept = (None, None) if training else (_of_channels(mean, x), _of_channels(var, x))
    made, _, _ = _normalized(x, [axis for axis in range(x.dim()) if axis != 1], eps, *kept)
    return _scaled(made, _of_channels(weight, x), _of_channels(bias, x))


def _group_norm(
    x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Tensor:
    parts = x.unflatten(1, (groups, -1))
    made, _, _ = _normalized(parts, list(range(2, parts.dim())), eps)
    return _scaled(made.flatten(1, 2), _of_channels(weight, x), _of_channels(bias, x))


def _native_group_norm(
    x: Tensor, weight: Any, bias: Any, batch: int, channels: int, size: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    parts = x.reshape([batch, groups, channels // groups * size])
    made, mean, factor = _normalized(parts, [2], eps)
    made = _scaled(made.reshape_as(x), _of_channels(weight, x), _of_channels(bias, x))
    return made, mean.flatten(1), factor.flatten(1)


def _native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    made, mean, factor = _normalized(x, list(range(x.dim() - len(shape), x.dim())), eps)
    weight, bias = (None if value is None else value.reshape(shape) for value in (weight, bias))
    return _scaled(made, weight, bias), mean, factor


def _instance_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, of_input: bool, momentum: float, eps: float, cudnn: bool
) -> Tensor:
    if not of_input or mean is not None:
        raise NotComposed
    made, _, _ = _normalized(x, list(range(2, x.dim())), eps)
    return _scaled(made, _of_channels(weight, x), _of_channels(bias, x))


# --------------------------------------------------------------------------------------------------------------- order


def _place_in_order(x: Tensor, place: Any, axis: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    values, places = x.sort(axis)
    found = [part.narrow(axis, place, 1) for part in (values, places)]
    first, second = found if keepdim else [part.squeeze(axis) for part in found]
    return first, second


def _median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        raise NotComposed
    axis = _axis(x, dim)
    return _place_in_order(x, (x.shape[axis] - 1) // 2, axis, keepdim)


def _kth_value(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        raise NotComposed
    return _place_in_order(x, k - 1, _axis(x, dim), keepdim)


# -------------------------------------------------------------------------------------------------------- convolutions

_MOST_POSITIONS = 64  # of a kernel, each of which is a product


def _convolution(dims: int) -> Callable[..., Tensor]:
    """A convolution whose weight is computed: a product for each position of the kernel."""

    def made(
        x: Tensor,
        weight: Tensor,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        kernel = weight.shape[2:]
        if not all(isinstance(n, int) for n in weight.shape) or math.prod(kernel) > _MOST_POSITIONS:
            raise NotComposed
        stride, dilation = _each(stride, dims), _each(dilation, dims)
        images = x.dim() == 4 and x.is_floating_point() and all(isinstance(n, int) for n in x.shape[2:])
        if dims == 2 and images and set(dilation) == {1} and not isinstance(padding, str):
            raise NotComposed  # operators/computed_weights.py has a quicker way
        sides = _sides(padding, kernel, dilation)
        batched = x if x.dim() == dims + 2 else x.unsqueeze(0)
        padded = aten.constant_pad_nd(batched, sides, 0)
        outputs = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[2:], kernel, stride, dilation)]
        filters = weight.unflatten(0, (groups, -1))  # group, output, input, kernel...
        total: Tensor | None = None
        for number in range(math.prod(kernel)):
            part, place = padded, number
            taken = filters
            for axis in reversed(range(dims)):
                place, at = divmod(place, kernel[axis])
                begin = at * dilation[axis]
                end = begin + (outputs[axis] - 1) * stride[axis] + 1
                part = aten.slice(part, 2 + axis, begin, end, stride[axis])
                taken = taken.select(3 + axis, at)
            rows = part.flatten(2).unflatten(1, (groups, -1))  # batch, group, input, place
            product = taken.unsqueeze(0) @ rows
            total = product if total is None else total + product
        assert total is not None
        shape = [batched.shape[0], weight.shape[0], *outputs]
        result = _scaled(total.reshape(shape), None, _of_channels(bias, batched))
        return result if x.dim() == dims + 2 else result.squeeze(0)

    return made


def _each(value: Any, dims: int) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * dims if len(values) == 1 else values


def _sides(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """What is added before and behind each axis, from the last to the first."""
    if padding == "valid":
        padding = 0
    if isinstance(padding, str):
        total = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return [side for n in reversed(total) for side in (n // 2, n - n // 2)]
    return [side for n in reversed(_each(padding, len(kernel))) for side in (n, n)]


def _linear(x: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    """A layer whose weight is computed, of one row or of integers; see operators/computed_weights.py for others."""
    if x.dim() > 1 and weight.dim() == 2 and x.is_floating_point():
        raise NotComposed
    return _scaled(x @ (weight.t() if weight.dim() == 2 else weight), None, bias)


COMPOSITIONS: dict[str, Callable[..., Any]] = {
    "hsplit.int": _split(_first_axes(0, 1)),
    "hsplit.array": _split_at(_first_axes(0, 1)),
    "vsplit.int": _split(_first_axes(0)),
    "vsplit.array": _split_at(_first_axes(0)),
    "dsplit.int": _split(_first_axes(2)),
    "dsplit.array": _split_at(_first_axes(2)),
    "tensor_split.indices": lambda x, indices, dim=0: _parts_at(x, indices, _axis(x, dim)),
    "broadcast_tensors.default": _broadcast,
    "expand_copy.default": lambda x, size, *, implicit=False: x.expand(size).clone(),
    "view_copy.default": lambda x, size: x.reshape(size).clone(),
    "narrow_copy.default": _narrow_copy,
    "sum_to_size.default": _sum_to_size,
    "fft_fftshift.default": _shifted(back=False),
    "fft_ifftshift.default": _shifted(back=True),
    "zeros_like.default": _doubles(aten.zeros_like.default, 0),
    "ones_like.default": _doubles(aten.ones_like.default, 1),
    "full_like.default": _doubles(aten.full_like.default),
    "new_zeros.default": _doubles(aten.new_zeros.default, 0),
    "new_ones.default": _doubles(aten.new_ones.default, 1),
    "new_full.default": _doubles(aten.new_full.default),
    "diag_embed.default": _diag_embed,
    "diag.default": _diag,
    "diagflat.default": _diagflat,
    "diagonal_scatter.default": _diagonal_scatter,
    "linalg_diagonal.default": lambda A, *, offset=0, dim1=-2, dim2=-1: A.diagonal(offset, dim1, dim2),
    "block_diag.default": _block_diag,
    "put.default": _put,
    "_unsafe_masked_index.default": _masked_index,
    "index_add.default": _index_add,
    "isin.Tensor_Tensor": lambda elements, tests, *, assume_unique=False, invert=False: _isin(
        elements, tests, assume_unique, invert
    ),
    "isin.Tensor_Scalar": lambda elements, test, *, assume_unique=False, invert=False: _isin_number(
        elements, test, assume_unique, invert
    ),
    **{f"adaptive_max_pool{dims}d.default": _adaptive_maxima(dims) for dims in (1, 2, 3)},
    "round.decimals": lambda x, *, decimals: _rounded(x, decimals),
    "heaviside.default": _heaviside,
    "fmax.default": _extreme_of_integers(torch.maximum),
    "fmin.default": _extreme_of_integers(torch.minimum),
    "aminmax.default": _both_extremes,
    "prelu.default": _leaky,
    "diff.default": _differences,
    "cross.default": _cross,
    "linalg_cross.default": _linalg_cross,
    "inner.default": _inner,
    "kron.default": _kron,
    "linalg_matrix_power.default": _matrix_power,
    "linalg_matrix_norm.default": lambda A, ord, dim=(-2, -1), keepdim=False, *, dtype=None: _matrix_norm(
        A, ord, dim, keepdim, dtype=dtype
    ),
    "linalg_matrix_norm.str_ord": _matrix_norm,
    "batch_norm.default": _batch_norm,
    "group_norm.default": _group_norm,
    "native_group_norm.default": _native_group_norm,
    "native_layer_norm.default": _native_layer_norm,
    "instance_norm.default": _instance_norm,
    "median.dim": _median,
    "kthvalue.default": _kth_value,
    "linear.default": _linear,
    **{f"conv{dims}d.{kind}": _convolution(dims) for dims in (1, 2, 3) for kind in ("default", "padding")},
}

# Layers are composed only where their weights depend on the inputs: others have forms on integers.
WITH_WEIGHTS = frozenset(
    name
    for name in COMPOSITIONS
    if name.startswith(("conv", "linear", "batch_norm", "group_norm", "instance_norm", "prelu"))
)
