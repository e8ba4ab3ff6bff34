"""Lockstep runs one training function on many workers. For example::

from lockstep import Checkpoint, DataParallelTrainer, ScalingConfig, session

def train_func(config):
    for epoch in range(config["num_epochs"]):
        session.report({"epoch": epoch}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))

result = DataParallelTrainer(
    train_func, train_loop_config={"num_epochs": 5}, scaling_config=ScalingConfig(num_workers=4)
).fit()
"""

import sys
from typing import TYPE_CHECKING, Any

if sys.platform != "linux":
    raise ImportError(f"Lockstep runs on Linux only (it needs pidfds, memfds and namespaces); this is {sys.platform}")

from lockstep import _core, session, train
from lockstep.callbacks import Callback, EarlyStopping, LoggerCallback
from lockstep.checkpoint import Checkpoint
from lockstep.config import CheckpointConfig, DataConfig, EngineConfig, FailureConfig, RunConfig, ScalingConfig
from lockstep.errors import (
    ConfigError,
    EngineError,
    InternalError,
    LockstepError,
    LockstepTimeoutError,
    SerializationError,
    StorageError,
    TrainingFailedError,
    TrainingInterrupted,
    TrainingPreempted,
)
from lockstep.result import Result
from lockstep.run_handle import RunHandle
from lockstep.trainer import DataParallelTrainer
from lockstep.validation import ValidationConfig, ValidationTaskConfig
from lockstep.worker_group import WorkerGroup

if TYPE_CHECKING:
    from lockstep import tune as tune

_core.set_error_types(ConfigError, StorageError, EngineError, LockstepTimeoutError, InternalError)

__version__ = _core.__version__


def __getattr__(name: str) -> Any:
    """``lockstep.tune`` is imported when it is first used."""
    if name == "tune":
        import importlib

        return importlib.import_module("lockstep.tune")
    raise AttributeError(f"module 'lockstep' has no attribute {name!r}")


__all__ = [
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "ConfigError",
    "DataConfig",
    "DataParallelTrainer",
    "EarlyStopping",
    "EngineConfig",
    "EngineError",
    "FailureConfig",
    "InternalError",
    "LockstepError",
    "LockstepTimeoutError",
    "LoggerCallback",
    "Result",
    "RunConfig",
    "RunHandle",
    "ScalingConfig",
    "SerializationError",
    "StorageError",
    "TrainingFailedError",
    "TrainingInterrupted",
    "TrainingPreempted",
    "ValidationConfig",
    "ValidationTaskConfig",
    "WorkerGroup",
    "__version__",
    "session",
    "train",
    "tune",
]
