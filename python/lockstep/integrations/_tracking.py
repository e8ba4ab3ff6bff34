"""What the trackers share: which values they get, and how they fail."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from typing import Any

from lockstep._nested import leaves
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
"""The autofilled keys that a tracker gets. The others are constants, clocks or duplicates."""


def require(package: str, callback: str) -> None:
    """Raises LockstepError if `package` is not installed; does not import it."""
    if importlib.util.find_spec(package) is None:
        raise LockstepError(f"[{callback}] the package {package} is not installed; pip install {package}")


def numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """Every number, with nested keys joined by slashes; bools are 0 and 1::

    numbers({"loss": 0.5, "validation": {"accuracy": 1}, "name": "x"})  # {"loss": 0.5, "validation/accuracy": 1.0}
    """
    wanted = {key: value for key, value in result.items() if key in CURVES or key not in AUTOFILLED_KEYS}
    return {key: float(value) for key, value in leaves(wanted) if isinstance(value, (bool, int, float))}


class Warner:
    """Warns once if a tracker fails during a run. The run continues: its own files have everything."""

    def __init__(self, callback: str) -> None:
        self._callback = callback
        self._told: set[str] = set()

    def __call__(self, what: str, error: BaseException) -> None:
        """Warns that `what` failed with `error`; silent from the second time on."""
        if what in self._told:
            return
        self._told.add(what)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        warnings.warn(
            f"[{self._callback}] {what}: {lines[0]}; the run continues, and its directory has all results",
            RuntimeWarning,
            stacklevel=3,
        )
