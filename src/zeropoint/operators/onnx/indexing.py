"""ONNX forms of operators that copy, repeat, gather or sort values."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxReader, OnnxWriter, ReadNode, Write, moves, reads

# ------------------------------------------------------------------------------------------------------------- writing


def _write_flip(w: OnnxWriter, node: fx.Node) -> Any:
    axes = list(arguments(node)["dims"])
    ends = [-(2**62)] * len(axes)
    steps = [-1] * len(axes)
    x = w.floats(node.args[0])
    return w.result(w.op("Slice", x, w.ints([-1] * len(axes)), w.ints(ends), w.ints(axes), w.ints(steps)))


def _write_repeat(w: OnnxWriter, node: fx.Node) -> Any:
    times = list(arguments(node)["repeats" if "repeat" in str(node.target) else "dims"])
    rank, x = w.rank(node.args[0]), w.floats(node.args[0])
    if len(times) > rank:
        x = w.op("Unsqueeze", x, w.ints(range(len(times) - rank)))
    return w.result(w.op("Tile", x, w.ints([1] * (rank - len(times)) + times)))


def _write_pixel_shuffle(w: OnnxWriter, node: fx.Node) -> Any:
    x = w.floats(node.args[0])
    if w.rank(node.args[0]) != 4:
        raise w.unsupported("DepthToSpace needs four axes")
    if "unshuffle" not in str(node.target):
        return w.result(w.op("DepthToSpace", x, blocksize=int(node.args[1]), mode="CRD"))
    # SpaceToDepth has the blocks before the channels; here channels come first.
    n, c, h = (w.axis_size(node.args[0], axis) for axis in range(3))
    f = int(node.args[1])
    blocks = w.op("Reshape", x, w.ints([0, 0, w.op("Div", h, w.ints([f])), f, -1, f]))
    turned = w.op("Transpose", blocks, perm=[0, 1, 3, 5, 2, 4])
    return w.result(
        w.op("Reshape", turned, w.ints([n, w.op("Mul", c, w.ints([f * f])), w.op("Div", h, w.ints([f])), -1]))
    )


def _write_channel_shuffle(w: OnnxWriter, node: fx.Node) -> Any:
    groups, x = int(node.args[1]), node.args[0]
    behind = [w.axis_size(x, axis) for axis in range(2, w.rank(x))]
    parts = w.op("Reshape", w.floats(x), w.ints([0, groups, -1, *behind]))
    turned = w.op("Transpose", parts, perm=[0, 2, 1, *range(3, w.rank(x) + 1)])
    return w.result(w.op("Reshape", turned, w.ints([0, -1, *behind])))


def _write_index_select(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    return w.result(w.op("Gather", w.floats(node.args[0]), w.tensor(a["index"]), axis=a["dim"]))


def _write_gather(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    return w.result(w.op("GatherElements", w.floats(node.args[0]), w.tensor(a["index"]), axis=a["dim"]))


def _write_index(w: OnnxWriter, node: fx.Node) -> Any:
    given = list(node.args[1])
    axes = [axis for axis, index in enumerate(given) if index is not None]
    if any(w.dtype(given[axis]) == torch.bool for axis in axes):
        raise w.unsupported("the number of values that a mask selects depends on the data")
    x = w.floats(node.args[0])
    if len(axes) == 1:
        return w.result(w.op("Gather", x, w.tensor(given[axes[0]]), axis=axes[0]))
    if axes != list(range(len(axes))):
        raise w.unsupported("only the first axes can be indexed together")
    shape = w.op("Shape", w.tensor(given[axes[0]]))
    for axis in axes[1:]:  # indices broadcast
        filler = w.op("Expand", w.number(0, torch.int64), w.op("Shape", w.tensor(given[axis])))
        shape = w.op("Shape", w.op("Add", w.op("Expand", w.number(0, torch.int64), shape), filler))
    parts = [w.op("Unsqueeze", w.op("Expand", w.tensor(given[axis]), shape), w.ints([-1])) for axis in axes]
    return w.result(w.op("GatherND", x, w.op("Concat", *parts, axis=-1)))


def _write_pad(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    rank, pad, mode = w.rank(node.args[0]), list(a["pad"]), a.get("mode", "constant")
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    pairs = [(0, 0)] * (rank - len(pairs)) + pairs
    pads = w.ints([before for before, _ in pairs] + [after for _, after in pairs])
    x = w.floats(node.args[0])
    if mode != "constant":
        return w.result(w.op("Pad", x, pads, mode=modes[mode]))
    value, scale = a.get("value") or 0, w.scale_of(node.args[0])
    if scale is not None:  # of integers it is one
        value = (value - scale[1]) * scale[0]
    kind = torch.float32 if scale is not None else w.dtype(node)
    return w.result(w.op("Pad", x, pads, w.number(value, kind)))


def _write_top(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    values, places = w.ops(
        "TopK", 2, w.floats(node.args[0]), w.ints([a["k"]]), axis=a["dim"], largest=int(a["largest"]), sorted=1
    )
    return [w.result(values), places]


def _write_sort(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    options = {"axis": a["dim"], "largest": int(bool(a["descending"])), "sorted": 1}
    values, places = w.ops("TopK", 2, w.floats(node.args[0]), w.axis_size(node.args[0], a["dim"]), **options)
    return places if "argsort" in str(node.target) else [w.result(values), places]


def write_extreme(kind: str) -> Write:
    def write(w: OnnxWriter, node: fx.Node) -> Any:
        a, x = arguments(node), w.floats(node.args[0])
        if "dim" not in a:
            return w.result(w.op(f"Reduce{kind}", x, keepdims=0))
        keep = int(a["keepdim"])
        if isinstance(a["dim"], (list, tuple)):
            axes = list(a["dim"]) or list(range(w.rank(node.args[0])))
            return w.result(w.op(f"Reduce{kind}", x, w.ints(axes), keepdims=keep))
        values = w.op(f"Reduce{kind}", x, w.ints([a["dim"]]), keepdims=keep)
        return [w.result(values), w.op(f"Arg{kind}", x, axis=a["dim"], keepdims=keep)]

    return write


# ------------------------------------------------------------------------------------------------------------- reading


def from_begin(r: OnnxReader, value: Any, size: Any) -> Any:
    """Indices along an axis of this size; negative ones count from its end, which PyTorch's operators do not take."""
    index = r.tensor(value)
    if r.is_known(value) and all(isinstance(place, (int, bool)) and place >= 0 for place in r.numbers(value)):
        return index
    return torch.where(index < 0, index + size, index)


