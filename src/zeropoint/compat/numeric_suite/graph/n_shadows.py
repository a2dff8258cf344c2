"""Several qconfigs for each layer, tried in one model: every layer has shadows, prepared and converted by themselves.

In the model that `prepare_n_shadows_model` makes, layer i is followed by a logger ``shadow_i_0``, by a quantized form
of itself for each qconfig k, ``shadow_wrapper_i_k``, on the same input, and by loggers ``shadow_i_k`` that compare
the result of each form with that of the layer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from zeropoint.compat.fx.backend_config import BackendConfig
from zeropoint.compat.fx.patterns import Match, by_length, find_matches
from zeropoint.compat.fx.qconfigs import qconfigs_by_node
from zeropoint.compat.fx.quantize_fx import convert_fx, prepare_fx
from zeropoint.compat.fx.tracer import QuantizationTracer
from zeropoint.compat.numeric_suite.graph.instrument import node_path, target_name
from zeropoint.compat.numeric_suite.graph.loggers import OutputComparisonLogger, OutputLogger
from zeropoint.compat.numeric_suite.graph.multi_mapping import QConfigMultiMapping
from zeropoint.graph.passes.nodes import producers
from zeropoint.qconfig_mapping import QConfigMapping

WRAPPER, _LOGGER, _BACKEND = "shadow_wrapper", "shadow", "n_shadows_backend_config"


def prepare_n_shadows_model(
    model: nn.Module,
    example_inputs: Any,
    qconfig_multi_mapping: QConfigMultiMapping,
    backend_config: BackendConfig,
    custom_prepare_fn: Callable[..., nn.Module] | None = None,
    custom_prepare_kwargs: Mapping[str, Any] | None = None,
    custom_tracer: Any = None,
) -> fx.GraphModule:
    """`model` with a shadow of each layer for each qconfig that the mappings have for it; run it on data to calibrate.

    Args:
        example_inputs: what the model is called with; it is run once.
        custom_prepare_fn: prepares shadows instead of `prepare_fx`; called with the shadow, ``example_inputs``,
            ``qconfig_mapping`` and `custom_prepare_kwargs`.
        custom_tracer: traces the model instead of `QuantizationTracer`.

    Example:
        >>> import zeropoint
        >>> from zeropoint.compat.fx import get_native_backend_config
        >>> mappings = QConfigMultiMapping().set_global([zeropoint.default_qconfig, zeropoint.default_dynamic_qconfig])
        >>> model, x = nn.Sequential(nn.Linear(2, 2)).eval(), torch.ones(1, 2)
        >>> made = prepare_n_shadows_model(model, (x,), mappings, get_native_backend_config())
        >>> [name for name, _ in made.named_children() if "shadow" in name]
        ['shadow_0_0', 'shadow_wrapper_0_1', 'shadow_0_1', 'shadow_wrapper_0_2', 'shadow_0_2']
    """
    taken = {"example_inputs", "qconfig_mapping", "prepare_custom_config"} & set(custom_prepare_kwargs or ())
    if taken:
        raise ValueError(
            f"custom_prepare_kwargs must not have {', '.join(sorted(taken))}, which prepare_n_shadows_model sets"
        )
    mappings = qconfig_multi_mapping.qconfig_mappings_list
    work = _Building(model, example_inputs, mappings, backend_config, custom_tracer, is_chained=False)
    work.prepare_fn, work.prepare_kwargs = custom_prepare_fn, dict(custom_prepare_kwargs or {})
    return work.build()


def prepare_shadow_network(
    model: nn.Module, example_inputs: Any, qconfig_mapping: QConfigMapping, backend_config: BackendConfig
) -> fx.GraphModule:
    """`model` with a second, quantized network beside it, whose layers get each other's results.

    Every value of that network is compared with the float one. Layers without a qconfig are float in both.
    """
    return _Building(model, example_inputs, [qconfig_mapping], backend_config, None, is_chained=True).build()


def convert_n_shadows_model(
    model: fx.GraphModule,
    custom_convert_fn: Callable[..., nn.Module] | None = None,
    custom_convert_kwargs: Mapping[str, Any] | None = None,
) -> fx.GraphModule:
    """The model with all shadows converted, in place."""
    for name, child in list(model.named_children()):
        if name.startswith(WRAPPER):
            if custom_convert_fn is None:
                made: nn.Module = convert_fx(child, backend_config=model.meta.get(_BACKEND))
            else:
                made = custom_convert_fn(child, **(custom_convert_kwargs or {}))
            setattr(model, name, made)
    return model


def loggers_set_enabled(model: nn.Module, enabled: bool) -> None:
    """Let all loggers of a model log, or not; those of new models with shadows do not."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.enabled = enabled


def loggers_set_save_activations(model: nn.Module, save_activations: bool) -> None:
    """Let all loggers of a model keep values, or comparisons alone."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.save_activations = save_activations


class _Recording(fx.Interpreter):
    """Runs a graph and keeps the result of each node."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.results: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.results[n] = super().run_node(n)
        return self.results[n]


