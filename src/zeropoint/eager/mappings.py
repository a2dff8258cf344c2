"""The records of operators as dictionaries, under the names that torch.ao.quantization has for them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from zeropoint.fake_quant import (
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from zeropoint.operators import (
    Output,
    custom_modules,
    eager_functions,
    mapping,
    module_forms,
    operators,
)

__all__ = [
    "get_default_compare_output_module_list",
    "get_default_custom_config_dict",
    "get_default_dynamic_quant_module_mappings",
    "get_default_float_to_quantized_operator_mappings",
    "get_default_qat_module_mappings",
    "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
    "get_default_static_quant_reference_module_mappings",
    "get_dynamic_quant_module_class",
    "get_embedding_qat_module_mappings",
    "get_embedding_static_quant_module_mappings",
    "get_quantized_operator",
    "get_static_quant_module_class",
    "no_observer_set",
]

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def get_default_static_quant_module_mappings() -> dict[type, Any]:
    """Float module -> quantized module."""
    return mapping("static")


def get_embedding_static_quant_module_mappings() -> dict[type, Any]:
    """As `get_default_static_quant_module_mappings`, with the trained embeddings."""
    return mapping("static")


def get_default_static_quant_reference_module_mappings() -> dict[type, Any]:
    """Float module -> reference module."""
    return mapping("reference")


def get_default_dynamic_quant_module_mappings() -> dict[type, Any]:
    """Float module -> dynamically quantized module."""
    return mapping("dynamic")


def get_default_qat_module_mappings() -> dict[type, Any]:
    """Float module -> module in training, without embeddings."""
    return {k: v for k, v in mapping("training").items() if k not in _EMBEDDINGS}


def get_embedding_qat_module_mappings() -> dict[type, Any]:
    """Float module -> module in training, with embeddings."""
    return mapping("training")


def get_default_qconfig_propagation_list() -> set[type]:
    """Modules that are observed when they have a qconfig: not those that are only quantized dynamically."""
    return {f.module for op, f in module_forms() if (f.static or f.training) and not op.keeps_scale}


def get_default_compare_output_module_list() -> set[type]:
    """Modules whose results are worth comparing: float ones and their quantized forms."""
    static, trained, dynamic = (mapping(form) for form in ("static", "training", "dynamic"))
    return {*static, *static.values(), *trained.values(), *dynamic.values()}


def get_static_quant_module_class(
    float_module_class: type, additional_static_quant_mapping: dict[type, Any] | None = None, is_reference: bool = False
) -> Any:
    """The quantized class of a float module class; ValueError if there is none."""
    known = mapping("reference" if is_reference else "static")
    return _class_of("static", float_module_class, {**known, **(additional_static_quant_mapping or {})})


def get_dynamic_quant_module_class(
    float_module_class: type, additional_dynamic_quant_mapping: dict[type, Any] | None = None
) -> Any:
    """The dynamically quantized class of a float module class; ValueError if there is none."""
    known = mapping("dynamic")
    return _class_of("dynamic", float_module_class, {**known, **(additional_dynamic_quant_mapping or {})})


def get_default_float_to_quantized_operator_mappings() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Map float functions to functions of quantized tensors, which also take the scale and zero point of the result."""
    return eager_functions()


def get_quantized_operator(float_op: Callable[..., Any]) -> Callable[..., Any]:
    """The function of quantized tensors for a function of floats; ValueError if there is none.

    Example:
        >>> get_quantized_operator(nn.functional.hardswish).__name__
        'hardswish'
    """
    found = eager_functions().get(float_op)
    if found is None:
        known = ", ".join(sorted(f.__name__ for f in eager_functions()))
        raise ValueError(f"{getattr(float_op, '__name__', float_op)} has no quantized version; supported: {known}")
    return found


def _class_of(kind: str, float_module_class: type, known: dict[type, Any]) -> Any:
    found = known.get(float_module_class)
    if found is None:
        raise ValueError(
            f"{float_module_class.__name__} has no {kind} quantized version; pass one in a mapping, or set its "
            "qconfig to None"
        )
    return copy.deepcopy(found)


def no_observer_set() -> set[Any]:
    """Modules whose results are never observed: they observe inside."""
    return {custom.observed for custom in custom_modules() if custom.observes_inside}


def get_default_custom_config_dict() -> dict[str, Any]:
    """The custom modules that are known: float -> observed, and observed -> quantized."""
    return {
        "float_to_observed_custom_module_class": {c.module: c.observed for c in custom_modules()},
        "observed_to_quantized_custom_module_class": {c.observed: c.quantized for c in custom_modules()},
    }


def fixed_fake_quants() -> dict[type, Any]:
    """Module whose results lie in a known interval -> the fake quantization for them."""
    ready = {
        Output.UNIT: default_fixed_qparams_range_0to1_fake_quant,
        Output.SYMMETRIC: default_fixed_qparams_range_neg1to1_fake_quant,
    }
    return {module: ready[op.output] for op in operators() if op.output in ready for module in op.modules}
