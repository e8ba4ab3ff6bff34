"""The hooks of a ``Backend``, which the core calls in every attempt of a run."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

from lockstep import _pickling
from lockstep._calls import Answer, Call, Workers
from lockstep.backend import Backend, BackendConfig
from lockstep.errors import LockstepError

CoreCall = Callable[[int | None, bytes], list[bytes]]
"""Makes a pickled call on one rank, or on all. Raises EngineError if the attempt has ended."""


class BackendHooks:
    """Runs in the thread of the run."""

    def __init__(self, backend: Backend, config: BackendConfig, num_workers: int) -> None:
        self._backend = backend
        self._config = config
        self._num_workers = num_workers
        self.name = ""
        """The hook that runs or ran last."""
        self.is_training = True
        """Whether the next function is a training function."""
        self.raised: BaseException | None = None
        """What a hook before the function raised in the last attempt."""
        self.is_shut_down = False
        self.shutdown_error: Exception | None = None

    def before(self, call: CoreCall, size: int, kept: bool) -> None:
        """The workers wait for calls, and their functions have not begun. `kept`: they have run others."""
        self.raised, self.is_shut_down = None, False
        try:
            if not kept:
                self._run("on_start", call, size)
            if self.is_training:
                self._run("on_training_start", call, size)
        except BaseException as error:
            self.raised = error
            raise

    def after(self, call: CoreCall, size: int) -> None:
        """The workers are about to end, or have ended. An error here does not change the outcome."""
        self.is_shut_down, self.shutdown_error = True, None
        try:
            self._run("on_shutdown", call, size)
        except Exception as error:
            self.shutdown_error = error

    def _run(self, hook: str, call: CoreCall, size: int) -> None:
        self.name = f"{type(self._backend).__name__}.{hook}()"
        workers = _HookedWorkers(size or self._num_workers, call)
        try:
            getattr(self._backend, hook)(workers, self._config)
        finally:
            workers.close()


class _HookedWorkers(Workers):
    """The workers of an attempt, while one hook runs."""

    def __init__(self, num_workers: int, call: CoreCall) -> None:
        super().__init__(num_workers)
        self._core_call: CoreCall | None = call
        self._thread = threading.get_ident()

    def close(self) -> None:
        self._core_call = None

    def _call(self, call: Call, rank: int | None) -> list[Answer]:
        # While it waits, the core continues the run: no callback and no other thread may call meanwhile.
        core_call = self._core_call if threading.get_ident() == self._thread else None
        if core_call is None:
            raise LockstepError("[WorkerGroup] only the hook that runs can call its workers, in its own thread")
        self._core_call = None
        try:
            return [pickle.loads(answer) for answer in core_call(rank, _pickling.dump_function(call))]
        finally:
            self._core_call = core_call
