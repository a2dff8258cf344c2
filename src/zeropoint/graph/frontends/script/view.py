"""A method of a ScriptModule as a torch.fx graph, so that TorchScript has the passes of graph mode.

Calls of ATen operators that give tensors become calls of the same operators, reads of tensors become ``get_attr``.
Everything else, control flow included, is opaque: a call of `opaque` with a key and the values that the node reads.
Blocks are written out one after the other, in the order in which they stand; the end of a block is an opaque node that
reads its results. The TorchScript nodes are kept beside those of the graph: `write` needs them.
"""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.script.method import Block, Method, Node, add_tensor, operator_of
from zeropoint.graph.frontends.script.scalar_operators import DTYPES
from zeropoint.graph.frontends.script.script_module import SCRIPT_OBSERVER
from zeropoint.graph.passes.insert_observers import OBSERVER
from zeropoint.graph.provenance import Origin
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import Unsized, overload_key

_SHAPES = frozenset(
    ("prim::device", "prim::is_cuda", "aten::is_floating_point", "aten::len", "aten::dim", "aten::size")
)
_NOT_FLOAT = frozenset(
    ("aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge", "aten::logical_and", "aten::logical_or",
     "aten::logical_not", "aten::logical_xor", "aten::argmax", "aten::argmin", "aten::argsort", "aten::nonzero",
     "aten::isnan", "aten::isinf", "aten::isfinite", "aten::bitwise_not", "aten::bitwise_and", "aten::bitwise_or",
     "aten::randint", "aten::randperm", "aten::searchsorted", "aten::bucketize", "aten::any", "aten::all")
)  # fmt: skip
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
_CHOOSING_DTYPE = ("aten::to", "aten::zeros", "aten::ones", "aten::full", "aten::tensor", "aten::type")


def opaque(key: int, *values: Any) -> Any:
    """Stands for a TorchScript node that no pass looks into."""
    raise RuntimeError("a view of TorchScript is not run")


internals.has_effect(opaque)


@dataclass(frozen=True)
class Place(Origin):
    """Where a node came from, with the TorchScript node before which what replaces it is put."""

    anchor: Any = None


class View(fx.GraphModule):
    """The graph of a method, with the TorchScript graph that it was read from."""

    script: Any  # torch._C.Graph
    module: Any  # torch._C.ScriptModule
    read: set[Any]  # the TorchScript nodes that stand in the graph
    tensor_lists: set[str]  # paths of lists of tensors


def view_of(module: Any, method: str, observers: dict[str, nn.Module] | None = None) -> View:
    """The view of a method that was simplified; `observers` are what stands for its observers, by name."""
    return _Viewer(Method(module, module._get_method(method).graph), observers or {}).run()


