"""Comparing two traced models layer by layer: weights, results of each on its own, and shadows on the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx, nn

from zeropoint.compat.fx.modules import is_activation_post_process
from zeropoint.compat.fx.observed import observed_attributes
from zeropoint.compat.fx.tracer import QuantizationTracer
from zeropoint.compat.numeric_suite.graph.instrument import Layer, node_path, target_name, with_loggers
from zeropoint.compat.numeric_suite.graph.matching import matching_subgraphs
from zeropoint.compat.numeric_suite.graph.results import Results, collected, compared, rekeyed
from zeropoint.compat.numeric_suite.graph.shadows import a_shadows_b
from zeropoint.compat.numeric_suite.graph.weights import weight_of

__all__ = [
    "NSTracer",
    "add_loggers",
    "add_shadow_loggers",
    "extend_logger_results_with_comparison",
    "extract_logger_info",
    "extract_shadow_logger_info",
    "extract_weights",
]

Sets = dict[str, set[Any]]


class NSTracer(QuantizationTracer):
    """The tracer of FX graph mode, which leaves observers whole, too."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_activation_post_process(m) or super().is_leaf_module(m, module_qualified_name)


def _traced(model: nn.Module) -> fx.GraphModule:
    # What is a graph already keeps its nodes.
    gm = model if isinstance(model, fx.GraphModule) else fx.GraphModule(model, NSTracer().trace(model))
    how = observed_attributes(model)
    scopes = getattr(model, "_node_name_to_scope", None) if how is None else how.node_name_to_scope
    if scopes is not None:
        gm._node_name_to_scope = scopes
    for node in gm.graph.nodes:  # a function's input may be given by name: it stands first
        if node.op == "call_function" and not node.args and isinstance(node.kwargs.get("input"), fx.Node):
            node.args = (node.kwargs["input"],)
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != "input"}
    return gm


# ------------------------------------------------------------------------------------------------------------- weights


def extract_weights_of_graphs(
    model_name_a: str,
    gm_a: fx.GraphModule,
    model_name_b: str,
    gm_b: fx.GraphModule,
    base_name_to_sets_of_related_ops: Sets | None = None,
    unmatchable_types_map: Sets | None = None,
    op_to_type_to_weight_extraction_fn: dict[str, dict[Any, Any]] | None = None,
) -> Results:
    """As `extract_weights`, for models that are traced already."""
    pairs = matching_subgraphs(gm_a, gm_b, base_name_to_sets_of_related_ops, unmatchable_types_map)
    results: Results = {}
    for place, (model_name, gm) in enumerate(((model_name_a, gm_a), (model_name_b, gm_b))):
        for name, pair in pairs.items():
            node = pair[place].base_op_node
            weight = weight_of(node, gm, op_to_type_to_weight_extraction_fn)
            if weight is None:
                continue
            kind = target_name(gm, node)
            entry = {
                "type": "weight", "values": [weight],
                "prev_node_name": node.name, "prev_node_target_type": kind, "ref_node_name": node.name,
                "ref_node_target_type": kind, "index_within_arg": 0, "index_of_arg": 0, "fqn": node_path(gm, node),
            }  # fmt: skip
            results.setdefault(name, {}).setdefault("weight", {})[model_name] = [entry]
    return rekeyed(results, model_name_b)


