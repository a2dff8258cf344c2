"""Nodes of an ONNX file that are one operator here: linear layers whose input is rounded when they run.

ONNX has no such layer. `quantize_dynamic` of ONNX Runtime writes DynamicQuantizeLinear, MatMulInteger, and products
with the scales; `export_onnx` writes a scale for each row in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onnx import NodeProto, helper


class _Nodes:
    """Nodes by what they give and who reads it."""

    def __init__(self, nodes: Iterable[NodeProto], known: Mapping[str, Any]) -> None:
        self.known = known
        self.nodes = list(nodes)
        self.makers = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def made_by(self, name: str, kind: str) -> NodeProto | None:
        node = self.makers.get(name)
        return node if node is not None and node.op_type == kind else None

    def only_reader(self, node: NodeProto, kind: str) -> NodeProto | None:
        readers = self.readers.get(node.output[0], [])
        return readers[0] if len(readers) == 1 and readers[0].op_type == kind else None

    def is_number(self, name: str, value: float) -> bool:
        found = self.known.get(name)
        return found is not None and found.size == 1 and float(found.reshape(-1)[0]) == value

    def stored_under(self, name: str) -> str:
        """The stored tensor that a name is, or that it is another shape of."""
        if name in self.known:
            return name
        source = self.made_by(name, "Reshape")
        return source.input[0] if source is not None and source.input[0] in self.known else ""

    def constant(self, node: NodeProto) -> tuple[str, str] | None:
        """Of an operator of two: the operand that is stored, and the other."""
        for stored, other in (tuple(node.input), tuple(node.input)[::-1]):
            if stored in self.known:
                return stored, other
        return None


def join_dynamic(nodes: list[NodeProto], known: Mapping[str, Any], outputs: set[str]) -> list[NodeProto]:
    """The nodes with one of five inputs, ``x, weight, scale, zero point, bias``, for each such layer."""
    all_nodes = _Nodes(nodes, known)
    replaced: dict[str, NodeProto] = {}
    for node in nodes:
        if node.op_type in ("MatMulInteger", "ConvInteger") and node.input[1] in known:
            made = _joined(all_nodes, node, outputs)
            if made is not None:
                replaced[made.output[0]] = made
        if node.op_type == "MatMulIntegerToFloat" and node.input[1] in known:
            made = _with_scales(all_nodes, node)
            if made is not None:
                replaced[made.output[0]] = made
    return [replaced.get(node.output[0], node) for node in nodes]


def _joined(g: _Nodes, product: NodeProto, outputs: set[str]) -> NodeProto | None:
    found = _input(g, product)
    cast = g.only_reader(product, "Cast")
    last = None if cast is None else g.only_reader(cast, "Mul")
    if found is None or cast is None or last is None:
        return None
    x, x_scale, per_token = found
    other = next((name for name in last.input if name != cast.output[0]), "")
    factors = g.made_by(other, "Mul")
    if other == x_scale:  # one after the other
        following = g.only_reader(last, "Mul")
        stored = None if following is None else g.constant(following)
        last = following
    else:
        stored = None if factors is None or x_scale not in factors.input else g.constant(factors)
    if last is None or stored is None:
        return None
    bias, end = "", last
    add = g.only_reader(last, "Add")
    if add is not None and last.output[0] not in outputs:
        given = next((name for name in map(g.stored_under, add.input) if name), None)
        if given is not None and g.known[given].shape in _shapes_of_bias(product, g.known[product.input[1]].shape):
            bias, end = given, add
    shift = product.input[3] if len(product.input) > 3 else ""
    inputs = [x, product.input[1], stored[0], shift, bias]
    if product.op_type == "MatMulInteger":
        return helper.make_node("MatMulInteger", inputs, [end.output[0]], name=product.name, per_token=int(per_token))
    made = helper.make_node("ConvInteger", inputs, [end.output[0]], name=product.name, joined=1)
    made.attribute.extend(product.attribute)
    return made


def _shapes_of_bias(product: NodeProto, weight: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    if product.op_type == "MatMulInteger":
        return ((weight[1],),)
    channels, ones = weight[0], (1,) * (len(weight) - 2)
    return (channels,), (channels, *ones), (1, channels, *ones)


def _with_scales(g: _Nodes, product: NodeProto) -> NodeProto | None:
    """ONNX Runtime's product, which takes the scales: ``a, weight, scale, weight scale, zero point, ..., bias``."""
    a, weight, scale, weight_scale, shift, weight_shift, bias = [*product.input, *[""] * 7][:7]
    source = g.made_by(a, "DynamicQuantizeLinear")
    if source is None or list(source.output) != [a, scale, shift] or weight_scale not in g.known:
        return None
    inputs = [source.input[0], weight, weight_scale, weight_shift, bias]
    return helper.make_node("MatMulInteger", inputs, [product.output[0]], name=product.name, per_token=0)


def _input(g: _Nodes, product: NodeProto) -> tuple[str, str, bool] | None:
    """What is rounded, its scale, and whether each row has one of its own."""
    shift = product.input[2] if len(product.input) > 2 else ""
    whole = g.made_by(product.input[0], "DynamicQuantizeLinear")
    if whole is not None:
        return (whole.input[0], whole.output[1], False) if shift == whole.output[2] else None
    chain = _chain(g, product.input[0], ("Cast", "Add", "Round", "Div"))
    if chain is None or not g.is_number(shift, 128) or not g.is_number(chain[1].input[1], 128):
        return None
    x, scale = chain[3].input
    sizes = _chain(g, scale, ("Max", "Div", "ReduceMax", "Abs"))
    by_row = sizes is not None and g.is_number(sizes[1].input[1], 127) and g.is_number(sizes[2].input[1], -1)
    return (x, scale, True) if by_row and sizes is not None and sizes[3].input[0] == x else None


def _chain(g: _Nodes, name: str, kinds: tuple[str, ...]) -> list[NodeProto] | None:
    """The makers of a value, each of the first input of the one before."""
    made: list[NodeProto] = []
    for kind in kinds:
        node = g.made_by(name, kind)
        if node is None:
            return None
        made.append(node)
        name = node.input[0]
    return made
