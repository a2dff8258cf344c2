"""Observers into a traced graph: one for each value that will be quantized."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx, nn

from zeropoint.compat.fx.backend_config import BackendConfig, ObservationType
from zeropoint.compat.fx.custom_config import PrepareCustomConfig, classes_of, swapped_class
from zeropoint.compat.fx.custom_recurrent import add_dequantize_stubs, lstm_behind
from zeropoint.compat.fx.equalization.insert import insert_equalization_observers, why_not
from zeropoint.compat.fx.equalization.layers import equalizes
from zeropoint.compat.fx.modules import (
    free_name,
    is_observer_call,
    set_module,
    unique_device,
)
from zeropoint.compat.fx.node_observers import FLOAT, OBSERVED_DTYPES, Plan, dtype_of
from zeropoint.compat.fx.non_tensors import Plainness, plain_arguments
from zeropoint.compat.fx.observed import ATTRIBUTES, ObservedGraphModuleAttrs, observed_attributes
from zeropoint.compat.fx.patterns import Match, by_length, find_matches, nodes_of
from zeropoint.compat.fx.qconfig_dtypes import activation_is_statically_quantized, get_qconfig_dtypes, get_quant_type
from zeropoint.compat.fx.qconfigs import Scopes, add_fused_types, add_trained_types, qconfigs_by_node
from zeropoint.compat.fx.support import is_supported
from zeropoint.eager.convert import convert as swap_modules
from zeropoint.numerics.dtypes import quint8
from zeropoint.observers.passive import PlaceholderObserver
from zeropoint.operators import float_weight_functions
from zeropoint.qconfig import QConfig, is_reuse_input_qconfig
from zeropoint.qconfig_mapping import QConfigMapping
from zeropoint.qconfig_propagation import propagate_qconfig_

_FLOAT_QCONFIG = QConfig(activation=FLOAT, weight=FLOAT)
_QUANTIZED = PlaceholderObserver.with_args(dtype=quint8)
_FLOAT_WEIGHTS = float_weight_functions()


def prepare(
    model: fx.GraphModule,
    qconfig_mapping: QConfigMapping,
    is_qat: bool,
    scopes: Scopes,
    custom: PrepareCustomConfig,
    backend_config: BackendConfig,
    equalization: QConfigMapping | None = None,
    is_standalone: bool = False,
) -> fx.GraphModule:
    """The traced and fused `model` with observers, or, for training, with fake quantization."""
    mapping, equalization = copy.deepcopy(qconfig_mapping), copy.deepcopy(equalization or QConfigMapping())
    add_fused_types(model, mapping)
    add_fused_types(model, equalization)
    rules: dict[Any, Any] = {"": mapping.global_qconfig, **mapping.object_type_qconfigs, **mapping.module_name_qconfigs}
    propagate_qconfig_(model, rules, custom.to_dict())
    if is_qat:
        swap_modules(model, mapping=backend_config.training_modules(), inplace=True, remove_qconfig=False)
        add_trained_types(mapping, backend_config)
    modules = dict(model.named_modules(remove_duplicate=False))
    equalized = qconfigs_by_node(modules, model.graph, equalization, scopes)
    for name, qconfig in equalized.items():
        if qconfig is not None and not hasattr(qconfig, "input_activation"):
            raise TypeError(
                f"_equalization_config: the value for {name} must be an EqualizationQConfig, got a "
                f"{type(qconfig).__name__}"
            )
    qconfigs = qconfigs_by_node(modules, model.graph, mapping, scopes)
    work = _Preparation(model, qconfigs, custom, backend_config, is_qat, equalized)
    work.prepare_standalone_modules()
    work.plan()
    work.insert()
    made = fx.GraphModule(model, model.graph)
    attributes = ObservedGraphModuleAttrs(
        qconfigs, scopes, custom, equalized, mapping, is_qat, {node.name for node in work.observed}
    )
    if is_standalone:
        attributes.is_observed_standalone_module = True
        attributes.standalone_module_input_quantized_idxs = custom.input_quantized_indexes
        attributes.standalone_module_output_quantized_idxs = custom.output_quantized_indexes
    made.meta[ATTRIBUTES] = attributes
    return made


class _Preparation:
    """A graph while observers are put into it."""

    def __init__(
        self,
        model: fx.GraphModule,
        qconfigs: dict[str, Any],
        custom: PrepareCustomConfig,
        backend_config: BackendConfig,
        is_qat: bool,
        equalized: dict[str, Any],
    ) -> None:
        self.model, self.graph, self.qconfigs, self.equalized = model, model.graph, qconfigs, equalized
        self.custom, self.backend_config, self.is_qat = custom, backend_config, is_qat
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.is_plain = Plainness(self.modules)
        self.matches = self._matches()
        self.plans: dict[fx.Node, Plan] = {}
        self.observed: set[fx.Node] = set()
        self.device = unique_device(model)
        self._swapped: set[str] = set()

    def _matches(self) -> dict[fx.Node, Match]:
        found = find_matches(self.graph, self.modules, by_length(self.backend_config))
        custom = classes_of(self.custom.float_to_observed_mapping)
        for node in self.graph.nodes:
            if node.op != "call_module":
                continue
            module = self.modules[str(node.target)]
            if type(module) in custom:
                found[node] = Match(node, node, is_custom=True)
            attributes = observed_attributes(module)
            if self.custom.standalone(str(node.target), type(module)) is not None or (
                attributes is not None and attributes.is_observed_standalone_module
            ):
                found[node] = Match(node, node, is_standalone=True)
        return found

    # ---------------------------------------------------------------------------------------------- standalone modules

    def _standalone_configs(self, node: fx.Node) -> tuple[QConfigMapping, Any, PrepareCustomConfig, BackendConfig]:
        target = str(node.target)
        entry = self.custom.standalone(target, type(self.modules[target]))
        mapping = None if entry is None else entry.qconfig_mapping
        custom = None if entry is None else entry.prepare_custom_config
        backend = None if entry is None else entry.backend_config
        return (
            mapping or QConfigMapping().set_global(self.qconfigs[node.name]),
            () if entry is None else entry.example_inputs,
            custom or PrepareCustomConfig(),
            backend or self.backend_config,
        )

    def prepare_standalone_modules(self) -> None:
        """Prepare modules that are quantized by themselves."""
        from zeropoint.compat.fx.quantize_fx import prepare_traced

        self._standalone = {
            node: self._standalone_configs(node) for node, match in self.matches.items() if match.is_standalone
        }
        for node, (mapping, inputs, custom, backend) in self._standalone.items():
            target = str(node.target)
            made = prepare_traced(
                self.modules[target], mapping, inputs, custom, backend, is_qat=self.is_qat, is_standalone=True
            )
            set_module(self.model, target, made)
            self.modules[target] = made

    # ------------------------------------------------------------------------------------------------------------ plan

    def plan(self) -> None:
        """Decide for each node what its inputs and its result are observed for."""
        self.plans = {node: Plan() for node in self.graph.nodes}
        matches = list(dict.fromkeys(self.matches.values()))
        for match in matches:
            self._plan_match(match, self.qconfigs[match.last.name])
        inputs = 0
        for node in self.graph.nodes:
            if node.op == "placeholder":
                if inputs in self.custom.input_quantized_indexes:
                    self.plans[node] = Plan(_QUANTIZED, _QUANTIZED)
                inputs += 1
            elif node.op == "output":
                if 0 in self.custom.output_quantized_indexes:
                    self.plans[node] = Plan(_QUANTIZED, _QUANTIZED)
            elif node.op != "get_attr" and self.is_plain(node):
                self.plans[node] = Plan(None, None)
        for node in self.graph.nodes:
            for argument in plain_arguments(node):
                self._plan_no_tensor(argument)
        for match in matches:
            if not is_supported(match, self.qconfigs[match.last.name], self.plans):
                self._plan_match(match, _FLOAT_QCONFIG, is_float=True)

    def _plan_match(self, match: Match, qconfig: Any, is_float: bool = False) -> None:
        if qconfig is not None:
            for node in nodes_of(match.nodes):
                self.plans[node] = self._planned(node, None if is_float else match, qconfig)

    def _planned(self, node: fx.Node, match: Match | None, qconfig: Any) -> Plan:
        if self.is_plain(node):
            return Plan(None, None)
        activation, weight, is_dynamic = get_qconfig_dtypes(qconfig)
        halves = activation == weight == torch.float16 and not is_dynamic
        config = self.backend_config.by_pattern.get(node.target) if node.op == "call_function" else None
        indices = {} if config is None else config._input_type_to_index
        return Plan(
            input=qconfig.activation,
            output=qconfig.activation,
            weight=qconfig.weight,
            bias=PlaceholderObserver.with_args(dtype=torch.float16 if halves else torch.float32),
            weight_index=indices.get("weight"),
            bias_index=indices.get("bias"),
            shares=match is not None and self._shares(match),
            reuses=is_reuse_input_qconfig(qconfig),
            standalone=match is not None and match.is_standalone,
        )

    def _shares(self, match: Match | None) -> bool:
        """Whether the result of a match has the observer of its input."""
        if match is None or match.config is None:
            return False
        kind, by_tensors = match.config.observation_type, match.config._num_tensor_args_to_observation_type
        if by_tensors:
            tensors = sum(isinstance(a, fx.Node) and not self.is_plain(a) for a in match.root.args)
            if tensors not in by_tensors:
                raise ValueError(
                    f"the backend has no observation type for {match.root.name!r} with {tensors} tensor arguments; "
                    f"supported: {sorted(by_tensors)}"
                )
            kind = by_tensors[tensors]
        return kind is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT

    def _plan_no_tensor(self, node: fx.Node) -> None:
        self.plans[node].input = self.plans[node].output = None
        if self._shares(self.matches.get(node)) and node.args and isinstance(node.args[0], fx.Node):
            self._plan_no_tensor(node.args[0])

    # ---------------------------------------------------------------------------------------------------------- insert

    def insert(self) -> None:
        """Put the observers in, node by node in the order of the graph."""
        for node in list(self.graph.nodes):
            if node.op == "output":
                node.args = tuple(self._observed_result(argument) for argument in node.args)
                continue
            if node.op in ("placeholder", "get_attr"):
                continue
            match, qconfig = self.matches.get(node), self.qconfigs.get(node.name)
            if match is None or qconfig is None or not is_supported(match, qconfig, self.plans):
                continue
            self.modules = dict(self.model.named_modules(remove_duplicate=False))
            self.observed.update(nodes_of(match.nodes))
            if node is match.root:
                self._observe_inputs(node, match, qconfig)
            if node is match.last:
                self._observe_output(node, match, qconfig)

    def _add_observer(self, node: fx.Node, observer: nn.Module, prefix: str = "activation_post_process_") -> fx.Node:
        if self.device is not None:
            observer.to(self.device)
        name = free_name(self.model, prefix)
        setattr(self.model, name, observer)
        self.modules[name] = observer
        with self.graph.inserting_after(node):
            return self.graph.call_module(name, (node,))

    def _given_dtype(self, node: fx.Node) -> Any:
        """The dtype that a value has, as far as it is planned: that of what is observed, if it is an observer's."""
        source = lstm_behind(node, self.modules)
        if source is None:
            source = node.args[0] if is_observer_call(node, self.modules) else node
        return dtype_of(self.plans.get(source, Plan()).output)[0]

    # inputs

    def _observe_inputs(self, node: fx.Node, match: Match, qconfig: Any) -> None:
        equalization = self.equalized.get(node.name) if equalizes(node, self.modules) else None
        reason = why_not(node, self.model, self.qconfigs) if equalization else ""
        args = tuple(self._observed_input(node, argument, match, qconfig) for argument in node.args)
        kwargs = {k: self._observed_input(node, argument, match, qconfig) for k, argument in node.kwargs.items()}
        node.args, node.kwargs = args, kwargs
        if equalization is not None:
            insert_equalization_observers(node, equalization, reason, self.modules, self._add_equalization_observer)

    def _add_equalization_observer(self, node: fx.Node, observer: nn.Module) -> fx.Node:
        return self._add_observer(node, observer, f"{node.name}_equalization_process_")

    def _observed_input(self, node: fx.Node, argument: Any, match: Match, qconfig: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return type(argument)(self._observed_input(node, part, match, qconfig) for part in argument)
        if not isinstance(argument, fx.Node):
            return argument
        if match.is_standalone:
            observer = self._standalone_observer(node, argument, qconfig)
        else:
            observer = self._input_observer(node, argument)
        if observer is None:
            return argument
        for user in argument.users:  # one observer is enough for all who ask for the same
            there = self.modules[str(user.target)] if user.op == "call_module" else None
            if type(there) is type(observer) and there.dtype == observer.dtype:  # type: ignore[union-attr]
                return user
        return self._add_observer(argument, observer)

    def _input_observer(self, node: fx.Node, argument: fx.Node) -> nn.Module | None:
        plan = self.plans[node]
        constructor = plan.for_argument(node, argument, _FLOAT_WEIGHTS)
        dtype, is_dynamic = dtype_of(constructor)
        given = self._given_dtype(argument)
        if is_dynamic:
            needed = bool(node.args) and argument is node.args[0]
        else:
            needed = not plan.reuses and dtype in OBSERVED_DTYPES and given != dtype
            needed = needed and given in (*OBSERVED_DTYPES, torch.float32)
        return constructor() if needed else None

    def _standalone_observer(self, node: fx.Node, argument: fx.Node, qconfig: Any) -> nn.Module | None:
        """Modules that are quantized by themselves observe their inputs, but for those that are quantized before."""
        index = next((i for i, given in enumerate(node.args) if given is argument), None)
        *_, custom, _ = self._standalone[node]
        if index not in custom.input_quantized_indexes or self._given_dtype(argument) == quint8:
            return None
        return None if qconfig.activation is None else qconfig.activation()

    # outputs

    def _observe_output(self, node: fx.Node, match: Match, qconfig: Any) -> None:
        if (
            match.is_custom
            and activation_is_statically_quantized(qconfig)
            and isinstance(self.modules[str(node.target)], nn.LSTM)
        ):
            add_dequantize_stubs(node, self.model, self.modules)
            self._swap_custom(node, qconfig)
            return
        plan = self.plans[node]
        dtype, is_dynamic = dtype_of(plan.output)
        if is_dynamic or plan.standalone or dtype not in OBSERVED_DTYPES:
            return
        observer = self._add_observer(node, plan.output())
        node.replace_all_uses_with(observer, delete_user_cb=lambda user: user is not observer)
        if ((plan.shares and not self._is_observed_elsewhere(node)) or plan.reuses) and not self._share(node):
            observer.replace_all_uses_with(node)
            self.graph.erase_node(observer)
        if match.is_custom:
            self._swap_custom(node, qconfig)

    def _is_observed_elsewhere(self, node: fx.Node) -> bool:
        """Whether its input comes quantized from outside the graph."""
        first = node.args[0] if node.args else None
        return (
            isinstance(first, fx.Node)
            and first.op == "placeholder"
            and self._given_dtype(node) in (quint8, torch.uint8)
        )

    def _share(self, node: fx.Node) -> bool:
        """Let all inputs and the result have the observer of the first input; False if that is not observed."""
        first = next((a for a in node.args if isinstance(a, (fx.Node, list, tuple))), None)
        inputs = list(first) if isinstance(first, (list, tuple)) else [first]
        calls = [self._observer_before(value) for value in inputs]
        if not calls or any(call is None for call in calls):
            return False
        shared = self.modules[str(calls[0].target)]  # type: ignore[union-attr]
        for call in (*calls[1:], *node.users):
            set_module(self.model, str(call.target), shared)
        return True

    def _observer_before(self, node: Any) -> fx.Node | None:
        """The nearest observer that a value has passed, through operators that are not observed."""
        while isinstance(node, fx.Node) and not is_observer_call(node, self.modules):
            if node.op == "placeholder":
                return None
            node = next((a for a in node.args if isinstance(a, fx.Node)), None)
        return node

    def _swap_custom(self, node: fx.Node, qconfig: Any) -> None:
        target = str(node.target)
        if target in self._swapped:
            return
        self._swapped.add(target)
        module = self.modules[target]
        observed = swapped_class(module, self.custom.float_to_observed_mapping, get_quant_type(qconfig))
        set_module(self.model, target, observed.from_float(module))  # type: ignore[attr-defined]

    def _observed_result(self, value: Any) -> Any:
        """A result of the graph, observed where it is to be given as a quantized tensor and is float so far."""
        if isinstance(value, fx.Node):
            plan = self.plans.get(value)
            dtype = torch.float32 if plan is None or plan.input is None else dtype_of(plan.input)[0]
            if dtype != torch.float32 and self._given_dtype(value) != dtype:
                return self._add_observer(value, plan.input())  # type: ignore[union-attr]
            return value
        if isinstance(value, (list, tuple)):
            return _like(value, map(self._observed_result, value))
        if isinstance(value, dict):
            return {key: self._observed_result(part) for key, part in value.items()}
        return value


def _like(value: Any, parts: Iterable[Any]) -> Any:
    return list(parts) if isinstance(value, list) else tuple(parts)
