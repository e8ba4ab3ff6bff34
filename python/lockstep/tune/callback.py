"""Hooks into an experiment, called in the process that called ``fit()``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from lockstep import _core
from lockstep import callbacks as run_callbacks
from lockstep.callbacks import EarlyStopping, LoggerCallback, RunInfo
from lockstep.checkpoint import Checkpoint
from lockstep.result import Result
from lockstep.tune._trial import Trial


class Callback(run_callbacks.Callback):
    """Override the hooks you need. `trials` are the trials so far, `iteration` counts the loop of the experiment."""

    def setup(self, **info: Any) -> None:
        """Before the first trial."""

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Before what happened is handled."""

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """After it was handled."""

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """A trial starts, also when it goes on after a pause or a failure."""

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """It goes on from a checkpoint."""

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """``trial.checkpoint`` was committed."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """It reported."""

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """It ended by itself, or was stopped."""

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """It failed for good."""

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """No trial runs any more."""

    def get_state(self) -> dict[str, Any] | None:
        """Never called: a restored experiment gets new callbacks. It is there as in Ray."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """The same."""


_HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


class Hooks:
    """Calls the hooks of all callbacks: Tune's, loggers', and those of runs, of which each trial has its own copy."""

    def __init__(self, callbacks: list[Any], runs_call_theirs: bool) -> None:
        self._tune: list[Any] = [each for each in callbacks if _has_tune_hooks(each)]
        others = [] if runs_call_theirs else [each for each in callbacks if not _has_tune_hooks(each)]
        self.of_runs: list[Any] = [each for each in callbacks if not _has_tune_hooks(each)] if runs_call_theirs else []
        """Those that the runs of trials call."""
        self._loggers = [each for each in others if _is_logger(each)]
        self._per_run = [each for each in others if not _is_logger(each)]
        self._copies: dict[int, list[Any]] = {}
        self._iteration = 0
        self.trials: list[Trial] = []
        self._known: set[int] = set()

    @property
    def any(self) -> bool:
        """Whether there is any callback."""
        return bool(self._tune or self._loggers or self._per_run)

    @property
    def may_stop(self) -> bool:
        """Whether one may end a trial."""
        plain = run_callbacks.Callback
        return any(type(each).should_stop is not plain.should_stop for each in self._per_run)

    def _call(self, hook: str, *arguments: Any, **named: Any) -> None:
        for each in self._tune:
            if callable(method := getattr(each, hook, None)):
                method(*arguments, **named)

    def setup(self, stop: Any, num_samples: int, total: int | None) -> None:
        self._call("setup", stop=stop, num_samples=num_samples, total_num_samples=total)

    def step(self) -> None:
        self._iteration += 1
        if self._tune:
            self._call("on_step_begin", self._iteration, self.trials)

    def step_end(self) -> None:
        if self._tune:
            self._call("on_step_end", self._iteration, self.trials)

    def started(self, trial: Trial, again: bool) -> None:
        if trial.number not in self._known:
            self._known.add(trial.number)
            self.trials.append(trial)
        named = {"iteration": self._iteration, "trials": self.trials, "trial": trial}
        if again and trial.checkpoint is not None:
            self._call("on_trial_restore", **named)
        self._call("on_trial_start", **named)
        for each in self._loggers:
            each.log_trial_restore(trial) if again else each.log_trial_start(trial)
        if self._per_run:
            copies = self._copies[trial.number] = [_copy(each) for each in self._per_run]
            for each in copies:
                each.on_start(_info(trial))
                each.on_attempt_started(0)

    def reported(self, trial: Trial, result: dict[str, Any]) -> bool:
        """Returns whether a callback ends the trial."""
        self._call("on_trial_result", iteration=self._iteration, trials=self.trials, trial=trial, result=result)
        for each in self._loggers:
            each.log_trial_result(int(result.get("training_iteration") or 0), trial, result)
        trial.last_result = result
        stop = False
        for each in self._copies.get(trial.number, ()):
            each.on_result(result)
            stop = bool(each.should_stop(result)) or each._stop_requested or stop
        return stop

    def saved(self, trial: Trial) -> None:
        named = {"iteration": self._iteration, "trials": self.trials, "trial": trial}
        self._call("on_trial_save", **named)
        self._call("on_trial_checkpoint", **named, checkpoint=trial.checkpoint)  # on_checkpoint() of the alias
        for each in self._loggers:
            each.log_trial_save(trial)
        for each in self._copies.get(trial.number, ()):
            each.on_checkpoint(trial.checkpoint, trial.last_result)

    def ended(self, trial: Trial, result: Result | None) -> None:
        failed = trial.status == "ERROR"
        hook = "on_trial_error" if failed else "on_trial_complete"
        self._call(hook, iteration=self._iteration, trials=self.trials, trial=trial)
        for each in self._loggers:
            each.log_trial_end(trial, failed=failed)
        for each in self._copies.pop(trial.number, ()):
            if result is not None:
                each.on_end(result)

    @property
    def wants_results(self) -> bool:
        """Whether ended() needs the result."""
        return bool(self._per_run)

    def experiment_ended(self) -> None:
        self._call("on_experiment_end", trials=self.trials)


def _has_tune_hooks(callback: Any) -> bool:
    return isinstance(callback, Callback) or any(
        callable(getattr(callback, name, None))
        and getattr(type(callback), name, None) is not getattr(LoggerCallback, name, None)
        for name in _HOOKS
        if name.startswith(("on_trial", "on_experiment"))
    )


def _is_logger(callback: Any) -> bool:
    return isinstance(callback, LoggerCallback) and not isinstance(callback, run_callbacks._FileLogger)


def _copy(callback: Any) -> Any:
    """Of its own for each trial; what it refers to is shared."""
    made = copy.copy(callback)
    made._stop_requested = False
    if isinstance(made, EarlyStopping):
        made._rule = _core.EarlyStopping(*made._arguments)
    return made


def _info(trial: Trial) -> RunInfo:
    import os

    return RunInfo(
        name=str(trial),
        path=Path(trial.logdir),
        trial_id=trial.trial_id,
        experiment_id="",
        config=trial.config,
        world_size=1,
        trainer=trial.trainable_name,
        hostname=os.uname().nodename,
        node_ip=_core.LOOPBACK,
    )


def checkpoint_at(path: str) -> Checkpoint | None:
    """The checkpoint at a path; None if the path is empty."""
    return Checkpoint.from_directory(path) if path else None
