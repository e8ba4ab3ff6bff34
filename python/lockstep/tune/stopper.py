"""Stoppers: end trials, or the experiment, by what was reported. For ``RunConfig(stop=...)``."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from lockstep import _core
from lockstep.config import seconds
from lockstep.errors import ConfigError


class Stopper:
    """Override both::

    class Enough(tune.Stopper):
        def __call__(self, trial_id, result):
            return result["loss"] < 0.1
        def stop_all(self):
            return False
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends after this result."""
        raise NotImplementedError("a Stopper must have __call__(trial_id, result)")

    def stop_all(self) -> bool:
        """Whether the experiment ends."""
        raise NotImplementedError("a Stopper must have stop_all()")


class NoopStopper(Stopper):
    """Never stops."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False


class FunctionStopper(Stopper):
    """Ends a trial when ``function(trial_id, result)`` is true."""

    def __init__(self, function: Callable[[str, dict[str, Any]], Any]) -> None:
        if not callable(function):
            raise ConfigError(f"[FunctionStopper] got {function!r}; it must be a function of trial_id and result")
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._function(trial_id, result))

    def stop_all(self) -> bool:
        return False

    @classmethod
    def is_valid_function(cls, fn: Any) -> bool:
        """Whether it is a function and not a Stopper."""
        return callable(fn) and not isinstance(fn, Stopper)


class MaximumIterationStopper(Stopper):
    """Ends a trial after `max_iter` results."""

    def __init__(self, max_iter: int) -> None:
        if isinstance(max_iter, bool) or not isinstance(max_iter, int) or max_iter < 1:
            raise ConfigError(f"[MaximumIterationStopper] max_iter is {max_iter!r}; it must be at least 1")
        self._most = max_iter
        self._made: dict[str, int] = defaultdict(int)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._made[trial_id] += 1
        return self._made[trial_id] >= self._most

    def stop_all(self) -> bool:
        return False


class TrialPlateauStopper(Stopper):
    """Ends a trial when the last `num_results` values of the metric deviate by at most `std`, and are on the good side
    of `metric_threshold` if there is one (``mode`` says which side)."""

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ConfigError(
                f"[TrialPlateauStopper] mode is {mode!r}; with metric_threshold, it must be 'min' or 'max'"
            )
        self._metric, self._std, self._grace = metric, std, grace_period
        self._threshold, self._mode = metric_threshold, mode
        self._made: dict[str, int] = defaultdict(int)
        self._results = num_results
        self._window: dict[str, deque[float]] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        value = _number(result, self._metric, "TrialPlateauStopper")
        self._made[trial_id] += 1
        window = self._window.setdefault(trial_id, deque(maxlen=self._results))
        window.append(value)
        if self._made[trial_id] < self._grace or len(window) < self._results:
            return False
        if self._threshold is not None:
            if self._mode == "min" and value > self._threshold:
                return False
            if self._mode == "max" and value < self._threshold:
                return False
        return statistics.pstdev(window) <= self._std

    def stop_all(self) -> bool:
        return False


class ExperimentPlateauStopper(Stopper):
    """Ends the experiment when the `top` best values deviate by at most `std`, for more than `patience` results."""

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        if mode not in ("min", "max"):
            raise ConfigError(f"[ExperimentPlateauStopper] mode is {mode!r}; it must be 'min' or 'max'")
        if not isinstance(top, int) or top <= 1:
            raise ConfigError(f"[ExperimentPlateauStopper] top is {top!r}; it must be at least 2")
        if not isinstance(patience, int) or patience < 0:
            raise ConfigError(f"[ExperimentPlateauStopper] patience is {patience!r}; it must be at least 0")
        self._metric, self._std, self._top, self._mode, self._patience = metric, std, top, mode, patience
        self._best: list[float] = []
        self._calm = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._best.append(_number(result, self._metric, "ExperimentPlateauStopper"))
        self._best.sort(reverse=self._mode == "max")
        del self._best[self._top :]
        self._calm = self._calm + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        """Whether the best values deviate as little now."""
        return len(self._best) == self._top and statistics.pstdev(self._best) <= self._std

    def stop_all(self) -> bool:
        return self._calm > self._patience


class TimeoutStopper(Stopper):
    """Ends the experiment after `timeout` (seconds or timedelta), counted from its first result."""

    def __init__(self, timeout: float | timedelta) -> None:
        self._timeout = seconds(timeout, "[TimeoutStopper] timeout")
        self._began: float | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        if self._began is None:
            self._began = time.monotonic()
        return self.stop_all()

    def stop_all(self) -> bool:
        return self._began is not None and time.monotonic() - self._began >= self._timeout

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_began": None}


class CombinedStopper(Stopper):
    """Ends a trial or the experiment when one of the stoppers does."""

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        answers = [stopper(trial_id, result) for stopper in self._stoppers]  # each sees every result
        return any(answers)

    def stop_all(self) -> bool:
        return any(stopper.stop_all() for stopper in self._stoppers)


def _number(result: dict[str, Any], metric: str, who: str) -> float:
    value = _core.number_at(result, metric)
    if value is None:
        raise ConfigError(f"[{who}] a result has no number {metric!r}; it has {', '.join(map(repr, result))}")
    return value
