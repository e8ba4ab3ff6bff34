"""Trains with Horovod on many workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep._framework_trainer import FrameworkTrainer, Settings
from lockstep.backend import BackendConfig
from lockstep.checkpoint import Checkpoint
from lockstep.config import DataConfig, RunConfig, ScalingConfig, TrainLoopConfig
from lockstep.errors import ConfigError
from lockstep.horovod.config import HorovodConfig
from lockstep.validation import ValidationConfig

if TYPE_CHECKING:
    from typing_extensions import Self


class HorovodTrainer(FrameworkTrainer):
    """Runs a Horovod training function on ``scaling_config.num_workers`` workers::

        import horovod.torch as hvd
        from lockstep import ScalingConfig, session
        from lockstep.horovod import HorovodTrainer

        def train_func(config):
            hvd.init()
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"] * hvd.size())
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            for epoch in range(config["num_epochs"]):
                ...
                session.report({"epoch": epoch, "loss": loss.item()})

        trainer = HorovodTrainer(
            train_func, train_loop_config={"lr": 1e-3, "num_epochs": 5}, scaling_config=ScalingConfig(num_workers=4)
        )
        result = trainer.fit()

    The function must call ``hvd.init()``, as early as possible. With ``HorovodConfig(elastic=True)`` a rank that dies
    is replaced while the others continue; otherwise all ranks are restarted from the last checkpoint.
    """

    _config_type: ClassVar[type[BackendConfig]] = HorovodConfig
    _two_spellings: ClassVar[str] = "horovod_config and horovod_backend are two spellings of one thing: give one"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: TrainLoopConfig | None = None,
        horovod_config: HorovodConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
        horovod_backend: HorovodConfig | None = None,
        tensorflow_backend: HorovodConfig | None = None,
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
        super().__init__(
            train_loop_per_worker, train_loop_config, settings, horovod_config, horovod_backend, tensorflow_backend
        )

    def _validate(self) -> None:
        super()._validate()
        config = self.backend_config
        if not isinstance(config, HorovodConfig):
            return
        workers = self.scaling_config._fixed(
            "HorovodTrainer",
            "for Horovod, whose own elastic jobs have a minimum: "
            f"HorovodConfig(elastic=True, min_workers={self.scaling_config._least_and_most()[0]})",
        )
        if config.hosts is not None and len(config.hosts) != workers:
            raise ConfigError(
                f"[HorovodTrainer] hosts is {config.hosts!r}, of length {len(config.hosts)}, "
                f"but num_workers is {workers}; it must have one name for each rank"
            )
        least = config.min_workers
        if least is not None and least > workers:
            raise ConfigError(
                f"[HorovodTrainer] min_workers is {least}, but num_workers is {workers}; it must be from 1 to {workers}"
            )

    @classmethod
    def restore(  # type: ignore[override]
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: TrainLoopConfig | None = None,
        *,
        horovod_config: HorovodConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        horovod_backend: HorovodConfig | None = None,
        tensorflow_backend: HorovodConfig | None = None,
    ) -> Self:
        """A trainer that continues the run at `path`; see DataParallelTrainer.restore()."""
        settings = Settings(scaling_config, run_config, resume_from_checkpoint, datasets, dataset_config, preprocessor)
        spellings = (horovod_config, horovod_backend, tensorflow_backend)
        return cls._from_run(path, train_loop_per_worker, train_loop_config, settings, *spellings)

    @classmethod
    def _type_of_checkpoints(cls) -> type[Checkpoint]:
        """TorchCheckpoint, if the process uses PyTorch."""
        if "torch" not in sys.modules:
            return Checkpoint
        from lockstep.torch.checkpoint import TorchCheckpoint

        return TorchCheckpoint
