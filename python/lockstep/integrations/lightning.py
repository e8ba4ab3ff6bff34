"""PyTorch Lightning on the workers of a ``TorchTrainer``::

    import lightning
    from lockstep import ScalingConfig
    from lockstep.integrations.lightning import (
        DDPStrategy, LightningEnvironment, ReportCheckpointCallback, checkpoint_path, prepare_trainer,
    )
    from lockstep.torch import TorchTrainer

    def train_func():
        trainer = lightning.Trainer(
            max_epochs=3,
            devices="auto",
            strategy=DDPStrategy(),
            plugins=[LightningEnvironment()],
            callbacks=[ReportCheckpointCallback()],
            enable_checkpointing=False,
        )
        with checkpoint_path() as path:
            prepare_trainer(trainer).fit(Module(), loader, ckpt_path=path)

    TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=4)).fit()

Importing this module imports Lightning: ``pytorch_lightning`` if that alone was imported before, else ``lightning``.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lockstep import session
from lockstep.checkpoint import Checkpoint
from lockstep.errors import ConfigError
from lockstep.torch import _context, get_device

if TYPE_CHECKING:
    import torch

__all__ = [
    "CHECKPOINT_FILE",
    "DDPStrategy",
    "FSDPStrategy",
    "LightningEnvironment",
    "ReportCallback",
    "ReportCheckpointCallback",
    "checkpoint_path",
    "prepare_trainer",
]

CHECKPOINT_FILE = "checkpoint.ckpt"
"""The name of Lightning's file in a checkpoint."""


def _lightning() -> Any:
    """Its ``pytorch`` package, as the program imports it: the classes of the two packages do not go together."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        names.reverse()
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ModuleNotFoundError(
        "[lockstep.integrations.lightning] Lightning is not installed: pip install lightning", name="lightning"
    )


_pl = _lightning()
_environments = importlib.import_module(f"{_pl.__name__}.plugins.environments")
_strategies = importlib.import_module(f"{_pl.__name__}.strategies")


class LightningEnvironment(_environments.LightningEnvironment):  # type: ignore[misc,name-defined]
    """Tells Lightning the ranks of the workers, which exist already. Give it to ``Trainer(plugins=[...])``."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ["MASTER_ADDR"]

    @property
    def main_port(self) -> int:
        return int(os.environ["MASTER_PORT"])

    def world_size(self) -> int:
        return _context.world_size()

    def set_world_size(self, size: int) -> None:
        """Does nothing: the run decides it."""

    def global_rank(self) -> int:
        return _context.rank()

    def set_global_rank(self, rank: int) -> None:
        """Does nothing: the run decides it."""

    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK", "0"))

    def node_rank(self) -> int:
        return int(os.environ.get("NODE_RANK", "0"))

    def teardown(self) -> None:
        """Does nothing: the process group is the worker's."""


class _OnWorkers:
    """What strategies have in common: a worker has one device."""

    @property
    def root_device(self) -> torch.device:
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": _context.world_size(), "rank": _context.rank()}


class DDPStrategy(_OnWorkers, _strategies.DDPStrategy):  # type: ignore[misc,name-defined]
    """``DistributedDataParallel`` among the workers of the run, on their process group.

    Takes the options of Lightning's own, such as ``find_unused_parameters=True``.
    """


class FSDPStrategy(_OnWorkers, _strategies.FSDPStrategy):  # type: ignore[misc,name-defined]
    """``FullyShardedDataParallel`` among the workers of the run. Not run on GPUs.

    Takes the options of Lightning's own. Checkpoints with one part per rank need
    ``CheckpointConfig(keep_all_ranks=True)``.
    """


class ReportCallback(_pl.Callback):  # type: ignore[misc,name-defined]
    """Reports what the module logged, with ``epoch`` and ``step``, at the end of each epoch of training.

    `metrics`: names to report, or a dict from the name in the report to Lightning's; None for all.
    """

    def __init__(self, metrics: Sequence[str] | Mapping[str, str] | None = None) -> None:
        super().__init__()
        if isinstance(metrics, str):
            metrics = [metrics]
        self._metrics = metrics if metrics is None or isinstance(metrics, Mapping) else {name: name for name in metrics}

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        session.report(self._logged(trainer))

    def _logged(self, trainer: Any) -> dict[str, Any]:
        there = {name: _number(value) for name, value in trainer.callback_metrics.items()}
        given = there
        if self._metrics is not None:
            if missing := [name for name in self._metrics.values() if name not in there]:
                raise ConfigError(
                    f"[{type(self).__name__}] the module has not logged {missing[0]!r}; "
                    f"at the end of the epoch there are: {', '.join(sorted(there)) or 'no metrics'}"
                )
            given = {name: there[source] for name, source in self._metrics.items()}
        return {**given, "epoch": trainer.current_epoch, "step": trainer.global_step}


class ReportCheckpointCallback(ReportCallback):
    """Reports metrics, and a checkpoint with Lightning's ``checkpoint.ckpt``, at the end of each epoch of training.

    `every`: a checkpoint in every n-th epoch only, and in the last one.
    """

    def __init__(self, metrics: Sequence[str] | Mapping[str, str] | None = None, every: int = 1) -> None:
        super().__init__(metrics)
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ConfigError(f"[ReportCheckpointCallback] every is {every!r}; it must be an int of at least 1")
        self._every = every

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        metrics = self._logged(trainer)
        done = trainer.current_epoch + 1
        if done % self._every and done != trainer.max_epochs and not trainer.should_stop:
            session.report(metrics)
            return
        with _saved(trainer) as checkpoint:
            session.report(metrics, checkpoint=checkpoint)


@contextmanager
def _saved(trainer: Any) -> Iterator[Checkpoint | None]:
    """The trainer's checkpoint; nothing on ranks that have no part of it. All ranks call it."""
    with tempfile.TemporaryDirectory() as directory:
        trainer.save_checkpoint(os.path.join(directory, CHECKPOINT_FILE), weights_only=False)
        yield Checkpoint.from_directory(directory) if os.listdir(directory) else None


@contextmanager
def checkpoint_path() -> Iterator[str | None]:
    """Lightning's file in the checkpoint from which the run continues, or None::

    with checkpoint_path() as path:
        trainer.fit(module, loader, ckpt_path=path)
    """
    checkpoint = session.get_checkpoint()
    if checkpoint is None:
        yield None
        return
    with checkpoint.as_directory() as directory:
        yield os.path.join(directory, CHECKPOINT_FILE)


def prepare_trainer(trainer: Any) -> Any:
    """Checks that a ``lightning.Trainer`` trains on the workers of the run, and returns it."""
    if not isinstance(trainer.strategy, _OnWorkers):
        raise ConfigError(
            f"[prepare_trainer] the trainer's strategy is {type(trainer.strategy).__name__}; "
            "it must be DDPStrategy() or FSDPStrategy() of lockstep.integrations.lightning"
        )
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if not isinstance(environment, LightningEnvironment):
        raise ConfigError(
            f"[prepare_trainer] the trainer's environment is {type(environment).__module__}."
            f"{type(environment).__name__}; "
            "write Trainer(plugins=[LightningEnvironment()]) with that of lockstep.integrations.lightning"
        )
    return trainer


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") and getattr(value, "numel", lambda: 0)() == 1 else value
