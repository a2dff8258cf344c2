"""The backend of ``torch.compile(model, backend="zeropoint")``: graphs that PyTorch captures run as int8 programs.

PyTorch gives a graph whose inputs are those of the model and all its weights. Weights become constants of the program;
each call compares their versions, so that a model that was trained or loaded anew in between is quantized anew.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import Dim

from zeropoint.compiler import Program, compile
from zeropoint.graph.to_int8 import to_int8

_LOG = logging.getLogger("zeropoint")
_STORED = re.compile(r"\._(parameters|buffers)\[")  # in the name that PyTorch has for a weight of the model
_REFUSALS = (ValueError, TypeError, NotImplementedError, RuntimeError)
_MODES = ("dynamic", "static", "weight_only")


@dataclass
class Statistics:
    """What became of the graphs that PyTorch gave to the backend since the process began.

    Args:
        graphs: that PyTorch gave: one for each part between graph breaks, and for each set of guards.
        int8: programs with int8 operators.
        float32: programs without any, of graphs in which nothing can be quantized.
        left_to_torch: graphs that PyTorch runs, because programs lack an operator or the graph writes to its inputs.
        recompiled: programs that were made again, because the weights changed or the sizes did not fit.
    """

    graphs: int = 0
    int8: int = 0
    float32: int = 0
    left_to_torch: int = 0
    recompiled: int = 0


_STATISTICS = Statistics()


def statistics() -> Statistics:
    """The counts of this process; they go on counting."""
    return _STATISTICS


def backend(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one graph of `torch.compile`.

    Args:
        mode: not taken: it is for inductor.
        options: ``{"mode": "dynamic"}`` (the default), "static" or "weight_only", as for `zeropoint.to_int8`; for
            "static" also ``"calibration"``: the number of calls, 8 by default, that run in float first and give the
            ranges of activations.
    """
    if mode is not None:
        raise ValueError(f'backend "zeropoint": mode={mode!r} is for inductor; use options={{"mode": "static"}}')
    options = dict(options or {})
    how, calls = options.pop("mode", "dynamic"), options.pop("calibration", 8)
    if options:
        raise ValueError(f'backend "zeropoint": unknown options {sorted(options)}; it takes "mode" and "calibration"')
    if how not in _MODES:
        raise ValueError(f'backend "zeropoint": mode must be one of {", ".join(_MODES)}, got {how!r}')
    if not isinstance(calls, int) or calls < 1:
        raise ValueError(f'backend "zeropoint": calibration is a number of calls, at least 1, got {calls!r}')
    _STATISTICS.graphs += 1
    return _CompiledGraph(graph, how, calls if how == "static" else 1)


