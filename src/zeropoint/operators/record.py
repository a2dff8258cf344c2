"""The record of one operator, in parts by who reads them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import fx, nn

from zeropoint.operators.onnx_forms import OnnxForms
from zeropoint.operators.steps import Restores, Steps

if TYPE_CHECKING:
    from zeropoint.operators.choice import Choice, State
    from zeropoint.operators.float_forms import FloatForm
    from zeropoint.operators.lowered_value import Scale, Value
    from zeropoint.operators.lowering import Lowering, ReferenceLowering


class Output(enum.Enum):
    """Where scale and zero point of a result come from."""

    OWN = "observed: the output has its own range"
    INPUT = "those of the input, whose values are moved, selected, clamped or averaged"
    UNIT = "fixed: outputs are in [0, 1]"
    SYMMETRIC = "fixed: outputs are in [-1, 1]"
    FLOAT = "none: the output is float32"


@dataclass(frozen=True)
class ModuleForms:
    """A module class, and the classes that stand for it when it is quantized. `None`: there is no such form."""

    module: type[nn.Module]
    static: type[nn.Module] | None = None
    dynamic: type[nn.Module] | None = None
    reference: type[nn.Module] | None = None
    training: type[nn.Module] | None = None  # stands in for it during quantization-aware training


@dataclass(frozen=True)
class CustomModule:
    """A module that is swapped as a whole twice: for `observed` by prepare, for `quantized` by convert.

    `observes_inside`: its parts have observers, so its result needs none.
    """

    module: type[nn.Module]
    observed: type[nn.Module]
    quantized: type[nn.Module]
    observes_inside: bool = True


@dataclass(frozen=True)
class Fusion:
    """Modules in a row that become one. `evaluation`, `training`: the class of the fused module in these modes.

    `folds`: the second part is a batch norm, whose numbers go into the layer before it; then, for evaluation, no class
    means the layer itself.
    """

    parts: tuple[type[nn.Module], ...]
    evaluation: Callable[..., nn.Module] | None = None
    training: Callable[..., nn.Module] | None = None
    folds: bool = False


class Observed(enum.Enum):
    """How an operator is observed in FX graph mode."""

    SUM = "two tensors: the output has its own range; a tensor and a number: that of the tensor"
    PRODUCT = "a matrix product: the output has its own range"
    JOINED = "inputs and output share one observer"
    OWN = "the output has its own range"
    NORM = "the output has its own range; weight and bias stay in float"
    FIXED = "the output has the fixed range of the record"
    SHARED = "the output has the observer of the input"
    PASSED = "not observed; takes and returns quantized tensors between them"
    INFO = "returns information about a tensor, not a tensor"
    BATCH_NORM = "the output has its own range; a following ReLU can be fused"


@dataclass(frozen=True)
class Traced:
    """An operator in FX graph mode, which knows it by what a symbolic trace calls: modules, functions and methods.

    Args:
        observed: how observers treat it.
        methods: the names of the methods of tensors that call it.
        without: modules and functions of the record that FX graph mode leaves in float, as torch.ao does.
    """

    observed: Observed
    methods: tuple[str, ...] = ()
    without: tuple[Any, ...] = ()


class Effect(enum.Enum):
    """What an operator does to the values of its input, beyond computing new ones."""

    COMPUTES = "gives new values"
    RESHAPES = "gives every value once, in another shape or order"
    JOINS = "puts its inputs together: they and the result have one scale"
    AVERAGES = "gives averages, which are rounded to the steps of the input"
    BOUNDS = "cuts values off at numbers, which are rounded to the steps of the input"
    CHOOSES = "gives the largest values: the others are not read"


@dataclass(frozen=True)
class Names:
    """What an operator is called.

    Args:
        name: what summaries call it. If it has a quantized form, that is ``torch.ops.zeropoint.<name>``, with
            ``_relu`` and ``_dynamic`` behind it where `relu` and `dynamic` say so.
        aten: the overloads of ATen that are this operator; in-place ones are rewritten before the records are asked.
        modules: the float modules that call it, and nothing else of note.
        functions: the functions that call it.
    """

    name: str
    aten: tuple[str, ...] = ()
    modules: tuple[type[nn.Module], ...] = ()
    functions: tuple[Callable[..., Any], ...] = ()

    @property
    def object_types(self) -> tuple[Any, ...]:
        """What a qconfig mapping may call it: functions, then modules."""
        return (*self.functions, *self.modules)


@dataclass(frozen=True)
class EagerForms:
    """What eager mode reads.

    Args:
        forms: what becomes of modules: of `modules`, of layers fused with it, and of those in training.
        custom: modules that are swapped as a whole.
        eager_function: computes it on quantized tensors; takes scale and zero point of the result.
        fusions: modules that are fused into one, beginning with this.
    """

    forms: tuple[ModuleForms, ...] = ()
    custom: tuple[CustomModule, ...] = ()
    eager_function: tuple[Callable[..., Any], Callable[..., Any]] | None = None
    fusions: tuple[Fusion, ...] = ()

    @property
    def folds_batch_norm(self) -> bool:
        """Whether a batch norm behind it can be a part of its weight and bias."""
        return any(fusion.folds for fusion in self.fusions)


@dataclass(frozen=True)
class QuantizedForm:
    """What every workflow reads: how the operator is quantized.

    Args:
        output: where the parameters of the result come from.
        weights: the arguments that are weights, by ATen's names.
        slopes: those that are quantized with the dtype of the input and the range they have, whatever the qconfig says.
        arguments: of a function of one tensor: what stands between the input and the output's parameters, by ATen's
            names.
        effect: what it does to the values of its input.
        relu: a ReLU behind it can be a part of it.
        dynamic: it has a form on floats that finds the range of its input when it runs.
        weight_only: it has a form on floats whose weights alone are quantized, to 8 or 4 bits.
        heavy: worth quantizing even if its inputs are float.
        alone: quantized in TorchScript even if its inputs are float, as PyTorch does there.
    """

    output: Output = Output.OWN
    weights: tuple[str, ...] = ()
    slopes: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    effect: Effect = Effect.COMPUTES
    relu: bool = False
    dynamic: bool = False
    weight_only: bool = False
    heavy: bool = False
    alone: bool = False

    @property
    def keeps_scale(self) -> bool:
        """Whether its result has the parameters of its input."""
        return self.output is Output.INPUT

    @property
    def rounds_to_input(self) -> bool:
        """Whether its results are new values, rounded to the steps of its input."""
        return self.effect in (Effect.AVERAGES, Effect.BOUNDS)

    @property
    def is_layer(self) -> bool:
        """Whether it is a linear layer or a convolution: one weight, and a result with a range of its own."""
        return self.weights == ("weight",) and self.output is Output.OWN


@dataclass(frozen=True)
class GraphForms:
    """What the passes and the lowering of graph mode read.

    Args:
        annotate: ``(state, node, operator, qconfig) -> Choice``: how a node with a qconfig is computed. None: it keeps
            the scale of its input, or stays float.
        lower: ``(g, node, choice) -> Value``: the node of the graph on integers.
        reference: ``(g, node, choice, made)``: rounds the weight of `made`, its float node in a reference graph.
        integers: for `Output.INPUT`, ``(g, integers, scale, arguments, node) -> node``: what computes it on integers;
            None if the operator takes integers as they are.
        refuses: ``arguments -> reason``: why a call that keeps the scale of its input is not done on integers, or "".
        float_form: ``(g, node) -> (target, arguments)``: what computes it on float32, with the same bytes on every CPU
            and in a program; None for the node as it is.
        parts: computes it with other operators, in whose place these are then annotated and lowered, each by its own
            record.
        composed: of a function that PyTorch makes of others: the last of these, by ATen's name, and ``node -> input``,
            which looks at a call of that and says what the function is of, or None if it is something else.
            ``torch.ops.zeropoint.float_<name>`` then stands for it in graphs.
    """

    annotate: Callable[[State, fx.Node, Operator, Any], Choice] | None = None
    lower: Callable[[Lowering, fx.Node, Choice], Value] | None = None
    reference: Callable[[ReferenceLowering, fx.Node, Choice, fx.Node], None] | None = None
    integers: Callable[[Lowering, fx.Node, Scale, dict[str, Any], fx.Node], fx.Node] | None = None
    refuses: Callable[[dict[str, Any]], str] | None = None
    float_form: FloatForm | None = None
    parts: Callable[..., Any] | None = None
    composed: tuple[str, Callable[[fx.Node], fx.Node | None]] | None = None


@dataclass(frozen=True)
class ProgramForms:
    """What the compiler reads.

    Args:
        steps: calls that the operator is in graphs on integers, or as `float_form`, each with the function that emits
            the steps of a program for it; see `steps`.
        restores: kinds of steps of programs, each with the function that makes the nodes of such a step again; see
            `restores`.
    """

    steps: Steps = ()
    restores: Restores = ()


@dataclass(frozen=True)
class Operator(ProgramForms, GraphForms, QuantizedForm, EagerForms, Names):
    """One operator: its names, and what becomes of it in every workflow. Each base is what one kind of reader sees.

    Args:
        traced: how FX graph mode sees it; None for layers, whose fused forms say it, and for what stays float there.
        onnx: what ONNX has for it, given by the file of its family in `onnx/`.
    """

    traced: Traced | None = None
    onnx: OnnxForms = field(default_factory=OnnxForms)

    def __deepcopy__(self, memo: dict[int, Any]) -> Operator:
        return self

    @property
    def weight_axis(self) -> int:
        """The axis of a layer's weight that counts output channels."""
        return 1 if "transpose" in self.name else 0

    @property
    def called(self) -> frozenset[str]:
        """The names that Python calls it by: functions of torch, methods of tensors."""
        packets = (name.split(".")[0] for name in self.aten)
        functions = (function.__name__ for function in self.functions)
        return frozenset((*packets, *functions, *(self.traced.methods if self.traced else ())))

    @property
    def moves_values(self) -> bool:
        """Whether its results are values of its input in other places, whatever else it is called with."""
        return self.keeps_scale and not (self.rounds_to_input or self.refuses)

    @property
    def traced_calls(self) -> tuple[Any, ...]:
        """What a symbolic trace calls it where FX graph mode quantizes it: modules, functions, names of methods."""
        if self.traced is None:
            return ()
        named = (call for call in (*self.modules, *self.functions) if call not in self.traced.without)
        return (*named, *self.traced.methods)
