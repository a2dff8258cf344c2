"""Everything of PyTorch that graph mode and the compiler use and that PyTorch does not document: one function for each.

``tests/graph/test_torch_internals.py`` calls each alone. After an upgrade of PyTorch it says which one is gone.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from traceback import FrameSummary
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, statically_known_true
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from zeropoint import torch_versions

_C: Any = torch._C
ScriptModule: Any = _C.ScriptModule
ScriptGraph: Any = _C.Graph

# -------------------------------------------------------------------------------------------------------- TorchScript

# PyTorch's captures and traces replace functions of its own while they run, for the whole process.
TRACING = threading.RLock()


def torchscript_module(module: Any) -> Any:
    """A `torch._C.ScriptModule` as a module for people."""
    return torch.jit._recursive.wrap_cpp_module(module)


def reconstruct(model: Any, module: Any) -> None:
    """Let `model`, a `torch.jit.ScriptModule`, be `module`, a `torch._C.ScriptModule`."""
    model._reconstruct(module)


def submodules(module: Any) -> list[tuple[str, Any]]:
    """Names and modules, one level deep, of a `torch._C.ScriptModule`."""
    return list(_C.ModuleDict(module).items())


def add_attribute(module: Any, name: str, kind: Any, value: Any) -> None:
    """Give a `torch._C.ScriptModule` an attribute of the type `kind`."""
    module._register_attribute(name, kind, value)


def operator_namespace(name: str, operators: Sequence[str]) -> Any:
    """A namespace for `define` with these operators, whatever torch.ops has under its name."""
    namespace = torch._ops._OpNamespace(name)
    for operator in operators:
        found, overloads = _C._jit_get_operation(f"{name}::{operator}")
        torch.jit._builtins._register_builtin(found, f"{name}::{operator}")
        setattr(namespace, operator, torch._ops.OpOverloadPacket(f"{name}::{operator}", operator, found, overloads))
    return namespace


def define(module: Any, source: str, names: dict[str, Any]) -> None:
    """Give a `torch._C.ScriptModule` a method of this source, which may use `names`."""
    module._define(_C.ConcreteModuleType.from_jit_type(module._type()), source, names.get)


def freeze(module: Any, kept: list[str], interfaces: bool, parameters: bool) -> Any:
    """A `torch._C.ScriptModule` whose attributes are constants, but for those `kept`."""
    return _C._freeze_module(module, kept, interfaces, parameters)


def new_graph() -> Any:
    """An empty graph of TorchScript."""
    return _C.Graph()


def parse_schema(text: str) -> Any:
    """Arguments, results and aliases of an operator, from its signature."""
    return _C.parse_schema(text)


def inline(graph: Any) -> None:
    """Put the bodies of functions and methods in the place of their calls."""
    _C._jit_pass_inline(graph)


def insert_function(graph: Any, node: Any, function: Any) -> None:
    """Put the body of a scripted function in the place of a node with the same inputs and one output."""
    with graph.insert_point_guard(node):
        (made,) = graph.insertGraph(function.graph, list(node.inputs()))
    node.output().replaceAllUsesWith(made)
    node.destroy()


def inline_forks(graph: Any) -> None:
    """Compute what is forked where it is forked."""
    _C._jit_pass_inline_fork_wait(graph)


def propagate_constants(graph: Any) -> None:
    _C._jit_pass_constant_propagation(graph)


def simplify_peepholes(graph: Any) -> None:
    _C._jit_pass_peephole(graph, True)


def remove_dead_code(graph: Any) -> None:
    _C._jit_pass_dce(graph)


def lint(graph: Any) -> None:
    """Raise if a graph is not well formed."""
    _C._jit_pass_lint(graph)


def tensor_type() -> Any:
    return _C.TensorType.get()


def int_type() -> Any:
    return _C.IntType.get()


def float_type() -> Any:
    return _C.FloatType.get()


def string_type() -> Any:
    return _C.StringType.get()


def list_of_ints_type() -> Any:
    return _C.ListType.ofInts()


def list_of_tensors_type() -> Any:
    return _C.ListType.ofTensors()


# ---------------------------------------------------------------------------------------------------------- operators


def is_operator(target: Any) -> bool:
    """Whether `target` is one overload of an operator of torch.ops."""
    return isinstance(target, torch._ops.OpOverload)


def region_name(target: Any) -> str:
    """The name of an operator that takes a graph, such as ``wrap_with_autocast``; "" for other targets."""
    return target.name() if isinstance(target, torch._ops.HigherOrderOperator) else ""


def plain_arguments(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a call of an operator as its kernel gets them from the dispatcher, by position where it may be.

    None if the result is not one tensor.
    """
    schema = target._schema
    if [str(r.type) for r in schema.returns] != ["Tensor"]:
        return None
    by_position: list[Any] = []
    by_name: dict[str, Any] = {}
    for i, argument in enumerate(schema.arguments):
        if i < len(args):
            value = args[i]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        elif argument.has_default_value():
            value = argument.default_value
        else:
            return None
        value = float(value) if str(argument.type) == "float" and type(value) is int else value
        if argument.kwarg_only:
            by_name[argument.name] = value
        else:
            by_position.append(value)
    return tuple(by_position), by_name


