"""Results into Aim."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lockstep._plain import plain
from lockstep.callbacks import LoggerCallback, RunInfo, Trial
from lockstep.errors import LockstepError
from lockstep.integrations._tracking import Warner, numbers, require

if TYPE_CHECKING:
    from lockstep.result import Result

_WHERE = "AimLoggerCallback"


class AimLoggerCallback(LoggerCallback):
    """Writes a run into an Aim repository: its configuration and its results::

        from lockstep.integrations.aim import AimLoggerCallback

        RunConfig(callbacks=[AimLoggerCallback(repo="~/aim", experiment_name="digits")])

    If Aim cannot start, the run ends; later failures are warnings.
    """

    def __init__(
        self,
        repo: str | os.PathLike[str] | None = None,
        experiment_name: str | None = None,
        metrics: Sequence[str] | None = None,
        **aim_run_kwargs: Any,
    ) -> None:
        """`repo`: a directory, or an address; None: beside the run directories. `metrics`: those to write; None: all.
        `aim_run_kwargs` are those of ``aim.Run``."""
        require("aim", _WHERE)
        self.repo = None if repo is None else os.path.expanduser(os.fspath(repo))
        self.experiment_name, self.metrics = experiment_name, None if metrics is None else frozenset(metrics)
        self.aim_run_kwargs = aim_run_kwargs
        self._run: Any = None

    def on_start(self, run: RunInfo) -> None:
        import aim

        self._run, self._warn = None, Warner(_WHERE)
        options: dict[str, Any] = {"system_tracking_interval": None, "log_system_params": False, **self.aim_run_kwargs}
        try:
            self._run = aim.Run(repo=self.repo or str(run.path.parent), experiment=self.experiment_name, **options)
            self._run.name = run.name
            self._run["hparams"] = plain(run.config)
            self._run["trial_id"] = run.trial_id
        except Exception as error:
            raise LockstepError(f"[{_WHERE}] Aim could not start: {error}; check repo=") from error
        super().on_start(run)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        try:
            for name, value in numbers(result).items():
                if self.metrics is None or name in self.metrics:
                    self._run.track(value, name=name, step=iteration)
        except Exception as error:
            self._warn("results were not logged", error)

    def on_end(self, result: Result) -> None:
        run, self._run = self._run, None
        if run is None:  # it never started
            return
        super().on_end(result)
        try:
            run["state"] = result.state
            run.close()
        except Exception as error:
            self._warn("the run was not closed", error)
