"""From a program back to a quantized graph: what `export_onnx` writes files of programs from.

Fused steps are split into those that they stand for (`fusion.split`), and every step becomes the call that emitted it,
by `restores` of its operator's record. The graph gives the bytes of the program.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor, fx, nn

from zeropoint.compiler.errors import Unsupported
from zeropoint.compiler.fusion import split
from zeropoint.compiler.program_builder import Step, fresh_name
from zeropoint.compiler.sizes import RESTORED_SIZES
from zeropoint.graph.code_names import plain
from zeropoint.graph.passes.input_checks import Sizes
from zeropoint.operators import RESTORES
from zeropoint.operators.steps import dtype_of
from zeropoint.runtime import Program

_FOLLOWING = {"group_size", "inputs", "spatial", "types", "weight_dtype"}  # attributes that the tensors tell, too


def restore(program: Program) -> tuple[fx.GraphModule, tuple[Tensor, ...]]:
    """A program as a quantized graph, and inputs of the sizes for which it was compiled.

    The graph takes the inputs of the program one by one, and gives its outputs, a tuple if there are several.

    Raises:
        Unsupported: with all kinds of steps that are no operator of graphs; for a program with state.

    Example:
        >>> import zeropoint
        >>> layers, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval(), torch.ones(2, 4)
        >>> program = zeropoint.compile(zeropoint.to_int8(layers, (x,), [x], progress=False), (x,))
        >>> graph, (zeros,) = restore(program)
        >>> torch.equal(graph(x), program(x)), tuple(zeros.shape)
        (True, (2, 4))
    """
    data = program._native.data()
    (length,) = struct.unpack("<Q", data[:8])
    described = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["zeropoint.program"])
    if described.get("state"):
        names = ", ".join(state["name"] for state in described["state"])
        raise Unsupported(f"restore: the program has state ({names}), which a graph cannot have")
    with torch.no_grad():
        return _Restored(described, load(data)).run()


class _Attributes(dict[str, Any]):
    """Attributes of a step, and which of them were read: what is not would be lost."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self._read = set(_FOLLOWING)

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, default)

    def unread(self) -> list[str]:
        return [f"{name} = {value!r}" for name, value in self.items() if name not in self._read and value]


class _Restored:
    """A graph while it is made, step by step: the `GraphBuilder` of the records."""

    def __init__(self, program: dict[str, Any], constants: dict[str, Tensor]) -> None:
        self.program, self.constants = program, constants
        self.root, self.graph = nn.Module(), fx.Graph()
        self.values: dict[str, Any] = {}
        self.found: dict[fx.Node, Any] = {}
        self.step: Step | None = None
        self._names = {i["name"] for i in program["inputs"]} | set(constants)
        self._names |= {name for step in program["steps"] for name in step["outputs"]}
        self._kept: dict[tuple[Any, ...], fx.Node] = {}

    def run(self) -> tuple[fx.GraphModule, tuple[Tensor, ...]]:
        given = [Step(**step) for step in self.program["steps"] if step["op"] != "require"]
        steps = split(given, lambda name: fresh_name(name, self._names))
        lost = Counter(step.op for step in steps if step.op not in RESTORES and step.op not in RESTORED_SIZES)
        if lost:
            shown = ", ".join(f"{name} ({count} x)" for name, count in lost.most_common())
            raise Unsupported(f"restore: {len(lost)} kinds of steps have no graph operator: {shown}")
        example = tuple(self._input(given) for given in self.program["inputs"])
        self._check_sizes()
        for step in steps:
            attributes = _Attributes(step.attributes)
            self.step = replace(step, attributes=attributes)
            made = (RESTORES.get(step.op) or RESTORED_SIZES[step.op])(self, self.step)
            if unread := attributes.unread():
                raise self.unsupported(f"graph operators have no counterpart for {', '.join(unread)}")
            self.values.update(zip(step.outputs, made if isinstance(made, list) else [made]))
        results = [self.tensor(name) for name in self.program["outputs"]]
        self.graph.output(results[0] if len(results) == 1 else tuple(results))
        return fx.GraphModule(self.root, self.graph, "Program"), example

    def _input(self, given: dict[str, Any]) -> Tensor:
        taken = {node.target for node in self.graph.nodes}
        node = self.graph.placeholder(fresh_name(plain(given["name"]), taken))
        self.values[given["name"]] = node
        self.found[node] = torch.zeros(given["example"], dtype=dtype_of(given["dtype"]))
        return self.found[node]

    def _check_sizes(self) -> None:
        """What the program says about the sizes of its inputs; what else it requires of them is not checked."""
        inputs = self.program["inputs"]
        if inputs:
            names = [str(self.values[i["name"]].target) for i in inputs]
            self.root.add_module("_sizes", Sizes(names, [i["shape"] for i in inputs]))
            self.graph.call_module("_sizes", tuple(self.values[i["name"]] for i in inputs))

    # -------------------------------------------------------------------------------------------- for the records

    def call(self, target: Any, *args: Any, **named: Any) -> fx.Node:
        node = self.graph.call_function(target, args, named)
        given = fx.map_arg((args, named), lambda n: self.found[n])
        self.found[node] = target(*given[0], **given[1])
        return node

    def tensor(self, name: str | None) -> fx.Node | None:
        if name is None:
            return None
        if name not in self.values:
            self.values[name] = self.stored(name, self.constants[name])
        node: fx.Node = self.values[name]
        return node

    def constant(self, name: str | None) -> Tensor | None:
        if name is not None and name not in self.constants:
            raise self.unsupported(f"{name!r} is not a constant")
        return None if name is None else self.constants[name]

    def stored(self, name: str, value: Tensor) -> fx.Node:
        value = value.contiguous()
        key = (name, value.dtype, tuple(value.shape), hashlib.sha256(value.numpy().tobytes()).digest())
        if key not in self._kept:
            place = f"t{len(self._kept)}_{plain(name)}"
            self.root.register_buffer(place, value)
            self._kept[key] = self.graph.get_attr(place)
            self.found[self._kept[key]] = value
        return self._kept[key]

    def size(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.size(part) for part in value]
        return self.values[value] if isinstance(value, str) else value

    def shape(self, node: Any) -> tuple[int, ...]:
        return tuple(self.found[node].shape)

    def dtype(self, node: Any) -> torch.dtype:
        dtype: torch.dtype = self.found[node].dtype
        return dtype

    def unsupported(self, why: str) -> Unsupported:
        assert self.step is not None
        return Unsupported(f"restore: step {self.step.op}: {why}")
