"""Hugging Face Transformers on the workers of a ``TorchTrainer``::

    import transformers
    from lockstep import ScalingConfig
    from lockstep.integrations.transformers import ReportCheckpointCallback, prepare_trainer
    from lockstep.torch import TorchTrainer

    def train_func():
        arguments = transformers.TrainingArguments("out", save_strategy="epoch", eval_strategy="epoch")
        trainer = transformers.Trainer(model, arguments, train_dataset=train, eval_dataset=test)
        trainer.add_callback(ReportCheckpointCallback())
        prepare_trainer(trainer).train()

    TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=4)).fit()

``Trainer`` finds the workers' process group by itself. Importing this module imports Transformers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lockstep import session
from lockstep.checkpoint import Checkpoint

try:
    import transformers
except ModuleNotFoundError as missing:
    if missing.name != "transformers":
        raise
    raise ModuleNotFoundError(
        "[lockstep.integrations.transformers] Transformers is not installed: pip install transformers accelerate",
        name="transformers",
    ) from None

import torch.utils.data
import transformers.trainer_utils

__all__ = ["CHECKPOINT_DIRECTORY", "ReportCallback", "ReportCheckpointCallback", "checkpoint_path", "prepare_trainer"]

CHECKPOINT_DIRECTORY = "checkpoint"
"""The name of the directory that ``Trainer`` wrote, in a checkpoint."""


class ReportCallback(transformers.TrainerCallback):  # type: ignore[misc]
    """Reports what ``Trainer`` logs, whenever it logs: ``logging_strategy`` and ``eval_strategy`` say when."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        session.report({**(logs or {}), "step": state.global_step, "epoch": state.epoch})


class ReportCheckpointCallback(transformers.TrainerCallback):  # type: ignore[misc]
    """Reports a checkpoint whenever ``Trainer`` saves one, with all metrics logged so far: the newest of each name.

    The checkpoint holds the directory that ``Trainer`` wrote, as ``checkpoint``. Evaluate before saving, with
    ``eval_strategy`` as ``save_strategy``, to have the metrics of that evaluation with it.
    """

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        metrics: dict[str, Any] = {}
        for logged in state.log_history:
            metrics.update(logged)
        metrics["step"] = state.global_step
        if session.get_world_rank() != 0:
            session.report(metrics)
            return
        saved = transformers.trainer_utils.get_last_checkpoint(args.output_dir)
        if saved is None:
            session.report(metrics)
            return
        with tempfile.TemporaryDirectory() as directory:
            shutil.copytree(saved, os.path.join(directory, CHECKPOINT_DIRECTORY))
            session.report(metrics, checkpoint=Checkpoint.from_directory(directory))


@contextmanager
def checkpoint_path() -> Iterator[str | None]:
    """The directory of ``Trainer`` in the checkpoint from which the run continues, or None::

    with checkpoint_path() as path:
        trainer.train(resume_from_checkpoint=path)
    """
    checkpoint = session.get_checkpoint()
    if checkpoint is None:
        yield None
        return
    with checkpoint.as_directory() as directory:
        yield os.path.join(directory, CHECKPOINT_DIRECTORY)


class _Batches(torch.utils.data.IterableDataset[Any]):
    """Batches of a shard, which are this rank's already."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def prepare_trainer(trainer: Any) -> Any:
    """Lets a ``transformers.Trainer`` read data set shards, and returns it.

    Its ``train_dataset`` or ``eval_dataset`` may be batches: an iterable such as
    ``session.get_dataset_shard("train").to_torch(...)`` or ``iter_torch_batches(...)``, whose batches belong to this
    rank already. Give ``max_steps``, as their number is not known, and batches that are dicts of the model's arguments.
    The other data sets of ``Trainer`` are left as they are: it divides them among the ranks itself.
    """
    for name in ("train", "eval"):
        given = getattr(trainer, f"{name}_dataset", None)
        if given is None or not _is_batches(given):
            continue
        setattr(trainer, f"get_{name}_dataloader", _loader_of(_Batches(given)))
    return trainer


def _is_batches(given: Any) -> bool:
    """Whether it is a shard's, or can only be iterated; ``Trainer`` knows data sets of torch and ``datasets``."""
    if type(given).__module__.startswith("lockstep.data"):
        return True
    if isinstance(given, (dict, torch.utils.data.Dataset)) or hasattr(given, "__getitem__"):
        return False
    return isinstance(given, Iterable) and type(given).__module__.partition(".")[0] != "datasets"


def _loader_of(batches: _Batches) -> Callable[..., Any]:
    def make(*_: Any, **__: Any) -> Any:
        return torch.utils.data.DataLoader(batches, batch_size=None)

    return make
