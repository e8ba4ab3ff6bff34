"""Trains a PyTorch model on many workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep._framework_trainer import FrameworkTrainer, Settings
from lockstep.backend import BackendConfig
from lockstep.checkpoint import Checkpoint
from lockstep.config import DataConfig, RunConfig, ScalingConfig, TrainLoopConfig
from lockstep.torch.checkpoint import TorchCheckpoint
from lockstep.torch.config import TorchConfig
from lockstep.validation import ValidationConfig

if TYPE_CHECKING:
    from typing_extensions import Self


class TorchTrainer(FrameworkTrainer):
    """Runs a PyTorch training function on ``scaling_config.num_workers`` workers, connected by a process group::

        from lockstep import ScalingConfig, session
        from lockstep.torch import TorchTrainer, prepare_data_loader, prepare_model

        def train_func(config):
            model = prepare_model(Net())
            loader = prepare_data_loader(DataLoader(data, batch_size=32, shuffle=True))
            optimizer = torch.optim.Adam(model.parameters(), config["lr"])
            for epoch in range(config["num_epochs"]):
                for inputs, labels in loader:
                    optimizer.zero_grad()
                    loss = cross_entropy(model(inputs), labels)
                    loss.backward()
                    optimizer.step()
                session.report({"epoch": epoch, "loss": loss.item()})

        trainer = TorchTrainer(
            train_func, train_loop_config={"lr": 1e-3, "num_epochs": 5}, scaling_config=ScalingConfig(num_workers=4)
        )
        result = trainer.fit()

    ``batch_size`` is per worker. Models are saved in checkpoints without their DistributedDataParallel wrapper, and
    ``session.get_checkpoint()`` and the ``Result`` return a ``TorchCheckpoint``.
    """

    _config_type: ClassVar[type[BackendConfig]] = TorchConfig
    _two_spellings: ClassVar[str] = "torch_config and torch_backend are two spellings of one thing; give one"
    _checkpoint_type: ClassVar[type[Checkpoint]] = TorchCheckpoint

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: TrainLoopConfig | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
        torch_backend: TorchConfig | None = None,
    ) -> None:
        settings = Settings(
            scaling_config,
            run_config,
            resume_from_checkpoint,
            datasets,
            dataset_config,
            preprocessor,
            metadata,
            validation_config,
        )
        super().__init__(train_loop_per_worker, train_loop_config, settings, torch_config, torch_backend)

    @classmethod
    def restore(  # type: ignore[override]
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: TrainLoopConfig | None = None,
        *,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        torch_backend: TorchConfig | None = None,
    ) -> Self:
        """A trainer that continues the run at `path`; see DataParallelTrainer.restore()."""
        settings = Settings(scaling_config, run_config, resume_from_checkpoint, datasets, dataset_config, preprocessor)
        return cls._from_run(path, train_loop_per_worker, train_loop_config, settings, torch_config, torch_backend)
