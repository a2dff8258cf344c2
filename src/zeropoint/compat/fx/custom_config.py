"""What a model needs beyond its qconfigs: modules that stay whole, are quantized alone, or by classes of yours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from zeropoint.compat.fx.backend_config import BackendConfig
from zeropoint.compat.fx.qconfig_dtypes import QuantType, quant_type_from_str, quant_type_to_str
from zeropoint.described import described
from zeropoint.qconfig_mapping import QConfigMapping

STANDALONE_MODULE_NAME_DICT_KEY = "standalone_module_name"
STANDALONE_MODULE_CLASS_DICT_KEY = "standalone_module_class"
FLOAT_TO_OBSERVED_DICT_KEY = "float_to_observed_custom_module_class"
OBSERVED_TO_QUANTIZED_DICT_KEY = "observed_to_quantized_custom_module_class"
NON_TRACEABLE_MODULE_NAME_DICT_KEY = "non_traceable_module_name"
NON_TRACEABLE_MODULE_CLASS_DICT_KEY = "non_traceable_module_class"
INPUT_QUANTIZED_INDEXES_DICT_KEY = "input_quantized_idxs"
OUTPUT_QUANTIZED_INDEXES_DICT_KEY = "output_quantized_idxs"
PRESERVED_ATTRIBUTES_DICT_KEY = "preserved_attributes"

# Quantization -> class -> the class that takes its place.
ClassMapping = dict[QuantType, dict[type, type]]


@dataclass
class StandaloneModuleConfigEntry:
    """How a module is quantized by itself; None: as the model around it."""

    qconfig_mapping: QConfigMapping | None
    example_inputs: tuple[Any, ...]
    prepare_custom_config: PrepareCustomConfig | None
    backend_config: BackendConfig | None

    def to_tuple(self, key: Any) -> tuple[Any, ...]:
        """As an entry of a dictionary's list."""
        mapping, custom = self.qconfig_mapping, self.prepare_custom_config
        return (
            key,
            None if mapping is None else mapping.to_dict(),
            self.example_inputs,
            None if custom is None else custom.to_dict(),
            self.backend_config,
        )


def as_config(kind: Any, given: Any, name: str, error: type[Exception] = TypeError) -> Any:
    """`given` as an object of class `kind`: it may be one, a dictionary for one, or None; else `error` names it."""
    if given is None or isinstance(given, kind):
        return given
    if isinstance(given, Mapping):
        return kind.from_dict(given)
    raise error(f"{name} must be a {kind.__name__} or a dictionary, got {described(given)}")


def _shown(config: Any) -> str:
    return f"{type(config).__name__}({ {name: value for name, value in vars(config).items() if value} })"


