"""Nested dicts as flat ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(values: Mapping[str, Any], delimiter: str = "/", prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dicts, with joined keys; an empty dict is a leaf, too.

    >>> dict(leaves({"loss": {"train": 1, "test": 2}}))
    {'loss/train': 1, 'loss/test': 2}
    """
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, delimiter, f"{prefix}{key}{delimiter}")
        else:
            yield f"{prefix}{key}", value