def _read_gather(r: OnnxReader, n: ReadNode) -> Any:
    axis = n.attribute("axis", 0)
    x = r.tensor(n.input(0))
    if r.is_known(n.input(1)) and r.rank(n.input(1)) == 0:
        return x.select(axis, r.number(n.input(1)))
    index = from_begin(r, n.input(1), x.shape[axis])
    if r.is_known(n.input(0)) and axis == 0 and x.dim() == 2 and x.is_floating_point():
        return F.embedding(index, r.weight(n.input(0)))
    axis = axis % x.dim()
    if index.dim() == 0:
        return torch.index_select(x, axis, index.reshape(1)).squeeze(axis)
    if index.dim() == 1:
        return torch.index_select(x, axis, index)
    return torch.index_select(x, axis, index.reshape(-1)).unflatten(axis, index.shape)


def _read_gather_elements(r: OnnxReader, n: ReadNode) -> Any:
    x, axis = r.tensor(n.input(0)), n.attribute("axis", 0)
    return torch.gather(x, axis, from_begin(r, n.input(1), x.shape[axis]).to(torch.int64))


def _read_gather_nd(r: OnnxReader, n: ReadNode) -> Any:
    x, index, together = r.tensor(n.input(0)), r.tensor(n.input(1)), n.attribute("batch_dims", 0)
    batches = []
    for axis in range(together):
        behind = [1] * (index.dim() - 2 - axis)
        batches.append(torch.arange(x.shape[axis]).reshape(-1, *behind))
    return x[(*batches, *index.unbind(-1))]


def _read_tile(r: OnnxReader, n: ReadNode) -> Any:
    return r.tensor(n.input(0)).repeat(r.numbers(n.input(1)))


