"""Giving each module of a model its QConfig, as the attribute `qconfig`."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from zeropoint.described import described
from zeropoint.qconfig import add_module_to_qconfig_obs_ctr, checked_qconfig
from zeropoint.qconfig_mapping import QConfigMapping

# (dotted name, class, how many of the class come before it in its parent or None, the parent's QConfig) -> QConfig
_Rule = Callable[[str, type, int | None, Any], Any]


def propagate_qconfig_(
    module: nn.Module,
    qconfig_dict: Mapping[Any, Any] | QConfigMapping | None = None,
    prepare_custom_config_dict: Mapping[str, Any] | None = None,
) -> None:
    """Set `qconfig` on `module` and every module inside it, built for the device that each is on.

    A module that has a `qconfig` keeps it. Otherwise, with a dictionary, it gets the entry for its dotted name ("" is
    `module`), the entry for its class, or the `qconfig` of its parent. With a QConfigMapping, it gets the result of
    `QConfigMapping.qconfig_for`; an existing `qconfig` counts as a rule for the name of its module, and the order is
    the order of registration.

    Args:
        prepare_custom_config_dict: "non_traceable_module_name" and "non_traceable_module_class" list modules to skip,
            with all modules inside them.

    Raises:
        TypeError: if a value is not a QConfig.

    Example:
        >>> from zeropoint import default_qconfig, float16_dynamic_qconfig, qconfig_equals
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2), nn.Linear(2, 2))
        >>> propagate_qconfig_(model, {"": default_qconfig, nn.LSTM: float16_dynamic_qconfig, "2": None})
        >>> [qconfig_equals(m.qconfig, default_qconfig) for m in model], model[2].qconfig
        ([True, False, False], None)
    """
    if isinstance(qconfig_dict, QConfigMapping):
        rule = _rule_of_mapping(module, qconfig_dict)
    elif qconfig_dict is None or isinstance(qconfig_dict, Mapping):
        rule = _rule_of_dict(qconfig_dict or {})
    else:
        raise TypeError(
            f"propagate_qconfig_: qconfig_dict must be a dictionary or a QConfigMapping, got {described(qconfig_dict)};"
            " for one QConfig for all, pass {'': qconfig}"
        )
    custom = prepare_custom_config_dict or {}
    left_alone = {*custom.get("non_traceable_module_name", ()), *custom.get("non_traceable_module_class", ())}
    _propagate(module, "", None, None, rule, left_alone)


def _rule_of_dict(given: Mapping[Any, Any]) -> _Rule:
    where = "propagate_qconfig_: qconfig_dict"
    qconfigs = {key: checked_qconfig(f"{where}[{key!r}]", qconfig) for key, qconfig in given.items()}

    def rule(name: str, kind: type, index: int | None, inherited: Any) -> Any:
        return qconfigs.get(name, qconfigs.get(kind, inherited))

    return rule


def _rule_of_mapping(module: nn.Module, mapping: QConfigMapping) -> _Rule:
    mapping = copy.copy(mapping)
    mapping.module_name_qconfigs = mapping.module_name_qconfigs.copy()
    for name, submodule in module.named_modules():
        if hasattr(submodule, "qconfig"):
            if name:
                mapping.set_module_name(name, submodule.qconfig)
            else:
                mapping.set_global(submodule.qconfig)

    def rule(name: str, kind: type, index: int | None, inherited: Any) -> Any:
        return mapping.qconfig_for(name, kind, index)

    return rule


def _propagate(
    module: nn.Module, name: str, index: int | None, inherited: Any, rule: _Rule, left_alone: set[Any]
) -> None:
    if hasattr(module, "qconfig"):
        qconfig = checked_qconfig(f"propagate_qconfig_: the qconfig of module {name!r}", module.qconfig)
    else:
        qconfig = rule(name, type_before_parametrizations(module), index, inherited)
    module.qconfig = qconfig = add_module_to_qconfig_obs_ctr(qconfig, module)

    seen: Counter[type] = Counter()
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}" if name else child_name
        kind = type_before_parametrizations(child)
        if path not in left_alone and type(child) not in left_alone:
            _propagate(child, path, seen[kind], qconfig, rule, left_alone)
        seen[kind] += 1
