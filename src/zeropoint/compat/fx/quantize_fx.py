"""FX graph mode: a model is traced symbolically, prepared with observers, and converted, its modules at their paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx, nn

from zeropoint.compat.fx.backend_config import BackendConfig
from zeropoint.compat.fx.backends import get_native_backend_config
from zeropoint.compat.fx.convert import convert
from zeropoint.compat.fx.custom_config import (
    ConvertCustomConfig,
    FuseCustomConfig,
    PrepareCustomConfig,
    as_config,
    attributes_of,
)
from zeropoint.compat.fx.fuse import fuse
from zeropoint.compat.fx.observed import attach_preserved_attrs_to_model
from zeropoint.compat.fx.prepare import prepare
from zeropoint.compat.fx.tracer import QuantizationTracer, trace
from zeropoint.described import described
from zeropoint.eager.left_in_float import warn_if_float
from zeropoint.qconfig_mapping import QConfigMapping


def _backend(given: Any) -> BackendConfig:
    return as_config(BackendConfig, given, "backend_config") or get_native_backend_config()


def _require_graph_module(model: Any) -> None:
    if not isinstance(model, fx.GraphModule):
        raise ValueError(f"convert_fx expects the GraphModule from prepare_fx, got {described(model)}")


def prepare_traced(
    model: nn.Module,
    qconfig_mapping: Any,
    example_inputs: Any,
    prepare_custom_config: Any = None,
    backend_config: Any = None,
    *,
    is_qat: bool,
    is_standalone: bool = False,
    equalization: Any = None,
) -> fx.GraphModule:
    """`model` traced, fused and prepared; `is_standalone`: it is a part that is quantized by itself."""
    custom = as_config(PrepareCustomConfig, prepare_custom_config, "prepare_custom_config") or PrepareCustomConfig()
    mapping = as_config(QConfigMapping, qconfig_mapping, "qconfig_mapping")
    if mapping is None:
        raise TypeError("qconfig_mapping must be a QConfigMapping or a dictionary, got None")
    equalization = as_config(QConfigMapping, equalization, "_equalization_config")
    backend = _backend(backend_config)
    preserved = attributes_of(model, custom.preserved_attributes)
    tracer = QuantizationTracer(*custom.untraced(is_standalone))
    graph = fuse(trace(model, tracer), is_qat, backend)
    scopes = tracer.node_name_to_scope
    made = prepare(graph, mapping, is_qat, scopes, custom, backend, equalization, is_standalone)
    attach_preserved_attrs_to_model(made, preserved)
    return made


def fuse_fx(model: nn.Module, fuse_custom_config: Any = None, backend_config: Any = None) -> fx.GraphModule:
    """`model`, in evaluation mode, as a graph with layers, batch norms and activations fused into single modules.

    Example:
        >>> fuse_fx(nn.Sequential(nn.Linear(1, 1), nn.ReLU()).eval()).get_submodule("0")
        LinearReLU(
          (0): Linear(in_features=1, out_features=1, bias=True)
          (1): ReLU()
        )
    """
    custom = as_config(FuseCustomConfig, fuse_custom_config, "fuse_custom_config") or FuseCustomConfig()
    preserved = attributes_of(model, custom.preserved_attributes)
    made = fuse_traced(trace(model, QuantizationTracer()), False, backend_config=backend_config)
    attach_preserved_attrs_to_model(made, preserved)
    return made


def fuse_traced(
    model: fx.GraphModule, is_qat: bool, fuse_custom_config: Any = None, backend_config: Any = None
) -> fx.GraphModule:
    """The same of a model that is traced already; with `is_qat`, fused for training."""
    as_config(FuseCustomConfig, fuse_custom_config, "fuse_custom_config")  # it has no part in this
    return fuse(model, is_qat, _backend(backend_config))


def prepare_fx(
    model: nn.Module,
    qconfig_mapping: QConfigMapping | Mapping[str, Any],
    example_inputs: Any,
    prepare_custom_config: PrepareCustomConfig | Mapping[str, Any] | None = None,
    _equalization_config: Any = None,
    backend_config: BackendConfig | Mapping[str, Any] | None = None,
) -> fx.GraphModule:
    """Insert observers into `model`. Run the result on calibration data, then call `convert_fx`.

    Args:
        model: a module that `torch.fx` can trace, in evaluation mode.
        qconfig_mapping: the qconfig of each module, function and method; None keeps it in float.
        example_inputs: the arguments of the model; it is not run.
        prepare_custom_config: modules that are not traced, or that are quantized standalone.
        _equalization_config: a mapping to the EqualizationQConfigs of the layers to equalize with their inputs.
        backend_config: the patterns to quantize, and how; None means `get_native_backend_config`.

    Example:
        >>> import torch, zeropoint
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval()
        >>> prepared = prepare_fx(model, zeropoint.get_default_qconfig_mapping(), (torch.ones(1, 2),))
        >>> [node.name for node in prepared.graph.nodes]
        ['input_1', 'activation_post_process_0', '_0', 'activation_post_process_1', 'output']
    """
    return prepare_traced(
        model, qconfig_mapping, example_inputs, prepare_custom_config, backend_config, is_qat=False,
        equalization=_equalization_config,
    )  # fmt: skip


def prepare_qat_fx(
    model: nn.Module,
    qconfig_mapping: QConfigMapping | Mapping[str, Any],
    example_inputs: Any,
    prepare_custom_config: PrepareCustomConfig | Mapping[str, Any] | None = None,
    backend_config: BackendConfig | Mapping[str, Any] | None = None,
) -> fx.GraphModule:
    """Insert fake quantization into `model`, in training mode. Train it, then call `convert_fx`. Arguments as for
    `prepare_fx`.
    """
    return prepare_traced(model, qconfig_mapping, example_inputs, prepare_custom_config, backend_config, is_qat=True)


def _convert(
    graph_module: Any, convert_custom_config: Any, qconfig_mapping: Any, backend_config: Any, **options: Any
) -> fx.GraphModule:
    custom = as_config(ConvertCustomConfig, convert_custom_config, "convert_custom_config") or ConvertCustomConfig()
    _require_graph_module(graph_module)
    preserved = attributes_of(graph_module, custom.preserved_attributes)
    mapping = as_config(QConfigMapping, qconfig_mapping, "qconfig_mapping") if qconfig_mapping else None
    made = convert(
        graph_module, custom=custom, backend_config=_backend(backend_config), qconfig_mapping=mapping, **options
    )
    attach_preserved_attrs_to_model(made, preserved)
    return made


def convert_fx(
    graph_module: fx.GraphModule,
    convert_custom_config: ConvertCustomConfig | Mapping[str, Any] | None = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: QConfigMapping | Mapping[str, Any] | None = None,
    backend_config: BackendConfig | Mapping[str, Any] | None = None,
    keep_original_weights: bool = False,
) -> fx.GraphModule:
    """Convert a calibrated (`prepare_fx`) or trained (`prepare_qat_fx`) model to int8.

    Observers without data give scale 1 and zero point 0, so you can load a state_dict into the result.

    Args:
        qconfig_mapping: the mapping of `prepare_fx`, with None for parts that should stay in float after all.
        keep_original_weights: keep the float weights of functions in ``original_weights_lookup``.
    """
    made = _convert(
        graph_module, convert_custom_config, qconfig_mapping, backend_config, is_reference=False,
        remove_qconfig=_remove_qconfig, keep_original_weights=keep_original_weights,
    )  # fmt: skip
    if not any("quantiz" in str(node.target) for node in made.graph.nodes if node.op == "call_function"):
        warn_if_float("convert_fx", made)
    return made


def convert_to_reference_fx(
    graph_module: fx.GraphModule,
    convert_custom_config: ConvertCustomConfig | Mapping[str, Any] | None = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: QConfigMapping | Mapping[str, Any] | None = None,
    backend_config: BackendConfig | Mapping[str, Any] | None = None,
) -> fx.GraphModule:
    """Like `convert_fx`, but with float operators between dequantize and quantize, for other backends to lower."""
    return _convert(
        graph_module, convert_custom_config, qconfig_mapping, backend_config, is_reference=True,
        remove_qconfig=_remove_qconfig,
    )  # fmt: skip


def convert_to_reference_decomposed_fx(
    graph_module: fx.GraphModule,
    convert_custom_config: ConvertCustomConfig | Mapping[str, Any] | None = None,
    qconfig_mapping: QConfigMapping | Mapping[str, Any] | None = None,
    backend_config: BackendConfig | Mapping[str, Any] | None = None,
) -> fx.GraphModule:
    """As `convert_to_reference_fx`, with operators on plain integers, and no quantized tensors."""
    return _convert(
        graph_module, convert_custom_config, qconfig_mapping, backend_config, is_reference=True,
        remove_qconfig=False, is_decomposed=True,
    )  # fmt: skip
