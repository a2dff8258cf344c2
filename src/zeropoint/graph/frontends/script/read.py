"""A method of a ScriptModule as a torch.fx graph, so that both views of graph mode have the same passes.

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

from zeropoint.graph.frontends.export import Origin
from zeropoint.graph.frontends.script.in_place import written
from zeropoint.graph.frontends.script.inline import PATH, SCRIPT_OBSERVER, at_path, changed_attributes, path_of
from zeropoint.graph.passes.insert_observers import OBSERVER
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import Unsized

__all__ = ["Place", "View", "opaque", "read"]

_SHAPES = frozenset(
    ("prim::device", "prim::is_cuda", "aten::is_floating_point", "aten::len", "aten::dim", "aten::size")
)
_NOT_FLOAT = frozenset(
    ("aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge", "aten::logical_and", "aten::logical_or",
     "aten::logical_not", "aten::logical_xor", "aten::argmax", "aten::argmin", "aten::argsort", "aten::nonzero",
     "aten::isnan", "aten::isinf", "aten::isfinite", "aten::bitwise_not", "aten::bitwise_and", "aten::bitwise_or",
     "aten::randint", "aten::randperm", "aten::searchsorted", "aten::bucketize", "aten::any", "aten::all")
)  # fmt: skip
_INTEGER_TYPES = (0, 1, 2, 3, 4, 11)  # ScalarType numbers: bytes to longs, and bool


def opaque(key: int, *values: Any) -> Any:
    """Stands for a TorchScript node that no pass looks into."""
    raise RuntimeError("a view of TorchScript is not run")


fx.node.has_side_effect(opaque)


@dataclass(frozen=True)
class Place(Origin):
    """Where a node came from, with the TorchScript node before which what replaces it is put."""

    anchor: Any = None


class View(fx.GraphModule):
    """The graph of a method, with the TorchScript graph that it was read from."""

    script: Any  # torch._C.Graph
    module: Any  # torch._C.ScriptModule
    read: set[Any]  # the TorchScript nodes that stand in the graph
    lists: set[str]  # paths of lists of tensors


def read(module: Any, method: str, observers: dict[str, nn.Module] | None = None) -> View:
    """The view of a method that was simplified; `observers` are what stands for its observers, by name."""
    return _Reader(module, module._get_method(method).graph, observers or {}).run()


class _Reader:
    def __init__(self, module: Any, script: Any, observers: dict[str, nn.Module]) -> None:
        self.module, self.script, self.observers = module, script, observers
        self.graph = fx.Graph()
        self.read: set[Any] = set()
        self.lists: set[str] = set()
        self.root = nn.Module()
        self.seen: dict[Any, Any] = {}  # TorchScript value -> node, or a constant
        self.written = written(script)
        self.names: Counter[str] = Counter()
        self.changed = changed_attributes(module)

    def run(self) -> View:
        for value in list(self.script.inputs())[1:]:
            node = self.make("placeholder", value.debugName().replace(".", "_"), (), "input", Place("", None))
            self.keep(value, node)
        self.block(self.script, ())
        self.graph.output(())
        view = View(self.root, self.graph)
        view.script, view.module, view.read, view.lists = self.script, self.module, self.read, self.lists
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
        if value in self.written:
            node.meta["written"] = True
        kind = value.type()
        if kind.kind() == "TensorType" or kind.str() in ("List[Tensor]", "Tensor[]"):
            node.meta["val"] = Unsized(torch.int64 if like is not None and _gives_integers(like) else torch.float32)

    def block(self, block: Any, scope: tuple[int, ...]) -> fx.Node:
        """Read the nodes of a block; what is returned stands for its end."""
        end = block.return_node() if isinstance(block, torch._C.Graph) else block.returnNode()
        for node in list(block.nodes()):
            place = Place(node.s(PATH) if node.hasAttribute(PATH) else "", None, scope, node)
            self.node(node, place)
        return self.opaque(end, list(block.outputs()), Place("", None, scope, end))

    # ---------------------------------------------------------------------------------------------------- nodes

    def node(self, node: Any, place: Place) -> None:
        kind = node.kind()
        if kind == "prim::Constant":
            self.constant(node)
        elif kind == "prim::GetAttr":
            self.attribute(node, place)
        elif kind == "prim::CallMethod" and self.is_observer(node):
            self.observer(node, place)
        elif kind == "prim::unchecked_cast" and _is_parameter(self.seen.get(node.inputsAt(0))):
            self.seen[node.output()] = self.seen[node.inputsAt(0)]
        elif kind == "prim::ListConstruct" and self.is_plain_list(node):
            self.seen[node.output()] = [self.seen[value] for value in node.inputs()]
            self.read.add(node)
        elif kind in ("prim::ListUnpack", "aten::__getitem__") and self.is_unpacked(node):
            self.read.add(node)
            source = self.seen[node.inputsAt(0)]
            places = range(node.outputsSize()) if kind == "prim::ListUnpack" else [self.seen[node.inputsAt(1)]]
            for index, value in zip(places, node.outputs()):
                self.keep(value, self.make("call_function", operator.getitem, (source, index), "part", place), node)
        elif (target := _target(node)) is not None:
            self.call(node, target, place)
        else:
            self.opaque(node, list(node.inputs()), place)

    def constant(self, node: Any) -> None:
        value = node.output().toIValue() if node.output().type().kind() != "FunctionType" else None
        if isinstance(value, Tensor):
            if value.dim() == 0 and not value.is_complex():
                value = value.item()
            else:
                name = f"constant_{self.names['constant']}"
                self.keep(node.output(), self.tensor(name, value.detach(), Place("", None, (), node), "constant"))
                return
        self.seen[node.output()] = value

    def tensor(self, path: str, tensor: Tensor, place: Place, name: str = "attribute") -> fx.Node:
        """A node for a tensor of the model. Until `keep` says otherwise, it is no value by itself, but part of one."""
        owner = self.root
        *parents, last = path.split(".")
        for part in parents:
            if not hasattr(owner, part):
                owner.add_module(part, nn.Module())
            owner = owner.get_submodule(part)
        if not hasattr(owner, last):
            owner.register_buffer(last, tensor)
        made = self.make("get_attr", path, (), name, place)
        made.meta["value"] = None
        return made

    def is_changed(self, node: Any) -> bool:
        return (node.inputsAt(0).type().str(), node.s("name")) in self.changed

    def attribute(self, node: Any, place: Place) -> None:
        value = node.output()
        path = path_of(self.script, value)
        if path is None:
            self.opaque(node, list(node.inputs()), place)
        elif isinstance(at_path(self.module, path), Tensor):
            if self.is_changed(node) or value in self.written:
                self.opaque(node, [], place)
            else:
                self.keep(value, self.tensor(path, at_path(self.module, path).detach(), place))
        elif _are_tensors(kept := at_path(self.module, path)) and not self.is_changed(node):
            self.lists.add(path)
            self.seen[value] = [self.tensor(f"{path}.{i}", tensor.detach(), place) for i, tensor in enumerate(kept)]
        elif value.type().kind() == "ClassType":
            self.seen[value] = None  # a module: what reads it keeps it
        else:
            self.opaque(node, [], place)

    def is_observer(self, node: Any) -> bool:
        path = path_of(self.script, node.inputsAt(0))
        return path is not None and path.rsplit(".", 1)[-1].startswith(SCRIPT_OBSERVER)

    def observer(self, node: Any, place: Place) -> None:
        source = self.seen[node.inputsAt(1)]
        path = path_of(self.script, node.inputsAt(0)) or ""
        if _is_parameter(source) and path not in self.observers:  # a weight, which convert watches again
            self.seen[node.output()] = source
            self.read.add(node)
            return
        target = OBSERVER + path.removeprefix(SCRIPT_OBSERVER)
        if path in self.observers and not hasattr(self.root, target):
            self.root.add_module(target, self.observers[path])
        made = self.graph.create_node("call_module", target, (source,))
        made.meta.update(origin=place, script=node)
        self.read.add(node)
        self.keep(node.output(), made)

    def is_plain_list(self, node: Any) -> bool:
        """Whether a list is only made to be an argument of operators that do not change it."""
        return all(_target(use.user) is not None for use in node.output().uses())

    def is_unpacked(self, node: Any) -> bool:
        source = self.seen.get(node.inputsAt(0))
        if not isinstance(source, fx.Node) or source.op != "call_function" or source.target is opaque:
            return False
        return node.kind() == "prim::ListUnpack" or isinstance(self.seen.get(node.inputsAt(1)), int)

    def call(self, node: Any, target: Any, place: Place) -> None:
        args = tuple(self.seen[value] for value in node.inputs())[: len(target._schema.arguments)]
        name = str(target._schema.name).removeprefix("aten::")
        made = self.make("call_function", target, args, name, place)
        made.meta["script"] = node
        self.read.add(node)
        outputs = list(node.outputs())
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

    def opaque(self, node: Any, inputs: list[Any], place: Place) -> fx.Node:
        ends = []
        for block in node.blocks():
            self.names["block"] += 1
            scope = (*place.scope, self.names["block"])
            for value in block.inputs():
                start = next(iter(block.nodes()), block.returnNode())
                inner = Place(place.path, None, scope, start)
                self.names["opened"] += 1
                self.keep(value, self.make("call_function", opaque, (self.names["opened"],), "opened", inner))
            ends.append(self.block(block, scope))
        args = tuple(self.seen.get(value) for value in inputs)
        name = "opaque_" + node.kind().split("::")[-1]
        made = self.make("call_function", opaque, (self.names[name], *args), name, place)
        made.meta["script"] = node
        self.read.add(node)
        if node.kind() in _SHAPES:
            made.meta["reads_shape"] = True
        outputs = list(node.outputs())
        for index, value in enumerate(outputs):
            found = made
            if len(outputs) > 1:
                found = self.make("call_function", operator.getitem, (made, index), f"{name}_part", place)
            self.keep(value, found, node)
            if node.kind() == "prim::If" and "val" in found.meta:
                found.meta["ends"] = [(end, 1 + index) for end in ends]
                for end in ends:
                    end.meta.setdefault("joins", []).append((1 + index, found))
        return made


def _are_tensors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, Tensor) for part in value)


def _is_parameter(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "get_attr"


def _target(node: Any) -> Any:
    """The operator that a node calls, if it is one of ATen's that gives tensors and changes nothing."""
    text = node.schema()
    if text != "(no schema)" and not text.startswith("aten::"):
        return _registered(text)
    if text == "(no schema)":
        return None
    packet, _, overload = text.split("(")[0].removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    if found is None or (found._schema.is_mutable and packet not in ("batch_norm", "instance_norm")):
        return None
    if "upsample_" in packet and not overload and hasattr(getattr(torch.ops.aten, packet), "vec"):
        found = _given_size(node, getattr(torch.ops.aten, packet).vec) or found
    gives = [str(result.type) for result in found._schema.returns]
    return found if gives and all(kind in ("Tensor", "List[Tensor]") for kind in gives) else None


