"""Samplers of the package Optuna."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockstep import _core
from lockstep._nested import leaves
from lockstep.errors import ConfigError
from lockstep.tune.sample import Categorical, Domain, SampleFrom
from lockstep.tune.search._searcher import Searcher, check_mode, check_points


class OptunaSearch(Searcher):
    """Asks a study of Optuna. `space` is a space of Lockstep's, a dict of Optuna's distributions, or a function of an
    Optuna trial that suggests values and may return a dict of constants. Needs ``pip install optuna``."""

    def __init__(
        self,
        space: Mapping[str, Any] | Callable[[Any], Mapping[str, Any] | None] | None = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: Any = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[float] | None = None,
    ) -> None:
        check_mode(mode)
        super().__init__(metric, mode)
        if evaluated_rewards is not None:
            raise ConfigError("[OptunaSearch] evaluated_rewards is not supported; add the trials to a study's storage")
        _optuna()
        self._given_space = space
        self._space = space
        self._points = check_points(points_to_evaluate)
        if sampler is not None:
            _settle(sampler)
        self._sampler = sampler
        self._seed = seed
        self._experiment_seed = seed
        self._study: Any = None
        self._trials: dict[str, Any] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        super().set_search_properties(metric, mode, {})
        self._study, self._trials = None, {}
        self._space = config if self._given_space is None else self._given_space
        return self._given_space is None or not config

    @property
    def _needs_metric(self) -> bool:
        return True

    def _use_seed(self, seed: int) -> None:
        if self._seed is None:
            self._experiment_seed = seed % 2**32  # numpy takes no larger one

    def _begin(self) -> None:
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        modes = [self.mode or "max"] if isinstance(self.mode, str) or self.mode is None else list(self.mode)
        sampler = self._sampler or optuna.samplers.TPESampler(seed=self._experiment_seed)
        self._study = optuna.create_study(
            directions=["minimize" if mode == "min" else "maximize" for mode in modes], sampler=sampler
        )
        for point in self._points:
            self._study.enqueue_trial(dict(leaves(point, "/")))

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._study is None:
            self._begin()
        trial = self._trials[trial_id] = self._study.ask()
        if callable(self._space):
            constants = self._space(trial)
            return _nested({**trial.params, **dict(constants or {})})
        return {name: _suggested(trial, name, value) for name, value in (self._space or {}).items()}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        optuna = _optuna()
        trial = self._trials.pop(trial_id)
        names = [self.metric] if isinstance(self.metric, str) else list(self.metric or ())
        values = [_core.number_at(result or {}, name) for name in names]
        if error or None in values or not values:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, values)


def _suggested(trial: Any, name: str, value: Any) -> Any:
    if isinstance(value, _optuna().distributions.BaseDistribution):
        return _of_optuna(trial, name, value)
    if isinstance(value, Categorical):
        return trial.suggest_categorical(name, value.categories)
    if isinstance(value, SampleFrom) or (isinstance(value, Mapping) and set(value) == {"grid_search"}):
        raise ConfigError(f"[OptunaSearch] {name!r} is a grid_search() or sample_from(), which Optuna cannot choose")
    if isinstance(value, Domain):
        given, integer = value.options, "int" in value.kind
        if "randn" in value.kind:
            raise ConfigError(f"[OptunaSearch] {name!r} is {value!r}, which Optuna cannot choose")
        log, step = "log" in value.kind, given.get("q")
        if integer:
            upper = given["upper"] if step else given["upper"] - 1
            return trial.suggest_int(name, given["lower"], upper, step=1 if log or not step else step, log=log)
        return trial.suggest_float(name, given["lower"], given["upper"], step=None if log else step, log=log)
    if isinstance(value, Mapping):
        return {key: _suggested(trial, f"{name}/{key}", each) for key, each in value.items()}
    return value


def _of_optuna(trial: Any, name: str, value: Any) -> Any:
    distributions = _optuna().distributions
    if isinstance(value, distributions.CategoricalDistribution):
        return trial.suggest_categorical(name, value.choices)
    suggest = trial.suggest_int if isinstance(value, distributions.IntDistribution) else trial.suggest_float
    return suggest(name, value.low, value.high, step=value.step, log=value.log)


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split("/")
        place = made
        for key in path:
            place = place.setdefault(key, {})
        place[last] = value
    return made


def _settle(sampler: Any) -> None:
    """Lets a sampler without a seed choose one now, so that a restored experiment, which unpickles it, has the same."""
    for part in list(vars(sampler).values()):
        if type(part).__name__ == "LazyRandomState":
            part.rng  # noqa: B018
        elif isinstance(part, _optuna().samplers.BaseSampler):
            _settle(part)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError("OptunaSearch needs the package optuna: pip install optuna; or use TPESearch") from error
    return optuna
