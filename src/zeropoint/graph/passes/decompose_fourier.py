"""Discrete Fourier transforms as products with cosines and sines in float; see decompose_complex.py for the pairs.

Along an axis of n values a transform is a product with ``cos(2 pi j k / n) - i sin(2 pi j k / n)``, its inverse one
with the conjugate. Of n real values the first ``n // 2 + 1`` frequencies say all: the others are their conjugates.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import torch
from torch import fx

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.passes.nodes import call

aten, ours = torch.ops.aten, torch.ops.zeropoint


class Complex(NamedTuple):
    """Complex numbers as two tensors of one shape; without `imaginary`, which is zero then, real ones."""

    real: fx.Node
    imaginary: fx.Node | None = None


class _Writer:
    """Writes nodes in the place of one."""

    def __init__(self, graph: fx.Graph, node: fx.Node, like: fx.Node) -> None:
        self.graph, self.node, self.like = graph, node, like

    def __call__(self, target: Any, *args: Any) -> Any:
        return call(self.graph, self.node, target, *args)

    def size(self, x: fx.Node, axis: int) -> Any:
        size = x.meta["val"].shape[axis]
        return size if isinstance(size, int) else self(aten.sym_size.int, x, axis)

    def normed(self, x: Complex, n: Any, norm: str | None, inverse: bool) -> Complex:
        """Divided by n, by its root, or as it is."""
        count: Any = float(n) if isinstance(n, int) else self(aten.to.dtype, self.count(n), torch.float32)
        if norm == "ortho":
            count = math.sqrt(n) if isinstance(n, int) else self(aten.sqrt.default, count)
        elif inverse != (norm in (None, "backward")):
            return x
        return Complex(*(None if part is None else self(aten.div.Tensor, part, count) for part in x))

    def half(self, n: Any) -> Any:
        """How many frequencies say all of `n` real values."""
        return n // 2 + 1 if isinstance(n, int) else self(operator.add, self(operator.floordiv, n, 2), 1)

    def count(self, n: Any) -> Any:
        """A free size as a tensor: PyTorch takes sizes among the numbers of a calculation to be fixed."""
        return n if isinstance(n, int) else self(aten.add.Tensor, self(aten.select.int, self.places(n), 0, -1), 1)

    def places(self, n: Any) -> fx.Node:
        """0, 1, ... n - 1; see `count` for why a free size is counted."""
        if isinstance(n, int):
            return self(aten.arange.default, n)
        ones = self(aten.to.dtype, self(aten.new_full.default, self.like, [n], 1.0), torch.int64)
        return self(aten.add.Tensor, self(aten.cumsum.default, ones, 0), -1)

    def waves(self, rows: Any, columns: Any, n: Any) -> tuple[fx.Node, fx.Node]:
        """Cosines and sines of ``2 pi j k / n``. The angle is taken from ``j k`` modulo n, which is exact."""
        j = self(aten.unsqueeze.default, self.places(rows), 1)
        products = self(aten.mul.Tensor, j, self.places(columns))
        count = self.count(n)
        turned = aten.remainder.Scalar if isinstance(n, int) else aten.remainder.Tensor
        turns = self(aten.to.dtype, self(turned, products, count), torch.float32)
        angles = self(aten.div.Tensor, self(aten.mul.Tensor, turns, 2 * math.pi), count)
        return self(aten.cos.default, angles), self(aten.sin.default, angles)

    def real_places(self, places: fx.Node, n: Any) -> fx.Node:
        """Which frequencies of n real values are real: the first, and the middle of an even number."""
        same = aten.eq.Scalar if isinstance(n, int) else aten.eq.Tensor
        middle = self(same, self(aten.mul.Tensor, places, 2), self.count(n))
        return self(aten.logical_or.default, self(aten.eq.Scalar, places, 0), middle)

    def without_real_places(self, imaginary: fx.Node, axis: int, kept: Any, n: Any) -> fx.Node:
        """Zeros as the imaginary parts of real frequencies: a sine of 0 times infinity is none."""
        places = self(aten.reshape.default, self.places(kept), [-1] + [1] * (imaginary.meta["val"].dim() - 1 - axis))
        zeros = self(aten.zeros_like.default, imaginary)
        return self(aten.where.self, self.real_places(places, n), zeros, imaginary)

    def product(self, x: fx.Node, matrix: fx.Node, axis: int) -> fx.Node:
        """``x matrix`` along an axis of x."""
        last = x.meta["val"].dim() - 1
        if last == 0:
            return self(aten.squeeze.dim, self.product(self(aten.unsqueeze.default, x, 0), matrix, 1), 0)
        if axis == last:
            return self(ours.float_matmul.default, x, matrix)
        turned = self(aten.transpose.int, x, axis, last)
        return self(aten.transpose.int, self(ours.float_matmul.default, turned, matrix), axis, last)


def _along(w: _Writer, x: Complex, axis: int, n: Any, inverse: bool, half: bool, norm: str | None) -> Complex:
    """The transform of `n` values along an axis; with `half`, of the frequencies that say all of real values.

    An axis that is shorter is one with zeros behind it, which add nothing.
    """
    kept = w.half(n) if half else n
    cosine, sine = w.waves(w.size(x.real, axis), kept, n)
    # (a + i b) (cos - i sin), of which the inverse has the conjugate
    sine = sine if inverse else w(aten.mul.Tensor, sine, -1.0)
    real, imaginary = w.product(x.real, cosine, axis), w.product(x.real, sine, axis)
    if x.imaginary is None:
        imaginary = w.without_real_places(imaginary, axis, kept, n)
    else:
        real = w(aten.sub.Tensor, real, w.product(x.imaginary, sine, axis))
        imaginary = w(aten.add.Tensor, imaginary, w.product(x.imaginary, cosine, axis))
    return w.normed(Complex(real, imaginary), n, norm, inverse)


def _to_real(w: _Writer, x: Complex, axis: int, n: Any, norm: str | None) -> Complex:
    """The n real values whose first frequencies are given; those that are not given are zero."""
    given = w.size(x.real, axis)
    cosine, sine = w.waves(given, n, n)
    places = w(aten.unsqueeze.default, w.places(given), 1)
    alone = w.real_places(places, n)
    times = w(aten.add.Tensor, w(aten.mul.Tensor, w(aten.to.dtype, alone, torch.float32), -1.0), 2.0)
    real = w.product(x.real, w(aten.mul.Tensor, cosine, times), axis)
    if x.imaginary is not None:
        real = w(aten.sub.Tensor, real, w.product(x.imaginary, w(aten.mul.Tensor, sine, times), axis))
    return w.normed(Complex(real), n, norm, True)


def _cut(w: _Writer, x: Complex, axis: int, n: Any) -> tuple[Complex, Any] | None:
    """What a transform of `n` values takes of an axis, and that number; None if it is not known which is longer."""
    size = x.real.meta["val"].shape[axis]
    if n is None:
        return x, w.size(x.real, axis)
    value = n.meta["val"] if isinstance(n, fx.Node) else n
    if isinstance(n, torch.SymInt):
        return None
    if internals.is_certain(size <= value):
        return x, n
    if internals.is_certain(value <= size):
        return Complex(*(None if part is None else w(aten.slice.Tensor, part, axis, 0, n) for part in x)), n
    return None


def _transform(inverse: bool, half: bool) -> Any:
    """``fft``, ``rfft`` and ``ifft`` over one axis or several."""

    def made(graph: fx.Graph, node: fx.Node, x: Complex, a: dict[str, Any]) -> Complex | None:
        w, axes = _Writer(graph, node, x.real), _axes(a, x.real.meta["val"].dim())
        sizes = list(a["s"]) if a.get("s") is not None else [a.get("n")] * len(axes)
        if half and x.imaginary is not None:
            return None
        for axis, given in reversed(list(zip(axes, sizes))):
            taken = _cut(w, x, axis, given)
            if taken is None:
                return None
            x = _along(w, taken[0], axis, taken[1], inverse, half and axis == axes[-1], a["norm"])
        return x

    return made


def _inverse_of_half(graph: fx.Graph, node: fx.Node, x: Complex, a: dict[str, Any]) -> Complex | None:
    """``irfft``: of complex frequencies, real values."""
    w = _Writer(graph, node, x.real)
    axes = _axes(a, x.real.meta["val"].dim())
    sizes = list(a["s"]) if a.get("s") is not None else [None] * (len(axes) - 1) + [a.get("n")]
    last = sizes[-1]
    if last is None:
        size = w.size(x.real, axes[-1])
        last = 2 * (size - 1) if isinstance(size, int) else w(operator.mul, w(operator.add, size, -1), 2)
    else:
        cut = _cut(w, x, axes[-1], w.half(last))
        if cut is None:
            return None
        x = cut[0]
    for axis, given in zip(axes[:-1], sizes[:-1]):
        taken = _cut(w, x, axis, given)
        if taken is None:
            return None
        x = _along(w, taken[0], axis, taken[1], True, False, a["norm"])
    return _to_real(w, x, axes[-1], last, a["norm"])


def _of_symmetric(transform: Any) -> Any:
    """``hfft`` and ``ihfft``: a transform of real values turned round, of which it takes or gives the conjugates."""
    turned = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}

    def conjugate(graph: fx.Graph, node: fx.Node, x: Complex) -> Complex:
        return x if x.imaginary is None else Complex(x.real, call(graph, node, aten.mul.Tensor, x.imaginary, -1.0))

    def made(graph: fx.Graph, node: fx.Node, x: Complex, a: dict[str, Any]) -> Complex | None:
        found = transform(graph, node, conjugate(graph, node, x), {**a, "norm": turned[a["norm"]]})
        return None if found is None else conjugate(graph, node, found)

    return made


def _axes(a: dict[str, Any], rank: int) -> list[int]:
    given = a["dim"]
    if given is None:  # the last ones, as many as there are sizes
        given = range(rank - len(a["s"]), rank) if a.get("s") is not None else range(rank)
    return [axis % rank for axis in ([given] if isinstance(given, int) else given)]


def _window(w: _Writer, a: dict[str, Any]) -> fx.Node | None:
    """The factors of a window of `n_fft` values: in its middle those of a shorter one; None for ones."""
    n, window = a["n_fft"], a["window"]
    length = a["win_length"] if a["win_length"] is not None else n
    if length == n:
        return window
    if window is None:
        window = w(aten.new_full.default, w.like, [length], 1.0)
    before = (n - length) // 2
    return w(aten.constant_pad_nd.default, window, [before, n - length - before])


def _fits(a: dict[str, Any], *values: fx.Node | None) -> bool:
    """Whether the sizes of a short-time transform are numbers, and its values are real."""
    if not all(n is None or isinstance(n, int) for n in (a["n_fft"], a["hop_length"], a["win_length"])):
        return False
    length = a["win_length"] if a["win_length"] is not None else a["n_fft"]
    if a["window"] is not None and a["window"].meta["val"].shape[0] != length:
        return False
    return not any(value is not None and value.meta["val"].is_complex() for value in values)


def short_time_transform(graph: fx.Graph, node: fx.Node, a: dict[str, Any]) -> Complex | None:
    """``stft``: transforms of windows of a signal, side by side."""
    w, x, n = _Writer(graph, node, a["self"]), a["self"], a["n_fft"]
    if a.get("center") or not _fits(a, x, a["window"]):
        return None
    hop = a["hop_length"] if a["hop_length"] is not None else n // 4
    window = _window(w, a)
    frames = w(aten.unfold.default, x, -1, n, hop)
    frames = frames if window is None else w(aten.mul.Tensor, frames, window)
    norm = "ortho" if a["normalized"] else None
    made = _along(w, Complex(frames), frames.meta["val"].dim() - 1, n, False, a["onesided"] is not False, norm)
    return Complex(*(w(aten.transpose.int, part, -2, -1) for part in made))


def inverse_short_time_transform(graph: fx.Graph, node: fx.Node, x: Complex, a: dict[str, Any]) -> Complex | None:
    """``istft``: the windows that the transforms are of, each added where it began, through the sum of the factors."""
    w, n = _Writer(graph, node, x.real), a["n_fft"]
    if x.imaginary is None or a["onesided"] is False or a["return_complex"] or not _fits(a, a["window"]):
        return None
    hop = a["hop_length"] if a["hop_length"] is not None else n // 4
    last = x.real.meta["val"].dim() - 1
    count = w.size(x.real, last)
    total: Any = count * hop if isinstance(count, int) else w(operator.mul, count, hop)
    total = total + n - hop if isinstance(total, int) else w(operator.add, total, n - hop)
    begins = w(aten.mul.Tensor, w(aten.unsqueeze.default, w.places(count), 1), hop)
    places = w(aten.add.Tensor, begins, w(aten.arange.default, n))
    window = _window(w, a)
    if window is None:
        window = w(aten.new_full.default, w.like, [n], 1.0)
    turned = Complex(*(w(aten.transpose.int, part, -2, -1) for part in x if part is not None))
    frames = w(aten.mul.Tensor, _to_real(w, turned, last, n, "ortho" if a["normalized"] else None).real, window)
    index = w(aten.reshape.default, places, [-1])
    values = w(aten.flatten.using_ints, frames, -2, -1)
    factors = w(aten.expand_as.default, w(aten.mul.Tensor, window, window), places)
    outer = [w.size(x.real, axis) for axis in range(last - 1)]
    sums = [
        w(aten.index_add.default, w(aten.new_zeros.default, w.like, [*sizes, total]), len(sizes), index, added)
        for sizes, added in ((outer, values), ([], w(aten.reshape.default, factors, [-1])))
    ]
    signal = w(aten.div.Tensor, *sums)
    begin = n // 2 if a["center"] else 0
    if a["length"] is None:
        end: Any = -begin if begin else _TO_THE_END
    else:  # there may be more of it than windows reach
        signal = w(aten.constant_pad_nd.default, signal, [0, n])
        end = begin + a["length"] if isinstance(a["length"], int) else w(operator.add, a["length"], begin)
    made = w(aten.slice.Tensor, signal, last - 1, begin, end)
    shape, wanted = made.meta["val"].shape, node.meta["val"].shape
    if any(isinstance(m, int) and isinstance(k, int) and m != k for m, k in zip(shape, wanted)):
        return None
    return Complex(made)


_TO_THE_END = 2**63 - 1
TRANSFORMS: dict[str, Any] = {
    **dict.fromkeys(("fft_fft", "fft_fft2", "fft_fftn"), _transform(inverse=False, half=False)),
    **dict.fromkeys(("fft_rfft", "fft_rfft2", "fft_rfftn"), _transform(inverse=False, half=True)),
    **dict.fromkeys(("fft_ifft", "fft_ifft2", "fft_ifftn"), _transform(inverse=True, half=False)),
    **dict.fromkeys(("fft_irfft", "fft_irfft2", "fft_irfftn"), _inverse_of_half),
    **dict.fromkeys(("fft_hfft", "fft_hfft2", "fft_hfftn"), _of_symmetric(_inverse_of_half)),
    **dict.fromkeys(("fft_ihfft", "fft_ihfft2", "fft_ihfftn"), _of_symmetric(_transform(inverse=False, half=True))),
}
