"""From a converted graph to a program."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint import _native
from zeropoint.compiler.eager import graph_of_eager, is_quantized_module
from zeropoint.compiler.errors import Missing, Unsupported, refusal
from zeropoint.compiler.fallback import TorchCall
from zeropoint.compiler.fusion import FUSIONS, Fusion, simplify
from zeropoint.compiler.labels import label_steps
from zeropoint.compiler.program import Program
from zeropoint.compiler.program_builder import Input, ProgramBuilder, Size, State
from zeropoint.compiler.sizes import CALCULATIONS, NUMBERS, SIZES
from zeropoint.compiler.torchscript import graph_of
from zeropoint.context import CONTEXT
from zeropoint.described import described
from zeropoint.graph.from_qdq import float_model
from zeropoint.graph.frontends.script.saved_plan import summary
from zeropoint.graph.frontends.shape_guards import value_of
from zeropoint.graph.passes.input_checks import Sizes
from zeropoint.graph.state_buffers import kept_state
from zeropoint.graph.summary import Row
from zeropoint.graph.torch_internals import input_nesting, is_operator, leaves, output_nesting
from zeropoint.graph.workflow import Quantized
from zeropoint.operators import STEPS
from zeropoint.operators.creation import filled
from zeropoint.operators.expressions import Expression
from zeropoint.operators.node import aten_name
from zeropoint.operators.steps import dtype_name

__all__ = ["Unsupported", "compile"]

_UPDATE = torch.ops.zeropoint.update_state.default
_GIVEN_AS = (torch.complex64, torch.complex128, torch.float64, torch.int16)  # results of programs, but of no step


def compile(model: nn.Module, example_inputs: Any, fallback: bool = False) -> Program:
    """Compile a model to a program: one native call per inference, and a file that runs without PyTorch.

    Args:
        model: a model from `to_int8`, `convert_graph`, `convert_jit` or `convert_dynamic_jit`, or from eager `convert`
            or `quantize_dynamic`. TorchScript can also come from a file. A float model, also from `from_onnx`, becomes
            a float program: linear layers and convolutions with 8-bit or 4-bit weights keep these.
        example_inputs: a tuple of positional arguments, or a dictionary of keyword arguments. Dynamic sizes of the
            model stay dynamic; in TorchScript, those that the script reads from its inputs.
        fallback: let PyTorch run operators that programs do not support. Such a program cannot be saved.

    Raises:
        Unsupported: if the model has unsupported operators; the message lists all of them and their modules. Also if
            TorchScript code depends on data or modifies the model; the message shows the line.

    Example:
        >>> import zeropoint
        >>> float_model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
        >>> model = zeropoint.to_int8(float_model, (x,), progress=False)
        >>> program = compile(model, (x,))
        >>> torch.equal(program(x), model(x))
        True
    """
    return compile_with(FUSIONS, model, example_inputs, fallback)


def compile_with(fusions: Sequence[Fusion], model: nn.Module, example_inputs: Any, fallback: bool = False) -> Program:
    """`compile` with these fusions only: for tests, which compare programs with and without them."""
    if _is_float(model):
        model = float_model(model, example_inputs)
    graph, example = graph_to_compile("compile", model, example_inputs)
    with torch.no_grad():
        builder = Compiler(graph, example, fallback).run()
    simplify(builder, fusions)
    builder.operators = [(row.path, row.operator, row.precision, row.reason) for row in _summary_rows(model)]
    nodes = label_steps(builder, graph)
    try:
        native = _native.Program(builder.data(), foreign=builder.foreign)
        return Program(native, [str(call) for call in builder.foreign], nodes)
    except _native.FormatError as error:
        raise Unsupported(f"compile: {error}") from error


def _is_float(model: Any) -> bool:
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        return False
    if isinstance(model, fx.GraphModule):
        return CONTEXT.converted_graph(model) is None and any(map(_is_traced_call, model.graph.nodes))
    return not hasattr(model, "graph_module") and not is_quantized_module(model)


def _is_traced_call(node: fx.Node) -> bool:
    """Whether it is a call as a symbolic trace has it: a module, a method or a function of PyTorch, not an operator."""
    if node.op != "call_function":
        return node.op in ("call_module", "call_method")
    return not isinstance(node.target, torch._ops.OpOverload) and node.target.__module__.startswith("torch")


def _summary_rows(model: nn.Module) -> tuple[Row, ...]:
    """How each operator of a model is computed, if it says so; a `summary` of its own is another thing."""
    if isinstance(model, Quantized):
        return model.summary().rows
    if isinstance(model, torch.jit.ScriptModule) and not hasattr(model, "summary"):
        with contextlib.suppress(TypeError):  # zeropoint did not quantize it
            return summary(model).rows
    return ()


def graph_to_compile(who: str, model: nn.Module, example_inputs: Any) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    """The graph of a quantized model, whatever workflow made it, and its example as a tuple.

    Args:
        who: whom messages speak of.
    """
    if isinstance(example_inputs, Mapping):
        example_inputs = _in_order(who, getattr(model, "graph_module", model), example_inputs)
    elif not isinstance(example_inputs, (tuple, list)):
        example_inputs = (example_inputs,)
    if isinstance(model, torch.jit.ScriptModule):
        graph: Any = graph_of(model, tuple(example_inputs))
    elif (converted := CONTEXT.converted_graph(model)) is not None:
        graph = graph_of_eager(converted, tuple(example_inputs))
    elif not isinstance(model, fx.GraphModule) and is_quantized_module(model) and not hasattr(model, "graph_module"):
        graph = graph_of_eager(model, tuple(example_inputs))
    else:
        graph = getattr(model, "graph_module", model)
    if not isinstance(graph, fx.GraphModule):
        raise TypeError(
            f"{who} takes a quantized model, from to_int8, convert_graph, convert_jit, convert or quantize_dynamic, got"
            f" {type(model).__name__}"
        )
    return graph, tuple(example_inputs)


def _in_order(who: str, graph: Any, named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Keywords in the order of the inputs of a graph."""
    if not isinstance(graph, fx.GraphModule):
        raise TypeError(f"{who}: pass example_inputs as a tuple; only graphs accept inputs by name")
    names = [str(node.target) for node in graph.graph.nodes if node.op == "placeholder"]
    if sorted(names) != sorted(named):
        raise ValueError(f"{who}: example_inputs must have {', '.join(names)}, got {', '.join(named)}")
    return tuple(named[name] for name in names)


