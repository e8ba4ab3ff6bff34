"""JAX on many workers, which are connected by ``jax.distributed``::

from lockstep import ScalingConfig, session
from lockstep.jax import JaxTrainer

def train_func():
    import jax

    session.report({"devices": len(jax.devices())})  # of all workers

JaxTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()

Importing this module does not import JAX: the process that calls ``fit()`` need not load it.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep import session
from lockstep._framework_trainer import FrameworkTrainer, Settings
from lockstep._installed import is_installed
from lockstep.backend import BackendConfig
from lockstep.checkpoint import Checkpoint
from lockstep.config import DataConfig, RunConfig, ScalingConfig, TrainLoopConfig
from lockstep.errors import ConfigError
from lockstep.validation import ValidationConfig

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["JaxConfig", "JaxTrainer"]

FOR_EVER = 10 * 365 * 86400.0
_held: socket.socket | None = None
"""Held by rank 0: bound but not listening, so that no other program gets the port of JAX's coordinator."""


@dataclass
class JaxConfig(BackendConfig):
    """How workers connect: ``jax.distributed.initialize()`` has been called when the function begins."""

    preload: ClassVar[tuple[str, ...]] = ("jax", "jax.numpy", "lockstep.jax")

    cpu_collectives: str = "gloo"
    """The library for collectives between workers without GPUs: "gloo" or "mpi"."""

    def validate(self) -> None:
        if self.cpu_collectives not in ("gloo", "mpi"):
            raise ConfigError(f"[JaxConfig] cpu_collectives is {self.cpu_collectives!r}; it must be 'gloo' or 'mpi'")
        if not is_installed("jax"):
            raise ConfigError('[JaxTrainer] JAX is not installed; pip install "jax[cpu]"')

    def environment(self) -> dict[str, str]:
        return {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": self.cpu_collectives, "TF_CPP_MIN_LOG_LEVEL": "3"}

    def on_worker_start(self) -> None:
        import jax

        jax.distributed.initialize = _once(jax.distributed.initialize)
        worker = session._get("JaxConfig.on_worker_start")
        port = session.broadcast_from_rank_zero(_hold_port() if worker.rank == 0 else 0)
        coordinator = f"{session.get_node_address(0)}:{port}"
        jax.distributed.initialize(
            coordinator,
            num_processes=worker.world_size,
            process_id=worker.rank,
            coordinator_bind_address=coordinator if worker.rank == 0 else None,
        )

    def on_worker_end(self) -> None:
        """JAX ends a process whose coordinator (rank 0) is gone, so all ranks leave together."""
        import jax

        session._get("JaxConfig.on_worker_end").core.meet(b"", FOR_EVER)
        jax.distributed.shutdown()

    def is_consequence(self, error: BaseException) -> bool:
        text = str(error)
        return type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError") and any(
            words in text for words in ("UNAVAILABLE", "ABORTED", "Gloo", "Connection closed", "Connection reset")
        )


class JaxTrainer(FrameworkTrainer):
    """Runs a JAX training function on ``scaling_config.num_workers`` workers; ``jax.devices()`` are those of all::

    JaxTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()
    """

    _config_type: ClassVar[type[BackendConfig]] = JaxConfig
    _two_spellings: ClassVar[str] = "jax_config and jax_backend are two spellings of one thing; give one"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: TrainLoopConfig | None = None,
        jax_config: JaxConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
        jax_backend: JaxConfig | None = None,
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
        super().__init__(train_loop_per_worker, train_loop_config, settings, jax_config, jax_backend)

    @classmethod
    def restore(  # type: ignore[override]
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: TrainLoopConfig | None = None,
        *,
        jax_config: JaxConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        jax_backend: JaxConfig | None = None,
    ) -> Self:
        """A trainer that continues the run at `path`; see DataParallelTrainer.restore()."""
        settings = Settings(scaling_config, run_config, resume_from_checkpoint, datasets, dataset_config, preprocessor)
        return cls._from_run(path, train_loop_per_worker, train_loop_config, settings, jax_config, jax_backend)


def _once(initialize: Callable[..., None]) -> Callable[..., None]:
    """Wraps ``jax.distributed.initialize``: a second call without arguments does nothing.

    Functions written for other launchers call it without arguments, and JAX finds no launcher here that would supply
    them.
    """

    @functools.wraps(initialize)
    def call(*arguments: Any, **named: Any) -> None:
        import jax

        if arguments or named or not jax.distributed.is_initialized():
            initialize(*arguments, **named)

    return call


def _hold_port() -> int:
    """Reserves a port that only sockets that ask to share it, as JAX's does, can bind."""
    global _held
    _held = socket.socket()
    _held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.bind((session.get_node_address(0), 0))
    port: int = _held.getsockname()[1]
    return port
