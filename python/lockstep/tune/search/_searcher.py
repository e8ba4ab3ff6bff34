"""Searchers that users write, and the connection between one and an experiment."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep import _core
from lockstep.errors import ConfigError

_Kind = _core.tune.Searcher.Asked.Kind


class Searcher:
    """Chooses configurations. Override ``suggest`` and ``on_trial_complete``::

        class Halving(search.Searcher):
            lr = 1.0
            def suggest(self, trial_id):
                self.lr /= 2
                return {"lr": self.lr}
            def on_trial_complete(self, trial_id, result=None, error=False):
                print(trial_id, result)

    It must choose by its arguments and its own seed only: an experiment that is restored calls it again in the same
    order.
    """

    _taken: frozenset[str] = frozenset()
    """Which of metric and mode are the experiment's."""

    FINISHED = "FINISHED"
    """suggest() returns this when there is nothing more to try."""

    def __init__(
        self, metric: str | Sequence[str] | None = None, mode: str | Sequence[str] | None = None, **_: Any
    ) -> None:
        check_mode(mode)
        self._metric = metric
        self._mode = mode

    @property
    def metric(self) -> Any:
        """The metric to optimise."""
        return getattr(self, "_metric", None)

    @property
    def mode(self) -> Any:
        """ "min" or "max"."""
        return getattr(self, "_mode", None)

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        """Called before the first suggestion with what the experiment has. Returns whether it is used: if not, `config`
        must hold constants only."""
        take_objective(self, metric, mode)
        return not config

    def _use_seed(self, seed: int) -> None:
        """The experiment's, for a searcher that has none of its own."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The configuration of a new trial. None: not now. FINISHED: no more."""
        raise NotImplementedError("a Searcher must have suggest()")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial reported."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial ended; `result` is its last one."""
        raise NotImplementedError("a Searcher must have on_trial_complete()")

    @property
    def is_native(self) -> bool:
        """Whether the core has it."""
        return False

    @property
    def _needs_metric(self) -> bool:
        """Whether it is of no use without one."""
        return False

    def ask(self) -> tuple[int, dict[str, Any]]:
        """An id and a configuration to try, without an experiment. Raises StopIteration when there is nothing more to
        try, or nothing until the next tell()."""
        id = self.__dict__.get("_asked_so_far", 0)
        config = self.suggest(trial_name(id))
        if not isinstance(config, Mapping):
            raise StopIteration("nothing until the next tell()" if config is None else "every point was tried")
        self.__dict__["_asked_so_far"] = id + 1
        return id, dict(config)

    def tell(self, id: int, value: float | Sequence[float] | Mapping[str, Any] | None) -> None:
        """The value of an asked configuration: a number, one for each metric, or a dict of metrics. None: it failed."""
        names = [self.metric] if isinstance(self.metric, str) else list(self.metric or ())
        result: dict[str, Any] | None = None
        if isinstance(value, Mapping):
            result = dict(value)
        elif value is not None:
            if not names:
                name = type(self).__name__
                raise ConfigError(f"[tune.search] {name} has no metric; give one, {name}(metric=...), or tell() a dict")
            values = list(value) if isinstance(value, Sequence) else [value]
            if len(values) != len(names):
                raise ConfigError(f"[tune.search] tell() got {len(values)} values; there are {len(names)} metrics")
            result = dict(zip(names, values, strict=True))
        self.on_trial_complete(trial_name(id), result=result, error=result is None)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """A configuration whose value is known already. Override it if the searcher can learn from it."""
        raise NotImplementedError(f"{type(self).__name__} takes no points that were evaluated elsewhere")

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Gives add_evaluated_point() every trial that has ended, of an analysis, a list, or one trial."""
        trials = getattr(trials_or_analysis, "trials", trials_or_analysis)
        for trial in trials if isinstance(trials, (list, tuple)) else [trials]:
            if trial.status not in ("TERMINATED", "ERROR"):
                continue
            value = _core.number_at(dict(trial.last_result or {}), metric)
            failed = trial.status == "ERROR" or value is None
            self.add_evaluated_point(trial.config, float("nan") if value is None else value, error=failed)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Whether the searcher bounds its trials by itself; ConcurrencyLimiter does it otherwise."""
        return False

    def get_state(self) -> dict[str, Any]:
        """What save_to_dir() writes. Override it if the searcher is used without an experiment."""
        raise NotImplementedError(f"{type(self).__name__} has no get_state()")

    def set_state(self, state: dict[str, Any]) -> None:
        """The inverse of get_state()."""
        raise NotImplementedError(f"{type(self).__name__} has no set_state()")

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Writes a file that restore_from_dir() reads. Experiments need none: they repeat the calls."""
        with open(os.path.join(checkpoint_dir, f"searcher-state-{session_str}.pkl"), "wb") as file:
            pickle.dump(self.get_state(), file)

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Continues from the newest file that save_to_dir() wrote."""
        found = sorted(Path(checkpoint_dir).glob("searcher-state-*.pkl"), key=os.path.getmtime)
        if not found:
            what = f"[tune.search] {checkpoint_dir} has no searcher-state-*.pkl"
            raise ConfigError(f"{what}; give the directory that save_to_dir() got")
        self.set_state(pickle.loads(found[-1].read_bytes()))

    def save(self, checkpoint_path: str) -> None:
        """Not needed: experiments repeat the calls."""

    def restore(self, checkpoint_path: str) -> None:
        """Not needed: experiments repeat the calls."""


