"""A model as a graph of ATen operators, with the path of the module that each came from."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import logging
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint import torch_versions
from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.dynamic_shapes import ALL, EndsCapture, with_free_sizes
from zeropoint.graph.frontends.export_attention import masks_as_they_are
from zeropoint.graph.frontends.export_names import rename_unusable
from zeropoint.graph.frontends.export_packed import check_packed, take_packed
from zeropoint.graph.frontends.export_recurrent import restore_recurrences, whole_recurrences
from zeropoint.graph.graph_module import Graph
from zeropoint.graph.passes.canonicalize import keep_inputs
from zeropoint.graph.passes.inline_regions import inline_regions
from zeropoint.graph.passes.input_checks import check_sizes
from zeropoint.graph.provenance import Origin, origin
from zeropoint.graph.torch_internals import TRACING

_GUARDS = "_guards_fn"  # checks of sizes in what torch.export makes; zeropoint's are in passes/input_checks.py


_NO_CACHE = "set model.config.use_cache = False; or, to generate, use a cache of fixed size (docs/guides/generation.md)"


class CaptureError(ValueError):
    """Raised when torch.export cannot capture a model."""


def capture(
    model: nn.Module,
    example_inputs: Any,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> fx.GraphModule:
    """The graph of `model`, a copy of it, as it runs on the example inputs.

    Not all sizes are fixed to those of the examples: the first axis of every input and all axes of sequences (tensors
    with up to three axes) stay free where the model does not depend on them. A warning says which of them cannot.

    Args:
        example_inputs: a tuple of what the model is called with, or a dictionary of keywords; a tensor alone will do.
        dynamic_shapes: as for torch.export, to say more precisely which sizes are free; or "all", for every size that
            the model does not depend on, those of images too.

    Raises:
        CaptureError: if torch.export cannot follow the model, with the line where it stopped.

    Example:
        >>> graph = capture(nn.Sequential(nn.Linear(2, 3), nn.ReLU()).eval(), (torch.ones(1, 2),))
        >>> graph(torch.ones(5, 2)).shape
        torch.Size([5, 3])
    """
    args, kwargs = call_of(example_inputs)
    kwargs.update(example_kwargs or {})
    args, kwargs = copied((args, kwargs))  # the model may write to them
    model = copy.deepcopy(model)
    if is_exported(model):
        return _of_exported(model)
    # What a model keeps from call to call does not begin with the example: all but its weights is copied for it.
    weights: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    try:
        with torch.no_grad():
            result = copy.deepcopy(model, weights)(*args, **kwargs)
    except Exception as error:
        raise ValueError(f"the model does not run on the example inputs: {error}") from error
    _require_tensors(model, result)
    masks_as_they_are(model)
    take_packed(model)
    _name_keywords(model, kwargs)

    def export(shapes: Any) -> Any:
        with (
            TRACING, torch.no_grad(), _quiet_failure(), whole_recurrences(), torch_versions.without_stacks(),
            _unchecked_distributions(),
        ):  # fmt: skip
            return torch_versions.export(model, args, kwargs, shapes)

    try:
        if dynamic_shapes is None or dynamic_shapes == ALL:
            exported = with_free_sizes(export, model, args, kwargs, dynamic_shapes)
        else:
            exported = export(_of_parameters(model, args, dynamic_shapes))
    except Exception as error:
        raise CaptureError(_explanation(model, error)) from error
    exported = _without_functions(exported)
    rename_unusable(exported)
    unlifted = torch_versions.unlifted(exported)
    graph = Graph(unlifted, unlifted.graph)  # an ordinary one, which has train() and eval()
    inline_regions(graph)
    restore_recurrences(graph)
    try:
        check_packed(graph)
        _check_functions(graph)
    except EndsCapture as error:
        raise CaptureError(_explanation(model, error)) from error
    keep_inputs(graph)
    _register_tensors(graph)
    check_sizes(graph)
    _keep_origins(graph, model)
    return graph


def copied(given: Any) -> Any:
    """The same with copies of all plain tensors in tuples, lists and dictionaries."""
    leaves = internals.leaves(given)
    copies = [leaf.detach().clone() if type(leaf) is Tensor else leaf for leaf in leaves]
    return internals.with_leaves(given, copies)


def _of_parameters(model: nn.Module, args: tuple[Any, ...], shapes: Any) -> Any:
    """Shapes that are one for each argument, as torch.export wants them: those of ``forward(*inputs)`` in one tuple."""
    kinds = [parameter.kind for parameter in inspect.signature(model.forward).parameters.values()]
    rest = inspect.Parameter.VAR_POSITIONAL
    if rest not in kinds or not isinstance(shapes, (tuple, list)) or len(shapes) != len(args):
        return shapes
    first = kinds.index(rest)
    if any(isinstance(shape, (tuple, list)) and isinstance(arg, Tensor) for shape, arg in zip(shapes, args)):
        return shapes  # they are so already
    return (*shapes[:first], tuple(shapes[first:]))


def _name_keywords(model: nn.Module, given: Mapping[str, Any]) -> None:
    """Give ``forward(**options)`` the names that it is called with: torch.export frees no sizes of other keywords."""
    forward = model.forward
    signature = inspect.signature(forward)
    known = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [name for name in given if name not in signature.parameters]
    if len(known) == len(signature.parameters) or not more:
        return

    def named(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in more]
    named.__signature__ = signature.replace(parameters=[*known, *added])  # type: ignore[attr-defined]
    model.forward = named


def _is_function(node: fx.Node) -> bool:
    """Whether a call is one that torch.func makes around operators: it cannot be run again."""
    return str(getattr(node.target, "__module__", "")).startswith("torch._functorch")


def _without_functions(exported: Any) -> Any:
    """What torch.vmap and torch.func do, in operators on batches."""
    if not any(map(_is_function, exported.graph.nodes)):
        return exported
    with TRACING, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return exported.run_decompositions({})


def _check_functions(graph: fx.GraphModule) -> None:
    """Refuse what torch.func leaves in a graph."""
    if any(map(_is_function, graph.graph.nodes)):
        raise EndsCapture("torch.vmap and torch.func leave no operators in a graph: write the batch as an axis")


def _register_tensors(graph: fx.GraphModule) -> None:
    """Make buffers of the tensors that a model holds as ordinary attributes, and let one tensor have one name.

    They are copied and saved with the graph then; and what is written to a tensor is seen by all who read it.
    """
    names: dict[int, str] = {}
    for node in graph.graph.nodes:
        if node.op != "get_attr":
            continue
        path, _, name = str(node.target).rpartition(".")
        owner = graph.get_submodule(path)
        value = getattr(owner, name)
        if isinstance(value, torch.Tensor):
            if name in vars(owner):
                delattr(owner, name)
                owner.register_buffer(name, value)
            node.target = names.setdefault(id(value), str(node.target))


def _require_tensors(model: nn.Module, result: Any) -> None:
    """Say which part of a result no graph can give."""
    for part in internals.leaves(result):
        if part is None or isinstance(part, (torch.Tensor, bool, int, float, complex, str, torch.dtype, torch.device)):
            continue
        cached = getattr(getattr(model, "config", None), "use_cache", False)
        advice = _NO_CACHE if cached else "wrap the model in a module that returns only tensors"
        raise CaptureError(f"{type(model).__name__} returns a {type(part).__name__}, which is not a tensor: {advice}")


def call_of(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments and keywords of a batch: a tensor, a tuple or list of arguments, or a dictionary.

    Example:
        >>> call_of({"x": 1}), call_of((1, 2)), call_of(3)
        (((), {'x': 1}), ((1, 2), {}), ((3,), {}))
    """
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}


