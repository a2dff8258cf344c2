"""The settings of a model in a file, read with the type that each must have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_MOST = 1 << 24


class Settings:
    """Settings by their names. A setting of None is one that is not there.

    Args:
        values: what the file has.
        named: how messages name a setting: ``"{} of config.json"``.
        error: what is raised for a wrong one.
        others: what some files call a setting.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        named: str,
        error: type[ValueError] = ValueError,
        others: Mapping[str, str] | None = None,
    ) -> None:
        self.values, self.named, self.error, self.others = values, named, error, others or {}
        self._asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """The setting, as it is."""
        self._asked |= {key, self.others.get(key, key)}
        value = self.values.get(key)
        if value is None and key in self.others:
            value = self.values.get(self.others[key])
        return default if value is None else value

    def whole(self, key: str, default: int | None = None, most: int = _MOST) -> int:
        """A whole number above zero."""
        value = self.get(key, default)
        if type(value) is not int or not 0 < value <= most:
            self._refuse(key, f"a whole number from 1 to {most}", value)
        return int(value)

    def number(self, key: str, default: float | None = None, most: float = _MOST) -> float:
        """A number above zero."""
        value = self.get(key, default)
        if type(value) not in (int, float) or not 0 < value <= most:
            self._refuse(key, f"a number above 0, at most {most:g}", value)
        return float(value)

    def bound(self, key: str) -> float:
        """A number above zero, or 0 if there is none."""
        value = self.get(key)
        return 0.0 if value is None or (type(value) in (int, float) and value == 0) else self.number(key)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, default)
        if type(value) is not bool:
            self._refuse(key, "true or false", value)
        return bool(value)

    def one_of(self, key: str, known: Mapping[str, Any], what: str, default: str | None = None) -> str:
        """One of the texts in `known`."""
        value = self.get(key, default)
        if not isinstance(value, str) or value not in known:
            raise self.error(f"the {what} {_short(value)} is not supported; these are: {', '.join(known)}")
        return value

    def parts(self, key: str) -> Mapping[str, Any]:
        """Settings of a setting; none if it is not there."""
        value = self.get(key, {})
        if not isinstance(value, Mapping):
            self._refuse(key, "an object", value)
        return value

    def require_all_read(self) -> None:
        """Refuse settings that nothing has asked for."""
        if unread := sorted(self.values.keys() - self._asked):
            raise self.error(f"{self.named.format(repr(unread[0]))} is not supported")

    def _refuse(self, key: str, wanted: str, value: Any) -> None:
        name = self.named.format(key)
        raise self.error(f"{name} is missing" if value is None else f"{name} must be {wanted}, got {_short(value)}")


def require_finite(values: Any, what: str, error: type[ValueError] = ValueError) -> None:
    """Refuse numbers that settings of extreme sizes lead to."""
    if not all(math.isfinite(value) for value in values):
        raise error(f"{what} are not finite: check the settings that they follow from")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
