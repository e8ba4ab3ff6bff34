"""What a framework needs around a training function: the base of ``TorchConfig`` and its like.

A configuration is pickled with the training function; its hooks run in every worker::

    @dataclass
    class Seeds(BackendConfig):
        seed: int = 0

        def on_worker_start(self):
            random.seed(self.seed + session.get_world_rank())

    DataParallelTrainer(train_func, backend_config=Seeds(seed=7)).fit()

The hooks of a ``Backend``, which a configuration may name, run in the process of the trainer and reach the workers
through the group::

    class Hello(Backend):
        def on_start(self, worker_group, backend_config):
            print(worker_group.execute(os.getpid))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.sgd.worker_group import WorkerGroup

__all__ = ["Backend", "BackendConfig"]


class BackendConfig:
    """Override what you need: every body is empty."""

    preload: ClassVar[tuple[str, ...]] = ()
    """Modules that workers find imported, because importing them takes long; "?" marks those that may be missing."""

    @property
    def backend_cls(self) -> type[Any] | None:
        """A ``Backend`` whose hooks run where the trainer was made, beside those here; None: none."""
        return None

    def environment(self) -> dict[str, str]:
        """Variables that workers find before they import anything; those that the user has set win."""
        return {}

    def validate(self) -> None:
        """Raises ConfigError when a field is wrong. Called where the trainer is made, before anything starts."""

    def run_options(self) -> dict[str, Any]:
        """What the run does for the workers, beside running them: ``rendezvous`` (a store through which they find each
        other), ``replace_workers`` (one that dies is started again alone)."""
        return {}

    def on_worker_start(self) -> None:
        """In every worker, before the training function; ``session`` works."""

    def on_function_start(self) -> None:
        """In every worker, after that, and again before each later function of a worker that is kept."""

    def on_worker_end(self) -> None:
        """In every worker whose training function returned."""

    def is_consequence(self, error: BaseException) -> bool:
        """Whether `error` looks like what one rank sees when another has died.

        Such an error waits a moment before it is told, so that the run names the rank that died and not the messenger.
        """
        return False


class Backend:
    """Override what you need: every body is empty."""

    def on_start(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """The workers are there, for the first time or after a failure."""

    def on_training_start(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """A training function is about to run."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """The workers are about to end; after a failure they have ended already."""


def hooks_class(config: BackendConfig | None) -> type[Backend] | None:
    """The configuration's ``backend_cls``, or None; ConfigError when it is something else."""
    kind = None if config is None else config.backend_cls
    if kind is not None and not isinstance(kind, type):
        raise ConfigError(f"[backend] backend_cls is {kind!r}; it must be a class that derives from Backend")
    return kind
