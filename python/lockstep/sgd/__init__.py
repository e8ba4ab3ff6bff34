"""RaySGD's interface: a ``Trainer`` whose workers stay between runs::

from lockstep import sgd

def train_func(config):
    for epoch in range(config["num_epochs"]):
        sgd.save_checkpoint(epoch=epoch)
        sgd.report(epoch=epoch)
    return sgd.world_rank()

trainer = sgd.Trainer(backend="torch", num_workers=2)
trainer.start()
trainer.run(train_func, config={"num_epochs": 3})  # [0, 1]
trainer.latest_checkpoint                          # {'epoch': 2}
trainer.shutdown()
"""

from __future__ import annotations

from typing import Any

from lockstep.sgd.backends import Backend, BackendConfig, BackendInterface
from lockstep.sgd.callbacks import JsonLoggerCallback, PrintCallback, SGDCallback, TBXLoggerCallback, TrainingCallback
from lockstep.sgd.checkpoints import CheckpointConfig, CheckpointStrategy
from lockstep.sgd.instances import SGDWorkerGroup
from lockstep.sgd.trainer import SGDIterator, Trainer
from lockstep.train import (
    get_dataset_shard,
    load_checkpoint,
    local_rank,
    local_world_size,
    node_rank,
    report,
    save_checkpoint,
    world_rank,
    world_size,
)

__all__ = [
    "Backend",
    "BackendConfig",
    "BackendInterface",
    "CheckpointConfig",
    "CheckpointStrategy",
    "JsonLoggerCallback",
    "PrintCallback",
    "SGDCallback",
    "SGDIterator",
    "SGDWorkerGroup",
    "TBXLoggerCallback",
    "Trainer",
    "TrainingCallback",
    "get_data_shard",
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

get_data_shard = get_dataset_shard
"""RaySGD's first name for it."""

_FRAMEWORKS = {"TorchConfig": "torch", "TensorflowConfig": "tensorflow", "HorovodConfig": "horovod"}


def __getattr__(name: str) -> Any:
    """The frameworks' configurations; each is imported on first access."""
    import importlib

    if name in _FRAMEWORKS:
        return getattr(importlib.import_module(f"lockstep.{_FRAMEWORKS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
