"""Graph mode: any model that torch.export can capture, quantized without a change to its code."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from zeropoint.described import described
from zeropoint.fake_quant.base import FakeQuantizeBase
from zeropoint.graph.constants import constants_of, set_constants
from zeropoint.graph.direct import Direct, run
from zeropoint.graph.frontends.dynamic_shapes import ALL
from zeropoint.graph.frontends.export import capture, is_training
from zeropoint.graph.lowering.integer import lower
from zeropoint.graph.lowering.reference import reference
from zeropoint.graph.passes.annotate import Choice, Precision, operator_name, plan, skip_rounding
from zeropoint.graph.passes.canonicalize import make_plain
from zeropoint.graph.passes.compute_in_float32 import compute_in_float32
from zeropoint.graph.passes.equalize import divide_in_quantize, equalize, watch_channels
from zeropoint.graph.passes.fold_affine import fold_affine
from zeropoint.graph.passes.fold_batch_norm import fold_batch_norm
from zeropoint.graph.passes.fold_constants import fold_constants
from zeropoint.graph.passes.fold_linear import fold_linear
from zeropoint.graph.passes.fuse_norms import fuse_norms
from zeropoint.graph.passes.insert_fake_quant import insert_fake_quant, remove_fake_quant, straight_through
from zeropoint.graph.passes.insert_observers import insert_observers, is_observer
from zeropoint.graph.passes.qconfig_rules import unused_rules, warn_of_unused_rules
from zeropoint.graph.passes.recurrent_precision import Runs, choose_recurrent_weights
from zeropoint.graph.provenance import Identity, identify, origin
from zeropoint.graph.scriptable import scriptable
from zeropoint.graph.state_buffers import reset_state
from zeropoint.graph.summary import Row, Summary
from zeropoint.nn.quantized.storage import has_observed
from zeropoint.operators import operators
from zeropoint.qconfig_mapping import QConfigMapping
from zeropoint.tensor.recording import is_recorded


class Prepared(nn.Module):
    """A model with observers, to be run on data and then given to `convert_graph`."""

    def __init__(self, graph: fx.GraphModule, choices: dict[fx.Node, Choice], notes: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.graph_module = graph
        self._notes = notes
        self.splits: dict[Identity, Runs] = {}  # recurrent networks that are several nodes now
        self._choices = {node.name: choice for node, choice in choices.items()}
        self.train(graph.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.graph_module(*args, **kwargs)

    def choices(self) -> dict[fx.Node, Choice]:
        """What was chosen for each node of the graph."""
        nodes = self.graph_module.graph.nodes
        return {node: self._choices[node.name] for node in nodes if node.name in self._choices}

    def choose_recurrent_weights(self, *args: Any, **kwargs: Any) -> None:
        """Try recurrent layers of 8 bits on a batch, and give those that would be inaccurate float16 weights."""
        choices, splits = choose_recurrent_weights(self.graph_module, self.choices(), args, kwargs)
        self.splits.update(splits)
        self._choices = {node.name: choice for node, choice in choices.items()}

    def summary(self) -> Summary:
        """What will become of each operator, and why."""
        return summarized(self.choices(), self._notes)


class InTraining(Prepared):
    """A model that trains with rounding, to be trained and then given to `convert_graph`.

    Training computes with floats that are rounded where the integers will be. In evaluation, with observers off
    (``model.eval().apply(zeropoint.disable_observer)``), it gives what the converted model will give, bit for bit.
    """

    _deployed: tuple[list[torch.Tensor], Quantized] | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.training or is_recorded() or not self._is_final():
            return self.graph_module(*args, **kwargs)
        with torch.no_grad():
            values = self._converted()(*args, **kwargs)
        if not torch.is_grad_enabled():
            return values
        return pytree.tree_map(_with_gradient, self.graph_module(*args, **kwargs), values)

    def _is_final(self) -> bool:
        """Whether everything is rounded, with parameters that no longer change, on the CPU."""
        rounding = [module for module in self.modules() if isinstance(module, FakeQuantizeBase)]
        return all(
            bool(module.fake_quant_enabled) and not bool(module.observer_enabled) and has_observed(module)
            for module in rounding
        ) and all(parameter.device.type == "cpu" for parameter in self.parameters())

    def _converted(self) -> Quantized:
        state = [*self.parameters(), *self.buffers()]
        if self._deployed is None or not all(map(torch.equal, state, self._deployed[0])):
            self._deployed = ([tensor.detach().clone() for tensor in state], convert_graph(self))
        return self._deployed[1]

    def train(self, mode: bool = True) -> InTraining:
        self._deployed = None
        return super().train(mode)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value) if name == "_deployed" else super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_deployed": None}


def _with_gradient(trained: Any, deployed: Any) -> Any:
    floats = isinstance(trained, torch.Tensor) and trained.requires_grad
    return straight_through(trained, deployed) if floats else deployed


class Quantized(nn.Module):
    """A model on integers: an ordinary module, with `summary()`."""

    _direct: Direct | None = None  # made by a call, and neither copied nor saved

    def __init__(self, graph: fx.GraphModule, summary: Summary, splits: dict[Identity, Runs] | None = None) -> None:
        super().__init__()
        self.graph_module = graph
        self._summary = summary
        self.splits = dict(splits or {})  # recurrent networks of the float graph that are several nodes here
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or is_recorded():
            return self.graph_module(*args, **kwargs)
        result, direct = run(self.graph_module, self._direct, args)
        if direct is not self._direct:
            self._direct = direct
        return result

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move the buffers. NotImplementedError for another dtype: biases and tables would lose digits."""
        made = fn(torch.zeros(0)).dtype
        if made != torch.float32:
            raise NotImplementedError(
                f"a quantized model cannot be converted to {made}: it computes on integers and float32. Convert the "
                "float layers around it alone, and give it float32 inputs"
            )
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_direct"}

    def __prepare_scriptable__(self) -> nn.Module:
        """What torch.jit.script compiles."""
        return scriptable(self.graph_module)

    def get_extra_state(self) -> Tensor:
        """What a state_dict holds beside the buffers: the scales and zero points of activations, with the calls."""
        return constants_of(self.graph_module)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the scales and zero points of a state_dict. ValueError, if it is that of another graph."""
        set_constants(self.graph_module, state)

    def reset(self) -> None:
        """Begin anew: give what the model keeps from call to call, as the cache of a decoder, its initial value."""
        reset_state(self.graph_module)

    def summary(self) -> Summary:
        """How each operator is computed, and why."""
        return self._summary


def summarized(choices: dict[fx.Node, Choice], notes: tuple[str, ...]) -> Summary:
    return Summary(
        tuple(
            Row(origin(node).path, operator_name(node, choice), choice.precision.value, choice.reason)
            for node, choice in choices.items()
            if choice.precision not in (Precision.PASSED, Precision.FUSED)
        ),
        notes,
    )


def _notes(unused: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"this rule matches nothing in the model: {rule}" for rule in unused)


def mapping_of(model: nn.Module, given: Any) -> QConfigMapping:
    """`given` as a mapping whose names are those of modules of the model."""
    if isinstance(given, Mapping):
        given = QConfigMapping.from_dict(dict(given))
    if not isinstance(given, QConfigMapping):
        raise TypeError(f"qconfig_mapping must be a QConfigMapping or a dictionary, got {type(given).__name__}")
    names = {name for name, _ in model.named_modules()}
    unknown = [name for name in given.module_name_qconfigs if name not in names]
    unknown += [regex for regex in given.module_name_regex_qconfigs if not any(re.match(regex, n) for n in names)]
    unknown += [place[0] for place in given.module_name_object_type_order_qconfigs if place[0] not in names]
    if unknown:
        raise ValueError(f"qconfig_mapping: the model has no module {', '.join(map(repr, unknown))}")
    return given


def _require_some(prepared: Prepared) -> Prepared:
    if all(c.precision in (Precision.FLOAT, Precision.PASSED, Precision.FUSED) for c in prepared._choices.values()):
        looked_for = ", ".join(operator.name for operator in operators() if operator.annotate is not None)
        raise ValueError(f"nothing in this model would be quantized. Looked for: {looked_for}.\n{prepared.summary()}")
    return prepared


def float_graph(
    model: nn.Module, example_inputs: Any, dynamic_shapes: Any = None, *, trained: bool = False
) -> fx.GraphModule:
    """The float operators of a model in the spelling that records have: what `prepare_graph` puts observers into.

    Args:
        trained: its parameters will change, so nothing is computed from them in advance.
    """
    return in_known_operators(capture(model, example_inputs, dynamic_shapes=dynamic_shapes), trained=trained)


def in_known_operators(graph: fx.GraphModule, *, trained: bool = False) -> fx.GraphModule:
    """A captured graph, changed into the spelling that records have; see `float_graph`."""
    if not trained:
        compute_in_float32(graph)
    make_plain(graph)
    fold_linear(graph)
    if not trained:
        fold_constants(graph)
        fold_linear(graph)  # with weights that were computed
    fold_batch_norm(graph, moved=not trained)
    if not trained:
        fold_affine(graph)
    fuse_norms(graph)
    identify(graph)
    return graph


def prepare_graph(
    model: nn.Module,
    qconfig_mapping: QConfigMapping | Mapping[str, Any],
    example_inputs: Any,
    prepare_custom_config: Any = None,
    _equalization_config: Any = None,
    backend_config: Any = None,
    *,
    dynamic_shapes: Any = None,
    equalize_channels: bool = False,
) -> Prepared:
    """Insert observers into a copy of `model`. Run the result on calibration data, then call `convert_graph`.

    Args:
        model: any module that `torch.export` can capture, in evaluation mode.
        qconfig_mapping: the qconfig of each module and function; None keeps it in float.
        example_inputs: a tuple of positional arguments. It does not fix the sizes.
        backend_config: must be None; there is one backend.
        dynamic_shapes: the dynamic sizes, as for `torch.export`.
        equalize_channels: scale down input channels of linear layers that are far larger than the others, and scale up
            their weights. Equal in float, more accurate in 8 bits. Use it for transformers; observers then keep the
            full range.

    Raises:
        CaptureError: if `torch.export` cannot capture the model.
        ValueError: if the mapping has a name that the model does not have, or nothing would be quantized.

    Example:
        >>> import zeropoint
        >>> model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
        >>> prepared = prepare_graph(model, zeropoint.get_default_qconfig_mapping("native"), (torch.ones(1, 4),))
        >>> _ = prepared(torch.randn(16, 4))
        >>> print(convert_graph(prepared).summary())
        module  operator  computed  why
        0       linear    int8
        1 int8
    """
    _refuse_backend("prepare_graph", backend_config)
    _refuse(prepare_custom_config=prepare_custom_config, _equalization_config=_equalization_config)
    if is_training(model):
        raise ValueError("prepare_graph: the model is in training mode: call model.eval(), or use prepare_qat_graph")
    mapping = mapping_of(model, qconfig_mapping)
    graph = float_graph(model, example_inputs, ALL if dynamic_shapes is None else dynamic_shapes)
    unused = unused_rules(graph, mapping)
    warn_of_unused_rules(unused)
    return prepare_captured(graph, mapping, equalize_channels, _notes(unused))


def prepare_captured(
    graph: fx.GraphModule,
    mapping: QConfigMapping,
    equalize_channels: bool,
    notes: tuple[str, ...],
    *,
    may_be_float: bool = False,
) -> Prepared:
    """`graph`, from `float_graph`, with observers; `notes` are for its summary.

    Args:
        may_be_float: whether all of it may stay float.
    """
    choices = plan(graph, mapping)
    skip_rounding(choices)
    insert_observers(graph, choices)
    if equalize_channels:
        watch_channels(graph, choices)
    prepared = Prepared(graph.eval(), choices, notes)
    return (prepared if may_be_float else _require_some(prepared)).eval()


def prepare_qat_graph(
    model: nn.Module,
    qconfig_mapping: QConfigMapping | Mapping[str, Any],
    example_inputs: Any,
    prepare_custom_config: Any = None,
    backend_config: Any = None,
    *,
    dynamic_shapes: Any = None,
) -> Prepared:
    """Insert fake quantization into a copy of `model`, for quantization-aware training; arguments as `prepare_graph`.

    Training rounds activations and weights wherever the converted model rounds. A layer trains together with its batch
    norm, and both become one integer operator. In evaluation mode with observers disabled, the outputs equal those of
    the converted model bit for bit.

    Example:
        >>> import zeropoint
        >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()).train()
        >>> example = (torch.ones(2, 1, 4, 4),)
        >>> prepared = prepare_qat_graph(model, zeropoint.get_default_qat_qconfig_mapping("native"), example)
        >>> prepared(torch.randn(2, 1, 4, 4)).sum().backward()
    """
    _refuse_backend("prepare_qat_graph", backend_config)
    _refuse(prepare_custom_config=prepare_custom_config)
    mapping = mapping_of(model, qconfig_mapping)
    shapes = ALL if dynamic_shapes is None else dynamic_shapes
    graph = float_graph(copy.deepcopy(model).eval(), example_inputs, shapes, trained=True)
    unused = unused_rules(graph, mapping)
    warn_of_unused_rules(unused)
    choices = plan(graph, mapping)
    skip_rounding(choices)
    insert_fake_quant(graph, choices, model)
    return _require_some(InTraining(graph, choices, _notes(unused))).train(model.training)


def convert_graph(
    graph_module: Prepared,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
    keep_original_weights: bool = False,
    *,
    debug: bool = False,
) -> Quantized:
    """Convert a calibrated (`prepare_graph`) or trained (`prepare_qat_graph`) model to int8.

    Args:
        debug: return the reference graph, with quantize and dequantize operators around float operators.

    Raises:
        NotCalibrated: if an observer saw no data.
    """
    _refuse_backend("convert_graph", backend_config)
    _refuse(convert_custom_config=convert_custom_config, qconfig_mapping=qconfig_mapping)
    if not isinstance(graph_module, Prepared):
        found = type(graph_module).__name__
        raise TypeError(f"convert_graph expects a model from prepare_graph or prepare_qat_graph, got {found}")
    prepared = copy.deepcopy(graph_module).eval()
    reset_state(prepared.graph_module)
    with torch.no_grad():
        remove_fake_quant(prepared.graph_module)
        choices = equalize(prepared.graph_module, prepared.choices())
        if debug:
            return Quantized(reference(prepared.graph_module, choices), graph_module.summary(), graph_module.splits)
        lowered = lower(prepared.graph_module, choices)
        divide_in_quantize(lowered)
        return Quantized(lowered, graph_module.summary(), graph_module.splits)


def equalized(prepared: Prepared) -> Prepared:
    """A copy of a calibrated model whose large channels are divided, as `convert_graph` does it."""
    made = copy.deepcopy(prepared)
    with torch.no_grad():
        choices = equalize(made.graph_module, made.choices())
    made._choices = {node.name: choice for node, choice in choices.items()}
    return made


def convert_layers(prepared: Prepared, layers: Collection[str]) -> Quantized:
    """As `convert_graph`, but only the layers of these names in `prepared.choices()` on integers, others in float."""
    wanted = prepared.choices()
    by_name = {node.name: node for node in prepared.graph_module.graph.nodes}
    carried: set[fx.Node] = set()  # what hands integers on to one of the layers
    for node, choice in wanted.items():
        for name in choice.inputs if node.name in layers else ():
            at = by_name[name]
            while at in wanted and wanted[at].precision is Precision.PASSED:
                carried.add(at)
                at = _before(at)
    choices: dict[fx.Node, Choice] = {}
    for node, choice in wanted.items():
        kept = node.name in layers or node in carried
        if choice.precision in (Precision.PASSED, Precision.FUSED) and not kept:
            before = choices.get(_before(node))
            kept = before is not None and before.precision is not Precision.FLOAT
        choices[node] = choice if kept else Choice(Precision.FLOAT, choice.reason or "left out", choice.operator)
    with torch.no_grad():
        return Quantized(lower(prepared.graph_module, choices), summarized(choices, prepared._notes))


def _before(node: fx.Node) -> Any:
    """What a node takes first, without the observer between them."""
    before: Any = node.args[0]
    return before.args[0] if is_observer(before) else before


def convert_to_reference_graph(graph_module: Prepared, **options: Any) -> Quantized:
    """`convert_graph` with ``debug=True``."""
    return convert_graph(graph_module, debug=True, **options)


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None and value != {}:
            raise NotImplementedError(
                f"{name} is not supported: torch.export captures the whole model; got {described(value)}"
            )


def _refuse_backend(function: str, backend_config: Any) -> None:
    if backend_config is not None:
        raise NotImplementedError(
            f"{function}: backend_config must be None, got {described(backend_config)}: zeropoint has one backend. "
            "To keep operators in float, set their qconfig to None in the QConfigMapping"
        )