class PrepareCustomConfig:
    """Custom configuration for `prepare_fx` and `prepare_qat_fx`.

    Example:
        >>> PrepareCustomConfig().set_input_quantized_indexes([0]).to_dict()
        {'input_quantized_idxs': [0]}
    """

    def __init__(self) -> None:
        self.standalone_module_names: dict[str, StandaloneModuleConfigEntry] = {}
        self.standalone_module_classes: dict[type, StandaloneModuleConfigEntry] = {}
        self.float_to_observed_mapping: ClassMapping = {}
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[type] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.preserved_attributes: list[str] = []

    __repr__ = _shown

    def set_standalone_module_name(
        self,
        module_name: str,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: BackendConfig | None,
    ) -> PrepareCustomConfig:
        """Quantize the module with this name standalone; None for the settings of the surrounding model."""
        self.standalone_module_names[module_name] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_standalone_module_class(
        self,
        module_class: type,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: BackendConfig | None,
    ) -> PrepareCustomConfig:
        """Quantize modules of this class standalone; None for the settings of the surrounding model."""
        self.standalone_module_classes[module_class] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_float_to_observed_mapping(
        self, float_class: type, observed_class: type, quant_type: QuantType = QuantType.STATIC
    ) -> PrepareCustomConfig:
        """Map a custom class to the class whose `from_float` replaces it for calibration."""
        if quant_type != QuantType.STATIC:
            raise ValueError(f"set_float_to_observed_mapping is for static quantization, got {quant_type!r}")
        self.float_to_observed_mapping.setdefault(quant_type, {})[float_class] = observed_class
        return self

    def set_non_traceable_module_names(self, module_names: list[str]) -> PrepareCustomConfig:
        """Do not trace the modules with these names; they stay in float."""
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[type]) -> PrepareCustomConfig:
        """Do not trace modules of these classes; they stay in float."""
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Set which inputs of the model are quantized tensors."""
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Set which outputs of the model stay quantized tensors."""
        self.output_quantized_indexes = indexes
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> PrepareCustomConfig:
        """Set the attributes of the model that the graph module keeps."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, prepare_custom_config_dict: Mapping[str, Any]) -> PrepareCustomConfig:
        """The one that `to_dict` wrote."""
        given, made = prepare_custom_config_dict, cls()
        for key, setter in (
            (STANDALONE_MODULE_NAME_DICT_KEY, made.set_standalone_module_name),
            (STANDALONE_MODULE_CLASS_DICT_KEY, made.set_standalone_module_class),
        ):
            for which, qconfigs, inputs, custom, backend in given.get(key, ()):
                parts = (
                    as_config(QConfigMapping, qconfigs, key, ValueError),
                    inputs,
                    as_config(PrepareCustomConfig, custom, key, ValueError),
                    as_config(BackendConfig, backend, key, ValueError),
                )
                setter(which, *parts)
        for kind, classes in given.get(FLOAT_TO_OBSERVED_DICT_KEY, {}).items():
            for float_class, observed_class in classes.items():
                made.set_float_to_observed_mapping(float_class, observed_class, quant_type_from_str(kind))
        made.set_non_traceable_module_names(given.get(NON_TRACEABLE_MODULE_NAME_DICT_KEY, []))
        made.set_non_traceable_module_classes(given.get(NON_TRACEABLE_MODULE_CLASS_DICT_KEY, []))
        made.set_input_quantized_indexes(given.get(INPUT_QUANTIZED_INDEXES_DICT_KEY, []))
        made.set_output_quantized_indexes(given.get(OUTPUT_QUANTIZED_INDEXES_DICT_KEY, []))
        return made.set_preserved_attributes(given.get(PRESERVED_ATTRIBUTES_DICT_KEY, []))

    def to_dict(self) -> dict[str, Any]:
        """What is set, by name."""
        found = {
            STANDALONE_MODULE_NAME_DICT_KEY: _tuples(self.standalone_module_names),
            STANDALONE_MODULE_CLASS_DICT_KEY: _tuples(self.standalone_module_classes),
            FLOAT_TO_OBSERVED_DICT_KEY: _by_name(self.float_to_observed_mapping),
            NON_TRACEABLE_MODULE_NAME_DICT_KEY: self.non_traceable_module_names,
            NON_TRACEABLE_MODULE_CLASS_DICT_KEY: self.non_traceable_module_classes,
            INPUT_QUANTIZED_INDEXES_DICT_KEY: self.input_quantized_indexes,
            OUTPUT_QUANTIZED_INDEXES_DICT_KEY: self.output_quantized_indexes,
            PRESERVED_ATTRIBUTES_DICT_KEY: self.preserved_attributes,
        }
        return {key: value for key, value in found.items() if value}

    # -------------------------------------------------------------------------------------------- what the passes ask

    def standalone(self, name: str, kind: type) -> StandaloneModuleConfigEntry | None:
        """How a module is quantized by itself, if it is; its name counts more than its class."""
        return self.standalone_module_names.get(name) or self.standalone_module_classes.get(kind)

    def untraced(self, is_standalone: bool) -> tuple[list[str], list[type]]:
        """Names and classes of modules that stay whole.

        `is_standalone`: for the inside of a module that is quantized by itself, for which only what is not traceable
        counts.
        """
        names, classes = list(self.non_traceable_module_names), list(self.non_traceable_module_classes)
        if not is_standalone:
            names += self.standalone_module_names
            classes += self.standalone_module_classes
            classes += classes_of(self.float_to_observed_mapping)
        return names, classes


def _tuples(entries: Mapping[Any, StandaloneModuleConfigEntry]) -> list[tuple[Any, ...]]:
    return [entry.to_tuple(key) for key, entry in entries.items()]


def _by_name(mapping: ClassMapping) -> dict[str, dict[type, type]]:
    return {quant_type_to_str(kind): classes for kind, classes in mapping.items()}


def classes_of(mapping: ClassMapping) -> list[type]:
    """The classes that a mapping replaces, for any kind of quantization."""
    return list(dict.fromkeys(kind for classes in mapping.values() for kind in classes))


class ConvertCustomConfig:
    """Custom configuration for `convert_fx`.

    Example:
        >>> ConvertCustomConfig().set_preserved_attributes(["labels"])
        ConvertCustomConfig({'preserved_attributes': ['labels']})
    """

    def __init__(self) -> None:
        self.observed_to_quantized_mapping: ClassMapping = {}
        self.preserved_attributes: list[str] = []

    __repr__ = _shown

    def set_observed_to_quantized_mapping(
        self, observed_class: type, quantized_class: type, quant_type: QuantType = QuantType.STATIC
    ) -> ConvertCustomConfig:
        """Map an observed class to the class whose `from_observed` replaces it."""
        self.observed_to_quantized_mapping.setdefault(quant_type, {})[observed_class] = quantized_class
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> ConvertCustomConfig:
        """Attributes of the model that the graph module keeps."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, convert_custom_config_dict: Mapping[str, Any]) -> ConvertCustomConfig:
        """The one that `to_dict` wrote."""
        given, made = convert_custom_config_dict, cls()
        for kind, classes in given.get(OBSERVED_TO_QUANTIZED_DICT_KEY, {}).items():
            for observed_class, quantized_class in classes.items():
                made.set_observed_to_quantized_mapping(observed_class, quantized_class, quant_type_from_str(kind))
        return made.set_preserved_attributes(given.get(PRESERVED_ATTRIBUTES_DICT_KEY, []))

    def to_dict(self) -> dict[str, Any]:
        """What is set, by name."""
        found = {
            OBSERVED_TO_QUANTIZED_DICT_KEY: _by_name(self.observed_to_quantized_mapping),
            PRESERVED_ATTRIBUTES_DICT_KEY: self.preserved_attributes,
        }
        return {key: value for key, value in found.items() if value}


