"""Values with code in every text, as a file or a model could have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


def with_texts(value: Any, change: Callable[[str], str], special: Callable[[Any], Any] = lambda value: None) -> Any:
    """`value` with `change` for every text in it; where `special` has an answer that is not None, with that."""

    def of(part: Any) -> Any:
        return with_texts(part, change, special)

    if isinstance(value, str):
        return change(value)
    if (answer := special(value)) is not None:
        return answer
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{field.name: of(getattr(value, field.name)) for field in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {of(key): of(part) for key, part in value.items()}
    return type(value)(map(of, value)) if isinstance(value, (list, tuple)) else value
