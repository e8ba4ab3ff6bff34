"""Base class of TorchTrainer, TensorflowTrainer, ...: handles the framework's config object and its alternative keyword
names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from lockstep.backend import BackendConfig
from lockstep.checkpoint import Checkpoint
from lockstep.config import DataConfig, RunConfig, ScalingConfig, TrainLoopConfig
from lockstep.errors import ConfigError
from lockstep.trainer import DataParallelTrainer
from lockstep.validation import ValidationConfig

if TYPE_CHECKING:
    from typing_extensions import Self


class Settings(NamedTuple):
    """The arguments that every framework trainer has in common; restore() does not take the last two."""

    scaling_config: ScalingConfig | None
    run_config: RunConfig | None
    resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None
    datasets: Mapping[str, Any] | None
    dataset_config: DataConfig | None
    preprocessor: Any
    metadata: dict[str, Any] | None = None
    validation_config: ValidationConfig | None = None


class FrameworkTrainer(DataParallelTrainer):
    """The base of a framework's trainer. The subclass declares the public signatures and passes its arguments on::

        class TorchTrainer(FrameworkTrainer):
            _config_type = TorchConfig
            _two_spellings = "torch_config and torch_backend are two spellings of one thing; give one"

            def __init__(self, function, *, train_loop_config=None, torch_config=None, torch_backend=None, ...):
                settings = Settings(scaling_config, run_config, resume_from_checkpoint, datasets, ...)
                super().__init__(function, train_loop_config, settings, torch_config, torch_backend)

    The framework's name comes from the configuration's class: a ``TorchConfig`` is the ``torch_config`` of a
    ``TorchTrainer``.
    """

    _config_type: ClassVar[type[BackendConfig]]
    """The type of the configuration; the default is one without arguments."""
    _two_spellings: ClassVar[str] = ""
    """The error if the configuration is given under more than one spelling; empty if there is only one."""

    def __init__(
        self,
        function: Callable[..., Any],
        config: TrainLoopConfig | None,
        settings: Settings,
        *spellings: BackendConfig | None,
    ) -> None:
        """`spellings`: the arguments for each spelling of the framework's configuration."""
        super().__init__(
            function,
            train_loop_config=config,
            backend_config=self._chosen(*spellings) or self._config_type(),
            **settings._asdict(),
        )

    @classmethod
    def _from_run(
        cls,
        path: str | os.PathLike[str],
        function: Callable[..., Any] | None,
        config: TrainLoopConfig | None,
        settings: Settings,
        *spellings: BackendConfig | None,
    ) -> Self:
        """Implements restore(). Without a configuration, the run's own is used instead of the default."""
        return super().restore(
            path,
            function,
            config,
            backend_config=cls._chosen(*spellings),
            scaling_config=settings.scaling_config,
            dataset_config=settings.dataset_config,
            run_config=settings.run_config,
            datasets=settings.datasets,
            preprocessor=settings.preprocessor,
            resume_from_checkpoint=settings.resume_from_checkpoint,
        )

    @classmethod
    def _chosen(cls, *spellings: BackendConfig | None) -> BackendConfig | None:
        """The configuration that was given, under whichever spelling; raises ConfigError if it is wrong."""
        used = [given for given in spellings if given is not None]
        if len(used) > 1:
            raise ConfigError(f"[{cls._framework()}Trainer] {cls._two_spellings}")
        if used and not isinstance(used[0], cls._config_type):
            raise ConfigError(
                f"[{cls._framework()}Trainer] {cls._framework().lower()}_config is {used[0]!r}; "
                f"it must be a {cls._config_type.__name__} or None"
            )
        return used[0] if used else None

    @classmethod
    def _framework(cls) -> str:
        """The framework's name as in its classes, also for trainers that users derive from them."""
        return cls._config_type.__name__.removesuffix("Config")

    def _default_backend(self) -> BackendConfig:
        return self._config_type()
