"""The function API of Ray Train: the same as ``lockstep.session``, under the names of Ray Train 1.x and RaySGD::

from lockstep import train

def train_func():
    start = (train.load_checkpoint() or {"epoch": -1})["epoch"] + 1
    for epoch in range(start, 3):
        train.save_checkpoint(epoch=epoch)
        train.report(epoch=epoch, rank=train.world_rank())

and under those of Ray 2.7 and later::

def train_func():
    rank = train.get_context().get_world_rank()
    train.report({"rank": rank}, checkpoint=train.Checkpoint.from_directory(path))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep import session
from lockstep.checkpoint import Checkpoint
from lockstep.config import CheckpointConfig, DataConfig, FailureConfig, RunConfig, ScalingConfig
from lockstep.errors import ConfigError
from lockstep.result import Result
from lockstep.session import get_checkpoint, get_dataset_shard

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "DataConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "TrainContext",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "load_checkpoint",
    "local_rank",
    "local_world_size",
    "node_rank",
    "report",
    "save_checkpoint",
    "world_rank",
    "world_size",
]


def report(metrics: Mapping[str, Any] | None = None, checkpoint: Checkpoint | None = None, /, **values: Any) -> None:
    """Sends metrics, and optionally a checkpoint, to the driver; see session.report()::

    train.report(epoch=3, loss=0.5)                              # as in Ray Train 1.x: every keyword is a metric
    train.report({"epoch": 3, "loss": 0.5}, checkpoint=saved)    # as in Ray 2.7 and later
    """
    if metrics is None and isinstance(values.get("metrics"), Mapping) and values.keys() <= _NEWER_KEYWORDS:
        metrics = values.pop("metrics")
    if metrics is None:
        session.report(values)
        return
    checkpoint = values.pop("checkpoint", checkpoint)
    validate = values.pop("validate", values.pop("validation", False))
    deletes = _deletes_directory(values)
    if values:
        raise ConfigError(f"[train] report() got metrics and {', '.join(values)}; it takes only metrics and checkpoint")
    directory = checkpoint.path if deletes and isinstance(checkpoint, Checkpoint) else None
    session.report(metrics, checkpoint=checkpoint, validate=validate)
    if directory is not None:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


_NEWER_KEYWORDS = {
    "metrics",
    "checkpoint",
    "checkpoint_dir_name",
    "checkpoint_upload_mode",
    "delete_local_checkpoint_after_upload",
    "validate",
    "validation",
}


def _deletes_directory(values: dict[str, Any]) -> bool:
    """Takes out what later releases of Ray have. The names of checkpoints are Lockstep's, and all are copied before
    report() returns. Whether the reported directory is deleted then."""
    values.pop("checkpoint_dir_name", None)
    mode = getattr(values.pop("checkpoint_upload_mode", None), "value", "SYNC")
    if mode == "NO_UPLOAD":
        raise ConfigError("[train] checkpoint_upload_mode is NO_UPLOAD; a checkpoint must be in the run directory")
    wanted = values.pop("delete_local_checkpoint_after_upload", None)
    return mode == "ASYNC" if wanted is None else bool(wanted)


class TrainContext:
    """This worker's place in the run, under the names of ``lockstep.session``; ``get_context()`` returns it."""

    get_experiment_name = staticmethod(session.get_experiment_name)
    get_local_rank = staticmethod(session.get_local_rank)
    get_local_world_size = staticmethod(session.get_local_world_size)
    get_node_rank = staticmethod(session.get_node_rank)
    get_trial_dir = staticmethod(session.get_trial_dir)
    get_trial_id = staticmethod(session.get_trial_id)
    get_trial_name = staticmethod(session.get_trial_name)
    get_world_rank = staticmethod(session.get_world_rank)
    get_world_size = staticmethod(session.get_world_size)


def get_context() -> TrainContext:
    """What Ray 2.7 and later have instead of ``session``: ``get_context().get_world_rank()``."""
    return TrainContext()


def save_checkpoint(**values: Any) -> None:
    """Saves a checkpoint of the given values, with the metrics of the last report."""
    session._save(Checkpoint.from_dict(values))


def load_checkpoint() -> dict[Any, Any] | None:
    """The values of the last ``save_checkpoint()`` as a dict, or None on a fresh start."""
    checkpoint = session.get_checkpoint()
    return None if checkpoint is None else checkpoint._saved()


def world_size() -> int:
    """The number of workers."""
    return session.get_world_size()


def world_rank() -> int:
    """This worker's number among all, from 0."""
    return session.get_world_rank()


def local_rank() -> int:
    """This worker's number on its node, from 0."""
    return session.get_local_rank()


def local_world_size() -> int:
    """The number of workers on this worker's node."""
    return session.get_local_world_size()


def node_rank() -> int:
    """The number of this worker's node, from 0."""
    return session.get_node_rank()


def __getattr__(name: str) -> Any:
    """``train.torch`` and similar modules, imported on first access."""
    import importlib

    if name in ("horovod", "tensorflow", "torch"):
        return importlib.import_module(f"lockstep.{name}")
    if name == "Trainer":
        return importlib.import_module("lockstep.sgd.trainer").TrainTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