def is_exported(model: nn.Module) -> bool:
    """Whether a model is what ``torch.export.load(path).module()`` gives: a graph of operators already."""
    if not isinstance(model, fx.GraphModule):
        return False
    called = [n.target for n in model.graph.nodes if n.op == "call_function"]
    return any(map(internals.is_operator, called)) and not any(
        n.op in ("call_method", "call_module") and n.target != _GUARDS for n in model.graph.nodes
    )


def is_training(model: nn.Module) -> bool:
    """Whether a model is in training mode; what was exported is always in the mode it was exported in."""
    return model.training and not is_exported(model)


def _of_exported(model: Any) -> fx.GraphModule:
    """An exported graph as it is: its sizes are free where it was exported so, its module paths are kept."""
    for node in list(model.graph.nodes):
        if node.op == "call_module" and node.target == _GUARDS:
            model.graph.erase_node(node)
    graph = Graph(model, model.graph)
    inline_regions(graph)
    keep_inputs(graph)
    check_sizes(graph)
    for node in graph.graph.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path, kind = stack[-1][:2] if stack else ("", None)
        node.meta["origin"] = Origin(_clean(path), _class(kind))
    _count_calls(graph)
    return graph


def _class(kind: Any) -> type | None:
    """The class of a module of torch.nn, of which a file has only the name."""
    if isinstance(kind, str) and kind.startswith("torch.nn."):
        kind = getattr(nn, kind.rpartition(".")[2], None)
    return kind if isinstance(kind, type) else None