def extract_weights(
    model_name_a: str,
    model_a: nn.Module,
    model_name_b: str,
    model_b: nn.Module,
    base_name_to_sets_of_related_ops: Sets | None = None,
    unmatchable_types_map: Sets | None = None,
    op_to_type_to_weight_extraction_fn: dict[str, dict[Any, Any]] | None = None,
) -> Results:
    """The weights of the layers that two models have in common, by the names of the nodes of the second.

    Args:
        base_name_to_sets_of_related_ops: calls that may be the same layer, see `related_sets`.
        unmatchable_types_map: calls that are no layers, see `unmatchable`.
        op_to_type_to_weight_extraction_fn: functions that give weights, see `weight_extraction`.

    Raises:
        GraphMatchingException: if the models do not have the same layers.

    Example:
        >>> import torch
        >>> from zeropoint.compat.fx import convert_fx, prepare_fx
        >>> import zeropoint
        >>> model, x = nn.Sequential(nn.Linear(2, 3)).eval(), torch.randn(4, 2)
        >>> prepared = prepare_fx(model, zeropoint.get_default_qconfig_mapping(), (x,))
        >>> found = extract_weights("float", model, "prepared", prepared)
        >>> [entry["values"][0].shape for entry in found["_0"]["weight"]["prepared"]]
        [torch.Size([3, 2])]
    """
    return extract_weights_of_graphs(
        model_name_a, _traced(model_a), model_name_b, _traced(model_b), base_name_to_sets_of_related_ops,
        unmatchable_types_map, op_to_type_to_weight_extraction_fn,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- loggers


def add_loggers_to_graphs(
    name_a: str,
    gm_a: fx.GraphModule,
    name_b: str,
    gm_b: fx.GraphModule,
    logger_cls: Callable[..., nn.Module],
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Sets | None = None,
    unmatchable_types_map: Sets | None = None,
) -> tuple[nn.Module, nn.Module]:
    """As `add_loggers`, for models that are traced already."""
    pairs = matching_subgraphs(gm_a, gm_b, base_name_to_sets_of_related_ops, unmatchable_types_map)
    made = []
    for place, (model_name, gm) in enumerate(((name_a, gm_a), (name_b, gm_b))):
        layers = {name: pair[place] for name, pair in pairs.items()}
        named = {s: Layer(name, target_name(gm, s.base_op_node)) for name, s in layers.items()}
        inputs = {s.start_node: layer for s, layer in named.items()} if should_log_inputs else {}
        outputs = {s.end_node: layer for s, layer in named.items()}
        made.append(with_loggers(gm, inputs, outputs, logger_cls, model_name))
    return made[0], made[1]


def add_loggers(
    name_a: str,
    model_a: nn.Module,
    name_b: str,
    model_b: nn.Module,
    logger_cls: Callable[..., nn.Module],
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Sets | None = None,
    unmatchable_types_map: Sets | None = None,
) -> tuple[nn.Module, nn.Module]:
    """Both models with loggers behind the layers that they have in common; run them, then `extract_logger_info`.

    Args:
        logger_cls: makes a logger, as `OutputLogger`.
        should_log_inputs: let loggers see what the layers get, too.
    """
    return add_loggers_to_graphs(
        name_a, _traced(model_a), name_b, _traced(model_b), logger_cls, should_log_inputs,
        base_name_to_sets_of_related_ops, unmatchable_types_map,
    )  # fmt: skip


def extract_logger_info(
    model_a: nn.Module, model_b: nn.Module, logger_cls: Any, model_name_to_use_for_layer_names: str
) -> Results:
    """What the loggers of both models kept: layer -> kind of value -> model -> entries."""
    return collected((model_a, model_b), logger_cls, model_name_to_use_for_layer_names)


def extend_logger_results_with_comparison(
    results: Results,
    model_name_1: str,
    model_name_2: str,
    comparison_fn: Callable[[Any, Any], Any],
    comparison_name: str,
) -> None:
    """Put ``comparison_fn(value of the first model, value of the second)`` into the entries of the second."""
    compared(results, model_name_1, model_name_2, comparison_fn, comparison_name)


# ------------------------------------------------------------------------------------------------------------- shadows


def add_shadow_loggers_to_graphs(
    name_a: str,
    gm_a: fx.GraphModule,
    name_b: str,
    gm_b: fx.GraphModule,
    logger_cls: Callable[..., nn.Module],
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Sets | None = None,
    node_type_to_io_type_map: Sets | None = None,
    unmatchable_types_map: Sets | None = None,
) -> nn.Module:
    """As `add_shadow_loggers`, for models that are traced already."""
    pairs = matching_subgraphs(gm_a, gm_b, base_name_to_sets_of_related_ops, unmatchable_types_map)
    return a_shadows_b(name_a, gm_a, name_b, gm_b, pairs, logger_cls, should_log_inputs, node_type_to_io_type_map)


def add_shadow_loggers(
    name_a: str,
    model_a: nn.Module,
    name_b: str,
    model_b: nn.Module,
    logger_cls: Callable[..., nn.Module],
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Sets | None = None,
    node_type_to_io_type_map: Sets | None = None,
    unmatchable_types_map: Sets | None = None,
) -> nn.Module:
    """The second model with the layers of the first as shadows: both get the input that the layer of the second gets.

    Args:
        node_type_to_io_type_map: what calls take and give, see `io_types`.
    """
    return add_shadow_loggers_to_graphs(
        name_a, _traced(model_a), name_b, _traced(model_b), logger_cls, should_log_inputs,
        base_name_to_sets_of_related_ops, node_type_to_io_type_map, unmatchable_types_map,
    )  # fmt: skip


def extract_shadow_logger_info(
    model_a_shadows_b: nn.Module, logger_cls: Any, model_name_to_use_for_layer_names: str
) -> Results:
    """What the loggers of a model with shadows kept."""
    return collected((model_a_shadows_b,), logger_cls, model_name_to_use_for_layer_names)
