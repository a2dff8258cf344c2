"""Operators as others that more is known about: products of matrices in all their spellings, means with variances."""

from __future__ import annotations

import operator
import string
from typing import Any, NamedTuple

import torch
from torch import fx

from zeropoint.graph.passes.nodes import call, fixed_size, has_value

aten = torch.ops.aten
_MOST_AXES = 8  # that an ellipsis stands for


def _size(graph: fx.Graph, node: fx.Node, tensor: fx.Node, axis: int) -> Any:
    """The size of an axis: a number if it is fixed."""
    value = tensor.meta.get("val")
    known = fixed_size(value.shape[axis]) if isinstance(value, torch.Tensor) else None
    return call(graph, node, aten.sym_size.int, tensor, axis) if known is None else known


def _rank(tensor: Any) -> int | None:
    value = tensor.meta.get("val") if isinstance(tensor, fx.Node) else None
    return value.dim() if isinstance(value, torch.Tensor) else None


# ------------------------------------------------------------------------------------------------------------- einsum


class _Labelled(NamedTuple):
    """A tensor and a letter for each of its axes."""

    tensor: fx.Node
    labels: str


def _einsum(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``einsum`` as sums, permutations and products of matrices, from left to right."""
    if isinstance(a["tensors"], fx.Node) or a.get("path") is not None:
        return None
    ranks = [_rank(t) for t in a["tensors"]]
    if any(rank is None for rank in ranks):
        return None
    parsed = _parsed(a["equation"], [rank for rank in ranks if rank is not None])
    if parsed is None:
        return None
    inputs, result = parsed
    parts = [_without_repeats(graph, node, _Labelled(t, labels)) for t, labels in zip(a["tensors"], inputs)]
    made = parts[0]
    for number, part in enumerate(parts[1:], 1):
        later = set(result).union(*(p.labels for p in parts[number + 1 :]))
        made = _contracted(graph, node, made, part, later)
    made = _summed(graph, node, made, set(result))
    return _ordered(graph, node, made, result).tensor


def _parsed(equation: str, ranks: list[int]) -> tuple[list[str], str] | None:
    """The letters of the inputs and of the result; an ellipsis gets letters of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    spare = "".join(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in equation)[:_MOST_AXES]
    hidden = [spare[len(spare) - (rank - len(labels) + 3) :] for labels, rank in zip(left.split(","), ranks)]
    inputs = [labels.replace("...", letters) for labels, letters in zip(left.split(","), hidden)]
    every = "".join(inputs)
    if not arrow:
        right = "..." + "".join(sorted(c for c in set(every) if every.count(c) == 1 and c not in spare))
    result = right.replace("...", "".join(c for c in spare if c in every))
    if any(len(labels) != rank for labels, rank in zip(inputs, ranks)):
        return None
    return inputs, result


def _without_repeats(graph: fx.Graph, node: fx.Node, x: _Labelled) -> _Labelled:
    """A letter that is there twice means the diagonal, which becomes the last axis."""
    tensor, labels = x
    for letter in set(labels):
        while labels.count(letter) > 1:
            first, second = [axis for axis, label in enumerate(labels) if label == letter][:2]
            tensor = call(graph, node, aten.diagonal.default, tensor, 0, first, second)
            labels = "".join(c for axis, c in enumerate(labels) if axis not in (first, second)) + letter
    return _Labelled(tensor, labels)


def _summed(graph: fx.Graph, node: fx.Node, x: _Labelled, kept: set[str]) -> _Labelled:
    axes = [axis for axis, label in enumerate(x.labels) if label not in kept]
    if not axes:
        return x
    return _Labelled(call(graph, node, aten.sum.dim_IntList, x.tensor, axes), "".join(c for c in x.labels if c in kept))


def _ordered(graph: fx.Graph, node: fx.Node, x: _Labelled, labels: str) -> _Labelled:
    """Its axes in another order."""
    order = [x.labels.index(label) for label in labels]
    if order == list(range(len(order))):
        return x
    return _Labelled(call(graph, node, aten.permute.default, x.tensor, order), labels)


def _product_of_integers(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """A product of matrices of integers, which no layer computes: all products, and their sums."""
    x, y = (a[name] for name in list(a)[:2])
    if any((_rank(t) or 0) < 2 for t in (x, y)) or x.meta["val"].dtype.is_floating_point:
        return None
    dtype = x.meta["val"].dtype
    if fixed_size(x.meta["val"].shape[-1]) == 1:
        return call(graph, node, aten.mul.Tensor, x, y)
    x, y = call(graph, node, aten.unsqueeze.default, x, -1), call(graph, node, aten.unsqueeze.default, y, -3)
    made = call(graph, node, aten.sum.dim_IntList, call(graph, node, aten.mul.Tensor, x, y), [-2])
    return made if dtype == torch.int64 else call(graph, node, aten.to.dtype, made, dtype)


def _contracted(graph: fx.Graph, node: fx.Node, x: _Labelled, y: _Labelled, later: set[str]) -> _Labelled:
    """Two tensors as one: a product of matrices, whose rows and columns are the letters that one of them has."""
    x = _summed(graph, node, x, later | set(y.labels))
    y = _summed(graph, node, y, later | set(x.labels))
    shared = [c for c in x.labels if c in y.labels]
    batch, inner = "".join(c for c in shared if c in later), "".join(c for c in shared if c not in later)
    rows = "".join(c for c in x.labels if c not in shared)
    columns = "".join(c for c in y.labels if c not in shared)
    left = _ordered(graph, node, x, batch + rows + inner)
    right = _ordered(graph, node, y, batch + inner + columns)
    sizes = {c: (left.tensor, axis) for axis, c in enumerate(left.labels)}
    sizes |= {c: (right.tensor, axis) for axis, c in enumerate(right.labels) if c in columns}
    kept = [_size(graph, node, *sizes[c]) for c in rows + columns]
    matrices = (
        _as_matrix(graph, node, left.tensor, len(batch), len(rows), len(inner)),
        _as_matrix(graph, node, right.tensor, len(batch), len(inner), len(columns)),
    )
    made = _product_of_integers(graph, node, dict(zip("xy", matrices)))
    made = call(graph, node, aten.matmul.default, *matrices) if made is None else made
    if len(rows) != 1 or len(columns) != 1:
        front = [_size(graph, node, left.tensor, axis) for axis in range(len(batch))]
        made = call(graph, node, aten.reshape.default, made, [*front, *kept])
    return _Labelled(made, batch + rows + columns)


def _as_matrix(graph: fx.Graph, node: fx.Node, x: fx.Node, batch: int, rows: int, columns: int) -> fx.Node:
    """Axes behind the batch as two: `rows` of them become one, `columns` of them the other."""
    for first, count in ((batch + rows, columns), (batch, rows)):
        if count == 0:
            x = call(graph, node, aten.unsqueeze.default, x, first)
        elif count > 1:
            x = call(graph, node, aten.flatten.using_ints, x, first, first + count - 1)
    return x


# ------------------------------------------------------------------------------------------------ products of matrices


def _scaled_sum(graph: fx.Graph, node: fx.Node, a: dict[str, Any], product: fx.Node) -> fx.Node:
    """``beta * self + alpha * product``"""
    first, alpha, beta = a["self"], a["alpha"], a["beta"]
    if has_value(node) and not node.meta["val"].dtype.is_floating_point:  # what is behind the point is dropped
        alpha, beta = int(alpha), int(beta)
    if alpha != 1:
        product = call(graph, node, aten.mul.Tensor, product, alpha)
    if beta == 0:
        return product
    if beta != 1:
        first = call(graph, node, aten.mul.Tensor, first, beta)
    return call(graph, node, aten.add.Tensor, product, first)


def _added_product(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``baddbmm`` in its parts."""
    return _scaled_sum(graph, node, a, call(graph, node, aten.bmm.default, a["batch1"], a["batch2"]))


def _added_vector(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    return _scaled_sum(graph, node, a, call(graph, node, aten.mv.default, a["mat"], a["vec"]))


def _summed_products(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``addbmm``: the sum over a batch."""
    products = call(graph, node, aten.bmm.default, a["batch1"], a["batch2"])
    return _scaled_sum(graph, node, a, call(graph, node, aten.sum.dim_IntList, products, [0]))


def _spelled(equation: str, *names: str) -> Any:
    """A product of two tensors as an `einsum` of them."""

    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        return _einsum(graph, node, {"equation": equation, "tensors": [a[name] for name in names]})

    return made


def _tensordot(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``tensordot``: an `einsum` in which the axes of both that are summed over have the same letters."""
    first, second = _rank(a["self"]), _rank(a["other"])
    if first is None or second is None or first + second > len(string.ascii_lowercase):
        return None
    left = string.ascii_lowercase[:first]
    right = list(string.ascii_lowercase[first : first + second])
    tensors = [a["self"], a["other"]]
    for pair in zip(a["dims_self"], a["dims_other"]):
        right[pair[1]] = left[pair[0]]
        given = [x.meta["val"].shape[axis] for x, axis in zip(tensors, pair)]
        sizes = [fixed_size(n) for n in given]
        if None in sizes and 1 not in sizes and str(given[0]) != str(given[1]):  # one of them may be one
            return None
        if 1 in sizes and sizes != [1, 1]:  # times one number: the others are summed
            longer = sizes.index(1) ^ 1
            tensors[longer] = call(graph, node, aten.sum.dim_IntList, tensors[longer], [pair[longer]], True)
    result = "".join(c for c in [*left, *right] if (c in left) != (c in right))
    return _einsum(graph, node, {"equation": f"{left},{''.join(right)}->{result}", "tensors": tensors})


def _chain(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``multi_dot`` from left to right."""
    if isinstance(a["tensors"], fx.Node):
        return None
    first, *others = a["tensors"]
    for other in others:
        first = call(graph, node, aten.matmul.default, first, other)
    return first


def _vectors(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``matmul`` with a vector on either side as one of matrices."""
    of_integers = _product_of_integers(graph, node, a)
    if of_integers is not None:
        return of_integers
    first, second = _rank(a["self"]), _rank(a["other"])
    if first is None or second is None or (first > 1 and second > 1):
        return None
    left = call(graph, node, aten.unsqueeze.default, a["self"], 0) if first == 1 else a["self"]
    right = call(graph, node, aten.unsqueeze.default, a["other"], 1) if second == 1 else a["other"]
    made = call(graph, node, aten.matmul.default, left, right)
    if second == 1:
        made = call(graph, node, aten.squeeze.dim, made, -1)
    return call(graph, node, aten.squeeze.dim, made, -2 if second > 1 else -1) if first == 1 else made


# ------------------------------------------------------------------------------------------------------------- several


def _mean_and(spread: Any) -> Any:
    """``var_mean`` and ``std_mean``: two results, which who reads them gets from two calls."""

    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        if any(user.target is not operator.getitem for user in node.users) or not _has_values(node):
            return None
        axes, keep = list(a.get("dim") or ()), bool(a.get("keepdim"))
        options = {"correction": a.get("correction", int(a.get("unbiased", True))), "keepdim": keep}
        first = graph.call_function(spread, (a["self"], axes or None), options)
        first.meta.update(origin=node.meta.get("origin"), val=node.meta["val"][0])
        second = call(graph, node, aten.mean.dim, a["self"], axes, keep)
        for user in list(node.users):
            user.replace_all_uses_with((first, second)[user.args[1]])
            graph.erase_node(user)
        return first

    return made


def _differences(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``diff``: each value less the one before it."""
    if a["n"] != 1:
        return None
    parts = [a["prepend"], a["self"], a["append"]]
    given = [part for part in parts if part is not None]
    x = a["self"] if len(given) == 1 else call(graph, node, aten.cat.default, given, a["dim"])
    later = call(graph, node, aten.slice.Tensor, x, a["dim"], 1)
    before = call(graph, node, aten.slice.Tensor, x, a["dim"], 0, -1)
    is_bool = isinstance(a["self"].meta.get("val"), torch.Tensor) and a["self"].meta["val"].dtype == torch.bool
    return call(graph, node, aten.logical_xor.default if is_bool else aten.sub.Tensor, later, before)


def _has_values(node: fx.Node) -> bool:
    """Whether what it gives on the example is known, tensor by tensor; TorchScript does not say."""
    return isinstance(node.meta.get("val"), (tuple, list))


def _gives_the_first(node: fx.Node) -> bool:
    """Whether only the first is read of several results."""
    read = all(user.target is operator.getitem and (user.args[1] == 0 or not user.users) for user in node.users)
    return read and _has_values(node)


def _read_instead(graph: fx.Graph, node: fx.Node, first: fx.Node) -> None:
    for user in list(node.users):
        user.replace_all_uses_with(first)
        graph.erase_node(user)


def _distance(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``pairwise_distance``: the norm of a difference."""
    between = call(graph, node, aten.sub.Tensor, a["x1"], a["x2"])
    between = call(graph, node, aten.add.Tensor, between, a["eps"])
    return call(graph, node, aten.linalg_vector_norm.default, between, a["p"], [-1], a["keepdim"])


def _cosine(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``sum(x / max(|x|, eps) * y / max(|y|, eps))``"""
    parts = []
    for x in (a["x1"], a["x2"]):
        norm = call(graph, node, aten.linalg_vector_norm.default, x, 2, [a["dim"]], True)
        parts.append(call(graph, node, aten.div.Tensor, x, call(graph, node, aten.clamp_min.default, norm, a["eps"])))
    return call(graph, node, aten.sum.dim_IntList, call(graph, node, aten.mul.Tensor, *parts), [a["dim"]])


def _distances(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``cdist``: the norms of the differences between every row of one and every row of the other."""
    between = [call(graph, node, aten.unsqueeze.default, a[name], axis) for name, axis in (("x1", -2), ("x2", -3))]
    difference = call(graph, node, aten.sub.Tensor, *between)
    if a["p"] == 0:  # how many are not zero, and NaN if one is
        whole = call(graph, node, aten.ceil.default, call(graph, node, aten.abs.default, difference))
        return call(graph, node, aten.sum.dim_IntList, call(graph, node, aten.clamp_max.default, whole, 1), [-1])
    return call(graph, node, aten.linalg_vector_norm.default, difference, a["p"], [-1])


def _resized_line(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """A line of a free length as an image of one row; fixed ones are products with a matrix (operators/resizing.py)."""
    value = a["input"].meta.get("val")
    if not isinstance(value, torch.Tensor) or fixed_size(value.shape[-1]) is not None:
        return None
    sizes = None if a["output_size"] is None else [1, *a["output_size"]]
    factors = None if a["scale_factors"] is None else [1.0, *a["scale_factors"]]
    image = call(graph, node, aten.unsqueeze.default, a["input"], 2)
    made = graph.call_function(aten.upsample_bilinear2d.vec, (image, sizes, a["align_corners"], factors))
    made.meta.update(origin=node.meta.get("origin"), val=node.meta["val"].unsqueeze(2))
    return call(graph, node, aten.squeeze.dim, made, 2)


def _searched(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """``searchsorted`` in one sequence is ``bucketize``."""
    if _rank(a["sorted_sequence"]) != 1 or a["sorter"] is not None:
        return None
    right = a["right"] if a["side"] is None else a["side"] == "right"
    made = graph.call_function(
        aten.bucketize.Tensor, (a["self"], a["sorted_sequence"]), {"out_int32": a["out_int32"], "right": right}
    )
    made.meta.update(origin=node.meta.get("origin"), val=node.meta.get("val"))
    return made


def _other_dropout(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """Those that drop channels, or to another value than zero: outside of training all are the same."""
    return None if a["train"] else call(graph, node, aten.dropout.default, a["input"], a["p"], False)


def _adaptive_maxima(dims: int) -> Any:
    """``adaptive_max_pool`` of fixed sizes: windows of one size if they divide each other, else window by window."""

    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        value = a["self"].meta.get("val")
        if not isinstance(value, torch.Tensor) or not _gives_the_first(node):
            return None
        wanted = list(a["output_size"]) * (dims if len(a["output_size"]) == 1 else 1)
        given: list[int] = [n for n in map(fixed_size, value.shape[-dims:]) if n is not None]
        if len(given) < dims or any(not isinstance(w, int) or w < 1 for w in wanted):
            return None
        if any(n % w for n, w in zip(given, wanted)):
            first = a["self"]
            for axis, (size, windows) in enumerate(zip(given, wanted), value.dim() - dims):
                first = _maxima(graph, node, first, axis, size, windows)
        else:
            kernel = [n // w for n, w in zip(given, wanted)]
            first = call(graph, node, getattr(aten, f"max_pool{dims}d").default, a["self"], kernel, kernel)
        _read_instead(graph, node, first)
        return first

    return made


def _maxima(graph: fx.Graph, node: fx.Node, x: fx.Node, axis: int, size: int, windows: int) -> fx.Node:
    """The largest values of windows that an axis is divided into; they overlap where they do not fit."""
    bounds = [(i * size // windows, -(-(i + 1) * size // windows)) for i in range(windows)]
    parts = [call(graph, node, aten.slice.Tensor, x, axis, begin, end) for begin, end in bounds]
    return call(
        graph, node, aten.cat.default, [call(graph, node, aten.amax.default, p, [axis], True) for p in parts], axis
    )


# ------------------------------------------------------------------------------------ what other captures call layers


def _renamed(target: Any, *names: str) -> Any:
    """The same under the name that layers call."""

    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        return call(graph, node, target, *(a[name] for name in names))

    return made


def _first_of(target: Any, *arguments: Any) -> Any:
    """A layer of which only the first result is read; `arguments` are names, or functions of all of them."""

    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        if not _gives_the_first(node):
            return None
        first = call(graph, node, target, *(a[part] if isinstance(part, str) else part(a) for part in arguments))
        first.meta.setdefault("val", node.meta["val"][0])
        _read_instead(graph, node, first)
        return first

    return made


def _padding(mode: str) -> Any:
    """An edge of its own name as ``pad`` with a mode."""

    def made(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
        return call(graph, node, aten.pad.default, a["self"], a["padding"], mode)

    return made


_POOLED = ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")


def _unpadded(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> fx.Node | None:
    """Nothing around a tensor: the tensor, as in models that pad images to whole windows."""
    return a["self"] if all(isinstance(size, int) and size == 0 for size in a["pad"]) else None


DECOMPOSED: dict[str, Any] = {
    **dict.fromkeys(("pad.default", "constant_pad_nd.default"), _unpadded),
    "_adaptive_avg_pool2d.default": _renamed(aten.adaptive_avg_pool2d.default, "self", "output_size"),
    "_adaptive_avg_pool3d.default": _renamed(aten.adaptive_avg_pool3d.default, "self", "output_size"),
    "max_pool2d_with_indices.default": _first_of(aten.max_pool2d.default, *_POOLED),
    "max_pool3d_with_indices.default": _first_of(aten.max_pool3d.default, *_POOLED),
    **{f"reflection_pad{d}d.default": _padding("reflect") for d in (1, 2, 3)},
    **{f"replication_pad{d}d.default": _padding("replicate") for d in (1, 2, 3)},
    "native_layer_norm.default": _first_of(
        aten.layer_norm.default, "input", "normalized_shape", "weight", "bias", "eps"
    ),
    "native_group_norm.default": _first_of(aten.group_norm.default, "input", "group", "weight", "bias", "eps"),
    "_native_batch_norm_legit_no_training.default": _first_of(
        aten.batch_norm.default, "input", "weight", "bias", "running_mean", "running_var", lambda a: False, "momentum",
        "eps", lambda a: True,
    ),
    "einsum.default": _einsum,
    "baddbmm.default": _added_product,
    "addmv.default": _added_vector,
    "addbmm.default": _summed_products,
    "mv.default": _spelled("ij,j->i", "self", "vec"),
    "dot.default": _spelled("i,i->", "self", "tensor"),
    "vdot.default": _spelled("i,i->", "self", "other"),
    "outer.default": _spelled("i,j->ij", "self", "vec2"),
    "matmul.default": _vectors,
    "tensordot.default": _tensordot,
    **dict.fromkeys(("linalg_multi_dot.default", "chain_matmul.default"), _chain),
    "upsample_linear1d.vec": _resized_line,
    "searchsorted.Tensor": _searched,
    "diff.default": _differences,
    "pairwise_distance.default": _distance,
    "cosine_similarity.default": _cosine,
    "cdist.default": _distances,
    **{f"{name}.default": _other_dropout for name in ("feature_dropout", "alpha_dropout", "feature_alpha_dropout")},
    **{f"adaptive_max_pool{d}d.default": _adaptive_maxima(d) for d in (1, 2, 3)},
    **{f"var_mean.{kind}": _mean_and(aten.var.correction) for kind in ("default", "dim", "correction")},
    **{f"std_mean.{kind}": _mean_and(aten.std.correction) for kind in ("default", "dim", "correction")},
}  # fmt: skip

# Layers, but for integers: rules for a layer are not for these.
PRODUCTS: dict[str, Any] = dict.fromkeys(("mm.default", "bmm.default"), _product_of_integers)
