"""Names of Ray 2.7 and later that Lockstep itself has in another form."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lockstep
from lockstep import Checkpoint, TrainingFailedError, session
from lockstep.callbacks import RunInfo
from lockstep.errors import Failure, NotAvailableError
from lockstep.train import TrainContext as Context
from lockstep.validation import VALIDATION_FILE


class CheckpointUploadMode(enum.Enum):
    """How ``report()`` stores a checkpoint. SYNC and ASYNC are the same: the call returns when the files are copied."""

    ASYNC = "ASYNC"
    SYNC = "SYNC"
    NO_UPLOAD = "NO_UPLOAD"

    def default_delete_local_checkpoint_after_upload(self) -> bool:
        """Whether ``report()`` deletes the directory of the checkpoint."""
        return self is CheckpointUploadMode.ASYNC


class CheckpointConsistencyMode(enum.Enum):
    """What ``get_all_reported_checkpoints()`` waits for."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(enum.Enum):
    """How far a reported checkpoint has come."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"


@dataclass(frozen=True)
class ReportedCheckpoint:
    """A checkpoint of this run."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


@dataclass
class LoggingConfig:
    """Accepted without effect: logs are in the run directory."""

    log_level: str = "INFO"
    encoding: str = "TEXT"


class TrainContext(Context):
    """Also what Ray has in addition."""

    def get_metadata(self) -> dict[str, Any]:
        """The trainer's ``metadata``."""
        return dict(_run_json().get("metadata") or {})

    def get_trial_resources(self) -> Any:
        """What the run has: a placement group of Ray Tune is not there."""
        raise NotAvailableError(
            "[ray.train] get_trial_resources() is for Ray Tune's placement groups; "
            "ScalingConfig(resources_per_worker=...) says what a worker has"
        )

    def get_storage(self) -> _Storage:
        """Where the run's directory is."""
        return _Storage(session.get_trial_dir())


@dataclass(frozen=True)
class _Storage:
    experiment_fs_path: str

    @property
    def storage_fs_path(self) -> str:
        """The directory of runs."""
        return os.path.dirname(self.experiment_fs_path)

    @property
    def experiment_dir_name(self) -> str:
        """The name of the run."""
        return os.path.basename(self.experiment_fs_path)

    @property
    def storage_filesystem(self) -> Any:
        """Of pyarrow."""
        import pyarrow.fs

        return pyarrow.fs.LocalFileSystem()

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """A place in the run's directory."""
        return os.path.join(self.experiment_fs_path, checkpoint_name)


def _run_json() -> dict[str, Any]:
    read = lockstep._core.read_json(session.get_trial_dir(), "run.json")
    return read if isinstance(read, dict) else {}


def get_context() -> TrainContext:
    """This worker's place in the run."""
    return TrainContext()


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED, timeout_s: float | None = None
) -> list[ReportedCheckpoint]:
    """The checkpoints of this run that are kept, oldest first. VALIDATED waits, up to `timeout_s`, for those that were
    reported with ``validation=``."""
    session.get_checkpoint()  # waits for this rank's last one
    place = session.get_trial_dir()
    if not os.path.exists(os.path.join(place, "run.json")):
        return []
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        checked = bool(_run_json().get("validates"))
        found = [_reported(*pair, checked) for pair in lockstep.Result.from_path(place).best_checkpoints]
        waits = any(each.status is ReportedCheckpointStatus.PENDING_VALIDATION for each in found)
        is_late = deadline is not None and time.monotonic() >= deadline
        if not waits or is_late or consistency_mode is not CheckpointConsistencyMode.VALIDATED:
            found.sort(key=lambda each: int(each.checkpoint.metadata.get("seq", 0)))
            return found
        time.sleep(0.05)


def _reported(checkpoint: Checkpoint, metrics: dict[str, Any], checked: bool) -> ReportedCheckpoint:
    """`checked`: the trainer has a validation_config. Without one, nothing is pending for ever."""
    if checkpoint.metadata.get("validated"):
        return ReportedCheckpoint(checkpoint, metrics, ReportedCheckpointStatus.VALIDATED)
    is_asked = checked and any(each["name"] == VALIDATION_FILE for each in checkpoint.metadata.get("files", ()))
    status = ReportedCheckpointStatus.PENDING_VALIDATION if is_asked else ReportedCheckpointStatus.COMMITTED
    return ReportedCheckpoint(checkpoint, metrics, status)


def get_devices() -> list[Any]:
    """The devices of this worker."""
    from lockstep.torch import get_device

    device: Any = get_device()
    return device if isinstance(device, list) else [device]


def barrier() -> None:
    """Waits until every rank has called it."""
    session.barrier()


def broadcast_from_rank_zero(data: Any) -> Any:
    """Rank 0's value on every rank."""
    return session.broadcast_from_rank_zero(data)


# ---------------------------------------------------------------- errors


class _OfWorkers(type):
    """Instances are the failures of runs in which a rank failed."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TrainingFailedError) and any(each.rank >= 0 for each in instance.failures)


class WorkerGroupError(TrainingFailedError, metaclass=_OfWorkers):
    """A run in which a rank failed: ``.worker_failures`` has what happened, by rank."""


class _OfTheDriver(type):
    """Instances are the failures of runs in which no rank failed."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TrainingFailedError) and not isinstance(instance, WorkerGroupError)


class ControllerError(TrainingFailedError, metaclass=_OfTheDriver):
    """A run that failed in the driver."""


# ---------------------------------------------------------------- callbacks


class UserCallback(lockstep.Callback):
    """A callback with the hooks of Ray Train 2.4x and later::

    class Printer(UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            print(metrics[0])
    """

    _run: RunInfo | None = None
    _checkpoint: Checkpoint | None = None

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        """After each report of rank 0, with the last checkpoint that was committed since the one before."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """After each attempt that failed."""

    def on_start(self, run: RunInfo) -> None:
        self._run = run

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self._checkpoint = checkpoint

    def on_result(self, metrics: dict[str, Any]) -> None:
        checkpoint, self._checkpoint = self._checkpoint, None
        self.after_report(self._run, [metrics], checkpoint)

    def on_attempt_failed(self, failures: list[Failure], again: bool) -> None:
        self.after_exception(self._run, {each.rank: RuntimeError(each.summary) for each in failures})


class TuneReportCallback(lockstep.Callback):
    """Reports of a run inside a trial become reports of the trial::

    TorchTrainer(..., run_config=RunConfig(callbacks=[TuneReportCallback()])).fit()
    """

    _checkpoint: Checkpoint | None = None

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self._checkpoint = checkpoint

    def on_result(self, metrics: dict[str, Any]) -> None:
        checkpoint, self._checkpoint = self._checkpoint, None
        own: Mapping[str, Any] = {
            key: value for key, value in metrics.items() if key not in lockstep.result.AUTOFILLED_KEYS
        }
        session.report(own, checkpoint=checkpoint)