class FuseCustomConfig:
    """Custom configuration for `fuse_fx`."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    __repr__ = _shown

    def set_preserved_attributes(self, attributes: list[str]) -> FuseCustomConfig:
        """Attributes of the model that the graph module keeps."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, fuse_custom_config_dict: Mapping[str, Any]) -> FuseCustomConfig:
        """The one that `to_dict` wrote."""
        return cls().set_preserved_attributes(fuse_custom_config_dict.get(PRESERVED_ATTRIBUTES_DICT_KEY, []))

    def to_dict(self) -> dict[str, Any]:
        """What is set, by name."""
        return {PRESERVED_ATTRIBUTES_DICT_KEY: self.preserved_attributes} if self.preserved_attributes else {}


def swapped_class(module: Any, mapping: ClassMapping, kind: QuantType) -> type:
    """The class that takes the place of a module's; ValueError if there is none."""
    found = mapping.get(kind, {}).get(type(module))
    if found is None:
        raise ValueError(
            f"no replacement class for {type(module).__name__} in {quant_type_to_str(kind)} "
            "quantization: set it in PrepareCustomConfig and ConvertCustomConfig"
        )
    return found


def attributes_of(model: Any, names: Iterable[str]) -> dict[str, Any]:
    """Those of these attributes that a model has."""
    return {name: getattr(model, name) for name in names if hasattr(model, name)}
