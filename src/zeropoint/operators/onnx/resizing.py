"""ONNX forms of resizing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx

from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes

_AXES = {1: "linear", 2: "bilinear", 3: "trilinear"}

# ------------------------------------------------------------------------------------------------------------- writing


def _resized(w: OnnxWriter, node: fx.Node, dims: int, factors: Any, **options: Any) -> Any:
    """With the factors that were given; else to the size, which is computed where it is free."""
    x = node.args[0]
    if factors:
        return w.op("Resize", w.floats(x), None, torch.tensor([1.0, 1.0, *factors], dtype=torch.float32), **options)
    size = arguments(node)["output_size"]
    sizes = w.ints([w.axis_size(x, 0), w.axis_size(x, 1), *size])
    return w.op("Resize", w.floats(x), None, None, sizes, **options)


def _write_nearest(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    dims = w.rank(node.args[0]) - 2
    given = a["scales"] if "scales" in a else a["scale_factors"]
    factors = [float(f) for f in given or ()]
    exact = a["exact"] if "exact" in a else "exact" in str(node.target)
    options = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel" if exact else "asymmetric"}
    options["nearest_mode"] = "round_prefer_ceil" if exact else "floor"
    return w.result(_resized(w, node, dims, factors if all(factors) else None, **options))


def _write_bilinear(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    if "scale_height" in a:
        given = [a["scale_height"], a["scale_width"]]
        factors = [float(f) for f in given] if all(given) else None
    else:
        factors = [float(f) for f in a["scale_factors"]] if a["scale_factors"] else None
    mode = "align_corners" if a["align_corners"] else "half_pixel"
    return w.result(_resized(w, node, 2, factors, mode="linear", coordinate_transformation_mode=mode))


# ------------------------------------------------------------------------------------------------------------- reading


class _Resize:
    """What a Resize says: for each axis its sizes, its factor and the part of the input that it shows.

    Its sizes may be free. `factors` are those of coordinates; `given` what PyTorch's function takes.
    """

    def __init__(self, r: OnnxReader, n: ReadNode, x: Any) -> None:
        self.r, self.x = r, x
        old = n.op_type == "Upsample" or n.version < 11
        self.mode = n.attribute("mode", "nearest")
        self.where = "asymmetric" if old else n.attribute("coordinate_transformation_mode", "half_pixel")
        self.rounding = "floor" if old else n.attribute("nearest_mode", "round_prefer_floor")
        self.coefficient = n.attribute("cubic_coeff_a", -0.75)
        self.excludes = bool(n.attribute("exclude_outside", 0))
        self.outside = n.attribute("extrapolation_value", 0.0)
        self.smooth = bool(n.attribute("antialias", 0))
        policy = n.attribute("keep_aspect_ratio_policy", "stretch")
        axes = n.attribute("axes", None) or list(range(x.dim()))
        self.axes = [axis % x.dim() for axis in axes]
        scales, sizes = self._given(r, n, old)
        before = [x.shape[axis] for axis in self.axes]
        self.by_factor = not sizes
        if sizes:
            factors = [after / size for after, size in zip(sizes, before)]
            if policy != "stretch":
                factors = [(min if policy == "not_larger" else max)(factors)] * len(factors)
                sizes = [int(np.floor(factors[0] * size + 0.5)) for size in before]
        else:
            factors, sizes = scales, [None] * len(scales)
            if all(isinstance(size, int) for size in before):
                sizes = [int(np.floor(size * factor)) for size, factor in zip(before, factors)]
        self.factors, self.sizes = factors, sizes
        place = 1 if not old else 9
        roi = r.numbers(n.input(place)) if self.where == "tf_crop_and_resize" else None
        n.input(place)
        self.shown = None if roi is None else list(zip(roi[: len(axes)], roi[len(axes) :]))

    @staticmethod
    def _given(r: OnnxReader, n: ReadNode, old: bool) -> tuple[list[float], list[Any]]:
        if old:
            scales = n.attribute("scales", None) if n.op_type == "Upsample" and n.version < 9 else n.input(1)
            return [float(f) for f in (scales if isinstance(scales, list) else r.numbers(scales))], []
        scales, sizes = n.input(2), n.input(3)
        if sizes is not None and r.count(sizes):
            return [], list(r.numbers(sizes))
        return [float(f) for f in r.numbers(scales)], []

    def for_pytorch(self) -> dict[str, Any] | None:
        """The arguments of `F.interpolate`, if it computes the same."""
        dims = self.x.dim() - 2
        spatial = list(range(2, self.x.dim()))
        if dims not in _AXES or not self.x.is_floating_point() or self.smooth or self.shown is not None:
            return None
        kept = {axis: (f, s) for axis, f, s in zip(self.axes, self.factors, self.sizes)}
        if any(axis in kept and _is_other(kept[axis], self.x.shape[axis]) for axis in (0, 1)):
            return None
        factors, sizes = zip(*(kept.get(axis, (1.0, self.x.shape[axis])) for axis in spatial))
        given: dict[str, Any] = {"scale_factor": list(factors)} if self.by_factor else {"size": list(sizes)}
        if self.mode == "nearest":
            whole = all(isinstance(f, (int, float)) and f == int(f) for f in factors)  # rounding never has a tie
            middle = whole and self.where == "half_pixel" and "round" in self.rounding
            if middle or (self.where, self.rounding) == ("asymmetric", "floor"):
                return {"mode": "nearest", **given}
            exact = (self.where, self.rounding) == ("half_pixel", "round_prefer_ceil")
            return {"mode": "nearest-exact", **given} if exact else None
        if self.mode != "linear":
            return None
        if self.where == "align_corners":  # factors that give no whole size have other corners
            whole = None not in sizes and all(f * s == int(f * s) for f, s in zip(factors, self.x.shape[2:]))
            return {"mode": _AXES[dims], "align_corners": True, "size": list(sizes)} if whole else None
        ones = self.where == "pytorch_half_pixel" and any(size == 1 for size in sizes)
        if self.where in ("half_pixel", "pytorch_half_pixel") and not ones:
            return {"mode": _AXES[dims], "align_corners": False, **given}
        return None

    def computed(self) -> Any:
        """Axis by axis: a choice of places, or a product with the weights of each."""
        known = [*self.sizes, *(self.x.shape[axis] for axis in self.axes)]
        if not all(isinstance(size, int) for size in known):
            raise self.r.unsupported(f"mode {self.mode} with {self.where} needs sizes that are fixed here")
        kind = self.x.dtype
        y = self.x if self.mode == "nearest" else self.x.float()
        for number, axis in enumerate(self.axes):
            size, after = int(self.x.shape[axis]), int(self.sizes[number])
            if size == after and self.shown is None and self.factors[number] == 1.0:
                continue
            at = self._coordinates(number, size, after)
            beyond = (at < 0) | (at > size - 1)
            if self.mode == "nearest":
                y = torch.index_select(y, axis, torch.from_numpy(_rounded(self.rounding, at, size)))
            else:
                weights = torch.from_numpy(self._weights(at, size, self.factors[number]))
                y = torch.matmul(y.movedim(axis, -1), weights.t()).movedim(-1, axis)
            if self.shown is not None and beyond.any():
                outside = torch.from_numpy(beyond).reshape([-1 if a == axis else 1 for a in range(y.dim())])
                y = torch.where(outside, torch.full((), self.outside, dtype=y.dtype), y)
        return y.to(kind)

    def _coordinates(self, number: int, size: int, after: int) -> Any:
        """Where the elements of the result lie in the input."""
        x, factor = np.arange(after, dtype=np.float64), float(self.factors[number])
        if self.where == "asymmetric":
            return x / factor
        if self.where == "align_corners":
            length = factor * size if self.by_factor else after
            return x * (size - 1) / (length - 1) if length != 1 else np.zeros(after)
        if self.where == "tf_crop_and_resize" and self.shown is not None:
            begin, end = self.shown[number]
            if after == 1:
                return np.full(1, 0.5 * (begin + end) * (size - 1))
            return begin * (size - 1) + x * (end - begin) * (size - 1) / (after - 1)
        if self.where == "pytorch_half_pixel" and after == 1:
            return np.zeros(after)
        if self.where == "half_pixel_symmetric":
            adjustment = after / (factor * size)
            centre = size / 2
            return centre * (1 - adjustment) + (x + 0.5) / factor - 0.5
        if self.where in ("half_pixel", "pytorch_half_pixel"):
            return (x + 0.5) / factor - 0.5
        raise self.r.unsupported(f"unknown coordinate_transformation_mode {self.where!r}")

    def _weights(self, at: Any, size: int, factor: float) -> Any:
        """``(places of the result, places of the input)``"""
        reach = {"linear": 1.0, "cubic": 2.0}.get(self.mode)
        if reach is None:
            raise self.r.unsupported(f"unknown mode {self.mode!r}")
        width = max(1.0, 1.0 / factor) if self.smooth else 1.0
        made = np.zeros((len(at), size))
        for row, centre in enumerate(at):
            places = np.arange(int(np.floor(centre - reach * width)) - 1, int(np.ceil(centre + reach * width)) + 2)
            weights = self._function(np.abs(places - centre) / width)
            if self.excludes:
                weights = np.where((places >= 0) & (places < size), weights, 0.0)
            weights = weights / weights.sum()
            np.add.at(made[row], np.clip(places, 0, size - 1), weights)
        return made.astype(np.float32)

    def _function(self, distance: Any) -> Any:
        if self.mode == "linear":
            return np.maximum(0.0, 1.0 - distance)
        a, d = self.coefficient, distance
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _is_other(kept: tuple[Any, Any], size: Any) -> bool:
    factor, after = kept
    return bool(factor != 1.0 and after is not size and after != size)


def _rounded(rounding: str, at: Any, size: int) -> Any:
    ways = {
        "round_prefer_floor": np.ceil(at - 0.5), "round_prefer_ceil": np.floor(at + 0.5),
        "floor": np.floor(at), "ceil": np.ceil(at),
    }  # fmt: skip
    return np.clip(ways[rounding], 0, size - 1).astype(np.int64)


def _read_resize(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    said = _Resize(r, n, x)
    given = said.for_pytorch()
    return said.computed() if given is None else F.interpolate(x, **given)


def _sizes(dims: int) -> dict[str, OnnxForms]:
    stored = dims == 2  # operators on integers serve every number of axes
    return {
        f"upsample_nearest{dims}d": OnnxForms(
            writes(_write_nearest, f"aten.upsample_nearest{dims}d.vec", *(["stored_nearest"] * stored)),
            reads(_read_resize, "Resize", "Upsample") if stored else (),
        ),
        f"_upsample_nearest_exact{dims}d": OnnxForms(
            writes(_write_nearest, f"aten._upsample_nearest_exact{dims}d.vec")
        ),
    }


FORMS = {
    **{name: forms for dims in (1, 2, 3) for name, forms in _sizes(dims).items()},
    "upsample_bilinear2d": OnnxForms(
        writes(_write_bilinear, "stored_bilinear", "float_bilinear", "aten.upsample_bilinear2d.vec")
    ),
}