SearchAlgorithm = Searcher


def take_objective(adviser: Any, metric: Any, mode: Any) -> None:
    """Gives a searcher or scheduler what it was not given itself; another experiment may give it something else."""
    for name, value in (("_metric", metric), ("_mode", mode)):
        if name in adviser._taken or getattr(adviser, name, None) is None:
            setattr(adviser, name, value)
            adviser._taken |= {name}


def check_mode(mode: Any) -> None:
    """Raises ConfigError unless it is "min", "max", several of them, or None."""
    for each in [mode] if isinstance(mode, str) or mode is None else mode:
        if each not in ("min", "max", None):
            raise ConfigError(f"[tune.search] mode is {each!r}; it must be 'min' or 'max'")


def check_points(points: Any) -> list[dict[str, Any]]:
    """points_to_evaluate as a list of dicts. Raises ConfigError."""
    points = () if points is None else points
    if isinstance(points, (str, Mapping)) or not all(isinstance(point, Mapping) for point in points):
        raise ConfigError(f"[tune.search] points_to_evaluate is {points!r}; it must be a list of dicts")
    return [dict(point) for point in points]


class Bridge(_core.tune.Searcher):
    """Lets an experiment ask a Searcher. The space of the experiment has no dimensions; what the searcher suggested is
    taken by the scheduler (see schedulers.Bridge)."""

    def __init__(self, searcher: Searcher, metrics: list[str], modes: list[str]) -> None:
        super().__init__()
        self._searcher = searcher
        self._metrics = metrics
        self._signs = [-1 if mode == "max" else 1 for mode in modes]
        self.suggested: dict[int, Mapping[str, Any]] = {}
        self.results: Callable[[int], dict[str, Any] | None] = lambda trial: None
        """The whole last result of a running trial, if it is known."""
        self.stored: Callable[[int], list[dict[str, Any]]] = lambda trial: []
        """The results of a trial in the database, for calls that are repeated."""

    def ask(self, trial: int, fixed: list[float]) -> _core.tune.Searcher.Asked:
        config = self._searcher.suggest(trial_name(trial))
        if config is None:
            return _core.tune.Searcher.Asked(_Kind.wait)
        if isinstance(config, str) and config == Searcher.FINISHED:
            return _core.tune.Searcher.Asked(_Kind.exhausted)
        if not isinstance(config, Mapping):
            what = f"{type(self._searcher).__name__}.suggest() returned {config!r}"
            raise ConfigError(f"[tune.search] {what}; it must return a dict, None or Searcher.FINISHED")
        self.suggested[trial] = config
        return _core.tune.Searcher.Asked(_Kind.point, list(fixed))

    def tell(self, trial: int, values: list[float]) -> None:
        self.suggested.pop(trial, None)
        result = self._result(trial, values) if values else None
        self._searcher.on_trial_complete(trial_name(trial), result=result, error=not values)

    def observe(self, trial: int, budget: float, value: float) -> None:
        result = self._result(trial, [value])
        result.setdefault("training_iteration", int(budget))
        self._searcher.on_trial_result(trial_name(trial), result)

    def _result(self, trial: int, values: list[float]) -> dict[str, Any]:
        known = self.results(trial) or next(reversed(self.stored(trial)), None)
        given = zip(self._metrics, self._signs, values, strict=False)
        return dict(known or {}) | {metric: sign * value for metric, sign, value in given}


def trial_name(number: int) -> str:
    """How searchers call a trial."""
    return f"{number:05d}"
