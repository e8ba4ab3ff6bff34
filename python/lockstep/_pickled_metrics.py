"""Metrics of any type: the workers of RaySGD's Trainer pickle what is not plain, and the Trainer unpickles it.

In the report such a value is ``{"__pickled__": bytes as an array}``.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

from lockstep import _core, _pickling

_KEY = "__pickled__"


def packed(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics with what the core cannot send as its pickle; models without their wrappers."""
    import numpy

    made = {}
    for key, value in metrics.items():
        try:
            _core.plain_metrics({key: value})
        except TypeError:
            advice = "report something plain"
            pickled = _pickling.dump_part(_unwrapped(value), f"metrics[{key!r}]", advice)
            value = {_KEY: numpy.frombuffer(pickled, dtype=numpy.uint8)}
        made[key] = value
    return made


def unpacked(metrics: dict[str, Any] | None) -> dict[str, Any] | None:
    """The inverse of packed(); runs code that the workers chose."""
    if metrics is None:
        return None
    return {key: pickle.loads(value[_KEY].tobytes()) if _is_pickled(value) else value for key, value in metrics.items()}


def _is_pickled(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {_KEY}


def _unwrapped(value: Any) -> Any:
    if "torch" not in sys.modules:
        return value
    from lockstep._wrappers import unwrapped

    return unwrapped(value)
