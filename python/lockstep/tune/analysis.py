"""The results of ``tune.run()``."""

from __future__ import annotations

import os
import warnings
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import _core
from lockstep._places import local_path
from lockstep.checkpoint import Checkpoint
from lockstep.errors import ConfigError
from lockstep.tune._trial import Trial
from lockstep.tune.callback import checkpoint_at
from lockstep.tune.result_grid import ResultGrid

if TYPE_CHECKING:
    import pandas

_STATUS = {"pending": "PENDING", "running": "RUNNING", "paused": "PAUSED", "terminated": "TERMINATED", "error": "ERROR"}


class ExperimentAnalysis:
    """What an experiment found, with the interface of Ray's class of this name::

    analysis = tune.run(train, config={"x": tune.uniform(0, 1)}, metric="loss", mode="min", num_samples=10)
    analysis.best_config
    """

    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str],
        trials: list[Trial] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
        **_: Any,
    ) -> None:
        path = Path(local_path(experiment_checkpoint_path, "[ExperimentAnalysis] path"))
        path = path.parent if path.suffix in (".sqlite", ".json") else path  # Ray has a state file
        self._use(ResultGrid._open(path), default_metric, default_mode)

    @classmethod
    def _of(cls, grid: ResultGrid, default_metric: str | None, default_mode: str | None) -> ExperimentAnalysis:
        made = cls.__new__(cls)
        made._use(grid, default_metric, default_mode)
        return made

    def _use(self, grid: ResultGrid, default_metric: str | None, default_mode: str | None) -> None:
        self._grid = grid
        self._experiment = self._grid._experiment
        settings = self._experiment.settings()
        self.default_metric = default_metric or (settings.metrics[0] if settings.metrics else None)
        has_mode = bool(settings.modes) and settings.extra.get("has_mode", True)
        self.default_mode = default_mode or (settings.modes[0] if has_mode else None)

    @property
    def experiment_path(self) -> str:
        """The directory of the experiment."""
        return self._grid.experiment_path

    @cached_property
    def trials(self) -> list[Trial]:
        """All trials, in the order of their numbers."""
        return [self._trial(number) for number in range(len(self._grid))]

    def _trial(self, number: int) -> Trial:
        found = self._experiment.trial(number)
        result = self._grid[number]
        made = Trial(found.id, result.config, str(result.path), "", number=number, custom_name=found.name)
        made.status = _STATUS[found.state.name]
        made.last_result = {**dict(result.metrics), "config": result.config}
        made.error_msg = found.error
        made.checkpoint = result.checkpoint or checkpoint_at(found.checkpoint)
        made.experiment_tag = str(number)
        made.evaluated_params = result.config
        return made

    # ------------------------------------------------------------------ the best

    def _objective(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        metric, mode = metric or self.default_metric, mode or self.default_mode
        if metric is None:
            raise ConfigError("[ExperimentAnalysis] metric is missing; give it here, or to tune.run()")
        if mode not in ("min", "max"):
            raise ConfigError(f"[ExperimentAnalysis] mode is {mode!r}; it must be 'min' or 'max'")
        return metric, mode

    def get_best_trial(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last", filter_nan_and_inf: bool = True
    ) -> Trial | None:
        """The best trial; None, with a warning, if no trial has the metric. For `scope` see
        ResultGrid.get_best_result()."""
        metric, mode = self._objective(metric, mode)
        best: int | None = self._experiment.best(metric, mode, scope, filter_nan_and_inf)
        if best is None:
            warnings.warn(f"no trial has the metric {metric!r}", UserWarning, stacklevel=2)
            return None
        return self.trials[best]

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """Of the best trial."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.config

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str | None:
        """The directory of the best trial."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.logdir

    def get_best_checkpoint(
        self, trial: Trial, metric: str | None = None, mode: str | None = None, return_path: bool = False
    ) -> Checkpoint | str | None:
        """The kept checkpoint of the trial with the best metric."""
        metric, mode = self._objective(metric, mode)
        paths = self.get_trial_checkpoints_paths(trial, metric)
        able = [(value, path) for path, value in paths if value is not None and value == value]
        if not able:
            return None
        path = (max if mode == "max" else min)(able, key=lambda pair: pair[0])[1]
        return path if return_path else Checkpoint.from_directory(path)

    def get_last_checkpoint(
        self, trial: Trial | None = None, metric: str = "training_iteration", mode: str = "max"
    ) -> Checkpoint | None:
        """The newest checkpoint of the trial, or of the best one."""
        trial = trial or self.get_best_trial(metric, mode)
        return None if trial is None else trial.checkpoint

    def get_trial_checkpoints_paths(self, trial: Trial, metric: str | None = None) -> list[tuple[str, float | None]]:
        """The checkpoints of a trial, with the metric that was reported with each."""
        metric = metric or self.default_metric or "training_iteration"
        found = []
        for place in sorted(Path(trial.logdir).glob("checkpoint_*")):
            if (place / "manifest.json").exists():
                metrics = Checkpoint.from_directory(place).metadata.get("metrics") or {}
                found.append((str(place), _core.number_at(metrics, metric)))
        return found

    @property
    def best_trial(self) -> Trial | None:
        """By the metric and mode of tune.run(); so are the others."""
        return self.get_best_trial()

    @property
    def best_config(self) -> dict[str, Any] | None:
        """Of the best trial."""
        return self.get_best_config()

    @property
    def best_logdir(self) -> str | None:
        """The directory of the best trial."""
        return self.get_best_logdir()

    @property
    def best_result(self) -> dict[str, Any] | None:
        """The last result of the best trial."""
        best = self.best_trial
        return None if best is None else best.last_result

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of the best trial."""
        best = self.best_trial
        found = None if best is None else self.get_best_checkpoint(best)
        return found if isinstance(found, Checkpoint) else None

    @property
    def best_dataframe(self) -> pandas.DataFrame:
        """All results of the best trial."""
        return self.trial_dataframes[self.best_logdir or ""]

    @property
    def best_result_df(self) -> pandas.DataFrame:
        """The last result of the best trial, as one row."""
        frame = self.results_df
        best = self.best_trial
        return frame[frame.index == (best.trial_id if best else "")]

    # ------------------------------------------------------------------ all of it

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The last results by the ids of trials."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> pandas.DataFrame:
        """The same as a table."""
        return self._grid.get_dataframe().set_index("trial_id")

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """One row per trial: its last result, or its best one by `metric`."""
        if metric is None:
            return self._grid.get_dataframe()
        return self._grid.get_dataframe(*self._objective(metric, mode))

    @cached_property
    def trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """All results of each trial, by its directory."""
        return {str(result.path): result.metrics_dataframe for result in self._grid}

    def fetch_trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """The same."""
        return self.trial_dataframes

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """The configurations by the directories of trials."""
        front = "config/" if prefix else ""
        return {trial.logdir: {f"{front}{key}": value for key, value in trial.config.items()} for trial in self.trials}

    def stats(self) -> dict[str, Any]:
        """Counts of trials by state."""
        states = _core.tune.TrialState
        counts = {word.upper(): int(self._experiment.count(getattr(states, word))) for word in _STATUS}
        return {"path": self.experiment_path, "num_trials": len(self._grid), **counts}

    def runner_data(self) -> dict[str, Any]:
        """The same."""
        return self.stats()

    def set_filetype(self, file_type: str | None = None) -> bool:
        """Accepted, without effect."""
        return True

    def __repr__(self) -> str:
        return f"<ExperimentAnalysis of {self._grid!r}>"
