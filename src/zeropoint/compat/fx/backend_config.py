"""What a backend can quantize: patterns of operators, the dtypes of each, and the modules that stand for it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from zeropoint.described import described
from zeropoint.numerics.dtypes import QuantizedDtype


class ObservationType(enum.Enum):
    """How the output of a pattern is observed."""

    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = 0
    OUTPUT_SHARE_OBSERVER_WITH_INPUT = 1
    INPUT_OUTPUT_NOT_OBSERVED = 2


@dataclass
class DTypeWithConstraints:
    """A dtype with constraints for its observers: the integer range, the scale, or fixed qparams."""

    dtype: Any = None
    quant_min_lower_bound: int | float | None = None
    quant_max_upper_bound: int | float | None = None
    scale_min_lower_bound: int | float | None = None
    scale_max_upper_bound: int | float | None = None
    scale_exact_match: float | None = None
    zero_point_exact_match: int | None = None


def _constrained(dtype: Any) -> DTypeWithConstraints:
    return dtype if isinstance(dtype, DTypeWithConstraints) else DTypeWithConstraints(dtype=dtype)


@dataclass(init=False)
class DTypeConfig:
    """The dtypes of input, output, weight and bias for one way to quantize a pattern; None means any.

    Example:
        >>> import zeropoint
        >>> DTypeConfig(input_dtype=zeropoint.quint8, output_dtype=zeropoint.quint8).input_dtype
        zeropoint.quint8
    """

    input_dtype_with_constraints: DTypeWithConstraints
    output_dtype_with_constraints: DTypeWithConstraints
    weight_dtype_with_constraints: DTypeWithConstraints
    bias_dtype: Any
    is_dynamic: bool | None

    def __init__(
        self,
        input_dtype: Any = None,
        output_dtype: Any = None,
        weight_dtype: Any = None,
        bias_dtype: Any = None,
        is_dynamic: bool | None = None,
    ) -> None:
        self.input_dtype_with_constraints = _constrained(input_dtype)
        self.output_dtype_with_constraints = _constrained(output_dtype)
        self.weight_dtype_with_constraints = _constrained(weight_dtype)
        self.bias_dtype = bias_dtype
        self.is_dynamic = is_dynamic

    @property
    def input_dtype(self) -> Any:
        return self.input_dtype_with_constraints.dtype

    @property
    def output_dtype(self) -> Any:
        return self.output_dtype_with_constraints.dtype

    @property
    def weight_dtype(self) -> Any:
        return self.weight_dtype_with_constraints.dtype

    @classmethod
    def from_dict(cls, dtype_config_dict: Mapping[str, Any]) -> DTypeConfig:
        """The one that `to_dict` wrote; plain dtypes may stand where it has constrained ones."""
        given = dict(dtype_config_dict)
        for part in ("input_dtype", "output_dtype", "weight_dtype"):
            dtype = given.get(part)
            if dtype is not None and not isinstance(dtype, (torch.dtype, QuantizedDtype, DTypeWithConstraints)):
                raise ValueError(f"{part} must be a dtype or a DTypeWithConstraints, got {described(dtype)}")
        known = ("input_dtype", "output_dtype", "weight_dtype", "bias_dtype", "is_dynamic")
        return cls(**{name: given.get(name) for name in known})

    def to_dict(self) -> dict[str, Any]:
        """What is set, by name."""
        constrained = {
            "input_dtype": self.input_dtype_with_constraints,
            "output_dtype": self.output_dtype_with_constraints,
            "weight_dtype": self.weight_dtype_with_constraints,
        }
        found: dict[str, Any] = {name: value for name, value in constrained.items() if value.dtype is not None}
        plain = {"bias_dtype": self.bias_dtype, "is_dynamic": self.is_dynamic}
        return found | {name: value for name, value in plain.items() if value is not None}


# Key in dictionaries -> attribute, in the order of the dictionaries.
_FIELDS = {
    "pattern": "pattern",
    "root_module": "root_module",
    "qat_module": "qat_module",
    "reference_quantized_module_for_root": "reference_quantized_module",
    "fused_module": "fused_module",
    "fuser_method": "fuser_method",
    "root_node_getter": "_root_node_getter",
    "extra_inputs_getter": "_extra_inputs_getter",
    "num_tensor_args_to_observation_type": "_num_tensor_args_to_observation_type",
    "input_type_to_index": "_input_type_to_index",
    "pattern_complex_format": "_pattern_complex_format",
}


class BackendPatternConfig:
    """How one pattern is observed, quantized and replaced.

    A pattern is a module class, a function, the name of a method, or a tuple of two or three of these in call order.
    """

    def __init__(self, pattern: Any = None) -> None:
        self.pattern = pattern
        self.observation_type = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        self.dtype_configs: list[DTypeConfig] = []
        self.root_module: type[torch.nn.Module] | None = None
        self.qat_module: type[torch.nn.Module] | None = None
        self.reference_quantized_module: type[torch.nn.Module] | None = None
        self.fused_module: type[torch.nn.Module] | None = None
        self.fuser_method: Callable[..., Any] | None = None
        self._root_node_getter: Callable[..., Any] | None = None
        self._extra_inputs_getter: Callable[..., Any] | None = None
        self._num_tensor_args_to_observation_type: dict[int, ObservationType] = {}
        self._input_type_to_index: dict[str, int] = {}
        self._pattern_complex_format: Any = None

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if value not in (None, [], {})}
        return f"BackendPatternConfig({shown})"

    def set_pattern(self, pattern: Any) -> BackendPatternConfig:
        """Set the pattern."""
        if self._pattern_complex_format is not None:
            raise ValueError("set_pattern: a nested pattern is already set")
        self.pattern = pattern
        return self

    def set_observation_type(self, observation_type: ObservationType) -> BackendPatternConfig:
        """Set how the output of the pattern is observed."""
        self.observation_type = observation_type
        return self

    def add_dtype_config(self, dtype_config: DTypeConfig) -> BackendPatternConfig:
        """Add supported dtypes."""
        self.dtype_configs.append(dtype_config)
        return self

    def set_dtype_configs(self, dtype_configs: list[DTypeConfig]) -> BackendPatternConfig:
        """Set all supported dtypes."""
        self.dtype_configs = dtype_configs
        return self

    def set_root_module(self, root_module: type[torch.nn.Module]) -> BackendPatternConfig:
        """Set the module whose weight is quantized; for a fused or QAT module, the float layer."""
        self.root_module = root_module
        return self

    def set_qat_module(self, qat_module: type[torch.nn.Module] | None) -> BackendPatternConfig:
        """Set the module that replaces the pattern in training."""
        self.qat_module = qat_module
        return self

    def set_reference_quantized_module(self, reference: type[torch.nn.Module] | None) -> BackendPatternConfig:
        """Set the module that replaces the root module in reference models."""
        self.reference_quantized_module = reference
        return self

    def set_fused_module(self, fused_module: type[torch.nn.Module]) -> BackendPatternConfig:
        """Set the module that the pattern is fused into."""
        self.fused_module = fused_module
        return self

    def set_fuser_method(self, fuser_method: Callable[..., Any]) -> BackendPatternConfig:
        """Set the function that creates the fused module: ``(is_qat, *modules of the pattern) -> module``."""
        self.fuser_method = fuser_method
        return self

    def _set_root_node_getter(self, root_node_getter: Callable[..., Any]) -> BackendPatternConfig:
        self._root_node_getter = root_node_getter
        return self

    def _set_extra_inputs_getter(self, extra_inputs_getter: Callable[..., Any]) -> BackendPatternConfig:
        self._extra_inputs_getter = extra_inputs_getter
        return self

    def _set_num_tensor_args_to_observation_type(self, types: dict[int, ObservationType]) -> BackendPatternConfig:
        self._num_tensor_args_to_observation_type = types
        return self

    def _set_input_type_to_index(self, input_type_to_index: dict[str, int]) -> BackendPatternConfig:
        self._input_type_to_index = input_type_to_index
        return self

    def _set_pattern_complex_format(self, pattern: Any) -> BackendPatternConfig:
        """The pattern as a nested tuple that begins with the last call: ``(relu, (add, conv, MatchAllNode))``."""
        if self.pattern is not None:
            raise ValueError("a plain pattern is already set")
        self._pattern_complex_format = pattern
        return self

    @classmethod
    def from_dict(cls, backend_pattern_config_dict: Mapping[str, Any]) -> BackendPatternConfig:
        """The one that `to_dict` wrote."""
        given = dict(backend_pattern_config_dict)
        made = cls()
        if "observation_type" in given:
            made.set_observation_type(given["observation_type"])
        for dtypes in given.get("dtype_configs", ()):
            if not isinstance(dtypes, (DTypeConfig, Mapping)):
                raise ValueError(f"dtype_configs must be a list of DTypeConfigs, got {described(dtypes)} in it")
            made.add_dtype_config(dtypes if isinstance(dtypes, DTypeConfig) else DTypeConfig.from_dict(dtypes))
        for key, attribute in _FIELDS.items():
            if key in given:
                setattr(made, attribute, given[key])
        return made

    def to_dict(self) -> dict[str, Any]:
        """What is set, by name."""
        found: dict[str, Any] = {
            "observation_type": self.observation_type,
            "dtype_configs": [dtypes.to_dict() for dtypes in self.dtype_configs],
        }
        values = {key: getattr(self, attribute) for key, attribute in _FIELDS.items()}
        return found | {key: value for key, value in values.items() if value is not None and value != {}}

    @property
    def nested_pattern(self) -> Any:
        """The pattern as graphs are searched for it: the last call first, then what it is called with.

        Example:
            >>> BackendPatternConfig(("conv", "norm", "relu")).nested_pattern
            ('relu', ('norm', 'conv'))
        """
        if self._pattern_complex_format is not None:
            return self._pattern_complex_format
        if self.pattern is None:
            raise ValueError("a BackendPatternConfig has no pattern: call set_pattern")
        if not isinstance(self.pattern, tuple):
            return self.pattern
        if len(self.pattern) not in (2, 3):
            raise ValueError(f"a pattern is a tuple of two or three calls, got {self.pattern}")
        first, second, *last = self.pattern
        return (last[0], (second, first)) if last else (second, first)


class BackendConfig:
    """The patterns that a backend can quantize. Setting a pattern again replaces it.

    Example:
        >>> from torch import nn
        >>> config = BackendConfig("mine").set_backend_pattern_config(BackendPatternConfig(nn.Linear))
        >>> [pattern.pattern.__name__ for pattern in config.configs]
        ['Linear']
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._pattern_complex_format_to_config: dict[Any, BackendPatternConfig] = {}

    def __repr__(self) -> str:
        return f"BackendConfig({vars(self)})"

    def set_name(self, name: str) -> BackendConfig:
        """Set the name."""
        self.name = name
        return self

    def set_backend_pattern_config(self, config: BackendPatternConfig) -> BackendConfig:
        """Add or replace one pattern."""
        self._pattern_complex_format_to_config[config.nested_pattern] = config
        return self

    def set_backend_pattern_configs(self, configs: Iterable[BackendPatternConfig]) -> BackendConfig:
        """Add or replace several patterns."""
        for config in configs:
            self.set_backend_pattern_config(config)
        return self

    @property
    def configs(self) -> list[BackendPatternConfig]:
        """A copy of the list of patterns."""
        return list(self._pattern_complex_format_to_config.values())

    @property
    def by_pattern(self) -> Mapping[Any, BackendPatternConfig]:
        """Nested pattern -> what becomes of it."""
        return self._pattern_complex_format_to_config

    @classmethod
    def from_dict(cls, backend_config_dict: Mapping[str, Any]) -> BackendConfig:
        """The one that `to_dict` wrote."""
        made = cls(backend_config_dict.get("name", ""))
        for config in backend_config_dict.get("configs", ()):
            if not isinstance(config, (BackendPatternConfig, Mapping)):
                raise ValueError(f"configs must be a list of dictionaries, got {described(config)} in it")
            if not isinstance(config, BackendPatternConfig):
                config = BackendPatternConfig.from_dict(config)
            made.set_backend_pattern_config(config)
        return made

    def to_dict(self) -> dict[str, Any]:
        """The name, and the patterns as dictionaries."""
        return {"name": self.name, "configs": [config.to_dict() for config in self.configs]}

    # ------------------------------------------------------------------------------------------- what the passes ask

    def reference_modules(self) -> dict[type[torch.nn.Module], type[torch.nn.Module]]:
        """Root module -> its reference module."""
        return {
            config.root_module: config.reference_quantized_module
            for config in self.configs
            if config.root_module is not None and config.reference_quantized_module is not None
        }

    def training_modules(self) -> dict[Any, type[torch.nn.Module]]:
        """Module -> what stands for it in training."""
        return {pattern: config.qat_module for pattern, config in self.by_pattern.items() if config.qat_module}

    def fused_modules(self) -> set[type[torch.nn.Module]]:
        """What patterns are fused into."""
        return {config.fused_module for config in self.configs if config.fused_module is not None}

    def dtype_configs(self, pattern: Any) -> list[DTypeConfig]:
        """The ways to quantize a nested pattern; none, if it is not known."""
        config = self.by_pattern.get(pattern)
        return [] if config is None else config.dtype_configs
