"""Quantized graphs for `torch.jit.script`: what torch.export writes, as TorchScript reads it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.shape_guards import OPERATIONS, Place
from zeropoint.graph.passes.input_checks import Sizes


def scriptable(model: fx.GraphModule) -> nn.Module:
    """The same graph in calls that TorchScript can compile, on the same parameters.

    Raises:
        NotImplementedError: if inputs or results are nested, as TorchScript wants to know their types; and if the model
            asked about sizes when it was captured, which TorchScript would not ask again.
    """
    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    checks: dict[str, nn.Module] = {}
    for node in model.graph.nodes:
        if node.op == "output":
            made = [values[n] for n in node.args[0]]
            graph.output(_unnested(model, made))
        elif node.op == "call_module" and isinstance(sizes := model.get_submodule(str(node.target)), Sizes):
            tensors = [values[n] for n, expected in zip(node.args, sizes.expected) if isinstance(expected, list)]
            checks[str(node.target)] = _Checks(sizes)
            graph.call_module(str(node.target), (tensors,))
        else:
            values[node] = graph.node_copy(node, lambda n: values[n])
            if internals.is_operator(values[node].target):
                values[node].target = _without_overload(values[node].target)
    written = fx.GraphModule(model, graph)
    for path, module in checks.items():
        written.set_submodule(path, module)
    return written


class _Checks(nn.Module):
    """`Sizes` as TorchScript reads it: sizes that are fixed, sizes that are equal, and conditions."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        shaped = [(n, e) for n, e in zip(sizes.names, sizes.expected) if isinstance(e, list)]
        fixed = [[size if isinstance(size, int) else -1 for size in expected] for _, expected in shaped]
        places: dict[str, list[int]] = {}
        equal: list[list[int]] = []
        for i, (_, expected) in enumerate(shaped):
            for axis, size in enumerate(expected):
                if isinstance(size, str):
                    first = places.setdefault(size, [i, axis])
                    equal += [[*first, i, axis]] if first != [i, axis] else []
        # TorchScript wants the types of lists that may be empty.
        self.names: Any = torch.jit.Attribute([name for name, _ in shaped], list[str])
        self.fixed: Any = torch.jit.Attribute(fixed, list[list[int]])
        self.equal: Any = torch.jit.Attribute(equal, list[list[int]])
        numbers = [sum(isinstance(e, list) for e in sizes.expected[:i]) for i in range(len(sizes.expected))]
        codes = [_postfix(condition.value, numbers) for condition in sizes.conditions]
        self.codes: Any = torch.jit.Attribute(codes, list[list[int]])
        self.lows: Any = torch.jit.Attribute([condition.low for condition in sizes.conditions], list[int])
        self.exact: Any = torch.jit.Attribute([condition.exact for condition in sizes.conditions], list[bool])
        self.refusals: Any = torch.jit.Attribute([condition.refusal for condition in sizes.conditions], list[str])

    def forward(self, inputs: list[Tensor]) -> None:
        for i in range(len(inputs)):
            x, fixed = inputs[i], self.fixed[i]
            if x.dim() != len(fixed):
                raise ValueError(
                    f"the model was captured with {self.names[i]} of {len(fixed)} dimensions, got {x.dim()}"
                )
            for axis in range(len(fixed)):
                if fixed[axis] >= 0 and x.size(axis) != fixed[axis]:
                    raise ValueError(
                        f"{self.names[i]} has size {x.size(axis)} along axis {axis}, but the model needs {fixed[axis]}"
                    )
        for pair in self.equal:
            wanted, found = inputs[pair[0]].size(pair[1]), inputs[pair[2]].size(pair[3])
            if found != wanted:
                raise ValueError(
                    f"{self.names[pair[2]]} has size {found} along axis {pair[3]}, but the model needs {wanted} there"
                )
        for i in range(len(self.codes)):
            value, low = self.value(self.codes[i], inputs), self.lows[i]
            if value < low or (self.exact[i] and value != low):
                raise ValueError(self.refusals[i])

    def value(self, code: list[int], inputs: list[Tensor]) -> int:
        """The number that a condition is about."""
        stack: list[int] = []
        for at in range(0, len(code), 3):
            kind, first, second = code[at], code[at + 1], code[at + 2]
            if kind == 0:
                stack.append(first)
            elif kind == 1:
                stack.append(inputs[first].size(second))
            else:
                b, a = stack.pop(), stack.pop()
                if kind == 2:
                    stack.append(a + b)
                elif kind == 3:
                    stack.append(a * b)
                elif kind == 4:
                    stack.append(a // b)
                else:
                    stack.append(a % b)
        return stack[0]


def _postfix(value: Any, numbers: list[int]) -> list[int]:
    """The value of a condition as threes of numbers: (0, number, -), (1, tensor, axis), or (operation, -, -)."""
    if isinstance(value, Place):
        return [1, numbers[value.input], value.axis]
    if isinstance(value, tuple):
        operation, a, b = value
        return [*_postfix(a, numbers), *_postfix(b, numbers), 2 + list(OPERATIONS).index(operation), 0, 0]
    return [0, value, 0]


def _without_overload(target: Any) -> Any:
    """TorchScript finds the overload by the arguments."""
    if target is torch.ops.aten.sym_size.int:
        return torch.ops.aten.size
    return getattr(getattr(torch.ops, target.namespace), target._schema.name.split("::")[1])


def _unnested(model: fx.GraphModule, results: list[fx.Node]) -> Any:
    """What the graph returns: one result, or a tuple."""
    inputs = [n for n in model.graph.nodes if n.op == "placeholder"]
    numbers = tuple(range(len(inputs)))
    if internals.input_nesting(model.graph, len(inputs)) not in (None, (numbers, {})):
        raise NotImplementedError(
            "torch.jit.script: the model takes nested or named inputs; use positional tensors, or torch.jit.trace"
        )
    nested = internals.output_nesting(model.graph, len(results))
    if nested == 0:
        return results[0]
    if nested != tuple(range(len(results))):
        raise NotImplementedError(
            f"torch.jit.script: the model returns {type(nested).__name__}; only a tensor or a tuple of tensors can "
            "be scripted: use torch.jit.trace"
        )
    return tuple(results)
