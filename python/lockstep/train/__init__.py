"""The older function API. The same as ``lockstep.session``, in the words of Ray Train 1.x and RaySGD::

from lockstep import train

def train_func():
    start = (train.load_checkpoint() or {"epoch": -1})["epoch"] + 1
    for epoch in range(start, 3):
        train.save_checkpoint(epoch=epoch)
        train.report(epoch=epoch, rank=train.world_rank())
"""

from __future__ import annotations

from typing import Any

from lockstep import session
from lockstep.checkpoint import Checkpoint
from lockstep.session import get_checkpoint

__all__ = [
    "get_checkpoint",
    "load_checkpoint",
    "local_rank",
    "local_world_size",
    "node_rank",
    "report",
    "save_checkpoint",
    "world_rank",
    "world_size",
]


def report(**metrics: Any) -> None:
    """Hands metrics to the driver; see session.report()."""
    session.report(metrics)


def save_checkpoint(**values: Any) -> None:
    """Saves a checkpoint of the given values; its metrics are those reported last."""
    session._save(Checkpoint.from_dict(values))


def load_checkpoint() -> dict[Any, Any] | None:
    """What ``save_checkpoint()`` got last, as a dict, or None on a fresh start."""
    checkpoint = session.get_checkpoint()
    return None if checkpoint is None else checkpoint._saved()


def world_size() -> int:
    """How many workers there are."""
    return session.get_world_size()


def world_rank() -> int:
    """This worker's number among all, from 0."""
    return session.get_world_rank()


def local_rank() -> int:
    """This worker's number on its node, from 0."""
    return session.get_local_rank()


def local_world_size() -> int:
    """How many workers run on this worker's node."""
    return session.get_local_world_size()


def node_rank() -> int:
    """The number of this worker's node, from 0."""
    return session.get_node_rank()


def __getattr__(name: str) -> Any:
    """``train.torch`` and its like, imported when first asked for."""
    import importlib

    if name in ("horovod", "tensorflow", "torch"):
        return importlib.import_module(f"lockstep.{name}")
    if name == "Trainer":
        return importlib.import_module("lockstep.sgd.trainer").TrainTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