# ------------------------------------------------------------------------------------------------------------- graphs


def forward_of(module: fx.GraphModule) -> Any:
    """What a graph module has as `forward`: another object after each change of the graph that counts."""
    return vars(type(module))["forward"]  # torch.fx makes a class for each graph module


def keep_specs(module: fx.GraphModule) -> None:
    """Give a graph module the descriptions of nested inputs and results that the code of its graph reads."""
    described = getattr(module.graph._codegen, "pytree_info", None)
    if described is not None:
        module._in_spec, module._out_spec = described.in_spec, described.out_spec


def graph_code(graph: fx.Graph) -> Callable[..., Any]:
    """A function that runs a graph; its first argument has the attributes."""
    code = graph.python_code("self")
    scope = dict(code.globals)
    exec(compile(code.src, "<graph with kernels>", "exec"), scope)
    return scope["forward"]


def own_buffers(module: torch.nn.Module) -> dict[str, Any]:
    """The dictionary in which a module keeps its buffers."""
    return module._buffers


def is_profiled() -> bool:
    """Whether torch.profiler runs, which sees what goes through the dispatcher."""
    return torch.autograd._profiler_enabled()


def is_transformed() -> bool:
    """Whether torch.func is at work (vmap, grad): tensors are not what they seem then."""
    return _C._functorch.peek_interpreter_stack() is not None


def has_effect(function: Any) -> None:
    """Keep calls of `function` in graphs though nothing reads their results."""
    fx.node.has_side_effect(function)


def map_nodes(arguments: Any, function: Callable[[fx.Node], Any]) -> Any:
    """Arguments of a node with `function` of each node among them in its place."""
    return fx.node.map_arg(arguments, function)


def map_values(nested: Any, function: Callable[[Any], Any]) -> Any:
    """Arguments or a value of a node with `function` of all that is in tuples, lists, dicts and slices in its place."""
    return fx.node.map_aggregate(nested, function)


def codegen(graph: fx.Graph) -> Any:
    """How the inputs and outputs of a graph are nested; ``graph.set_codegen`` takes it."""
    return graph._codegen


def copy_codegen(source: fx.Graph, target: fx.Graph) -> None:
    """Nest the inputs and outputs of `target` as those of `source`."""
    target.set_codegen(copy.copy(source._codegen))


def output_nesting(graph: fx.Graph, count: int) -> Any:
    """The results of a graph with their numbers in their places: ``{"a": 0, "b": (1, 2)}``."""
    info = getattr(graph._codegen, "pytree_info", None)
    numbers = list(range(count))
    if info is None or info.out_spec is None:
        return 0 if count == 1 else numbers
    return pytree.tree_unflatten(numbers, info.out_spec)


def stored_names(exported: Any) -> list[str]:
    """The names of all parameters, buffers and constants of an exported model."""
    return list(dict.fromkeys([*exported.state_dict, *exported.constants]))


def rename_stored(exported: Any, names: dict[str, str]) -> None:
    """Give parameters, buffers and constants of an exported model other names, before `module()` is called."""
    signature = exported.graph_signature
    stored = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ)
    written = {OutputKind.BUFFER_MUTATION, getattr(OutputKind, "PARAMETER_MUTATION", OutputKind.BUFFER_MUTATION)}
    for spec in signature.input_specs:
        if spec.kind in stored and spec.target in names:
            spec.target = names[spec.target]
    for spec in signature.output_specs:
        if spec.kind in written and spec.target in names:
            spec.target = names[spec.target]
    for kept in (exported._state_dict, exported._constants):
        renamed = {names.get(name, name): value for name, value in kept.items()}
        kept.clear()
        kept.update(renamed)


