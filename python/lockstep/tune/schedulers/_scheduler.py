"""Schedulers that users write, and the connection between one and an experiment."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

from lockstep import _core
from lockstep.errors import ConfigError
from lockstep.tune._trial import Trial
from lockstep.tune.search._searcher import take_objective

_Decision = _core.tune.Decision
_KINDS = {
    "CONTINUE": _Decision.Kind.go_on,
    "NOOP": _Decision.Kind.go_on,
    "PAUSE": _Decision.Kind.pause,
    "STOP": _Decision.Kind.stop,
}


class TrialScheduler:
    """Decides which trials go on. Override ``on_trial_result``::

        class Patience(schedulers.TrialScheduler):
            def on_trial_result(self, trial_runner, trial, result):
                return self.STOP if result["loss"] > 10 else self.CONTINUE

    `trial_runner` has ``get_trials()``. It must decide by its arguments and its own seed only: an experiment that is
    restored calls it again in the same order, with the results as the database has them.
    """

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    _taken: frozenset[str] = frozenset()
    """Which of metric and mode are the experiment's."""
    _metric: str | None = None
    _mode: str | None = None
    _time_attr = "training_iteration"

    @property
    def metric(self) -> str | None:
        """The metric that it compares, if it has one of its own."""
        return self._metric

    @property
    def mode(self) -> str | None:
        """ "min" or "max"."""
        return self._mode

    @property
    def time_attr(self) -> str:
        """What counts as time."""
        return self._time_attr

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Called before the first trial with what the experiment has."""
        take_objective(self, metric, mode)
        return True

    def on_trial_add(self, trial_runner: Any, trial: Trial) -> None:
        """There is a new trial."""

    def on_trial_result(self, trial_runner: Any, trial: Trial, result: dict[str, Any]) -> str:
        """CONTINUE, PAUSE or STOP."""
        return self.CONTINUE

    def on_trial_complete(self, trial_runner: Any, trial: Trial, result: dict[str, Any]) -> None:
        """A trial ended."""

    def on_trial_error(self, trial_runner: Any, trial: Trial) -> None:
        """A trial failed."""

    def on_trial_remove(self, trial_runner: Any, trial: Trial) -> None:
        """A paused trial was ended."""

    def choose_trial_to_run(self, trial_runner: Any) -> Trial | None:
        """The next of ``trial_runner.get_trials()`` whose status is PENDING or PAUSED."""
        waiting = [each for each in trial_runner.get_trials() if each.status in ("PENDING", "PAUSED")]
        return min(waiting, key=lambda each: (each.status == "PAUSED", each.number), default=None)

    @property
    def supports_buffered_results(self) -> bool:
        """Whether it may be asked about several results at once; it never is."""
        return False

    def save(self, checkpoint_path: str) -> None:
        """Writes the object to a file. Experiments need none: they repeat the calls."""
        with open(checkpoint_path, "wb") as file:
            pickle.dump(self, file)

    def restore(self, checkpoint_path: str) -> None:
        """Continues from what save() wrote."""
        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(pickle.load(file).__dict__)

    def debug_string(self) -> str:
        """One line about it."""
        return f"Using {type(self).__name__}."


class Runner:
    """What a scheduler of the user's sees of the experiment."""

    def __init__(self) -> None:
        self.trials: dict[int, Trial] = {}

    def get_trials(self) -> list[Trial]:
        """All trials so far."""
        return list(self.trials.values())

    def get_live_trials(self) -> list[Trial]:
        """Those that have not ended."""
        return [each for each in self.trials.values() if each.status not in ("TERMINATED", "ERROR")]


