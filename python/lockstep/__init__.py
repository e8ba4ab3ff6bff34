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

if sys.platform != "linux":
    raise ImportError(f"Lockstep runs on Linux only (it needs pidfds, memfds and namespaces); this is {sys.platform}")

from lockstep import _core, session, train
from lockstep.callbacks import Callback, EarlyStopping, LoggerCallback
from lockstep.checkpoint import Checkpoint
from lockstep.config import CheckpointConfig, DataConfig, FailureConfig, RunConfig, ScalingConfig
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
)
from lockstep.result import Result
from lockstep.run_handle import RunHandle
from lockstep.trainer import DataParallelTrainer
from lockstep.worker_group import WorkerGroup

_core.set_error_types(ConfigError, StorageError, EngineError, LockstepTimeoutError, InternalError)

__version__ = _core.__version__

__all__ = [
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "ConfigError",
    "DataConfig",
    "DataParallelTrainer",
    "EarlyStopping",
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
    "WorkerGroup",
    "__version__",
    "session",
    "train",
]
