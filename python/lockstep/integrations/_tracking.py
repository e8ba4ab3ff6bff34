"""What the trackers share: which values they get, and how they fail."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.errors import LockstepError
from lockstep.result import AUTOFILLED_KEYS

CURVES = frozenset(
    {
        "training_iteration",
        "time_this_iter_s",
        "time_total_s",
        "time_since_restore",
        "iterations_since_restore",
        "warmup_time",
    }
)
"""The autofilled keys that a tracker gets. The others are constants, clocks, or the same once more."""


def require(package: str, callback: str) -> None:
    """Refuses to go on without `package`; does not import it."""
    if importlib.util.find_spec(package) is None:
        raise LockstepError(f"[{callback}] the package {package} is not installed; pip install {package}")


def numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """What has a curve: every number, nested keys joined by slashes; bools are 0 and 1::

    numbers({"loss": 0.5, "validation": {"accuracy": 1}, "name": "x"})  # {"loss": 0.5, "validation/accuracy": 1.0}
    """
    wanted = {key: value for key, value in result.items() if key in CURVES or key not in AUTOFILLED_KEYS}
    return {key: float(value) for key, value in leaves(wanted) if isinstance(value, (bool, int, float))}


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in nested dicts that is not a dict, with its keys joined by slashes; an empty dict is one, too."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


class Warner:
    """A tracker that fails in the middle of a run is told once and does not end the run: its files have everything."""

    def __init__(self, callback: str) -> None:
        self._callback = callback
        self._told: set[str] = set()

    def __call__(self, what: str, error: BaseException) -> None:
        """`what` failed with `error`; the second time is silent."""
        if what in self._told:
            return
        self._told.add(what)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        warnings.warn(
            f"[{self._callback}] {what}: {lines[0]}; the run goes on, and its directory has all results",
            RuntimeWarning,
            stacklevel=3,
        )
