"""Complex numbers as pairs of real ones, which graphs on integers and programs have: rotary embeddings, spectra."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from zeropoint.graph.passes.decompose_fourier import (
    TRANSFORMS,
    Complex,
    inverse_short_time_transform,
    short_time_transform,
)
from zeropoint.graph.passes.nodes import call, fixed_size, has_value
from zeropoint.operators.node import arguments, aten_name, parameter

aten = torch.ops.aten
_LONGEST = 4096  # values of an axis of a result: a transform as a product has as many waves of as many values
# What is done to both parts alike.
_ALIKE = frozenset(
    ("alias", "clone", "constant_pad_nd", "contiguous", "cumsum", "detach", "diag_embed", "diagonal", "expand",
     "expand_as", "fft_fftshift", "fft_ifftshift", "flatten", "flip", "gather", "index", "index_select", "mean",
     "movedim", "mT", "neg", "pad", "permute", "repeat", "reshape", "roll", "select", "slice", "squeeze", "sum", "t",
     "transpose", "tril", "triu", "unflatten", "unfold", "unsqueeze", "view")
)  # fmt: skip


def decompose_complex(graph: fx.GraphModule) -> None:
    """Let whoever reads a part of a complex number, or a real number made of some, read it without these.

    What cannot be done with pairs stays as it is, with the complex numbers that it reads.
    """
    pairs: dict[fx.Node, Complex] = {}
    for node in list(graph.graph.nodes):
        is_read = any(_is_complex(part) for part in node.all_input_nodes)
        if node.op == "output" or not (_is_complex(node) or is_read or _packet(node) in TRANSFORMS):
            continue
        with graph.graph.inserting_before(node):
            made = _pair(graph, node, pairs)
        if made is None:
            continue
        if _is_complex(node):
            pairs[node] = made
        else:
            made.real.meta.setdefault("val", node.meta.get("val"))
            node.replace_all_uses_with(made.real)
    _join_results(graph.graph, pairs)


def _join_results(graph: fx.Graph, pairs: dict[fx.Node, Complex]) -> None:
    """Complex numbers that the graph returns are made of their parts at its end; long transforms stay PyTorch's."""
    output = graph.output_node()
    for node in output.all_input_nodes:
        source = node.args[0] if _is_other_complex(node) and _packet(node) in ("to", "_to_copy") else node
        if not isinstance(source, fx.Node) or (_is_complex(source) and source not in pairs):
            continue
        if not _is_complex(source) and source is node:
            continue
        if any((fixed_size(n) or 0) > _LONGEST for n in node.meta["val"].shape):
            continue
        with graph.inserting_before(output):
            pair = pairs.get(source) or Complex(_as_float(graph, node, source))
            joined = call(graph, source, aten.view_as_complex.default, _interleaved(graph, node, pair))
            if source is not node:
                joined = call(graph, node, aten.to.dtype, joined, node.meta["val"].dtype)
        output.replace_input_with(node, joined)


def _packet(node: fx.Node) -> str:
    return (aten_name(node) or "").split(".")[0]