def input_nesting(graph: fx.Graph, count: int) -> tuple[Any, Any] | None:
    """Positional arguments and keywords of a call with the numbers of inputs in their places; None if unknown."""
    info = getattr(graph._codegen, "pytree_info", None)
    if info is None or info.in_spec is None or info.in_spec.num_leaves != count:
        return None
    nested = pytree.tree_unflatten(list(range(count)), info.in_spec)
    is_call = isinstance(nested, tuple) and len(nested) == 2 and isinstance(nested[1], dict)
    return nested if is_call and isinstance(nested[0], tuple) else None


def leaves(nested: Any) -> list[Any]:
    """What tuples, lists and dicts hold, in order, however deep."""
    return pytree.tree_leaves(nested)


def with_leaves(nested: Any, leaves: list[Any]) -> Any:
    """Tuples, lists and dicts as `nested` has them, with other leaves in its order."""
    return pytree.tree_unflatten(leaves, pytree.tree_structure(nested))


def annotated(facts: dict[str, Any]) -> AbstractContextManager[Any]:
    """In here, nodes that torch.export makes carry `facts`, if it is called within `keeping_annotations`."""
    return torch_versions.annotated(facts)


def keeping_annotations() -> AbstractContextManager[Any]:
    """In here, torch.export keeps what `annotated` says."""
    return torch_versions.keeping_annotations()


def annotation(node: fx.Node) -> dict[str, Any]:
    """What `annotated` said about a node."""
    return node.meta.get("custom") or {}


# --------------------------------------------------------------------------------------------- tensors that wrap some


def is_wrapper(value: Any) -> bool:
    """Whether a value is a tensor that wraps others, such as QTensor, and can be taken apart."""
    return is_traceable_wrapper_subclass(value)


def inner_tensors(value: Any) -> list[Tensor]:
    """The tensors inside one that wraps them."""
    return [getattr(value, name) for name in value.__tensor_flatten__()[0]]


def wrap(like: Any, inner: list[Tensor]) -> Any:
    """A tensor that wraps `inner` as `like` wraps its own."""
    names, context = like.__tensor_flatten__()
    return type(like).__tensor_unflatten__(dict(zip(names, inner)), context, like.shape, like.stride())


def trace(function: Callable[..., Any], inputs: list[Any], whole: bool = False) -> fx.GraphModule:
    """The operators that a function calls on tensors without data, below those on tensors that wrap others.

    With `whole`, as the function calls them: a linear layer is one operator.
    """
    with TRACING:
        return make_fx(function, pre_dispatch=whole)(*inputs)


class NotComposed(Exception):
    """A call that a function does not compose: its operator stays as it is."""


def trace_composed(function: Callable[..., Any], inputs: list[Any], fixes: bool = False) -> fx.GraphModule | None:
    """As `trace` with `whole`; None if the function fails, or fixes a size that is free and may not do so.

    It is tried first on sizes that no other tensor has: one that is fixed there stays fixed for all that have it.
    Free sizes that are 1 in the example may be fixed: they stand for as many as another tensor has.

    Raises:
        NotComposed: if the function says so.
    """
    try:
        free = any(is_free(n) for n in _numbers(inputs)) and not fixes
        if free and not any(_fixes_none(function, inputs, size) for size in (0, 1)):
            return None
        return trace(function, inputs, whole=True)
    except NotComposed:
        raise
    except Exception:  # PyTorch cannot do it without data
        return None


def _fixes_none(function: Callable[..., Any], inputs: list[Any], fixed: int) -> bool:
    """Whether a function can be traced on free sizes without fixing one; those that are `fixed` are not free."""
    sizes = ShapeEnv()
    try:
        trace(function, _with_sizes(inputs, sizes, fixed), whole=True)
    except NotComposed:
        raise
    except Exception:
        return False
    return not any(found.is_number for found in sizes.replacements.values())


def decompositions() -> dict[Any, Any]:
    """Operator of ATen -> function that computes it with others, for all that PyTorch has one for."""
    return {op: function for op, function in torch._decomp.decomposition_table.items() if is_operator(op)}


def is_composed(target: Any) -> bool:
    """Whether an operator has no kernel, but calls others."""
    return target._can_decompose()


