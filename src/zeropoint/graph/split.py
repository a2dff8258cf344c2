"""A cut through a model: some of its modules as one that can be quantized and compiled, and the model around it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.described import described
from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.export import call_of


@dataclass(frozen=True)
class _Call:
    """One call of a named module: what it was given and gave, with a place for each tensor."""

    path: str
    inputs: Any  # arguments and keywords; a tensor stands as its number among all that were seen
    outputs: Any


class _Place(int):
    """The number of a tensor, where other leaves are values."""


@dataclass(frozen=True)
class Cut:
    """The result of `split_at`.

    Attributes:
        part: a module that calls the named modules one after the other. It takes the tensors that the first one takes,
            and returns a tuple of all tensors that they return. Pass it to `to_int8` and `compile`.
        example_inputs: the inputs of `part` in the example.
    """

    part: nn.Module
    example_inputs: tuple[Tensor, ...]
    _model: nn.Module
    _calls: tuple[_Call, ...]

    def joined(self, run: Callable[..., Any]) -> nn.Module:
        """A copy of the model that calls `run` instead of the named modules: a program, a quantized model, or
        `part`.
        """
        names = {id(self._model.get_submodule(call.path)): call for call in self._calls}
        known = {key: nn.Identity() for key in names}  # the weights are not copied
        whole = copy.deepcopy(self._model, dict(known))
        results: dict[int, Any] = {}
        for number, call in enumerate(self._calls):
            parent, _, name = call.path.rpartition(".")
            setattr(whole.get_submodule(parent), name, _Stand(self._calls, number, run, results))
        return whole


class _Part(nn.Module):
    """Modules called one after the other, as they were called in the model."""

    def __init__(self, model: nn.Module, calls: tuple[_Call, ...]) -> None:
        super().__init__()
        self.called = nn.ModuleList(model.get_submodule(call.path) for call in calls)
        self.calls = calls

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        known: dict[int, Any] = dict(zip(_places(self.calls[0].inputs), tensors))
        for module, call in zip(self.called, self.calls):
            args, kwargs = _filled(call.inputs, known)
            known.update(zip(_places(call.outputs), _tensors(module(*args, **kwargs))))
        return tuple(known[place] for call in self.calls for place in _places(call.outputs))


class _Stand(nn.Module):
    """Stands for one of the named modules: the first calls what computes all of them."""

    def __init__(self, calls: tuple[_Call, ...], number: int, run: Callable[..., Any], results: dict[int, Any]) -> None:
        super().__init__()
        self.calls, self.number, self.run, self.results = calls, number, run, results

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.number == 0:
            given = self.run(*_tensors((args, kwargs)))
            given = [given] if isinstance(given, Tensor) else list(given)
            self.results.clear()
            self.results.update(zip((place for call in self.calls for place in _places(call.outputs)), given))
        return _filled(self.calls[self.number].outputs, self.results)


def split_at(model: nn.Module, paths: Sequence[str], example_inputs: Any) -> Cut:
    """Extract modules from a model that `torch.export` cannot capture as a whole, such as the backbone of a detector.

    Runs the model once to record the calls of the modules. Each module must be called exactly once, with tensors that
    the first module receives or that modules named before it return.

    Args:
        paths: names of modules, as in `named_modules`, in call order.
        example_inputs: a tuple of positional arguments, or a dictionary of keyword arguments.

    Raises:
        ValueError: if there is no such module, if it is not called exactly once, or if it is called with any other
            tensor.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> cut = split_at(model, ["0", "1"], (torch.ones(1, 4),))
        >>> [tuple(x.shape) for x in cut.part(*cut.example_inputs)]
        [(1, 8), (1, 8)]
        >>> bool(torch.equal(cut.joined(cut.part)(torch.ones(1, 4)), model(torch.ones(1, 4))))
        True
    """
    if isinstance(paths, str) or not paths:
        raise ValueError(f"split_at: paths must be a list of names of modules, got {described(paths)}")
    named = dict(model.named_modules())
    for path in paths:
        if path not in named or not path:
            raise ValueError(f"split_at: the model has no module {path!r}; named_modules() lists them")
    seen: list[tuple[str, Any, Any]] = []

    def watch(path: str) -> Callable[..., None]:
        return lambda module, args, kwargs, outputs: seen.append((path, (args, kwargs), outputs))

    hooks = [named[path].register_forward_hook(watch(path), with_kwargs=True) for path in paths]
    args, kwargs = call_of(example_inputs)
    was_training = model.training
    try:
        with torch.no_grad():
            model.eval()(*args, **kwargs)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    order = [path for path, _, _ in seen]
    for path in paths:
        if order.count(path) != 1:
            raise ValueError(f"split_at: {path!r} was called {order.count(path)} times; it must be called once")
    calls = _wired(seen)
    return Cut(_Part(model, calls), tuple(_tensors(seen[0][1])), model, calls)


def _wired(seen: list[tuple[str, Any, Any]]) -> tuple[_Call, ...]:
    """The calls, with a number for each tensor that tells where it came from."""
    numbers: dict[int, _Place] = {}

    def number(x: Tensor) -> _Place:
        return numbers.setdefault(id(x), _Place(len(numbers)))

    calls: list[_Call] = []
    for path, inputs, outputs in seen:
        for x in _tensors(inputs):
            if calls and id(x) not in numbers:
                raise ValueError(
                    f"split_at: {path!r} gets a tensor ({described(x)}) that does not come from an earlier path: "
                    "add the path of the module that computes it, or remove this one"
                )
        given = _numbered(inputs, number)
        calls.append(_Call(path, given, _numbered(outputs, number)))
    return tuple(calls)


def _numbered(nested: Any, number: Callable[[Tensor], _Place]) -> Any:
    leaves = internals.leaves(nested)
    return internals.with_leaves(nested, [number(x) if isinstance(x, Tensor) else x for x in leaves])


def _filled(nested: Any, known: dict[int, Any]) -> Any:
    leaves = internals.leaves(nested)
    return internals.with_leaves(nested, [known[int(x)] if isinstance(x, _Place) else x for x in leaves])


def _places(nested: Any) -> list[int]:
    return [int(x) for x in internals.leaves(nested) if isinstance(x, _Place)]


def _tensors(nested: Any) -> list[Tensor]:
    return [x for x in internals.leaves(nested) if isinstance(x, Tensor)]