class _Viewer:
    def __init__(self, method: Method, observers: dict[str, nn.Module]) -> None:
        self.method, self.observers = method, observers
        self.graph = fx.Graph()
        self.read: set[Any] = set()
        self.tensor_lists: set[str] = set()
        self.root = nn.Module()
        self.seen: dict[Any, Any] = {}  # TorchScript value -> node, or a constant
        self.names: Counter[str] = Counter()

    def run(self) -> View:
        body = self.method.body
        for value in body.inputs[1:]:
            node = self.make("placeholder", value.debugName().replace(".", "_"), (), "input", Place("", None))
            self.keep(value, node)
        self.block(body, ())
        self.graph.output(())
        view = View(self.root, self.graph)
        view.script, view.module = self.method.graph, self.method.module
        view.read, view.tensor_lists = self.read, self.tensor_lists
        return view

    def make(self, op: str, target: Any, args: tuple[Any, ...], name: str, place: Place) -> fx.Node:
        number = self.names[name]
        self.names[name] += 1
        node = self.graph.create_node(op, target, args, name=f"{name}_{number}")
        node.meta["origin"] = place
        return node

    def keep(self, value: Any, node: fx.Node, like: Any = None) -> None:
        """Remember that `node` is `value`."""
        self.seen[value] = node
        node.meta["value"] = value
        if value in self.method.written:
            node.meta["written"] = True
        kind = value.type()
        if kind.kind() == "TensorType" or kind.str() in ("List[Tensor]", "Tensor[]"):
            node.meta["val"] = Unsized(torch.int64 if like is not None and _gives_integers(like) else torch.float32)

    def block(self, block: Block, scope: tuple[int, ...]) -> fx.Node:
        """Read the nodes of a block; what is returned stands for its end."""
        for node in block.nodes:
            self.node(node, Place(node.path, None, scope, anchor=node.script))
        end = Node(block.end, block.end.kind(), None, "", ())
        return self.opaque(end, block.outputs, Place("", None, scope, anchor=block.end))

    # ---------------------------------------------------------------------------------------------------- nodes

    def node(self, node: Node, place: Place) -> None:
        kind, inputs = node.kind, node.inputs
        if kind == "prim::Constant":
            self.constant(node)
        elif kind == "prim::GetAttr":
            self.attribute(node, place)
        elif kind == "prim::CallMethod" and self.is_observer(node):
            self.observer(node, place)
        elif kind == "prim::unchecked_cast" and _is_parameter(self.seen.get(inputs[0])):
            self.seen[node.outputs[0]] = self.seen[inputs[0]]
        elif kind == "prim::ListConstruct" and self.is_plain_list(node):
            self.seen[node.outputs[0]] = [self.seen[value] for value in inputs]
            self.read.add(node.script)
        elif kind in ("prim::ListUnpack", "aten::__getitem__") and self.is_unpacked(node):
            self.read.add(node.script)
            source = self.seen[inputs[0]]
            indices = range(len(node.outputs)) if kind == "prim::ListUnpack" else [self.seen[inputs[1]]]
            for index, value in zip(indices, node.outputs):
                self.keep(value, self.make("call_function", operator.getitem, (source, index), "part", place), node)
        elif (target := _functional(node.script, node.target)) is not None:
            self.call(node, target, place)
        else:
            self.opaque(node, inputs, place)

    def constant(self, node: Node) -> None:
        value, (output,) = self.method.constant(node), node.outputs
        if isinstance(value, Tensor) and (value.dim() > 0 or value.is_complex()):
            name = f"constant_{self.names['constant']}"
            self.keep(output, self.tensor(name, value.detach(), Place("", None, anchor=node.script), "constant"))
        else:
            self.seen[output] = value.item() if isinstance(value, Tensor) else value

    def tensor(self, path: str, tensor: Tensor, place: Place, name: str = "attribute") -> fx.Node:
        """A node for a tensor of the model. Until `keep` says otherwise, it is no value by itself, but part of one."""
        add_tensor(self.root, path, tensor)
        made = self.make("get_attr", path, (), name, place)
        made.meta["value"] = None
        return made

    def attribute(self, node: Node, place: Place) -> None:
        (value,) = node.outputs
        path = self.method.path(value)
        if path is None:
            self.opaque(node, node.inputs, place)
            return
        kept = self.method.constant(node)
        if value.type().kind() == "ClassType":
            self.seen[value] = None  # a module: what reads it keeps it
        elif isinstance(kept, Tensor) and not self.method.is_assigned(node) and not self.method.is_written(node):
            self.keep(value, self.tensor(path, kept.detach(), place))
        elif _are_tensors(kept) and not self.method.is_assigned(node):
            self.tensor_lists.add(path)
            self.seen[value] = [self.tensor(f"{path}.{i}", tensor.detach(), place) for i, tensor in enumerate(kept)]
        else:
            self.opaque(node, [], place)

    def is_observer(self, node: Node) -> bool:
        path = self.method.path(node.inputs[0])
        return path is not None and path.rsplit(".", 1)[-1].startswith(SCRIPT_OBSERVER)

    def observer(self, node: Node, place: Place) -> None:
        source = self.seen[node.inputs[1]]
        path = self.method.path(node.inputs[0]) or ""
        if _is_parameter(source) and path not in self.observers:  # a weight, which convert watches again
            self.seen[node.outputs[0]] = source
            self.read.add(node.script)
            return
        target = OBSERVER + path.removeprefix(SCRIPT_OBSERVER)
        if path in self.observers and not hasattr(self.root, target):
            self.root.add_module(target, self.observers[path])
        made = self.graph.create_node("call_module", target, (source,))
        made.meta.update(origin=place, script=node.script)
        self.read.add(node.script)
        self.keep(node.outputs[0], made)

    def is_plain_list(self, node: Node) -> bool:
        """Whether a list is only made to be an argument of operators that do not change it."""
        return all(_functional(use.user, operator_of(use.user)) is not None for use in node.outputs[0].uses())

    def is_unpacked(self, node: Node) -> bool:
        source = self.seen.get(node.inputs[0])
        if not isinstance(source, fx.Node) or source.op != "call_function" or source.target is opaque:
            return False
        return node.kind == "prim::ListUnpack" or isinstance(self.seen.get(node.inputs[1]), int)

    def call(self, node: Node, target: Any, place: Place) -> None:
        args = tuple(self.seen[value] for value in node.inputs)[: len(target._schema.arguments)]
        name = str(target._schema.name).removeprefix("aten::")
        made = self.make("call_function", target, args, name, place)
        made.meta["script"] = node.script
        self.read.add(node.script)
        outputs = node.outputs
        if len(outputs) == 1:
            self.keep(outputs[0], made, node)
            return
        made.meta["val"] = Unsized(torch.float32)
        for index, value in enumerate(outputs):
            if not value.uses():
                continue
            part = self.make("call_function", operator.getitem, (made, index), f"{name}_part", place)
            self.keep(value, part, node if index else None)
            if index and _gives_places(node):
                part.meta["val"] = Unsized(torch.int64)

    def opaque(self, node: Node, inputs: list[Any], place: Place) -> fx.Node:
        ends = []
        for block in node.blocks:
            self.names["block"] += 1
            scope = (*place.scope, self.names["block"])
            for value in block.inputs:
                start = block.nodes[0].script if block.nodes else block.end
                inner = Place(place.path, None, scope, anchor=start)
                self.names["opened"] += 1
                self.keep(value, self.make("call_function", opaque, (self.names["opened"],), "opened", inner))
            ends.append(self.block(block, scope))
        args = tuple(self.seen.get(value) for value in inputs)
        name = "opaque_" + node.kind.split("::")[-1]
        made = self.make("call_function", opaque, (self.names[name], *args), name, place)
        made.meta["script"] = node.script
        self.read.add(node.script)
        if node.kind in _SHAPES:
            made.meta["reads_shape"] = True
        outputs = node.outputs
        for index, value in enumerate(outputs):
            found = made
            if len(outputs) > 1:
                found = self.make("call_function", operator.getitem, (made, index), f"{name}_part", place)
            self.keep(value, found, node)
            if node.kind == "prim::If" and "val" in found.meta:
                found.meta["ends"] = [(end, 1 + index) for end in ends]
                for end in ends:
                    end.meta.setdefault("joins", []).append((1 + index, found))
        return made


