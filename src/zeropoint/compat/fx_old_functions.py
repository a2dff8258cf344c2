"""Old names of FX graph mode that zeropoint has no use for itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from zeropoint.compat.fx.backend_config import BackendConfig, BackendPatternConfig, ObservationType
from zeropoint.compat.fx.custom_config import swapped_class
from zeropoint.compat.fx.equalization.convert import equalize, find_equalization_scales
from zeropoint.compat.fx.fuse import nested_method
from zeropoint.compat.fx.modules import free_name
from zeropoint.compat.fx.observed import observed_attributes
from zeropoint.compat.fx.qconfig_dtypes import get_quant_type
from zeropoint.fake_quant import FixedQParamsFakeQuantize

# What annotations of old code say.
Pattern = Any
NodePattern = Any
ObserverOrFakeQuantize = Any

_GLOBAL_DICT_KEY = ""
_OBJECT_TYPE_DICT_KEY = "object_type"
_MODULE_NAME_REGEX_DICT_KEY = "module_name_regex"
_MODULE_NAME_DICT_KEY = "module_name"
_MODULE_NAME_OBJECT_TYPE_ORDER_DICT_KEY = "module_name_object_type_order"


class NodeInfo(NamedTuple):
    """The kind and target of a node."""

    op: str
    target: Any


# ------------------------------------------------------------------------------------------------- registered patterns


class QuantizeHandler:
    """What a pattern is registered with: it answers what the backend's configuration says of the pattern."""

    _config: BackendPatternConfig | None = None

    def __init__(self, node_pattern: Any, modules: dict[str, Any], root_node_getter: Any = None) -> None:
        self.node_pattern = node_pattern

    def is_general_tensor_value_op(self) -> bool:
        """Whether results have the scale of what came in."""
        share = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
        return self._config is not None and self._config.observation_type is share

    def is_custom_module(self) -> bool:
        """Whether it is for modules with a quantized form of the user's; a pattern of a backend is not."""
        return False

    def is_standalone_module(self) -> bool:
        """Whether it is for modules that are quantized by themselves; a pattern of a backend is not."""
        return False


class DefaultNodeQuantizeHandler(QuantizeHandler):
    """A node whose first input and first output are quantized."""


_DEFAULT_FUSION_PATTERNS: dict[Any, Any] = {}
_DEFAULT_QUANTIZATION_PATTERNS: dict[Any, Any] = {}
_DEFAULT_OUTPUT_FAKE_QUANTIZE_MAP: dict[Any, Any] = {}
_DEFAULT_OUTPUT_OBSERVER_MAP: dict[Any, Any] = {}


def _register_fusion_pattern(pattern: Any) -> Callable[[Any], Any]:
    """Note down a pattern of modules that are fused; it has no effect."""

    def insert(fn: Any) -> Any:
        _DEFAULT_FUSION_PATTERNS[pattern] = fn
        return fn

    return insert


def _register_quant_pattern(pattern: Any, fixed_qparams_observer: Any = None) -> Callable[[Any], Any]:
    """Note down a pattern that is quantized; it has no effect."""

    def insert(fn: Any) -> Any:
        _DEFAULT_QUANTIZATION_PATTERNS[pattern] = fn
        if fixed_qparams_observer is not None:
            _DEFAULT_OUTPUT_OBSERVER_MAP[pattern] = fixed_qparams_observer
            _DEFAULT_OUTPUT_FAKE_QUANTIZE_MAP[pattern] = FixedQParamsFakeQuantize.with_args(
                observer=fixed_qparams_observer
            )
        return fn

    return insert


def get_default_fusion_patterns() -> dict[Any, Any]:
    """What `_register_fusion_pattern` noted down."""
    return dict(_DEFAULT_FUSION_PATTERNS)


def get_default_quant_patterns() -> dict[Any, Any]:
    """What `_register_quant_pattern` noted down."""
    return dict(_DEFAULT_QUANTIZATION_PATTERNS)


def get_default_output_activation_post_process_map(is_training: bool) -> dict[Any, Any]:
    """Pattern -> the observer, or, for training, the fake quantization of its result."""
    return dict(_DEFAULT_OUTPUT_FAKE_QUANTIZE_MAP if is_training else _DEFAULT_OUTPUT_OBSERVER_MAP)


# ------------------------------------------------------------------------------------------------------ about configs


def get_pattern_to_dtype_configs(backend_config: BackendConfig) -> dict[Any, Any]:
    """Nested pattern -> the ways to quantize it."""
    return {pattern: config.dtype_configs for pattern, config in backend_config.by_pattern.items()}


