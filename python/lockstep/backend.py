"""What a framework needs around a training function: the base of ``TorchConfig`` and similar classes.

A configuration is pickled with the training function; its hooks run in every worker::

    @dataclass
    class Seeds(BackendConfig):
        seed: int = 0

        def on_worker_start(self):
            random.seed(self.seed + session.get_world_rank())

    DataParallelTrainer(train_func, backend_config=Seeds(seed=7)).fit()

A configuration may name a ``Backend``. Its hooks run in the trainer's process and reach the workers through the group::

    class Hello(Backend):
        def on_start(self, worker_group, backend_config):
            print(worker_group.execute(os.getpid))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep._calls import Workers

__all__ = ["Backend", "BackendConfig"]


class BackendConfig:
    """Override what you need: every body is empty."""

    preload: ClassVar[tuple[str, ...]] = ()
    """Modules that are slow to import: workers are forked with them. "?" marks those that may be missing."""

    @property
    def backend_cls(self) -> type[Any] | None:
        """A ``Backend`` whose hooks run in the trainer's process, in addition to those here; None: no such hooks."""
        return None

    def environment(self) -> dict[str, str]:
        """Variables that are set before workers import anything; those that the user has set take precedence."""
        return {}

    def validate(self) -> None:
        """Raises ConfigError if a field is wrong. Called when the trainer is made, before anything starts."""

    def run_options(self) -> dict[str, Any]:
        """Services that the run offers to the workers: ``rendezvous`` (a store through which they find each other),
        ``replace_workers`` (a worker that dies is restarted alone)."""
        return {}

    def on_worker_start(self) -> None:
        """Runs in every worker, before the training function; ``session`` works."""

    def on_function_start(self) -> None:
        """Runs in every worker after on_worker_start, and again before each later function of a kept worker."""

    def on_worker_end(self) -> None:
        """Runs in every worker whose training function returned."""

    def is_consequence(self, error: BaseException) -> bool:
        """Whether `error` looks like what one rank sees when another has died.

        Such an error is reported with a delay, so that the run names the rank that died and not the one that noticed.
        """
        return False


class Backend:
    """Override what you need: every body is empty."""

    def on_start(self, worker_group: Workers, backend_config: BackendConfig) -> None:
        """The workers have started, for the first time or after a failure."""

    def on_training_start(self, worker_group: Workers, backend_config: BackendConfig) -> None:
        """A training function is about to run."""

    def on_shutdown(self, worker_group: Workers, backend_config: BackendConfig) -> None:
        """The workers are about to end; after a failure they have already ended."""


def hooks_class(config: BackendConfig | None) -> type[Backend] | None:
    """The configuration's ``backend_cls``, or None; raises ConfigError if it is something else."""
    kind = None if config is None else config.backend_cls
    if kind is not None and not isinstance(kind, type):
        raise ConfigError(f"[backend] backend_cls is {kind!r}; it must be a class that derives from Backend")
    return kind
