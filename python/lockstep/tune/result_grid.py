"""The results of an experiment."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from lockstep import _core
from lockstep._nested import leaves
from lockstep.checkpoint import Checkpoint
from lockstep.errors import ConfigError, LockstepError, StorageError, TrainingFailedError
from lockstep.result import Metrics, Result
from lockstep.tune._space import ParamSpace, shown

if TYPE_CHECKING:
    import pandas

_State = _core.tune.TrialState


class ResultGrid:
    """One result per trial, in the order of their numbers::

    grid = tuner.fit()
    grid.get_best_result("loss", "min").config
    grid.get_dataframe()
    """

    def __init__(self, experiment: Any, path: Path | None = None, space: ParamSpace | None = None) -> None:
        if path is None:  # what tune.run() returned
            path, experiment, space = experiment._grid._path, experiment._experiment, experiment._grid._space
        self._experiment = experiment
        self._path = path
        self._space = space
        """That of the Tuner: it has the objects that the database cannot hold."""
        self._results: dict[int, Result] = {}

    @classmethod
    def _open(cls, path: Path, space: ParamSpace | None = None) -> ResultGrid:
        return cls(_core.tune.Experiment.open(path, read_only=True), path, space)

    @property
    def experiment_path(self) -> str:
        """The directory of the experiment."""
        return str(self._path)

    def __len__(self) -> int:
        return int(self._experiment.size())

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...

    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        index = operator.index(index)
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"[ResultGrid] there is no result {index}; there are {len(self)}")
        if number not in self._results:
            self._results[number] = self._result(number)
        return self._results[number]

    def __iter__(self) -> Iterator[Result]:
        return (self[number] for number in range(len(self)))

    @property
    def num_errors(self) -> int:
        """Failed trials."""
        return int(self._experiment.count(_State.error))

    @property
    def num_terminated(self) -> int:
        """Trials that ended without an error."""
        return int(self._experiment.count(_State.terminated))

    @property
    def errors(self) -> list[Exception]:
        """Of the failed trials."""
        if self.num_errors == 0:
            return []
        return [result.error for result in self if result.error is not None]

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """The best trial by its last result, or with ``scope="all"`` by its best one. `metric` and `mode` are those of
        the TuneConfig unless they are given; a single trial needs none. Failed trials do not count. ``scope="avg"``,
        ``"last-5-avg"`` and ``"last-10-avg"`` compare averages."""
        if metric is None and len(self) == 1 and not self._experiment.settings().metrics:
            return self[0]
        metric, mode = self._objective(metric, mode)
        best: int | None = self._experiment.best(metric, mode, scope, filter_nan_and_inf)
        if best is None:
            kind = "finite number" if filter_nan_and_inf else "number"
            what = f"no trial has the metric {metric!r} as a {kind}; {self.num_errors} of {len(self)} failed"
            raise LockstepError(f"[ResultGrid] No best trial found: {what}{self._keys_or_error()}")
        return self[best]

    def _keys_or_error(self) -> str:
        """Why there is no best trial."""
        for number in range(len(self)):
            trial = self._experiment.trial(number)
            if trial.state == _State.error:
                return f"; the first error: {(trial.error.strip().splitlines() or ['unknown'])[-1]}"
            if trial.last_result:
                return f"; reported: {', '.join(map(repr, dict(leaves(trial.last_result, '/'))))}"
        return ""

    @property
    def _experiment_analysis(self) -> Any:
        """The same results, as tune.run() returns them; scripts for Ray use this name."""
        from lockstep.tune.analysis import ExperimentAnalysis

        return ExperimentAnalysis._of(self, None, None)

    def _objective(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        settings = self._experiment.settings()
        if metric is None:
            if len(settings.metrics) != 1:
                what = "there is none in the TuneConfig" if not settings.metrics else f"there are {settings.metrics}"
                raise ConfigError(f"[ResultGrid] metric is missing and {what}; give metric= and mode=")
            metric = settings.metrics[0]
        if mode is None:
            if metric not in settings.metrics or not settings.extra.get("has_mode", True):
                raise ConfigError("[ResultGrid] mode is missing; give 'min' or 'max'")
            mode = settings.modes[settings.metrics.index(metric)]
        if mode not in ("min", "max"):
            raise ConfigError(f"[ResultGrid] mode is {mode!r}; it must be 'min' or 'max'")
        return str(metric), str(mode)

    def get_pareto_front(self, metric: list[str] | None = None, mode: list[str] | None = None) -> list[Result]:
        """The trials that no other one beats in every metric, by their last results."""
        settings = self._experiment.settings()
        metrics = list(settings.metrics) if metric is None else metric
        modes = list(settings.modes) if mode is None else mode
        return [self[number] for number in self._experiment.pareto_front(metrics, modes)]

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> pandas.DataFrame:
        """One row per trial: its last result, or the one with the best `filter_metric`; the configuration as
        ``config/...``; ``trial_id`` and ``logdir``. Needs pandas."""
        import pandas

        rows = []
        if filter_metric is not None:
            filter_metric, filter_mode = self._objective(filter_metric, filter_mode)
        for number in range(len(self)):
            trial = self._experiment.trial(number)
            result = trial.last_result or {}
            if filter_metric is not None:
                sign = -1 if filter_mode == "max" else 1
                scored = [(_core.number_at(each, filter_metric), each) for each in self._experiment.results(number)]
                able = [(sign * value, each) for value, each in scored if value is not None and value == value]
                result = min(able, key=lambda pair: pair[0])[1] if able else result
            row = dict(leaves(result, "/"))
            row["trial_id"] = trial.id
            row["logdir"] = str(self._path / trial.name)
            row.update(leaves({"config": self._config(trial)}, "/"))
            rows.append(row)
        return pandas.DataFrame(rows)

    def _config(self, trial: Any) -> dict[str, Any]:
        config: dict[str, Any] = trial.config
        text = "" if self._space is not None and self._space.is_plain else str(config)
        if self._space is not None and "$domain" not in text:
            return self._space.config(config)
        if "'$" in text:
            place = self._path / trial.name
            return Result(path=place).config if (place / "params.json").exists() else shown(config)
        return config

    def _result(self, number: int) -> Result:
        trial = self._experiment.trial(number)
        place = self._path / trial.name
        if (place / "run.json").exists():
            try:
                result = Result.from_path(place)
            except (StorageError, ConfigError):
                result = Result(path=place)
        else:
            result = Result(path=place)
        if trial.last_result:
            missing = {key: value for key, value in trial.last_result.items() if key not in result.metrics}
            result.metrics = Metrics({**result.metrics, **missing})
        if result.checkpoint is None and trial.checkpoint and Path(trial.checkpoint).exists():
            result.checkpoint = Checkpoint.from_directory(trial.checkpoint)
        result.config = self._config(trial)
        if trial.state == _State.error and result.error is None:
            result.error = TrainingFailedError(f"[tune] trial {trial.name} failed: {trial.error.rstrip()}", result)
        elif trial.state != _State.error:
            result.error = None
        result.state = _WORDS.get(trial.state, result.state)
        return result

    def __repr__(self) -> str:
        done = f"{self.num_terminated} terminated, {self.num_errors} failed"
        return f"<ResultGrid of {len(self)} trials: {done}; {self._path}>"


_WORDS = {_State.error: "failed", _State.terminated: "finished", _State.paused: "stopped", _State.pending: "stopped"}