class _Building:
    """A graph with shadows, node by node."""

    prepare_fn: Callable[..., nn.Module] | None = None
    prepare_kwargs: Mapping[str, Any] = {}

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Any,
        mappings: list[QConfigMapping],
        backend_config: BackendConfig,
        tracer: Any,
        is_chained: bool,
    ) -> None:
        tracer = QuantizationTracer() if tracer is None else tracer
        self.model = fx.GraphModule(model, tracer.trace(model))
        self.model._node_name_to_scope = tracer.node_name_to_scope
        self.backend_config, self.is_chained = backend_config, is_chained
        modules = dict(self.model.named_modules(remove_duplicate=False))
        nodes = self.model.graph.nodes
        self.qconfigs = [qconfigs_by_node(modules, self.model.graph, m, tracer.node_name_to_scope) for m in mappings]
        matches = find_matches(self.model.graph, modules, by_length(backend_config))
        self.layers: dict[Match, list[fx.Node]] = {}
        for node in nodes:
            if node in matches:
                self.layers.setdefault(matches[node], []).append(node)
        self.matches = matches
        recording = _Recording(self.model)
        with torch.no_grad():
            recording.run(*example_inputs)
        self.results = recording.results
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}
        self.shadows: dict[fx.Node, fx.Node] = {}

    def build(self) -> fx.GraphModule:
        index = 0
        for node in self.model.graph.nodes:
            self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            match = self.matches.get(node)
            layer = [node] if match is None else self.layers[match]
            if node is not layer[-1]:
                continue
            if match is not None or self.is_chained:
                self._shadow(index, layer, match is not None)
                index += 1
        made = fx.GraphModule(self.model, self.graph)
        made._node_name_to_scope = self.model._node_name_to_scope
        made.meta[_BACKEND] = self.backend_config
        return made

    def _shadow(self, index: int, layer: list[fx.Node], is_matched: bool) -> None:
        chosen = {k: q[layer[0].name] for k, q in enumerate(self.qconfigs, 1)} if is_matched else {}
        candidates = {k: qconfig for k, qconfig in chosen.items() if qconfig is not None}
        is_tensor = isinstance(self.results[layer[-1]], Tensor)
        if is_tensor and (candidates or self.is_chained):
            self._log(index, 0, layer, None, "")
        if is_tensor and candidates:
            for k, qconfig in candidates.items():
                self._log(index, k, layer, self._quantized(index, k, layer, qconfig), str(qconfig))
        elif self.is_chained:
            for node in layer:
                self.shadows[node] = self.graph.node_copy(node, self._input)
            if is_tensor:
                self._log(index, 1, layer, self.shadows[layer[-1]], "")

    def _input(self, node: fx.Node) -> fx.Node:
        """What a shadow gets for a value of the model."""
        return self.shadows.get(node, self.copies[node]) if self.is_chained else self.copies[node]

    def _log(self, index: int, candidate: int, layer: list[fx.Node], shadow: fx.Node | None, qconfig: str) -> None:
        first, last = layer[0], layer[-1]
        make = OutputLogger if shadow is None else OutputComparisonLogger
        logger = make(
            first.name, last.name, f"subgraph_{index}_{candidate}", "model", target_name(self.model, last),
            target_name(self.model, first), "node_output", 0, 0, node_path(self.model, first) or "", qconfig,
        )  # fmt: skip
        logger.enabled = False
        name = f"{_LOGGER}_{index}_{candidate}"
        self.model.add_module(name, logger)
        self.graph.call_module(name, (self.copies[last],) if shadow is None else (shadow, self.copies[last]))

    def _quantized(self, index: int, candidate: int, layer: list[fx.Node], qconfig: Any) -> fx.Node:
        """A call of the layer as a module of its own, prepared for one qconfig."""
        module, inputs = _as_module(self.model, layer)
        arguments: dict[str, Any] = {
            "example_inputs": tuple(self.results[node] for node in inputs),
            "qconfig_mapping": QConfigMapping().set_global(qconfig),
        }
        if self.prepare_fn is None:
            prepared: nn.Module = prepare_fx(module, backend_config=self.backend_config, **arguments)
        else:
            prepared = self.prepare_fn(module, **arguments, **self.prepare_kwargs)
        name = f"{WRAPPER}_{index}_{candidate}"
        self.model.add_module(name, prepared)
        made = self.graph.call_module(name, tuple(map(self._input, inputs)))
        self.shadows[layer[-1]] = made
        return made


def _as_module(model: fx.GraphModule, layer: list[fx.Node]) -> tuple[fx.GraphModule, list[fx.Node]]:
    """Nodes of a graph as a module with weights of its own, and the values that it is called with."""
    root, graph = nn.Module(), fx.Graph()
    root.training = model.training
    made: dict[fx.Node, fx.Node] = {}
    inputs: list[fx.Node] = []

    def copied(node: fx.Node) -> fx.Node:
        if node in made:
            return made[node]
        if node not in layer and producers(node) is None:
            inputs.append(node)
            made[node] = graph.placeholder(f"{node.name}_0")
            return made[node]
        args, kwargs = map_arg(node.args, copied), map_arg(node.kwargs, copied)
        target: Any = node.target
        if node.op == "call_module":
            target = f"mod_{len(root._modules)}"
            root.add_module(target, copy.deepcopy(model.get_submodule(str(node.target))))
        elif node.op == "get_attr":
            owner, _, name = str(node.target).rpartition(".")
            target = f"{name}_{len(made)}"
            setattr(root, target, copy.deepcopy(getattr(model.get_submodule(owner), name)))
        made[node] = graph.create_node(node.op, target, args, kwargs)
        return made[node]

    for node in layer:
        copied(node)
    graph.output(made[layer[-1]])
    _placeholders_first(graph)
    return fx.GraphModule(root, graph), inputs


def _placeholders_first(graph: fx.Graph) -> None:
    first = next(iter(graph.nodes))
    for node in graph.nodes:
        if node.op == "placeholder" and node is not first:
            first.prepend(node)
