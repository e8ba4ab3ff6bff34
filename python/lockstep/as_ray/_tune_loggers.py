"""Loggers of one trial, as Ray 1 has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from lockstep import callbacks
from lockstep.errors import ConfigError


class Logger:
    """A logger of one trial; override ``_init`` and ``on_result``."""

    def __init__(self, config: dict[str, Any], logdir: str, trial: Any = None) -> None:
        self.config, self.logdir, self.trial = config, logdir, trial
        self._init()

    def _init(self) -> None:
        """Called once."""

    def on_result(self, result: dict[str, Any]) -> None:
        """The trial reported."""
        raise NotImplementedError("a Logger must have on_result()")

    def update_config(self, config: dict[str, Any]) -> None:
        """The configuration changed."""

    def close(self) -> None:
        """The trial ended."""

    def flush(self) -> None:
        """Writes what is left."""


class NoopLogger(Logger):
    """Writes nothing."""

    def on_result(self, result: dict[str, Any]) -> None:
        pass


class LegacyLoggerCallback(callbacks.LoggerCallback):
    """Makes one object of each class for every trial."""

    def __init__(self, logger_classes: Sequence[type[Logger]]) -> None:
        self.logger_classes = list(logger_classes)
        self._of_trials: dict[str, list[Logger]] = {}

    def log_trial_start(self, trial: Any) -> None:
        self._of_trials[trial.trial_id] = [made(trial.config, trial.logdir, trial) for made in self.logger_classes]

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._of_trials:
            self.log_trial_start(trial)
        for each in self._of_trials[trial.trial_id]:
            each.on_result(result)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        for each in self._of_trials.pop(trial.trial_id, ()):
            each.flush()
            each.close()


class _ByCallback(Logger):
    """Writes what a callback of Lockstep writes."""

    _kind: ClassVar[type[callbacks.LoggerCallback]]

    def _init(self) -> None:
        os.makedirs(self.logdir, mode=0o700, exist_ok=True)
        self._trial = callbacks.Trial(getattr(self.trial, "trial_id", "default"), self.config, self.logdir, "trial")
        self._reports = 0
        self._callback = self._kind()
        self._callback.log_trial_start(self._trial)

    def on_result(self, result: dict[str, Any]) -> None:
        self._reports += 1
        self._callback.log_trial_result(int(result.get("training_iteration") or self._reports), self._trial, result)

    def close(self) -> None:
        self._callback.log_trial_end(self._trial)


class JsonLogger(_ByCallback):
    """Writes result.json."""

    _kind = callbacks.JsonLoggerCallback


class CSVLogger(_ByCallback):
    """Writes progress.csv."""

    _kind = callbacks.CSVLoggerCallback


class TBXLogger(_ByCallback):
    """Writes for TensorBoard."""

    _kind = callbacks.TBXLoggerCallback


DEFAULT_LOGGERS: tuple[type[Logger], ...] = (JsonLogger, CSVLogger, TBXLogger)


class UnifiedLogger(Logger):
    """Several loggers as one."""

    def __init__(
        self,
        config: dict[str, Any],
        logdir: str,
        trial: Any = None,
        loggers: Sequence[type[Logger]] | None = None,
        **_: Any,
    ) -> None:
        self._kinds = DEFAULT_LOGGERS if loggers is None else tuple(loggers)
        super().__init__(config, logdir, trial)

    def _init(self) -> None:
        self._loggers = [kind(self.config, self.logdir, self.trial) for kind in self._kinds]

    def on_result(self, result: dict[str, Any]) -> None:
        for each in self._loggers:
            each.on_result(result)

    def update_config(self, config: dict[str, Any]) -> None:
        for each in self._loggers:
            each.update_config(config)

    def close(self) -> None:
        for each in self._loggers:
            each.close()

    def flush(self) -> None:
        for each in self._loggers:
            each.flush()


def callbacks_of(loggers: Sequence[Any]) -> list[Any]:
    """For ``tune.run(loggers=...)``. Every trial has the files of DEFAULT_LOGGERS in any case."""
    classes = [each for each in loggers if isinstance(each, type) and issubclass(each, Logger)]
    if wrong := [each for each in loggers if each not in classes]:
        raise ConfigError(f"[tune] loggers has {wrong!r}; give classes derived from Logger, or callbacks=")
    own = [each for each in classes if each not in (*DEFAULT_LOGGERS, UnifiedLogger)]
    return [LegacyLoggerCallback(own)] if own else []