@contextlib.contextmanager
def _quiet_failure() -> Iterator[None]:
    """Drop what torch.export writes beside its exception, a dump of the graph; what is written on success is shown."""
    written = io.StringIO()
    shapes = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    was_disabled, shapes.disabled = shapes.disabled, True
    try:
        with contextlib.redirect_stderr(written), warnings.catch_warnings():
            # nn.LSTM and nn.GRU keep their weights in a list, too.
            warnings.filterwarnings("ignore", r"The tensor attributes? .*_flat_weights", UserWarning)
            yield
    finally:
        shapes.disabled = was_disabled
    sys.stderr.write(written.getvalue())


@contextlib.contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Let torch.distributions not look at the values of their parameters: a graph has none."""
    kind = torch.distributions.Distribution
    checked = kind._validate_args
    kind.set_default_validate_args(False)
    try:
        yield
    finally:
        kind.set_default_validate_args(checked)


# Files that are no user's: those of the packages, wherever they are. A user's folder may be called zeropoint, too.
_OURS = tuple(os.path.dirname(path) + os.sep for path in (torch.__file__, torch_versions.__file__))


def _explanation(model: nn.Module, error: Exception) -> str:
    """One message: what, where in the user's code, and the ways out."""
    lines = str(error).strip().splitlines()
    what = lines[0].rstrip(".") if lines else type(error).__name__
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(_OURS):
            line = f" at {frame.filename}:{frame.lineno}: {frame.line}"
    code = next((text.strip() for text in str(error).splitlines() if text.strip().startswith("File ")), "")
    where = line or (f" at {code}" if code else "")
    return (
        f"torch.export cannot capture {type(model).__name__}{where}: {what}."
        " Instead: quantize it in eager mode (zeropoint.prepare, zeropoint.convert), or as TorchScript; or move"
        " data-dependent code (Python conditions on tensors, .item(), numpy) out of forward."
    )


def _keep_origins(graph: fx.GraphModule, model: nn.Module) -> None:
    kinds = {name: type(module) for name, module in model.named_modules()}
    for node in graph.graph.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = next((_clean(entry[0]) for entry in reversed(stack) if _clean(entry[0]) in kinds), "")
        node.meta["origin"] = Origin(path, kinds.get(path))
    _count_calls(graph)


def _count_calls(graph: fx.GraphModule) -> None:
    """Say in the origin of each call which operator it is, and which of its kind in its module."""
    calls: Counter[tuple[str, str]] = Counter()
    modules: dict[tuple[str, Any], list[str]] = {}
    for node in graph.graph.nodes:
        at = origin(node)
        name = node.target._schema.name.rpartition("::")[2] if hasattr(node.target, "_schema") else ""
        name = name.rstrip("_")
        alike = modules.setdefault((at.path.rpartition(".")[0], at.kind), [])
        if at.path not in alike:
            alike.append(at.path)
        place, module_place = calls[at.path, name], alike.index(at.path)
        node.meta["origin"] = replace(at, call=name, place=place, module_place=module_place)
        calls[at.path, name] += 1


def _clean(path: str) -> str:
    return path.removeprefix("L['self'].").removeprefix("L['self']")
