"""ONNX forms of reshapes, transposes and slices."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxReader, OnnxWriter, ReadNode, moves, reads

_END = 2**62  # beyond the end of every axis

# ------------------------------------------------------------------------------------------------------------- writing


def _moved(w: OnnxWriter, node: fx.Node, write: Any) -> Any:
    return w.result(write(w.floats(node.args[0])))


def _write_same(w: OnnxWriter, node: fx.Node) -> Any:
    return w.tensor(node.args[0])


def _write_reshape(w: OnnxWriter, node: fx.Node) -> Any:
    shape = w.ints(list(node.args[1]))
    allow = {"allowzero": 1} if any(size == 0 for size in node.args[1] if isinstance(size, int)) else {}
    return _moved(w, node, lambda x: w.op("Reshape", x, shape, **allow))


def _write_flatten(w: OnnxWriter, node: fx.Node) -> Any:
    a, x = arguments(node), node.args[0]
    rank = w.rank(x)
    first, last = (a.get(k, d) % max(rank, 1) for k, d in (("start_dim", 0), ("end_dim", -1)))
    if (first, last) == (1, rank - 1) and rank > 1:
        return _moved(w, node, lambda value: w.op("Flatten", value, axis=1))
    shape = [0] * first + [-1] + [w.axis_size(x, axis) for axis in range(last + 1, rank)]  # 0: as it is
    return _moved(w, node, lambda value: w.op("Reshape", value, w.ints(shape)))


def _write_unflatten(w: OnnxWriter, node: fx.Node) -> Any:
    a, x = arguments(node), node.args[0]
    rank = w.rank(x)
    axis = a["dim"] % rank
    behind = [w.axis_size(x, d) for d in range(axis + 1, rank)]
    return _moved(w, node, lambda value: w.op("Reshape", value, w.ints([0] * axis + list(a["sizes"]) + behind)))


def _write_transpose(w: OnnxWriter, node: fx.Node) -> Any:
    order = list(range(w.rank(node.args[0])))
    first, second = node.args[1:3]
    order[first], order[second] = order[second], order[first]
    return _moved(w, node, lambda x: w.op("Transpose", x, perm=order))


def _write_permute(w: OnnxWriter, node: fx.Node) -> Any:
    rank = w.rank(node.args[0])
    order = [axis % rank for axis in arguments(node)["dims"]]
    return _moved(w, node, lambda x: w.op("Transpose", x, perm=order))


def _write_movedim(w: OnnxWriter, node: fx.Node) -> Any:
    rank = w.rank(node.args[0])
    numbered = torch.empty([1] * rank).as_strided([1] * rank, list(range(rank)))  # strides that are the axes' numbers
    order = list(torch.movedim(numbered, *node.args[1:]).stride())
    return _moved(w, node, lambda x: w.op("Transpose", x, perm=order))


def _write_turned(w: OnnxWriter, node: fx.Node) -> Any:
    order = list(range(w.rank(node.args[0])))
    order = order[:-2] + order[-2:][::-1] if "mT" in str(node.target) else order[::-1]
    return _moved(w, node, lambda x: w.op("Transpose", x, perm=order))


def _write_squeeze(w: OnnxWriter, node: fx.Node) -> Any:
    axes, x = arguments(node).get("dim"), node.args[0]
    shape = list(w.found[x].shape)
    wanted = range(len(shape)) if axes is None else axes if isinstance(axes, (list, tuple)) else [axes]
    ones = [axis for axis in wanted if shape[axis] == 1]
    return _moved(w, node, lambda value: w.op("Squeeze", value, w.ints(ones))) if ones else w.tensor(x)


def _write_unsqueeze(w: OnnxWriter, node: fx.Node) -> Any:
    return _moved(w, node, lambda x: w.op("Unsqueeze", x, w.ints([arguments(node)["dim"]])))


def _write_expand(w: OnnxWriter, node: fx.Node) -> Any:
    """An axis of -1 stays as it is, which is what 1 means to Expand."""
    shape = [1 if isinstance(size, int) and size == -1 else size for size in node.args[1]]
    return _moved(w, node, lambda x: w.op("Expand", x, w.ints(shape)))


def _write_as(w: OnnxWriter, node: fx.Node) -> Any:
    name = "Expand" if "expand" in str(node.target) else "Reshape"
    shape = w.op("Shape", w.tensor(node.args[1]))
    return _moved(w, node, lambda x: w.op(name, x, shape))


def _slice(w: OnnxWriter, x: Any, axis: int, begin: Any, end: Any, step: int = 1) -> Any:
    return w.op("Slice", x, w.ints([begin]), w.ints([end]), w.ints([axis]), w.ints([step]))


def _write_slice(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    begin, end = (d if a[k] is None else a[k] for k, d in (("start", 0), ("end", _END)))
    end = min(end, _END) if isinstance(end, int) else end
    if begin == 0 and end == _END and a["step"] == 1:
        return w.tensor(node.args[0])
    return _moved(w, node, lambda x: _slice(w, x, a["dim"], begin, end, a["step"]))


def _write_narrow(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    end = w.op("Add", w.ints([a["start"]]), w.ints([a["length"]]))
    return _moved(w, node, lambda x: _slice(w, x, a["dim"], a["start"], end))


def _write_select(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    index = w.op("Squeeze", w.ints([a["index"]]), w.ints([0]))
    return _moved(w, node, lambda x: w.op("Gather", x, index, axis=a["dim"]))


def _pieces(w: OnnxWriter, node: fx.Node, axis: int, lengths: list[Any] | None) -> list[Any]:
    """Parts along an axis: as long as said, or as in the example where that is fixed."""
    count = len(w.found[node])
    if lengths is None:
        w.require_fixed(node.args[0], [axis])
        lengths = [int(part.shape[axis]) for part in w.found[node]]
    made = w.ops("Split", count, w.floats(node.args[0]), w.ints(lengths), axis=axis)
    return [w.result(part) for part in made]


def _write_split(w: OnnxWriter, node: fx.Node) -> Any:
    return _pieces(w, node, arguments(node).get("dim", 0), None)


def _write_split_with_sizes(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    return _pieces(w, node, a["dim"], list(a["split_sizes"]))


def _write_unbind(w: OnnxWriter, node: fx.Node) -> Any:
    axis, x = arguments(node)["dim"], w.floats(node.args[0])
    places = (w.number(i, torch.int64) for i in range(len(w.found[node])))
    return [w.result(w.op("Gather", x, place, axis=axis)) for place in places]


# ------------------------------------------------------------------------------------------------------------- reading


def _read_reshape(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    shape = r.numbers(n.input(1))
    if not n.attribute("allowzero", 0):
        shape = [x.shape[axis] if isinstance(size, int) and size == 0 else size for axis, size in enumerate(shape)]
    return x.reshape(shape)


def _read_flatten(r: OnnxReader, n: ReadNode) -> Any:
    x, axis = r.tensor(n.input(0)), n.attribute("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    if axis == 1:
        return torch.flatten(x, 1) if x.dim() > 1 else x.reshape(-1, 1)
    return x.reshape(math.prod(x.shape[:axis]), -1)


def _read_transpose(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    return x.permute(n.attribute("perm", list(range(x.dim()))[::-1]))


def _axes(r: OnnxReader, n: ReadNode) -> list[int] | None:
    if n.has(1):
        return [int(axis) for axis in r.numbers(n.input(1))]
    return n.attribute("axes", None)


def _read_squeeze(r: OnnxReader, n: ReadNode) -> Any:
    x, axes = r.tensor(n.input(0)), _axes(r, n)
    return torch.squeeze(x) if axes is None else torch.squeeze(x, tuple(axes))


def _read_unsqueeze(r: OnnxReader, n: ReadNode) -> Any:
    x, axes = r.tensor(n.input(0)), _axes(r, n) or []
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _read_expand(r: OnnxReader, n: ReadNode) -> Any:
    """Both sides may have axes of one that the other repeats."""
    x, shape = r.tensor(n.input(0)), r.numbers(n.input(1))
    shape = [1] * (x.dim() - len(shape)) + list(shape)
    for axis in range(-1, -x.dim() - 1, -1):
        if isinstance(shape[axis], int) and shape[axis] == 1:
            shape[axis] = x.shape[axis]
    return x.expand(shape)


def _read_slice(r: OnnxReader, n: ReadNode) -> Any:
    x = r.tensor(n.input(0))
    if n.version < 10:
        begins, ends = n.attribute("starts"), n.attribute("ends")
        axes, steps = n.attribute("axes", list(range(len(begins)))), [1] * len(begins)
    else:
        begins, ends = r.numbers(n.input(1)), r.numbers(n.input(2))
        given = [n.input(3), n.input(4)]
        axes = list(range(len(begins))) if given[0] is None else r.numbers(given[0])
        steps = [1] * len(begins) if given[1] is None else r.numbers(given[1])
    for axis, begin, end, step in zip(axes, begins, ends, steps):
        if step < 0:
            x, step = torch.flip(x, [int(axis)]), -step
            begin, end = (_turned(r, place, x.shape[int(axis)]) for place in (begin, end))
        whole = slice(begin, None if isinstance(end, int) and end >= 2**31 - 1 else end, step)
        x = x[(slice(None),) * (int(axis) % x.dim()) + (whole,)]
    return x


def _turned(r: OnnxReader, place: Any, size: Any) -> Any:
    """The place in an axis that was turned round; what lies before its begin is behind its end."""
    if isinstance(place, int) and place < 0:
        return -1 - place if place > -(2**30) else _END
    if isinstance(place, int) and place >= 2**30:
        return 0
    if not isinstance(size, int) or not isinstance(place, int):
        raise r.unsupported(f"a slice backwards from or to {place} needs a size that is fixed here")
    return max(size - 1 - place, 0)


def _read_split(r: OnnxReader, n: ReadNode) -> Any:
    x, axis = r.tensor(n.input(0)), n.attribute("axis", 0)
    lengths = n.attribute("split", None)
    if n.has(1):
        lengths = r.numbers(n.input(1))
    count = n.attribute("num_outputs", n.outputs)
    if lengths is None:
        each = (x.shape[axis] + count - 1) // count
        return list(torch.split(x, each, axis))
    return list(torch.split(x, list(lengths), axis))


FORMS = {
    **moves("reshape", _write_reshape, more=("aten.view.default",), read=reads(_read_reshape, "Reshape")),
    **moves("flatten", _write_flatten, "using_ints", read=reads(_read_flatten, "Flatten")),
    **moves("unflatten", _write_unflatten, "int"),
    **moves("transpose", _write_transpose, "int"),
    **moves("permute", _write_permute, read=reads(_read_transpose, "Transpose")),
    **moves("t", _write_turned),
    **moves("squeeze", _write_squeeze, "default", "dim", "dims", read=reads(_read_squeeze, "Squeeze")),
    **moves("unsqueeze", _write_unsqueeze, read=reads(_read_unsqueeze, "Unsqueeze")),
    **moves("contiguous", _write_same),
    **moves("clone", _write_same),
    **moves("movedim", _write_movedim, "int", "intlist"),
    **moves("swapaxes", _write_transpose),
    **moves("swapdims", _write_transpose),
    **moves("ravel", _write_flatten),
    **moves("detach", _write_same),
    **moves("expand", _write_expand, read=reads(_read_expand, "Expand")),
    **moves("expand_as", _write_as),
    **moves("broadcast_to", _write_expand),
    **moves("moveaxis", _write_movedim, "int", "intlist"),
    **moves("numpy_T", _write_turned),
    **moves("mT", _write_turned),
    **moves("reshape_as", _write_as),
    **moves("alias", _write_same, read=reads(lambda r, n: n.input(0), "Identity")),
    **moves("lift_fresh_copy", _write_same),
    **moves("slice", _write_slice, "Tensor", read=reads(_read_slice, "Slice")),
    **moves("select", _write_select, "int"),
    **moves("narrow", _write_narrow),
    **moves("chunk", _write_split, more=("aten.unsafe_chunk.default",)),
    **moves("split", _write_split, "Tensor", read=reads(_read_split, "Split")),
    **moves("split_with_sizes", _write_split_with_sizes),
    **moves("tensor_split", _write_split, "sections"),
    **moves("unbind", _write_unbind, "int"),
}