class Bridge(_core.tune.Scheduler):
    """Lets an experiment ask a TrialScheduler."""

    def __init__(self, scheduler: TrialScheduler, metric: str | None, mode: str | None) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._metric = metric
        self._sign = -1 if mode == "max" else 1
        self._runner = Runner()
        self.results: Callable[[int], dict[str, Any] | None] = lambda trial: None
        self.stored: Callable[[int], list[dict[str, Any]]] = lambda trial: []
        """The results of a trial in the database, for calls that are repeated."""

    def may_stop(self) -> bool:
        return True

    def on_added(self, trial: int, config: Any) -> None:
        if trial in self._runner.trials:
            self._runner.trials[trial].config = config
            return
        made = self._runner.trials[trial] = Trial(f"{trial:05d}", config, "", "trial", number=trial)
        self._scheduler.on_trial_add(self._runner, made)

    def on_result(self, trial: int, time: float, value: float, has_checkpoint: bool) -> Any:
        result = dict(self.results(trial) or self._stored_result(trial, time))
        result.setdefault(self._scheduler.time_attr, time)
        if self._metric is not None:
            result[self._metric] = self._sign * value
        known = self._runner.trials[trial]
        known.status = "RUNNING"
        answer = self._scheduler.on_trial_result(self._runner, known, result)
        known.last_result = result
        if answer not in _KINDS:
            what = f"{type(self._scheduler).__name__}.on_trial_result() returned {answer!r}"
            raise ConfigError(f"[tune] {what}; it must return one of {', '.join(_KINDS)}")
        if answer == "PAUSE":
            known.status = "PAUSED"
        return _Decision(_KINDS[answer], "" if _KINDS[answer] == _Decision.Kind.go_on else "the scheduler decided so")

    def _stored_result(self, trial: int, time: float) -> dict[str, Any]:
        name = self._scheduler.time_attr
        return next((each for each in self.stored(trial) if _core.number_at(each, name) == time), {})

    def on_ended(self, trial: int, failed: bool) -> None:
        known = self._runner.trials.get(trial)
        if known is None:
            return
        known.status = "ERROR" if failed else "TERMINATED"
        if failed:
            self._scheduler.on_trial_error(self._runner, known)
        else:
            self._scheduler.on_trial_complete(self._runner, known, known.last_result)

    def choose(self, fresh: list[int], paused: list[int]) -> int | None:
        for number in fresh:
            self._runner.trials[number].status = "PENDING"
        for number in paused:
            self._runner.trials[number].status = "PAUSED"
        able = {*fresh, *paused}
        chosen = self._scheduler.choose_trial_to_run(self._runner)
        if chosen is None or chosen.number not in able:
            return None
        self._runner.trials[chosen.number].status = "RUNNING"
        return chosen.number


class Around(_core.tune.Scheduler):
    """A scheduler of the core, with what only Python can do: configurations of a searcher of the user's, values of
    sample_from(), and the exploration of population based training."""

    def __init__(
        self,
        inner: Any,
        suggested: Mapping[int, Mapping[str, Any]] | None = None,
        explore: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        encode: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
        decode: Callable[[dict[str, Any]], dict[str, Any]] = dict,
        resolve: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        super().__init__()
        self._inner = inner
        self._suggested = suggested
        self._explore = explore
        self._encode = encode
        self._decode = decode
        self._resolve = resolve

    def may_stop(self) -> bool:
        return bool(self._inner.may_stop())

    def complete_config(self, trial: int, config: dict[str, Any]) -> dict[str, Any]:
        if self._suggested is not None and trial in self._suggested:
            config = merged(config, self._encode(self._suggested[trial]))
        return self._resolve(self._inner.complete_config(trial, config))

    def on_added(self, trial: int, config: Any) -> None:
        self._inner.on_added(trial, config)

    def on_result(self, trial: int, time: float, value: float, has_checkpoint: bool) -> Any:
        return self._inner.on_result(trial, time, value, has_checkpoint)

    def on_ended(self, trial: int, failed: bool) -> None:
        self._inner.on_ended(trial, failed)

    def more_to_come(self, more: bool) -> None:
        self._inner.more_to_come(more)

    def choose(self, fresh: list[int], paused: list[int]) -> Any:
        return self._inner.choose(fresh, paused)

    def take_dropped(self) -> Any:
        return self._inner.take_dropped()

    def take_exploit(self, trial: int) -> Any:
        exploit = self._inner.take_exploit(trial)
        if exploit is None or self._explore is None or exploit.donor == trial:
            return exploit
        explored = self._explore(self._decode(exploit.config))
        if not isinstance(explored, Mapping):
            raise ConfigError(f"[tune] custom_explore_fn returned {explored!r}; it must return the configuration")
        config = self._encode(explored)
        self._inner.on_added(trial, config)
        return _core.tune.Exploit(exploit.donor, config)

    def donors(self) -> Any:
        return self._inner.donors()

    def replay_log(self) -> Any:
        return self._inner.replay_log()


def merged(config: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with the values of `more`, dict by dict."""
    made = dict(config)
    for key, value in more.items():
        before = made.get(key)
        made[key] = merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return made
