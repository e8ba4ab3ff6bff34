"""How the workers of a group are connected: the names of RaySGD's ``backends.backend``.

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

from lockstep.backend import Backend, BackendConfig
from lockstep.errors import ConfigError

__all__ = ["Backend", "BackendConfig", "BackendInterface", "backend_config_of"]

_BY_NAME = {
    "torch": ("lockstep.torch", "TorchConfig"),
    "tensorflow": ("lockstep.tensorflow", "TensorflowConfig"),
    "horovod": ("lockstep.horovod", "HorovodConfig"),
}


BackendInterface = Backend


class _WrongType(ConfigError, TypeError):
    """As in Ray."""


def backend_config_of(backend: str | BackendConfig) -> BackendConfig:
    """Returns a configuration unchanged; for the name of a framework, its default configuration."""
    if isinstance(backend, BackendConfig):
        backend.validate()
        return backend
    if not isinstance(backend, str) or backend not in _BY_NAME:
        names = ", ".join(map(repr, _BY_NAME))
        wrong = ConfigError if isinstance(backend, str) else _WrongType
        raise wrong(f"[sgd] backend is {backend!r}; it must be {names} or a BackendConfig")
    module, name = _BY_NAME[backend]
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ConfigError(f"[sgd] backend {backend!r} is not supported; use 'torch' or a BackendConfig") from None
    config: BackendConfig = found()
    return config
