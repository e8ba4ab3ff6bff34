"""Results into Comet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lockstep._nested import leaves
from lockstep.callbacks import LoggerCallback, RunInfo, Trial
from lockstep.errors import LockstepError
from lockstep.integrations._tracking import Warner, numbers, require

if TYPE_CHECKING:
    from lockstep.result import Result

_WHERE = "CometLoggerCallback"


class CometLoggerCallback(LoggerCallback):
    """Writes a run into Comet: its configuration, its results, and on request its checkpoints::

        from lockstep.integrations.comet import CometLoggerCallback

        RunConfig(callbacks=[CometLoggerCallback(tags=["digits"], project_name="digits")])

    With ``online=False`` the experiment is an archive in the run directory, for ``comet upload``. If Comet cannot
    start, the run ends; later failures are warnings.
    """

    def __init__(
        self,
        online: bool = True,
        tags: Sequence[str] | None = None,
        save_checkpoints: bool = False,
        **experiment_kwargs: Any,
    ) -> None:
        """`experiment_kwargs` are those of ``comet_ml.Experiment``, or of ``OfflineExperiment``."""
        require("comet_ml", _WHERE)
        self.online, self.tags, self.save_checkpoints = online, list(tags or ()), save_checkpoints
        self.experiment_kwargs = experiment_kwargs
        self._experiment: Any = None

    def on_start(self, run: RunInfo) -> None:
        import comet_ml

        self._experiment, self._warn = None, Warner(_WHERE)
        options: dict[str, Any] = {"log_code": False, "auto_metric_logging": False, **self.experiment_kwargs}
        try:
            if self.online:
                self._experiment = comet_ml.Experiment(**options)
            else:
                self._experiment = comet_ml.OfflineExperiment(**{"offline_directory": str(run.path), **options})
            self._experiment.set_name(run.name)
            self._experiment.add_tags(self.tags)
            self._experiment.log_parameters(dict(leaves(run.config)))
        except Exception as error:
            raise LockstepError(f"[{_WHERE}] Comet could not start: {error}; give api_key=, or online=False") from error
        super().on_start(run)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        try:
            self._experiment.log_metrics(numbers(result), step=iteration)
        except Exception as error:
            self._warn("results were not logged", error)

    def log_trial_save(self, trial: Trial) -> None:
        if not self.save_checkpoints or trial.checkpoint is None:
            return
        try:
            with trial.checkpoint.as_directory() as path:
                self._experiment.log_asset_folder(path, step=None, log_file_name=True)
        except Exception as error:
            self._warn("a checkpoint was not uploaded", error)

    def on_end(self, result: Result) -> None:
        experiment, self._experiment = self._experiment, None
        if experiment is None:  # it never started
            return
        super().on_end(result)
        try:
            experiment.log_other("state", result.state)
            experiment.end()
        except Exception as error:
            self._warn("the experiment was not ended", error)