class _CompiledGraph:
    """A graph that runs in float until it has seen enough, then as a program."""

    def __init__(self, graph: fx.GraphModule, mode: str, calls: int) -> None:
        self._float, self._mode, self._calls = graph, mode, calls
        holders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._stored = [i for i, node in enumerate(holders) if _is_stored(node)]
        self._inputs = [
            i for i, node in enumerate(holders) if i not in self._stored and _is_tensor(node)
        ]  # the others are sizes, which tensors have
        self._free = tuple(_free_axes(holders[i]) for i in self._inputs)
        self._seen: list[tuple[Tensor, ...]] = []
        self._program: Program | None = None
        self._versions: list[tuple[int, int]] | None = None
        self._is_left = False
        self._has_warned = False

    def __call__(self, *args: Any) -> Any:
        inputs = tuple(args[i] for i in self._inputs)
        if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args):
            self._warn("it computes gradients; use torch.no_grad() or torch.inference_mode() for int8")
            return self._float(*args)
        if self._is_left:
            return self._float(*args)
        if self._program is not None and self._versions == self._versions_of(args):
            try:
                return self._program(*inputs)
            except ValueError as error:  # a size that the captured graph depends on
                _LOG.info("torch.compile: a program is made again: %s", error)
        if self._program is not None:
            _STATISTICS.recompiled += 1
            self._program, self._seen = None, []
        return self._observed(args, inputs)

    def _observed(self, args: tuple[Any, ...], inputs: tuple[Tensor, ...]) -> Any:
        """The result in float; behind the last call that is to be seen, the program is there."""
        kept = tuple(x.detach().clone() for x in inputs)
        before = [x._version if isinstance(x, Tensor) and not x.is_inference() else 0 for x in args]
        result = self._float(*args)
        if before != [x._version if isinstance(x, Tensor) and not x.is_inference() else 0 for x in args]:
            self._leave("it writes to its inputs or buffers")
            return result
        self._seen.append(kept)
        if len(self._seen) < self._calls:
            return result
        self._make(args)
        self._seen = []
        return result if self._mode == "static" or self._program is None else self._program(*inputs)

    def _make(self, args: tuple[Any, ...]) -> None:
        self._versions = self._versions_of(args)
        model = self._closed(args)
        example = self._seen[0]
        shapes = tuple(dict.fromkeys(axes, Dim.AUTO) for axes in self._free)
        calibration = self._seen if self._mode == "static" else None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                quantized = to_int8(model, example, calibration, mode=self._mode, progress=False, dynamic_shapes=shapes)
                self._program = compile(quantized, example)
            _STATISTICS.int8 += 1
        except _REFUSALS as refusal:
            self._make_float(model, example, refusal)

    def _make_float(self, model: fx.GraphModule, example: tuple[Tensor, ...], refusal: Exception) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._program = compile(model, example)
            _STATISTICS.float32 += 1
            _LOG.info("torch.compile: a program in float32: %s", refusal)
        except _REFUSALS:
            self._leave(str(refusal))

    def _closed(self, args: tuple[Any, ...]) -> fx.GraphModule:
        """The graph as a function of its tensors: weights are its own, and sizes are asked of the tensors."""
        graph = fx.Graph()
        holders = [node for node in self._float.graph.nodes if node.op == "placeholder"]
        made: dict[fx.Node, Any] = {}
        owner = torch.nn.Module()
        for i in self._inputs:
            made[holders[i]] = graph.placeholder(f"input_{i}")
        for i in self._stored:
            owner.register_buffer(f"weight_{i}", args[i].detach())
            made[holders[i]] = graph.get_attr(f"weight_{i}")
        for i, node in enumerate(holders):
            if node not in made:
                at, axis = self._place_of(node, holders)
                made[holders[i]] = graph.call_method("size", (made[holders[at]], axis))
        result = graph.graph_copy(self._float.graph, made)
        graph.output(result)
        for name, module in self._float.named_children():
            owner.add_module(name, module)
        for name, value in (*self._float.named_buffers(recurse=False), *self._float.named_parameters(recurse=False)):
            owner.register_buffer(name, value.detach())
        return fx.GraphModule(owner, graph).eval()

    def _place_of(self, size: fx.Node, holders: Sequence[fx.Node]) -> tuple[int, int]:
        """The input and the axis that have a size."""
        wanted = str(size.meta["example_value"])
        for i in self._inputs:
            for axis, found in enumerate(holders[i].meta["example_value"].shape):
                if str(found) == wanted:
                    return i, axis
        raise NotImplementedError(f"no input has the size {wanted}")

    def _versions_of(self, args: tuple[Any, ...]) -> list[tuple[int, int]]:
        stored = (args[i] for i in self._stored)
        return [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in stored]

    def _leave(self, reason: str) -> None:
        self._is_left = True
        _STATISTICS.left_to_torch += 1
        self._warn(reason)

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            count = sum(node.op.startswith("call") for node in self._float.graph.nodes)
            first = reason.splitlines()[0] if reason else "unknown reason"
            warnings.warn(
                f'torch.compile(backend="zeropoint"): PyTorch runs a graph of {count} operators in float: {first}',
                stacklevel=3,
            )
        self._has_warned = True


def _is_stored(node: fx.Node) -> bool:
    given = node.meta.get("grapharg")
    return given is not None and _STORED.search(str(given.source.name)) is not None


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), Tensor)


def _free_axes(node: fx.Node) -> tuple[int, ...]:
    """The axes whose sizes PyTorch leaves open."""
    return tuple(i for i, n in enumerate(node.meta["example_value"].shape) if isinstance(n, torch.SymInt))
