"""What the shadows of a model show: results, weights, and a table of how near each qconfig comes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.compat.fx.backend_config import BackendConfig
from zeropoint.compat.fx.model_report.tables import aligned
from zeropoint.compat.numeric_suite.graph.instrument import node_path, target_name
from zeropoint.compat.numeric_suite.graph.loggers import OutputLogger
from zeropoint.compat.numeric_suite.graph.measures import compute_sqnr
from zeropoint.compat.numeric_suite.graph.multi_mapping import QConfigMultiMapping
from zeropoint.compat.numeric_suite.graph.n_shadows import WRAPPER, convert_n_shadows_model, prepare_n_shadows_model
from zeropoint.compat.numeric_suite.graph.results import Results, collect
from zeropoint.compat.numeric_suite.graph.weights import weight_of
from zeropoint.qconfig_mapping import QConfigMapping


def extract_results_n_shadows_model(model: nn.Module) -> Results:
    """What the loggers kept: ``results["model"]["node_output"]["subgraph_i_k"]``, layer i, qconfig k, 0 for float."""
    results: Results = {}
    collect(model, OutputLogger, results)
    return results


def n_shadows_compare_weights(
    model: nn.Module, example_inputs: Any, qconfig_mapping: QConfigMapping, backend_config: BackendConfig
) -> Results:
    """The weight of each layer in float and quantized, as the results of a model with shadows, in kind "weight"."""
    mappings = QConfigMultiMapping.from_list_qconfig_mapping([qconfig_mapping])
    prepared = prepare_n_shadows_model(model, example_inputs, mappings, backend_config)
    prepared(*example_inputs)
    made = convert_n_shadows_model(prepared)
    found: dict[str, list[dict[str, Any]]] = {}
    loggers = {name: module for name, module in made.named_children() if isinstance(module, OutputLogger)}
    nodes = {node.name: node for node in made.graph.nodes}
    for name, wrapper in made.named_children():
        if not name.startswith(WRAPPER):
            continue
        place = name.removeprefix(WRAPPER)
        node = nodes[loggers[f"shadow{place}"].ref_node_name]
        weights = weight_of(node, made), _weight_inside(wrapper)
        if not all(isinstance(weight, Tensor) for weight in weights):
            continue
        kind = target_name(made, node)
        index, candidate = place.removeprefix("_").split("_")
        for k, weight in zip(("0", candidate), weights, strict=True):
            found[f"subgraph_{index}_{k}"] = [
                {
                    "res_type": "weight", "values": [weight], "prev_node_name": node.name,
                    "prev_node_target_type": kind, "ref_node_name": node.name, "ref_node_target_type": kind,
                    "index_within_arg": 0, "index_of_arg": 0, "fqn": node_path(made, node), "qconfig_str": "",
                    "comparisons": [compute_sqnr(*weights)], "comparison_fn_name": "sqnr",
                }
            ]  # fmt: skip
    return {"model": {"weight": found}}


def _weight_inside(wrapper: Any) -> Any:
    """The weight of the first layer of a graph that has one."""
    nodes: list[fx.Node] = list(wrapper.graph.nodes)
    return next((weight for node in nodes if (weight := weight_of(node, wrapper)) is not None), None)


def summarized(results: Results) -> list[list[Any]]:
    """A row for each layer: its node, what it calls, its path, and the mean comparison of each qconfig."""
    layers: dict[str, list[Any]] = {}
    kinds = results.get("model", {})
    for name, (entry, *_) in next(iter(kinds.values()), {}).items():
        layer, _, candidate = name.rpartition("_")
        row = layers.setdefault(layer, [entry["ref_node_name"], entry["ref_node_target_type"], entry["fqn"]])
        if candidate != "0":
            row += [""] * (2 + int(candidate) - len(row))
            row.append(float(torch.stack(entry["comparisons"]).detach().mean()) if entry["comparisons"] else "")
    return list(layers.values())


def print_comparisons_n_shadows_model(results: Results) -> None:
    """Print a table: how near each qconfig of each layer comes to float, in dB."""
    rows = summarized(results)
    width = max(map(len, rows), default=3)
    headers = ["node_name", "node_type", "fqn", *(str(k) for k in range(width - 3))]
    print(aligned(headers, [row + [""] * (width - len(row)) for row in rows]))
