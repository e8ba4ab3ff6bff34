"""Trains a PyTorch model on many workers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.backend import BackendConfig
from lockstep.checkpoint import Checkpoint
from lockstep.config import RunConfig, ScalingConfig
from lockstep.errors import ConfigError
from lockstep.torch.checkpoint import TorchCheckpoint
from lockstep.torch.config import TorchConfig
from lockstep.trainer import DataParallelTrainer

if TYPE_CHECKING:
    from typing_extensions import Self


class TorchTrainer(DataParallelTrainer):
    """Runs a PyTorch training function on ``scaling_config.num_workers`` workers, joined in a process group::

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

    ``batch_size`` is a worker's. Models that are saved in checkpoints lose their DistributedDataParallel wrapper, and
    ``session.get_checkpoint()`` and the ``Result`` give ``TorchCheckpoint``.
    """

    _checkpoint_type: ClassVar[type[Checkpoint]] = TorchCheckpoint

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
        torch_backend: TorchConfig | None = None,
    ) -> None:
        if datasets is not None or preprocessor is not None:
            raise ConfigError(
                "[TorchTrainer] datasets and preprocessor cannot be given yet; "
                "make a DataLoader in the training function and pass it to prepare_data_loader()"
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=_config(torch_config, torch_backend) or TorchConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
        )

    @classmethod
    def restore(  # type: ignore[override]
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: dict[str, Any] | None = None,
        *,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        torch_backend: TorchConfig | None = None,
    ) -> Self:
        """A trainer that goes on with the run at `path`; see DataParallelTrainer.restore()."""
        return super().restore(
            path,
            train_loop_per_worker,
            train_loop_config,
            backend_config=_config(torch_config, torch_backend),
            scaling_config=scaling_config,
            run_config=run_config,
            resume_from_checkpoint=resume_from_checkpoint,
        )

    def _default_backend(self) -> BackendConfig:
        return TorchConfig()


def _config(torch_config: TorchConfig | None, torch_backend: TorchConfig | None) -> TorchConfig | None:
    """The one of two spellings that was used."""
    if torch_config is not None and torch_backend is not None:
        raise ConfigError("[TorchTrainer] torch_config and torch_backend are two spellings of one thing; give one")
    given = torch_config if torch_config is not None else torch_backend
    if given is not None and not isinstance(given, TorchConfig):
        raise ConfigError(f"[TorchTrainer] torch_config is {given!r}; it must be a TorchConfig or None")
    return given
