"""Callbacks of Ray Train's older ``Trainer.run`` that Lockstep has for ``fit()``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lockstep import callbacks
from lockstep.callbacks import RunInfo
from lockstep.errors import LockstepError
from lockstep.integrations import mlflow
from lockstep.result import Result
from lockstep.sgd.callbacks import Results, SGDCallback


class _Adapter(SGDCallback):
    """Passes the results of one worker on to a callback of ``fit()``."""

    def __init__(self, callback: callbacks.Callback, worker: int = 0) -> None:
        self._callback = callback
        self._worker = worker
        self._logdir = Path()

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        self._logdir = Path(logdir)
        name = f"{self._logdir.parent.name}_{self._logdir.name}"
        self._callback.on_start(RunInfo(name, self._logdir, name, self._logdir.parent.name, config, 0, "Trainer"))

    def handle_result(self, results: Results, **info: Any) -> None:
        metrics = results[self._worker]
        if metrics is not None:
            self._callback.on_result({**metrics, "training_iteration": metrics.get("_training_iteration")})

    def finish_training(self, error: bool = False, **info: Any) -> None:
        failure = LockstepError("[trainer] the run failed") if error else None
        self._callback.on_end(Result(path=self._logdir, state="failed" if error else "finished", error=failure))


class MLflowLoggerCallback(_Adapter):
    """Writes a run of ``Trainer.run`` into MLflow; takes the same arguments as Lockstep's own callback."""

    def __init__(
        self, tracking_uri: str | None = None, *, worker_to_log: int = 0, logdir: Any = None, **options: Any
    ) -> None:
        super().__init__(mlflow.MLflowLoggerCallback(tracking_uri, **options), worker_to_log)


class TorchTensorboardProfilerCallback(_Adapter, callbacks.TorchTensorboardProfilerCallback):
    """Lockstep's own callback, which can be passed to ``Trainer.run`` as well as to ``RunConfig``."""

    def __init__(self, logdir: Any = None, workers_to_log: Any = None) -> None:
        _Adapter.__init__(self, self)
        callbacks.TorchTensorboardProfilerCallback.__init__(self)
