"""What the trainers of frameworks share: one has a configuration of its own type, under one or more spellings."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from lockstep.backend import BackendConfig
from lockstep.checkpoint import Checkpoint
from lockstep.config import RunConfig, ScalingConfig, TrainLoopConfig
from lockstep.errors import ConfigError
from lockstep.trainer import DataParallelTrainer

if TYPE_CHECKING:
    from typing_extensions import Self


class Settings(NamedTuple):
    """What every trainer takes beside its function and its framework; restore() takes no metadata."""

    scaling_config: ScalingConfig | None
    run_config: RunConfig | None
    resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None
    metadata: dict[str, Any] | None = None


class FrameworkTrainer(DataParallelTrainer):
    """The base of a framework's trainer, which states its public signatures and hands over what it was given::

        class TorchTrainer(FrameworkTrainer):
            _config_type = TorchConfig
            _two_spellings = "torch_config and torch_backend are two spellings of one thing; give one"

            def __init__(self, function, *, train_loop_config=None, torch_config=None, torch_backend=None, ...):
                settings = Settings(scaling_config, run_config, resume_from_checkpoint, metadata)
                super().__init__(function, train_loop_config, settings, torch_config, torch_backend)

    The framework's name is taken from its configuration's: a ``TorchConfig`` is the ``torch_config`` of a
    ``TorchTrainer``.
    """

    _config_type: ClassVar[type[BackendConfig]]
    """What a configuration must be; one without arguments is the default."""
    _two_spellings: ClassVar[str] = ""
    """What to say when the configuration is given under more than one spelling; empty where there is only one."""
    _instead_of_datasets: ClassVar[str] = ""
    """What to do without `datasets` and `preprocessor`; empty where these are no parameters."""

    def __init__(
        self,
        function: Callable[..., Any],
        config: TrainLoopConfig | None,
        settings: Settings,
        *spellings: BackendConfig | None,
    ) -> None:
        """`spellings`: what was given for each spelling of the framework's configuration."""
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
        """restore() of a trainer, without a default for the configuration: none is the one that the run had."""
        return super().restore(
            path,
            function,
            config,
            backend_config=cls._chosen(*spellings),
            scaling_config=settings.scaling_config,
            run_config=settings.run_config,
            resume_from_checkpoint=settings.resume_from_checkpoint,
        )

    @classmethod
    def _chosen(cls, *spellings: BackendConfig | None) -> BackendConfig | None:
        """The configuration under the one spelling that was used; raises ConfigError when it is wrong."""
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
    def _refuse_data(cls, datasets: object, preprocessor: object) -> None:
        if datasets is not None or preprocessor is not None:
            raise ConfigError(
                f"[{cls._framework()}Trainer] datasets and preprocessor cannot be given yet; {cls._instead_of_datasets}"
            )

    @classmethod
    def _framework(cls) -> str:
        """As in the names of its classes, also for trainers that users derive from them."""
        return cls._config_type.__name__.removesuffix("Config")

    def _default_backend(self) -> BackendConfig:
        return self._config_type()