def get_pattern_to_quantize_handlers(backend_config: BackendConfig) -> dict[Any, type[QuantizeHandler]]:
    """Nested pattern -> the kind of `QuantizeHandler` that answers for it."""
    name = "ConfigurableQuantizeHandler"
    configs = backend_config.by_pattern.items()
    return {pattern: type(name, (QuantizeHandler,), {"_config": config}) for pattern, config in configs}


def get_fused_module_classes(backend_config: BackendConfig) -> tuple[type, ...]:
    """What patterns are fused into."""
    return tuple(backend_config.fused_modules())


def get_qat_module_classes(backend_config: BackendConfig) -> tuple[type, ...]:
    """What stands for modules in training."""
    return tuple(set(backend_config.training_modules().values()))


def get_module_to_qat_module(backend_config: BackendConfig) -> dict[Any, Any]:
    """Module -> what stands for it in training."""
    return backend_config.training_modules()


def get_root_module_to_quantized_reference_module(backend_config: BackendConfig) -> dict[type, type]:
    """Root module -> its reference module."""
    return dict(backend_config.reference_modules())


def get_fuser_method_mapping(backend_config: BackendConfig) -> dict[Any, Any]:
    """Nested pattern -> what fuses it."""
    return {p: nested_method(config) for p, config in backend_config.by_pattern.items() if config.fuser_method}


def get_pattern_to_input_type_to_index(backend_config: BackendConfig) -> dict[Any, Any]:
    """Nested pattern -> where its weight and bias stand."""
    return {pattern: config._input_type_to_index for pattern, config in backend_config.by_pattern.items()}


def get_fusion_pattern_to_root_node_getter(backend_config: BackendConfig) -> dict[Any, Any]:
    """Nested pattern -> what finds its first call."""
    return {p: config._root_node_getter for p, config in backend_config.by_pattern.items() if config._root_node_getter}


def get_fusion_pattern_to_extra_inputs_getter(backend_config: BackendConfig) -> dict[Any, Any]:
    """Nested pattern -> what finds its other inputs."""
    return {
        p: config._extra_inputs_getter for p, config in backend_config.by_pattern.items() if config._extra_inputs_getter
    }


# -------------------------------------------------------------------------------------------------------- about models


def _is_observed_module(module: Any) -> bool:
    """Whether `prepare_fx` made it."""
    return observed_attributes(module) is not None


def _is_observed_standalone_module(module: Any) -> bool:
    """Whether `prepare_fx` made it of a module that is quantized by itself."""
    attributes = observed_attributes(module)
    return attributes is not None and attributes.is_observed_standalone_module


def _get_observed_graph_module_attr(model: Any, attr_name: str) -> Any:
    """What `prepare_fx` left in a model."""
    return getattr(observed_attributes(model), attr_name, None)


def get_swapped_custom_module_class(custom_module: Any, custom_module_class_mapping: Any, qconfig: Any) -> type:
    """The class that takes the place of a custom module's."""
    return swapped_class(custom_module, custom_module_class_mapping, get_quant_type(qconfig))


def get_fqn_to_example_inputs(model: nn.Module, example_inputs: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """What each module inside a model is called with, by its path, when the model is called once.

    Arguments by name are put behind those by position, in the order of the parameters of `forward`.
    """
    found: dict[str, tuple[Any, ...]] = {}
    handles = []
    for path, module in model.named_modules():

        def note(called: nn.Module, args: Any, kwargs: Any, path: str = path) -> None:
            found[path] = _as_positional(called.forward, args, kwargs)

        handles.append(module.register_forward_pre_hook(note, with_kwargs=True))
    try:
        model(*example_inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _as_positional(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    parameters = list(inspect.signature(function).parameters.values())[len(args) :]
    last = max((i for i, p in enumerate(parameters) if p.name in kwargs), default=-1)
    return (*args, *(kwargs.get(p.name, p.default) for p in parameters[: last + 1]))


def get_new_attr_name_with_prefix(prefix: str) -> Callable[[nn.Module], str]:
    """A function that finds a name for an attribute of a module that it does not have yet."""

    def name(module: nn.Module) -> str:
        return free_name(module, prefix)

    return name


def update_obs_for_equalization(model: Any, modules: Any) -> dict[str, Any]:
    """Find the scales of layers that are equalized: name of a node -> the observer of its weight."""
    return find_equalization_scales(model)


def convert_eq_obs(model: Any, modules: Any, weight_eq_obs_dict: dict[str, Any]) -> None:
    """Multiply inputs and divide weights by the scales that were found."""
    if weight_eq_obs_dict:
        equalize(model)