def _is_complex(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.complex64


def _is_other_complex(node: fx.Node) -> bool:
    """Whether it is complex of another size, for which there are no pairs here."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_complex and value.dtype != torch.complex64


def _pair(graph: fx.GraphModule, node: fx.Node, pairs: dict[fx.Node, Complex]) -> Complex | None:
    """The two parts of what a node gives; the real one alone if that is real."""
    if any(map(_is_other_complex, (node, *node.all_input_nodes))):
        return None
    stored = parameter(graph, node)
    if stored is not None:
        return _stored(graph, node, stored)
    reads = node.all_input_nodes
    if not all(map(has_value, (node, *reads))) or any(_is_complex(part) and part not in pairs for part in reads):
        return None
    packet = _packet(node)
    function = _READS.get(packet)
    if function is not None:
        return function(graph.graph, node, arguments(node), pairs)
    if packet in TRANSFORMS:
        a = arguments(node)
        x = pairs.get(a["self"]) or Complex(_as_float(graph.graph, node, a["self"]))
        return TRANSFORMS[packet](graph.graph, node, x, a)
    return _alike(graph.graph, node, pairs) if packet in _ALIKE else None


def _stored(graph: fx.GraphModule, node: fx.Node, value: torch.Tensor) -> Complex:
    made = []
    for name, part in (("real", value.real), ("imaginary", value.imag)):
        target = f"{node.name}_{name}"  # names of nodes are all different
        while hasattr(graph, target):
            target += "_part"
        graph.register_buffer(target, part.detach().clone())
        made.append(graph.graph.get_attr(target))
        made[-1].meta.update(node.meta, val=getattr(node.meta["val"], "real" if name == "real" else "imag"))
    return Complex(*made)


def _alike(graph: fx.Graph, node: fx.Node, pairs: dict[fx.Node, Complex]) -> Complex | None:
    x = pairs.get(node.args[0])
    if x is None or x.imaginary is None or node.kwargs or not _is_complex(node) or aten_name(node) == "view.dtype":
        return None
    if arguments(node).get("value"):  # of a pad, which has no imaginary part
        return None
    return Complex(*(call(graph, node, node.target, part, *node.args[1:]) for part in x))


def _of_both(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex | None:
    """What takes values of two complex tensors, which become those of both parts."""
    values = [x for x in node.args if isinstance(x, fx.Node) and x.meta["val"].dtype != torch.bool]
    if node.kwargs or len(values) != 2 or any(x not in pairs for x in values):
        return None
    parts = [[pairs[x][k] if x in values else x for x in node.args] for k in (0, 1)]
    return Complex(*(call(graph, node, node.target, *part) for part in parts))


def _constant(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    """Zeros, or ones, whose imaginary parts are zeros."""
    x = node.args[0]
    args = (pairs[x].real if isinstance(x, fx.Node) and x in pairs else x, *node.args[1:])
    made = []
    for _ in range(2):
        part = graph.call_function(node.target, args, {**node.kwargs, "dtype": torch.float32})
        part.meta.update(node.meta, val=node.meta["val"].real)
        made.append(part)
    if "ones" in (aten_name(node) or ""):
        made[1] = call(graph, node, aten.mul.Tensor, made[1], 0.0)
    return Complex(*made)


def _parts(value: Any, pairs: dict[fx.Node, Complex]) -> tuple[Any, Any]:
    """Real and imaginary part of a tensor or a number; None for an imaginary part of zero."""
    if isinstance(value, complex):
        return value.real, value.imag
    return pairs[value] if isinstance(value, fx.Node) and value in pairs else (value, None)


def _product(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    """``(a + i b) (c + i d) = (a c - b d) + i (a d + b c)``"""

    def times(x: Any, y: Any) -> Any:
        if x is None or y is None:
            return None
        first, second = (x, y) if isinstance(x, fx.Node) else (y, x)
        return call(graph, node, aten.mul.Tensor, first, second)

    (re, im), (other_re, other_im) = _parts(a["self"], pairs), _parts(a["other"], pairs)
    real, taken = times(re, other_re), times(im, other_im)
    added = [part for part in (times(re, other_im), times(im, other_re)) if part is not None]
    real = real if taken is None else call(graph, node, aten.sub.Tensor, real, taken)
    return Complex(real, added[0] if len(added) == 1 else call(graph, node, aten.add.Tensor, *added))


def _sum(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex | None:
    if a.get("alpha", 1) != 1:
        return None
    both = [_parts(a[name], pairs) for name in ("self", "other")]
    parts = list(zip(*both))
    if any(part is not None and not isinstance(part, fx.Node) for part in parts[1]):
        return None
    first, second = parts[1]
    if any(part is not None and not _has_shape_of(node, part) for part in (first, second) if None in (first, second)):
        return None  # the imaginary part of one operand would have to be repeated
    real = call(graph, node, node.target, *parts[0])
    if second is None:
        return Complex(real, first)
    if first is None:
        is_sum = "add" in (aten_name(node) or "")
        return Complex(real, second if is_sum else call(graph, node, aten.mul.Tensor, second, -1.0))
    return Complex(real, call(graph, node, node.target, first, second))


def _has_shape_of(node: fx.Node, part: fx.Node) -> bool:
    return bool(part.meta["val"].shape == node.meta["val"].shape)


def _from_parts(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    parts = [a["real"], a["imag"]]
    if not all(_has_shape_of(node, part) for part in parts):
        both = call(graph, node, aten.broadcast_tensors.default, parts)
        parts = [call(graph, node, operator.getitem, both, place) for place in (0, 1)]
    return Complex(*parts)


def _divided(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex | None:
    other = a["other"]
    if isinstance(other, complex):
        return _product(graph, node, {"self": a["self"], "other": 1 / other}, pairs)
    if other in pairs:
        inverse = _inverse(graph, node, pairs[other])
        return _product(graph, node, {"self": a["self"], "other": other}, {**pairs, other: inverse})
    return Complex(*(call(graph, node, aten.div.Tensor, part, other) for part in pairs[a["self"]]))


def _inverse(graph: fx.Graph, node: fx.Node, x: Complex) -> Complex:
    """``1 / (a + i b) = (a - i b) / (a a + b b)``"""
    squares = [call(graph, node, aten.mul.Tensor, part, part) for part in x]
    whole = call(graph, node, aten.add.Tensor, *squares)
    minus = call(graph, node, aten.mul.Tensor, x.imaginary, -1.0)
    return Complex(*(call(graph, node, aten.div.Tensor, part, whole) for part in (x.real, minus)))


def _exponential(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    """``exp(a + i b) = exp(a) (cos b + i sin b)``"""
    real, imaginary = pairs[a["self"]]
    return _polar(graph, node, {"abs": call(graph, node, aten.exp.default, real), "angle": imaginary}, pairs)


def _logarithm(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    size, turned = _length(graph, node, a, pairs).real, _angle(graph, node, a, pairs).real
    return Complex(call(graph, node, aten.log.default, size), turned)


def _square(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex | None:
    if a.get("exponent", 2) != 2:
        return None
    return _product(graph, node, {"self": a["self"], "other": a["self"]}, pairs)


def _matrix_product(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    """As `_product`, of matrices: `matmul`, `mm`, `bmm`; `linear`, whose bias is added to the parts."""
    names = [name for name in a if name not in ("bias", "out_dtype")]
    (re, im), (other_re, other_im) = (_parts(a[name], pairs) for name in names)

    def times(x: Any, y: Any) -> Any:
        return None if x is None or y is None else call(graph, node, node.target, x, y)

    taken = times(im, other_im)
    real = times(re, other_re)
    real = real if taken is None else call(graph, node, aten.sub.Tensor, real, taken)
    added = [part for part in (times(re, other_im), times(im, other_re)) if part is not None]
    imaginary = added[0] if len(added) == 1 else call(graph, node, aten.add.Tensor, *added)
    if a.get("bias") is None:
        return Complex(real, imaginary)
    both = zip((real, imaginary), pairs[a["bias"]])
    return Complex(*(call(graph, node, aten.add.Tensor, part, bias) for part, bias in both))


def _as_float(graph: fx.Graph, node: fx.Node, x: fx.Node) -> fx.Node:
    return x if x.meta["val"].dtype == torch.float32 else call(graph, node, aten.to.dtype, x, torch.float32)


def _interleaved(graph: fx.Graph, node: fx.Node, x: Complex) -> fx.Node:
    """Both parts along a new last axis."""
    imaginary = call(graph, node, aten.zeros_like.default, x.real) if x.imaginary is None else x.imaginary
    parts = [call(graph, node, aten.unsqueeze.default, part, -1) for part in (x.real, imaginary)]
    return call(graph, node, aten.cat.default, parts, -1)


def _as_real(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    return Complex(_interleaved(graph, node, pairs[a["self"]]))


def _as_complex(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    return Complex(*(call(graph, node, aten.select.int, a["self"], -1, place) for place in (0, 1)))


def _polar(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    waves = [call(graph, node, wave, a["angle"]) for wave in (aten.cos.default, aten.sin.default)]
    return Complex(*(call(graph, node, aten.mul.Tensor, a["abs"], wave) for wave in waves))


def _length(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    squares = [call(graph, node, aten.mul.Tensor, part, part) for part in pairs[a["self"]]]
    return Complex(call(graph, node, aten.sqrt.default, call(graph, node, aten.add.Tensor, *squares)))


def _angle(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    real, imaginary = pairs[a["self"]]
    return Complex(call(graph, node, aten.atan2.default, imaginary, real))


def _conjugate(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex:
    real, imaginary = pairs[a["self"]]
    return Complex(real, call(graph, node, aten.mul.Tensor, imaginary, -1.0))


def _joined(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex | None:
    if any(part not in pairs for part in a["tensors"]):
        return None
    columns = zip(*(pairs[part] for part in a["tensors"]))
    return Complex(*(call(graph, node, node.target, list(column), a["dim"]) for column in columns))


def _same(graph: fx.Graph, node: fx.Node, a: dict[str, Any], pairs: dict[fx.Node, Complex]) -> Complex | None:
    """What is complex after it, and mostly before: there is one complex type here, and one device."""
    x = a["self"]
    if not _is_complex(node):
        return None
    if x in pairs or x.meta["val"].is_complex():
        return pairs.get(x)
    x = _as_float(graph, node, x)
    return Complex(x, call(graph, node, aten.zeros_like.default, x))


_READS: dict[str, Any] = {
    "mul": _product,
    "add": _sum,
    "sub": _sum,
    "div": _divided,
    "exp": _exponential,
    "log": _logarithm,
    "reciprocal": lambda graph, node, a, pairs: _inverse(graph, node, pairs[a["self"]]),
    **dict.fromkeys(("square", "pow"), _square),
    **dict.fromkeys(("matmul", "mm", "bmm", "linear"), _matrix_product),
    "view_as_real": _as_real,
    "view_as_complex": _as_complex,
    "complex": _from_parts,
    "polar": _polar,
    "real": lambda graph, node, a, pairs: Complex(pairs[a["self"]].real),
    "imag": lambda graph, node, a, pairs: Complex(pairs[a["self"]].imaginary),
    "sym_size": lambda graph, node, a, pairs: Complex(call(graph, node, node.target, pairs[a["self"]].real, a["dim"])),
    "abs": _length,
    "angle": _angle,
    **dict.fromkeys(("_conj", "conj", "conj_physical"), _conjugate),
    **dict.fromkeys(("resolve_conj", "resolve_neg", "to", "_to_copy", "type_as"), _same),
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like", "ones", "new_ones", "ones_like"), _constant),
    **dict.fromkeys(("copy", "slice_scatter", "select_scatter", "where"), _of_both),
    "cat": _joined,
    "stack": _joined,
    "stft": lambda graph, node, a, pairs: short_time_transform(graph, node, a) if a["return_complex"] else None,
    "istft": lambda graph, node, a, pairs: inverse_short_time_transform(graph, node, pairs[a["self"]], a),
}