def _registered(schema: str) -> Any:
    """An operator of another namespace that has a record."""
    namespace, _, name = schema.split("(")[0].partition("::")
    packet, _, overload = name.partition(".")
    if f"{namespace}.{packet}.{overload or 'default'}" not in BY_ATEN:
        return None
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")


def _given_size(node: Any, vec: Any) -> Any:
    """`vec`, if a node calls the other spelling of it in a way that both understand: with a size and no factors."""
    factors = list(node.inputs())[len(vec._schema.arguments) - 1 :]
    return vec if all(value.type().kind() == "NoneType" for value in factors) else None


def _gives_places(node: Any) -> bool:
    """Whether the second result of a node is where the first was found."""
    return node.kind() in ("aten::max", "aten::min", "aten::topk", "aten::sort", "aten::kthvalue", "aten::median")


def _gives_integers(node: Any) -> bool:
    if node.kind() in _NOT_FLOAT:
        return True
    for value in node.inputs():
        if value.node().kind() == "prim::Constant" and node.kind() in (
            "aten::to",
            "aten::zeros",
            "aten::ones",
            "aten::full",
            "aten::tensor",
            "aten::type",
        ):
            constant = value.toIValue() if value.type().kind() == "IntType" else None
            index = list(node.inputs()).index(value)
            named = _schema_names(node)
            if constant in _INTEGER_TYPES and index < len(named) and named[index] == "dtype":
                return True
    return node.kind() == "aten::arange" and all(v.type().kind() != "FloatType" for v in node.inputs())


def _schema_names(node: Any) -> list[str]:
    text = node.schema()
    return [] if text == "(no schema)" else [a.name for a in torch._C.parse_schema(text).arguments]
