"""What joins the workers of a group: the words of RaySGD's ``backends.backend``.

A ``BackendConfig`` has hooks that run in every worker; those of a ``Backend`` run in the process of the trainer and
reach the workers through the group::

    class Hello(Backend):
        def on_start(self, worker_group, backend_config):
            print(worker_group.execute(os.getpid))

    class HelloConfig(BackendConfig):
        @property
        def backend_cls(self):
            return Hello
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lockstep.backend import BackendConfig
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.sgd.worker_group import WorkerGroup

__all__ = ["Backend", "BackendConfig", "BackendInterface", "backend_config_of"]

_BY_NAME = {
    "torch": ("lockstep.torch", "TorchConfig"),
    "tensorflow": ("lockstep.tensorflow", "TensorflowConfig"),
    "horovod": ("lockstep.horovod", "HorovodConfig"),
}


class Backend:
    """Override what you need: every body is empty."""

    def on_start(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """The workers are there, for the first time or after a failure."""

    def on_training_start(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """A training function is about to run."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """The workers are about to end; after a failure they have ended already."""


BackendInterface = Backend


def backend_config_of(backend: str | BackendConfig) -> BackendConfig:
    """The configuration itself, or the default one of the framework of that name."""
    if isinstance(backend, BackendConfig):
        backend.validate()
        return backend
    if not isinstance(backend, str) or backend not in _BY_NAME:
        names = ", ".join(map(repr, _BY_NAME))
        raise ConfigError(f"[sgd] backend is {backend!r}; it must be {names} or a BackendConfig")
    module, name = _BY_NAME[backend]
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ConfigError(f"[sgd] backend {backend!r} is not there yet; use 'torch' or a BackendConfig") from None
    config: BackendConfig = found()
    return config
