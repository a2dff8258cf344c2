"""Graphs that are saved node by node. (torch.fx saves their code, and traces it when it is loaded, which some calls do
not survive: those with sizes of inputs in a list, and no tensor.)"""

from __future__ import annotations

import contextlib
import pickle
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.code_names import check_names
from zeropoint.graph.provenance import KEPT


@dataclass(frozen=True)
class _Node:
    """A node, by its name."""

    name: str


@dataclass(frozen=True)
class _Operator:
    """An operator of torch.ops, by its name."""

    namespace: str
    name: str
    overload: str

    def find(self) -> Any:
        return getattr(getattr(getattr(torch.ops, self.namespace), self.name), self.overload)


class _MadeWhenAsked:
    """In the place of `forward`: makes the code of a graph when somebody calls it or looks at it."""

    def __init__(self, graph: fx.GraphModule) -> None:
        self._graph = weakref.ref(graph)

    def __get__(self, instance: fx.GraphModule | None, owner: type[fx.GraphModule]) -> Any:
        graph = self._graph() if instance is None else instance
        assert graph is not None, "the class of a graph module outlived it"
        check_names(graph.graph)
        fx.GraphModule.recompile(graph)  # puts the code in this place
        return owner.forward if instance is None else instance.forward


class Graph(fx.GraphModule):
    """A graph module that can be saved. Its code is made when somebody asks for it, not after every pass."""

    def recompile(self) -> Any:
        internals.keep_specs(self)  # other code of this graph than `forward` reads them, too
        type(self).forward = _MadeWhenAsked(self)  # torch.fx makes a class for each graph module

    @property
    def code(self) -> str:
        if isinstance(vars(type(self)).get("forward"), _MadeWhenAsked):
            check_names(self.graph)
            super().recompile()
        return super().code

    def __reduce__(self) -> Any:
        nodes = [_record(node) for node in self.graph.nodes]
        kept = {k: self.__dict__[k] for k in ("_parameters", "_buffers", "_modules")}
        return _restore, (nodes, pickle.dumps(internals.codegen(self.graph)), kept, self.training)

    def __deepcopy__(self, memo: Any) -> Graph:
        with _leaves_without_warning():
            return super().__deepcopy__(memo)


@contextlib.contextmanager
def _leaves_without_warning() -> Iterator[None]:
    """Silences a FutureWarning of torch 2.13 about LeafSpec, which copying and loading a graph would show."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
        yield


def _record(node: fx.Node) -> tuple[Any, ...]:
    target: Any = node.target
    if internals.is_operator(target):
        target = _Operator(target.namespace, target._schema.name.split("::")[1], target._overloadname)
    args, kwargs = (internals.map_nodes(a, lambda n: _Node(n.name)) for a in (tuple(node.args), dict(node.kwargs)))
    return node.op, node.name, target, args, kwargs, {k: node.meta[k] for k in KEPT if k in node.meta}


def _restore(nodes: list[Any], codegen: bytes, kept: dict[str, Any], training: bool) -> Graph:
    root = nn.Module()
    root.__dict__.update(kept)
    graph = fx.Graph()
    with _leaves_without_warning():
        graph.set_codegen(pickle.loads(codegen))
    made: dict[str, fx.Node] = {}
    for op, name, target, args, kwargs, meta in nodes:
        found = target.find() if isinstance(target, _Operator) else target
        made[name] = graph.create_node(op, found, _linked(args, made), _linked(kwargs, made), name)
        made[name].meta.update(meta)
    return Graph(root, graph).train(training)


def _linked(value: Any, made: dict[str, fx.Node]) -> Any:
    if isinstance(value, _Node):
        return made[value.name]
    if isinstance(value, dict):
        return {k: _linked(v, made) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_linked(v, made) for v in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    return (
        slice(*(_linked(v, made) for v in (value.start, value.stop, value.step))) if isinstance(value, slice) else value
    )
