"""What loggers kept, as a table: layer -> "weight", "node_input" or "node_output" -> model -> entries."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class ResultKind(str, enum.Enum):
    """What was compared."""

    WEIGHT = "weight"
    NODE_OUTPUT = "node_output"
    NODE_INPUT = "node_input"


Results = dict[str, dict[str, dict[str, list[dict[str, Any]]]]]


def entry_of(logger: Any) -> dict[str, Any]:
    """What one logger kept, and what it looked at."""
    return {
        "type": logger.results_type,
        "values": logger.stats if len(logger.stats) else logger.stats_rnn,
        "ref_node_name": logger.ref_node_name,
        "ref_node_target_type": logger.ref_node_target_type,
        "prev_node_name": logger.prev_node_name,
        "prev_node_target_type": logger.prev_node_target_type,
        "index_within_arg": logger.index_within_arg,
        "index_of_arg": logger.index_of_arg,
        "fqn": logger.fqn,
        "qconfig_str": logger.qconfig_str,
        "comparisons": getattr(logger, "comparisons", []),
        "comparison_fn_name": getattr(logger, "comparison_fn_name", ""),
    }


def collect(model: nn.Module, logger_cls: Any, results: Results) -> None:
    """Put what the loggers of a model kept into `results`."""
    for module in model.modules():
        scripted = isinstance(module, torch.jit.RecursiveScriptModule) and module.original_name == logger_cls.__name__
        if isinstance(module, logger_cls) or scripted:
            logger: Any = module
            entries = results.setdefault(logger.ref_name, {}).setdefault(logger.results_type, {})
            kept = entries.setdefault(logger.model_name, [])
            kept.append(entry_of(logger))
            kept.sort(key=lambda entry: (entry["index_of_arg"], entry["index_within_arg"]))


def rekeyed(results: Results, model_name: str) -> Results:
    """The same with the layers called as the nodes of one model; a path that one model knows is given to the other."""
    found: Results = {}
    for name, kinds in results.items():
        for models in kinds.values():
            paths = [entry["fqn"] for entries in models.values() for entry in entries if entry["fqn"] is not None]
            for entries in models.values():
                for entry in entries:
                    if entry["fqn"] is None and paths:
                        entry["fqn"] = paths[0]
        nodes = [m[model_name][0]["ref_node_name"] for m in kinds.values() if m.get(model_name)]
        found[nodes[0] if nodes else name] = kinds
    return found


def collected(models: Iterable[nn.Module], logger_cls: Any, model_name: str) -> Results:
    """What the loggers of these models kept, with the layers called as the nodes of one of them."""
    results: Results = {}
    for model in models:
        collect(model, logger_cls, results)
    return rekeyed(results, model_name)


def compared(results: Results, first: str, second: str, measure: Callable[[Any, Any], Any], name: str) -> None:
    """Put a measure of each value of the second model against that of the first into the entry of the second.

    Raises:
        ValueError: if a layer has no results of one of the models.
    """
    for layer, kinds in results.items():
        for models in kinds.values():
            for model in (first, second):
                if model not in models:
                    raise ValueError(f"layer {layer} has results of {', '.join(models)}; expected results of {model}")
            by_place = {(e["index_of_arg"], e["index_within_arg"]): e for e in models[first]}
            for order, entry in enumerate(models[second]):
                # The number of ``1.0 + x`` stands behind in quantized graphs: then the order tells.
                place = entry["index_of_arg"], entry["index_within_arg"]
                other = by_place[place] if place in by_place else models[first][order]
                entry[name] = [measure(a, b) for a, b in zip(other["values"], entry["values"])]