class Recorder(fx.Interpreter):
    """Runs a graph and keeps what kind of value each node gave, and the values that are the same for all inputs."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.found: dict[fx.Node, Any] = {}
        self.fixed: dict[fx.Node, Any] = {}

    def run_node(self, node: fx.Node) -> Any:
        result = super().run_node(node)
        self.found[node] = result.to("meta") if isinstance(result, Tensor) else result
        if self._is_fixed(node):
            self.fixed[node] = result
        return result

    def _is_fixed(self, node: fx.Node) -> bool:
        if node.op == "get_attr":
            return True
        if node.op != "call_function" or any(read not in self.fixed for read in node.all_input_nodes):
            return False
        if node.target is operator.getitem:
            return True
        is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        return is_operator(node.target) and not node.is_impure() and not is_random


class Compiler:
    """Makes the steps of a program, node by node: the `StepBuilder` of the records."""

    def __init__(self, graph: fx.GraphModule, example: tuple[Any, ...], fallback: bool = False) -> None:
        self.graph, self.builder, self.fallback = graph, ProgramBuilder(), fallback
        self.values: dict[fx.Node, Any] = {}
        recorder = Recorder(graph)
        with kept_state(graph):
            recorder.run(*example)
        self.found, self.fixed = recorder.found, recorder.fixed
        self.node: fx.Node | None = None
        self.missing = Missing()

    def run(self) -> ProgramBuilder:
        """The whole program.

        Raises:
            Unsupported: for all operators that no step computes, at once.
        """
        read = read_nodes(self.graph.graph)
        for node in self.graph.graph.nodes:
            self.node = node
            if node not in read or self.missing.is_behind(node):
                continue
            if node.op != "get_attr":  # stored when a step reads it
                getattr(self, node.op)(node)
        self.missing.check()
        return self.builder

    # -------------------------------------------------------------------------------------------- for the records

    def tensor(self, node: Any) -> str | None:
        """The name of a tensor; None for None."""
        if node is None:
            return None
        if node not in self.values and self.is_parameter(node):
            name = str(node.target).replace(".", "_") if node.op == "get_attr" else str(node)
            self.values[node] = self.builder.constant(name, self.parameter(node))
        return self.values[node]

    def parameter(self, node: Any) -> Tensor:
        """A tensor that the graph holds, or makes of those alone."""
        if not self.is_parameter(node):
            raise self.unsupported(f"its parameter {node} is not a constant")
        return self.fixed[node]

    def is_parameter(self, node: Any) -> bool:
        return isinstance(self.fixed.get(node), Tensor)

    def dtype(self, node: fx.Node) -> torch.dtype:
        return self.found[node].dtype

    def rank(self, node: fx.Node) -> int:
        return self.found[node].dim()

    def size(self, value: Any) -> Any:
        """A number, or the name of one that is known when the program runs."""
        known = self.quantity(value)
        return known if isinstance(known, str) else int(known)

    def sizes(self, values: Any) -> list[Any]:
        return [self.size(value) for value in values]

    def number(self, operation: str, a: Any, b: Any) -> Any:
        """A number made from two others: at once, if both are known."""
        if isinstance(a, int) and isinstance(b, int):
            return NUMBERS[operation](a, b)
        return Size(self.builder.add("arithmetic", [], "number", operation=operation, a=a, b=b))

    def quantity(self, value: Any) -> Any:
        """As `size`, of a number that need not be whole."""
        if isinstance(value, fx.Node) and value not in self.values:  # the size of a constant
            return self.fixed[value]
        return self.values[value] if isinstance(value, fx.Node) else value

    def calculate(self, operation: str, *numbers: Any) -> Any:
        """A number made from others as Python does: at once, if all are known."""
        if not any(isinstance(n, str) for n in numbers):
            return CALCULATIONS[operation][0](*numbers)
        return Size(self.builder.add("calculate", [], "number", operation=operation, operands=list(numbers)))

    def axis_size(self, node: fx.Node, axis: int) -> Size:
        """The size of an axis of a tensor."""
        return Size(self.builder.add("size", [self.tensor(node)], "size", axis=axis))

    def number_of_elements(self, node: fx.Node) -> Any:
        count: Any = 1
        for axis in range(self.rank(node)):
            count = self.number("multiply", count, self.axis_size(node, axis))
        return count

    def add(self, op: str, *inputs: str | None, **attributes: Any) -> str:
        """A step for the node at hand."""
        return self.builder.add(op, list(inputs), str(self.node), **attributes)

    def require(self, value: Any, why: str, exact: bool = False) -> None:
        """Refuse to run if a number is negative, or if it is not zero. One that is known was right for the example."""
        if isinstance(value, Size):
            self.builder.add("require", [], "required", value=value, low=0, exact=exact, why=why)

    def state(self, node: Any) -> str:
        """The name of a tensor that the program keeps from call to call."""
        if node not in self.values:
            found = self.fixed[node]
            name = self.values[node] = self.builder.fresh(str(node.target).replace(".", "_"))
            self.builder.shapes[name] = tuple(found.shape)
            self.builder.state[name] = State(str(found.dtype).removeprefix("torch."), list(found.shape))
        return self.values[node]

    def update_state(self, node: Any, following: str | None, initial: Tensor) -> None:
        """Say what replaces a state at the end of a call, and what it begins with."""
        name = self.state(node)
        state = self.builder.state[name]
        state.next = str(following)
        state.initial = self.builder.constant(f"{name}_initial", initial) if bool(initial.any()) else None

    def unsupported(self, why: str = "programs do not support it; with fallback=True PyTorch runs it") -> Unsupported:
        assert self.node is not None
        return refusal(self.node, why)

    # ------------------------------------------------------------------------------------------- kinds of nodes

    def placeholder(self, node: fx.Node) -> None:
        found = self.found[node]
        if found is None or isinstance(found, (bool, int, float, str)):  # the graph has it inside
            return
        if not isinstance(found, Tensor):
            raise self.unsupported(f"input {node.target!r} must be a tensor, got {described(found)}")
        name = self.values[node] = self.builder.fresh(str(node.target))
        shape = list(found.shape)
        dtype = dtype_name(found.dtype)
        self.builder.shapes[name], self.builder.dtypes[name] = tuple(shape), dtype
        self.builder.inputs.append(Input(name, dtype, [None] * len(shape), shape))

    def call_module(self, node: fx.Node) -> None:
        module = self.graph.get_submodule(str(node.target))
        if not isinstance(module, Sizes):
            raise self.unsupported(f"module {type(module).__name__} has no integer version in this graph")
        by_name = {i.name: i for i in self.builder.inputs}
        for given, expected in zip(node.args, module.expected):
            if isinstance(expected, list):
                by_name[self.values[given]].shape = expected
        for condition in module.conditions:
            size = lambda place: self.axis_size(node.args[place.input], place.axis)  # noqa: E731
            value = value_of(condition.value, size, self.number)
            bounds = {"low": condition.low, "exact": condition.exact}
            self.builder.add("require", [], "required", value=value, why=condition.refusal, **bounds)

    def call_function(self, node: fx.Node) -> None:
        if node in self.fixed and not _is_view(node):  # stored when a step reads it
            return
        if node.target is operator.getitem:
            self.values[node] = self.values[node.args[0]][node.args[1]]
            return
        name = call_name(node.target)
        emit = SIZES.get(name) or STEPS.get(name)
        is_complex = any(isinstance(t, Tensor) and t.is_complex() for t in leaves(self.found[node]))
        try:
            if self._is_result(node):
                self.values[node] = self._other_type(node)
                return
            if is_complex:
                raise self.unsupported("its complex numbers cannot become pairs of floats: use torch.view_as_real")
            if emit is None:
                raise self.unsupported()
            self.values[node] = emit(self, node)
        except Unsupported as reason:
            if node in self.fixed:
                return
            if not self.fallback or is_complex:  # which no step has
                self.missing.add(node, reason)
                return
            self.values[node] = self.call_torch(node)
        made, found = self.values[node], self.found[node]
        if isinstance(made, str) and isinstance(found, Tensor):
            self.builder.shapes[made], self.builder.dtypes[made] = tuple(found.shape), dtype_name(found.dtype)

    def call_torch(self, node: fx.Node) -> Any:
        """A step that PyTorch computes."""
        if not is_operator(node.target):
            raise self.unsupported(
                "it takes graphs or is a function of Python: no step, and none that PyTorch computes"
            )
        if self._depends_on_data(node):
            raise self.unsupported(
                "the size of its result depends on the data, and programs plan sizes before they run: keep the size, as"
                " torch.where does, or compute it outside of the model"
            )
        call = TorchCall(node, lambda n: self.parameter(n) if self.is_parameter(n) else self.values[n])
        results = self.found[node]
        several = isinstance(results, (tuple, list))
        if not all(isinstance(t, Tensor) for t in (results if several else [results])):
            raise self.unsupported(f"it returns {described(results)}, which is not a tensor")
        numbers = {"function": len(self.builder.foreign), "numbers": call.numbers}
        self.builder.foreign.append(call)
        names = [str(node)] * (len(results) if several else 1)
        made = self.builder.add_several("foreign", call.tensors, names, **numbers)
        return made if several else made[0]

    def _depends_on_data(self, node: fx.Node) -> bool:
        """Whether the size of its result does, beyond the sizes of its inputs."""
        if torch.Tag.dynamic_output_shape not in node.target.tags:
            return False
        if call_name(node.target) != "aten.index.Tensor":
            return True
        indices: Any = node.args[1]
        return any(self.dtype(i) in (torch.bool, torch.uint8) for i in indices if i is not None)

    def output(self, node: fx.Node) -> None:
        flat = list(node.args[0]) if isinstance(node.args[0], (tuple, list)) else [node.args[0]]
        parts: list[Any] = []
        for part in flat:
            if isinstance(part, fx.Node):
                parts.append(self._result(part, len(self.builder.outputs)))
                self.builder.outputs.append(str(self.values[part] if part in self.values else self.tensor(part)))
            elif part is None or isinstance(part, (bool, int, float, str)):
                parts.append(["constant", part])
            else:
                raise self.unsupported(f"the model returns {described(part)}, which is not a tensor")
        if not self.builder.outputs:
            raise self.unsupported("the model returns no tensor")
        nesting = self._described(output_nesting(self.graph.graph, len(flat)), parts)
        self.builder.result = nesting
        self.builder.arguments = self._arguments()

    def _result(self, node: fx.Node, place: int) -> Any:
        """What an output is in the result: itself, or what it is given as."""
        found = self.found[node]
        if isinstance(found, Tensor):
            return [f"as {str(found.dtype).removeprefix('torch.')}", place] if found.dtype in _GIVEN_AS else place
        if self._is_result(node):
            return ["as number", place]
        if not isinstance(found, int) or isinstance(found, bool):
            raise self.unsupported(f"the model returns {described(found)}, which is not a tensor")
        self.values[node] = filled(self, [], torch.int64, self.size(node))
        return ["as number", place]

    def _is_result(self, node: fx.Node) -> bool:
        """Whether a call gives values of a type that no step has, and only to whoever calls the model."""
        found, packet = self.found.get(node), (aten_name(node) or "").partition(".")[0]
        if packet == "item":
            return all(user.op == "output" for user in node.users)
        if not isinstance(found, Tensor) or found.dtype not in _GIVEN_AS:
            return False
        if packet != "view_as_complex":
            read = self.found[node.args[0]] if packet in ("to", "_to_copy") else None
            if not isinstance(read, Tensor) or read.is_complex() != found.is_complex():
                return False
        return all(user.op == "output" or self._is_result(user) for user in node.users)

    def _other_type(self, node: fx.Node) -> str | None:
        """What a result of another type is made of; int16 of int32, as PyTorch converts floats."""
        read = node.args[0]
        if not isinstance(self.found[node], Tensor) or self.found[node].dtype != torch.int16:
            return self.values[read] if read in self.values else self.tensor(read)
        e = Expression(self)
        return e.step(e.convert(e.term(read, self.dtype(read)), torch.int32))

    def _arguments(self) -> Any:
        """How the model is called, where that is not its tensors one by one."""
        placeholders = [node for node in self.graph.graph.nodes if node.op == "placeholder"]
        nested = input_nesting(self.graph.graph, len(placeholders))
        numbers = {name: place for place, name in enumerate(i.name for i in self.builder.inputs)}
        leaves = [
            numbers[self.values[node]] if node in self.values else ["constant", self.found[node]]
            for node in placeholders
        ]
        if nested is None or (leaves == list(range(len(leaves))) and _is_flat(nested)):
            return None
        return self._described(nested, leaves)

    def _described(self, tree: Any, leaves: list[Any]) -> Any:
        if isinstance(tree, int):
            return leaves[tree]
        if tree is None:  # a field of a dataclass that torch.export leaves out
            return ["constant", None]
        if type(tree) is dict and all(isinstance(key, str) for key in tree):
            return ["dict", [[key, self._described(part, leaves)] for key, part in tree.items()]]
        if isinstance(tree, (tuple, list)):
            return ["tuple" if isinstance(tree, tuple) else "list", [self._described(part, leaves) for part in tree]]
        if hasattr(tree, "items"):  # what models of transformers give
            return self._described(dict(tree.items()), leaves)
        if dataclasses.is_dataclass(tree):
            return self._described({f.name: getattr(tree, f.name) for f in dataclasses.fields(tree)}, leaves)
        raise self.unsupported(f"the model takes or returns a {type(tree).__name__}")


def _is_flat(call: Any) -> bool:
    """Whether a call is tensors in order and by name, without nesting."""
    args, kwargs = call
    return all(isinstance(value, int) for value in (*args, *kwargs.values()))


def call_name(target: Any) -> Any:
    """``aten.relu.default``; other functions are their own names."""
    if is_operator(target):
        return f"{target.namespace}.{target._schema.name.split('::')[1]}.{target._overloadname or 'default'}"
    return target


def read_nodes(graph: fx.Graph) -> set[fx.Node]:
    """The inputs, the checks, and what result and state depend on: not random numbers that training would have read."""
    read: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        is_kept = node.op in ("placeholder", "output", "call_module") or node.target is _UPDATE
        if is_kept or any(user in read for user in node.users):
            read.add(node)
    return read


def _is_view(node: fx.Node) -> bool:
    """Whether a call gives the memory of its input in another shape."""
    returns = node.target._schema.returns if is_operator(node.target) else ()
    return any(value.alias_info is not None for value in returns)
