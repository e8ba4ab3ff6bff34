"""Values as JSON and UTF-8 can hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON can hold it. A dataclass instance becomes the dict of its fields; other objects become their
    repr."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if is_text(value) else repr(value)
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return float(value)
    if depth < 32:
        if isinstance(value, Mapping):
            return {plain(key) if isinstance(key, str) else str(key): plain(v, depth + 1) for key, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item, depth + 1) for item in value]
        if is_dataclass_object(value):
            set_fields = (field.name for field in dataclasses.fields(value) if hasattr(value, field.name))
            return {name: plain(getattr(value, name), depth + 1) for name in set_fields}
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            item = value.item()
            return plain(item, depth + 1) if type(item).__module__ == "builtins" else repr(value)
    return repr(value)


def is_dataclass_object(value: object) -> bool:
    """Whether it is an instance of a dataclass, not the class."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: no half of a surrogate pair."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
