"""The names of ``ray.air``, for programs in which ``ray`` was replaced by ``lockstep``::

from lockstep.air import Checkpoint, ScalingConfig, session
"""

from lockstep import session
from lockstep.checkpoint import Checkpoint
from lockstep.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from lockstep.result import Result

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "session",
]
