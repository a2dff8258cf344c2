"""Operators that move, repeat, choose or sort values: integers go through them as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from zeropoint.operators.float_forms import by_operator
from zeropoint.operators.record import Operator, Output
from zeropoint.operators.values import Scale

__all__ = ["RECORDS"]

aten, ours = torch.ops.aten, torch.ops.zeropoint


def _moves(name: str, *overloads: str, modules: tuple[type[nn.Module], ...] = (), reshapes: bool = False) -> Operator:
    """Calls that give values of their input, as ``aten::<name>`` with these overloads does."""
    aten_names = tuple(f"{name}.{overload}" for overload in overloads or ("default",))
    return Operator(name, aten_names, modules, output=Output.INPUT, reshapes=reshapes)


def _reshapes(name: str, *overloads: str, modules: tuple[type[nn.Module], ...] = ()) -> Operator:
    return _moves(name, *overloads, modules=modules, reshapes=True)


def _top(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    """Integers are often equal, and topk leaves open which of equal values it takes."""
    return g.call(ours.top.default, q, a["k"], a["dim"], a["largest"])


def _pad(g: Any, q: fx.Node, s: Scale, a: Any, node: fx.Node) -> fx.Node:
    if a.get("mode", "constant") != "constant":  # with values that there are
        return g.call(aten.pad.default, q, a["pad"], a["mode"])
    return g.call(aten.constant_pad_nd.default, q, a["pad"], s.zero_point)


def _pads_numbers(a: dict[str, Any]) -> str:
    pads_zeros = a.get("mode", "constant") != "constant" or not a["value"]
    return "" if pads_zeros else "pads with a number other than zero"


RECORDS = (
    _reshapes("reshape"),
    _reshapes("flatten", "using_ints", modules=(nn.Flatten,)),
    _reshapes("unflatten", "int", modules=(nn.Unflatten,)),
    _reshapes("transpose", "int"),
    _reshapes("permute"),
    _reshapes("t"),
    _reshapes("squeeze", "default", "dim", "dims"),
    _reshapes("unsqueeze"),
    _reshapes("contiguous"),
    _reshapes("clone"),
    _reshapes("movedim", "int", "intlist"),
    _reshapes("swapaxes"),
    _reshapes("swapdims"),
    _reshapes("ravel"),
    _reshapes("detach"),
    _moves("expand"),
    _moves("expand_as"),
    _moves("slice", "Tensor"),
    _moves("select", "int"),
    _moves("index_select"),
    _moves("narrow"),
    _moves("chunk"),
    _moves("split", "Tensor"),
    _moves("split_with_sizes"),
    _moves("unbind", "int"),
    _moves("flip"),
    _moves("roll"),
    _moves("repeat"),
    _moves("moveaxis", "int", "intlist"),
    _moves("tile"),
    _moves("numpy_T"),
    _moves("mT"),
    _moves("sort", "default", "stable"),
    _moves("max", "dim", "default"),
    _moves("min", "dim", "default"),
    _moves("amax"),
    _moves("amin"),
    _moves("pixel_shuffle", modules=(nn.PixelShuffle,)),
    _moves("pixel_unshuffle", modules=(nn.PixelUnshuffle,)),
    _moves("channel_shuffle", modules=(nn.ChannelShuffle,)),
    _moves("alias", modules=(nn.Identity,)),
    _moves("lift_fresh_copy"),
    _moves("reshape_as"),
    _moves("index", "Tensor"),
    _moves("gather"),
    _moves("repeat_interleave", "self_int"),
    _moves("tensor_split", "sections"),
    _moves("rot90"),
    _moves("broadcast_to"),
    Operator(
        "topk", ("topk.default",), output=Output.INPUT, integers=_top,
        float_form=by_operator("top", "self", "k", "dim", "largest", gives_floats=False),
    ),
    Operator(
        "pad", ("pad.default", "constant_pad_nd.default"), output=Output.INPUT, integers=_pad, refuses=_pads_numbers
    ),
)  # fmt: skip