def trace_decomposed(function: Callable[..., Any], inputs: list[Any], table: dict[Any, Any]) -> fx.GraphModule | None:
    """As `trace`, with operators in the table taken apart.

    None if that depends on sizes that are free, or if PyTorch cannot do it without data. It is tried first on sizes
    that no other tensor has: what is asked about a size is kept for all tensors that have it.
    """
    traced = make_fx(function, decomposition_table=table)
    try:
        with TRACING, enable_python_dispatcher():
            if any(is_free(n) for n in _numbers(inputs)):
                sizes = ShapeEnv()
                general = traced(*_with_sizes(inputs, sizes))
                if not _is_for_all(sizes) or _calls(general) != _calls(traced(*_with_sizes(inputs, None))):
                    return None
            return traced(*inputs)
    except Exception:  # whatever PyTorch's own functions raise: the operator stays as it is
        return None


def _numbers(inputs: list[Any]) -> list[Any]:
    return [n for value in inputs for n in (value.shape if isinstance(value, Tensor) else [value])]


def _with_sizes(inputs: list[Any], sizes: ShapeEnv | None, fixed: int = 0) -> list[Any]:
    """Tensors without data like the inputs, whose free sizes are new unknowns of `sizes`; ones without it.

    Those that are `fixed` in the example stay that.
    """
    from torch._dynamo.source import ConstantSource  # which imports the whole compiler

    made: dict[Any, Any] = {}

    def number(n: Any) -> Any:
        if not isinstance(n, SymInt):
            return n
        if not is_free(n) or int(n.node.hint) == fixed:
            return int(n.node.hint)
        if expression(n) not in made:
            source, hint = ConstantSource(f"size{len(made)}"), max(int(n.node.hint), 2)
            made[expression(n)] = 1
            if sizes is not None:
                new = sizes.create_symbol(hint, source, DimDynamic.DYNAMIC)
                made[expression(n)] = sizes.create_symintnode(new, hint=hint, source=source)
        return made[expression(n)]

    def stand_in(value: Any) -> Any:
        return torch.empty([number(n) for n in value.shape], dtype=value.dtype)

    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=sizes):
        return [stand_in(value) if isinstance(value, Tensor) else number(value) for value in inputs]


def _is_for_all(sizes: ShapeEnv) -> bool:
    """Whether what was asked about sizes holds for all that are larger than one."""
    tried = (2, 3, 7, 16, 129)
    return all(
        bool(guard.expr.subs(dict(zip(unknown, itertools.islice(itertools.cycle(tried), start, start + len(unknown))))))
        for guard in sizes.guards
        for unknown in [sorted(guard.expr.free_symbols, key=str)]
        for start in range(len(tried))
    )


def _calls(traced: fx.GraphModule) -> list[str]:
    """The operators that are called on tensors."""
    return [str(node.target) for node in traced.graph.nodes if is_operator(node.target) and "sym_size" not in str(node)]


# ----------------------------------------------------------------------------------------------------- symbolic sizes


def expression(value: SymInt | SymFloat | SymBool) -> Any:
    """The sympy expression of a symbolic number."""
    return value.node.expr


def is_free(value: Any) -> bool:
    """Whether a number is not known: it depends on sizes that are free."""
    if isinstance(value, SymBool):
        return value.node.maybe_as_bool() is None
    if isinstance(value, SymInt):
        return value.node.maybe_as_int() is None
    return isinstance(value, SymFloat) and not value.node.is_constant()


def example_of(size: SymInt) -> int:
    """What a free size is in the example."""
    return int(size.node.hint)


def is_certain(condition: Any) -> bool:
    """Whether a condition holds, for all sizes where it is one of free sizes; nothing is asked about these."""
    return statically_known_true(condition)


def truth(condition: Any, file: str, line: int) -> bool:
    """What a symbolic condition is for the example; PyTorch keeps it as a guard, asked for in `line` of `file`."""
    code = compile("\n" * (line - 1) + "bool(condition)", file, "eval")
    return eval(code, {"condition": condition})


def shape_guards(size: SymInt) -> Iterator[tuple[Any, FrameSummary]]:
    """What was asked about sizes while a graph was captured: expressions that hold, and the lines that asked."""
    shapes = size.node.shape_env
    for guard in shapes.guards:
        where = getattr(guard.sloc, "framework_loc", None)
        if isinstance(where, FrameSummary):
            yield guard.expr.xreplace(shapes.replacements), where  # with what is known of the sizes by now
