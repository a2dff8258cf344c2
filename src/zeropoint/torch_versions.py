"""What differs between the releases of PyTorch that zeropoint works with: one function for each difference.

Everything else calls these and asks for no version. ``make test-torch VERSION=2.9.1`` tests with one release.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx.config as fx_config
import torch.fx.experimental._config as shape_config
from torch import Tensor, nn
from torch._dispatch.python import enable_python_dispatcher
from torch.export import Dim, ExportedProgram
from torch.fx import proxy, traceback
from torch.library import Library
from torch.utils import _pytree as pytree

_NO_STACKS = "do_not_emit_stack_traces"
_RELEASE = tuple(int(number) for number in torch.__version__.split(".")[:2])


def export(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any = None
) -> ExportedProgram:
    """torch.export, without analysis of bytecode, that leaves sizes of one free where `dynamic_shapes` says so.

    2.6 has no setting for that, and that of 2.7 and 2.8 fails where a model broadcasts: there the example is made
    larger.
    """
    args, kwargs = tuple(args), dict(kwargs)
    # PyTorch keeps what each operator gave for later calls with the same sizes. With free sizes that takes longer than
    # computing them: DenseNet-like networks are captured in half the time without, others in the same or a little less.
    with torch._dynamo.config.patch(fake_tensor_cache_enabled=False):
        if _RELEASE >= (2, 9):
            with shape_config.patch(backed_size_oblivious=True):
                return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        given = pytree.tree_leaves((args, kwargs))
        args, kwargs = _without_free_ones(model, args, kwargs, dynamic_shapes)
        exported = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        _check_free_ones(exported, given, pytree.tree_leaves((args, kwargs)))
        return exported


@contextlib.contextmanager
def without_stacks() -> Iterator[None]:
    """In here, nodes of graphs do not keep the stack that they were made in: a tenth of the time of a capture.

    Older releases have no setting for that. It is for the whole process.
    """
    before = getattr(fx_config, _NO_STACKS, None)
    if before is None:
        yield
        return
    setattr(fx_config, _NO_STACKS, True)
    try:
        yield
    finally:
        setattr(fx_config, _NO_STACKS, before)


def _without_free_ones(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example with another size, which it does not have yet, in the place of each size of one that is free."""
    known = {size for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) for size in leaf.shape}
    other = next(size for size in itertools.count(2) if size not in known)
    bound = inspect.signature(model.forward).bind(*args, **kwargs)
    shapes = dynamic_shapes or {}
    if not isinstance(shapes, Mapping):
        shapes = dict(zip(bound.arguments, shapes))
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        spec = shapes if kind is inspect.Parameter.VAR_KEYWORD else shapes.get(name)
        bound.arguments[name] = _larger(value, spec, other)
    return bound.args, bound.kwargs


def _larger(value: Any, spec: Any, other: int) -> Any:
    if spec is None:
        return value
    named = spec if isinstance(spec, Mapping) else dict(enumerate(spec))
    if isinstance(value, Tensor):
        free = {axis for axis, size in named.items() if size is not None and size is not Dim.STATIC}
        sizes = [other if axis in free and size == 1 else size for axis, size in enumerate(value.shape)]
        return value if sizes == list(value.shape) else value.expand(sizes).contiguous()
    if isinstance(value, Mapping):
        return {key: _larger(part, named.get(key), other) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_larger(part, named.get(i), other) for i, part in enumerate(value))
    return value


def _check_free_ones(exported: ExportedProgram, given: list[Any], larger: list[Any]) -> None:
    """Raise if a size of one was not free after all: the model fixes it, or takes it for a size that it is not.

    A RuntimeError, as torch.export of later releases raises. These assume instead that sizes are equal that are not,
    where one was to be broadcast.
    """
    inputs = [node for node in exported.graph.nodes if node.name in exported.graph_signature.user_inputs]
    meaning: dict[str, int] = {}
    for node, before, after in zip(inputs, given, larger):
        if not isinstance(before, Tensor):
            continue
        for size, old, new in zip(node.meta["val"].shape, before.shape, after.shape):
            is_free = isinstance(size, torch.SymInt)
            if (old != new and not is_free) or (is_free and meaning.setdefault(str(size), new) != new):
                raise RuntimeError(f"{node.name} has a size of one that is not free")


def unlifted(exported: ExportedProgram) -> Any:
    """The graph of an exported model, with parameters inside and without PyTorch's checks of sizes.

    Releases that put none in have no argument to ask for that.
    """
    if "check_guards" in inspect.signature(exported.module).parameters:
        return exported.module(check_guards=False)
    return exported.module()


def calls_with_free_sizes() -> contextlib.AbstractContextManager[None]:
    """In here, operators of ATen take tensors with free sizes.

    In 2.8 a reshape ends in C++ that wants numbers, unless PyTorch is told to look for a kernel in Python first.
    """
    return enable_python_dispatcher() if _RELEASE < (2, 9) else contextlib.nullcontext()


def is_exporting() -> bool:
    """Whether torch.export is running the code that asks. 2.6 only says whether something compiles."""
    asked = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
    return asked()


def override_kernel(library: Library, operator: str, kernel: Any, key: str) -> None:
    """Register a kernel in front of the one that PyTorch may have registered, until `library` is destroyed.

    2.6 and 2.7 refuse a second kernel from Python, by a list of those they have seen. Later ones warn of the first that
    stands in front of one in C++, which is what was asked for.
    """
    if "allow_override" in inspect.signature(library.impl).parameters:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
            library.impl(operator, kernel, key, allow_override=True)
        return
    known: set[str] = torch.library._impls
    before = set(known)
    known.clear()
    try:
        library.impl(operator, kernel, key)
    finally:
        known |= before


@contextlib.contextmanager
def annotated(facts: dict[str, Any]) -> Iterator[None]:
    """In here, nodes that torch.export makes within `keeping_annotations` have `facts` in ``meta["custom"]``."""
    if hasattr(traceback, "annotate"):
        with traceback.annotate(facts):
            yield
        return
    before = traceback.current_meta.get("custom")
    traceback.current_meta["custom"] = {**(before or {}), **facts}
    try:
        yield
    finally:
        traceback.current_meta["custom"] = before


@contextlib.contextmanager
def keeping_annotations() -> Iterator[None]:
    """In here, torch.export keeps what `annotated` says; releases without annotations do, if told which field."""
    inherited: list[str] = proxy._COPY_META_FIELDS
    is_new = "custom" not in inherited
    if is_new:
        inherited.append("custom")
    try:
        with traceback.preserve_node_meta():
            yield
    finally:
        if is_new:
            inherited.remove("custom")
