"""Several QConfigs for each layer, tried side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from zeropoint.qconfig import qconfig_equals
from zeropoint.qconfig_mapping import QConfigMapping

# Rules of a QConfigMapping that have keys, the weaker first -> the method that sets one.
_RULES = {
    "object_type_qconfigs": "set_object_type",
    "module_name_regex_qconfigs": "set_module_name_regex",
    "module_name_qconfigs": "set_module_name",
    "module_name_object_type_order_qconfigs": "set_module_name_object_type_order",
}


class QConfigMultiMapping:
    """A list of QConfigMappings with the same keys: the rules of a QConfigMapping, each with a list of QConfigs.

    Where one rule has fewer QConfigs than another, the rest of its list is None.

    Example:
        >>> import zeropoint
        >>> mapping = QConfigMultiMapping().set_global([zeropoint.default_qconfig, zeropoint.default_dynamic_qconfig])
        >>> len(mapping.qconfig_mappings_list)
        2
    """

    def __init__(self) -> None:
        self.qconfig_mappings_list: list[QConfigMapping] = [QConfigMapping()]

    def _set(self, method: str, keys: tuple[Any, ...], qconfigs: Sequence[Any]) -> QConfigMultiMapping:
        different: list[Any] = []
        for qconfig in qconfigs:
            if qconfig is not None and not any(qconfig_equals(qconfig, other) for other in different):
                different.append(qconfig)
        mappings = self.qconfig_mappings_list
        empty = QConfigMapping()
        for rules in _RULES:
            getattr(empty, rules).update(dict.fromkeys(getattr(mappings[0], rules)))
        while len(mappings) < len(different):
            mappings.append(copy.deepcopy(empty))
        different += [None] * (len(mappings) - len(different))
        for mapping, qconfig in zip(mappings, different, strict=True):
            getattr(mapping, method)(*keys, qconfig)
        return self

    def set_global(self, global_qconfig_list: Sequence[Any]) -> QConfigMultiMapping:
        """See `QConfigMapping.set_global`."""
        return self._set("set_global", (), global_qconfig_list)

    def set_object_type(
        self, object_type: Callable[..., Any] | str, qconfig_list: Sequence[Any]
    ) -> QConfigMultiMapping:
        """See `QConfigMapping.set_object_type`."""
        return self._set("set_object_type", (object_type,), qconfig_list)

    def set_module_name_regex(self, module_name_regex: str, qconfig_list: Sequence[Any]) -> QConfigMultiMapping:
        """See `QConfigMapping.set_module_name_regex`."""
        return self._set("set_module_name_regex", (module_name_regex,), qconfig_list)

    def set_module_name(self, module_name: str, qconfig_list: Sequence[Any]) -> QConfigMultiMapping:
        """See `QConfigMapping.set_module_name`."""
        return self._set("set_module_name", (module_name,), qconfig_list)

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Callable[..., Any], index: int, qconfig_list: Sequence[Any]
    ) -> QConfigMultiMapping:
        """See `QConfigMapping.set_module_name_object_type_order`."""
        return self._set("set_module_name_object_type_order", (module_name, object_type, index), qconfig_list)

    @classmethod
    def from_list_qconfig_mapping(cls, qconfig_mapping_list: Sequence[QConfigMapping]) -> QConfigMultiMapping:
        """The same rules as these mappings, with None where one of them has no rule for a key."""
        made = cls()
        made.qconfig_mappings_list = copy.deepcopy(list(qconfig_mapping_list))
        for rules, method in _RULES.items():
            listed: dict[Any, list[Any]] = {}
            for mapping in qconfig_mapping_list:
                for key, qconfig in getattr(mapping, rules).items():
                    listed.setdefault(key, []).append(qconfig)
            for key, qconfigs in listed.items():
                made._set(method, key if isinstance(key, tuple) else (key,), qconfigs)
        return made

    def __repr__(self) -> str:
        listed = "".join(f"\n{mapping!r}," for mapping in self.qconfig_mappings_list)
        return f"{type(self).__name__} [{listed}\n]"