def _read_pad(r: OnnxReader, n: ReadNode) -> Any:
    x, mode = r.tensor(n.input(0)), n.attribute("mode", "constant")
    pads = n.attribute("pads") if n.version < 11 else r.numbers(n.input(1))
    value: Any = n.attribute("value", 0.0)
    if n.version >= 11 and n.has(2):
        value = r.number(n.input(2))
    axes = list(range(len(pads) // 2))
    if n.has(3):
        axes = [int(axis) % x.dim() for axis in r.numbers(n.input(3))]
    pairs: dict[int, Any] = {axis: (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)}
    sides = [side for axis in reversed(range(x.dim())) for side in pairs.get(axis, (0, 0))]
    while len(sides) > 2 and sides[-2:] == [0, 0]:
        sides = sides[:-2]
    if not any(isinstance(side, torch.SymInt) or side for side in sides):
        return x
    if mode == "constant":
        return F.pad(x, sides, mode, value)
    known = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    padded = len(sides) // 2
    if mode not in known:
        raise r.unsupported(f"unknown mode {mode!r}")
    if padded <= 3 and x.dim() - padded in (1, 2) and x.is_floating_point() and _are_short(x, sides):
        return F.pad(x, sides, known[mode])
    for axis in range(x.dim()):
        before, after = pairs.get(axis, (0, 0))
        if before or after:
            x = torch.index_select(x, axis, _padded(r, x.shape[axis], before, after, mode))
    return x


def _are_short(x: Any, sides: list[Any]) -> bool:
    """Whether every side is shorter than its axis, and none is cut: what F.pad computes as ONNX does."""
    sizes = (x.shape[x.dim() - 1 - i // 2] for i in range(len(sides)))
    return all(isinstance(side, int) and side >= 0 and side < size for side, size in zip(sides, sizes))


def _padded(r: OnnxReader, size: Any, before: Any, after: Any, mode: str) -> Any:
    """For each place of a padded axis, where its value comes from."""
    if not all(isinstance(number, int) for number in (size, before, after)):
        raise r.unsupported(f"mode {mode} needs sizes that are fixed here")
    at = torch.arange(-before, size + after)
    if mode == "edge":
        return torch.clamp(at, 0, size - 1)
    if mode == "wrap":
        return at % size
    around = at % max(2 * (size - 1), 1)
    return torch.where(around < size, around, 2 * (size - 1) - around)


def _read_depth_to_space(r: OnnxReader, n: ReadNode) -> Any:
    x, f = r.tensor(n.input(0)), n.attribute("blocksize")
    if n.attribute("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, f)
    batch, channels, height, width = x.shape
    blocks = x.reshape(batch, f, f, channels // (f * f), height, width).permute(0, 3, 4, 1, 5, 2)
    return blocks.reshape(batch, channels // (f * f), height * f, width * f)


def _read_space_to_depth(r: OnnxReader, n: ReadNode) -> Any:
    x, f = r.tensor(n.input(0)), n.attribute("blocksize")
    batch, channels, height, width = x.shape
    if n.attribute("mode", "DCR") == "CRD":
        return F.pixel_unshuffle(x, f)
    blocks = x.reshape(batch, channels, height // f, f, width // f, f).permute(0, 3, 5, 1, 2, 4)
    return blocks.reshape(batch, channels * f * f, height // f, width // f)


def _read_top(r: OnnxReader, n: ReadNode) -> Any:
    k = n.attribute("k") if n.version < 10 else r.number(n.input(1))
    x, axis, descending = r.tensor(n.input(0)), n.attribute("axis", -1), bool(n.attribute("largest", 1))
    n.without_effect("sorted")  # they are
    # Of equal values ONNX takes the first, which torch.topk leaves open.
    return [part.narrow(axis, 0, k) for part in torch.sort(x, dim=axis, descending=descending, stable=True)]


FORMS = {
    **moves("flip", _write_flip),
    **moves("repeat", _write_repeat, read=reads(_read_tile, "Tile")),
    **moves("tile", _write_repeat),
    **moves("pixel_shuffle", _write_pixel_shuffle, read=reads(_read_depth_to_space, "DepthToSpace")),
    **moves("pixel_unshuffle", _write_pixel_shuffle, read=reads(_read_space_to_depth, "SpaceToDepth")),
    **moves("channel_shuffle", _write_channel_shuffle),
    **moves("index_select", _write_index_select, read=reads(_read_gather, "Gather")),
    **moves("index", _write_index, "Tensor", read=reads(_read_gather_nd, "GatherND")),
    **moves("gather", _write_gather, read=reads(_read_gather_elements, "GatherElements")),
    **moves("sort", _write_sort, "default", "stable"),
    **moves("argsort", _write_sort, "default", "stable"),
    **moves("topk", _write_top, more=("top",), read=reads(_read_top, "TopK")),
    **moves("max", write_extreme("Max"), "dim", "default"),
    **moves("min", write_extreme("Min"), "dim", "default"),
    **moves("pad", _write_pad, more=("aten.constant_pad_nd.default",), read=reads(_read_pad, "Pad")),
}