def _are_tensors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, Tensor) for part in value)


def _is_parameter(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "get_attr"


def _functional(node: Any, target: Any) -> Any:
    """The operator that a node calls, if it gives tensors and changes nothing, and is ATen's or has a record."""
    if target is None:
        return None
    if target.namespace != "aten":
        return target if overload_key(target) in BY_ATEN else None
    packet = target.overloadpacket
    name = packet.__name__
    if target._schema.is_mutable and name not in ("batch_norm", "instance_norm"):
        return None
    if "upsample_" in name and target is packet.default and hasattr(packet, "vec"):
        target = _given_size(node, packet.vec) or target
    gives = [str(result.type) for result in target._schema.returns]
    return target if gives and all(kind in ("Tensor", "List[Tensor]") for kind in gives) else None


def _given_size(node: Any, vec: Any) -> Any:
    """`vec`, if a node calls the other spelling of it in a way that both understand: with a size and no factors."""
    factors = list(node.inputs())[len(vec._schema.arguments) - 1 :]
    return vec if all(value.type().kind() == "NoneType" for value in factors) else None


def _gives_places(node: Node) -> bool:
    """Whether the second result of a node is where the first was found."""
    return node.kind in ("aten::max", "aten::min", "aten::topk", "aten::sort", "aten::kthvalue", "aten::median")


def _gives_integers(node: Node) -> bool:
    if node.kind in _NOT_FLOAT:
        return True
    if node.kind == "aten::arange":
        return all(value.type().kind() != "FloatType" for value in node.inputs)
    if node.kind not in _CHOOSING_DTYPE or node.script.schema() == "(no schema)":
        return False
    named = zip(internals.parse_schema(node.script.schema()).arguments, node.inputs)
    chosen = [value.toIValue() for argument, value in named if argument.name == "dtype" and _is_known(value)]
    return any(DTYPES.get(number, torch.float32) in _INTEGERS for number in chosen)


def _is_known(value: Any) -> bool:
    return value.node().kind() == "prim::Constant" and value.type().kind() == "IntType"
