"""Calls the function of a ValidationConfig, in a thread and a worker beside the run."""

from __future__ import annotations

import atexit
import json
import queue
import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lockstep import _core, _pickling
from lockstep.callbacks import Callback
from lockstep.config import ScalingConfig
from lockstep.validation import VALIDATION_FILE, ValidationConfig

if TYPE_CHECKING:
    from lockstep.checkpoint import Checkpoint
    from lockstep.result import Result
    from lockstep.worker_group import WorkerGroup


class Validator(Callback):
    """One run's checks. The driver's thread calls it; the function is called in another one."""

    def __init__(self, config: ValidationConfig, verbose: int = 1) -> None:
        self._config = config
        self._verbose = verbose
        _pickling.dump_part(config.fn, "the function of the ValidationConfig", "give it plain values")
        self._changed = threading.Lock()
        self._waiting: set[int] = set()
        self._found: dict[int, dict[str, Any]] = {}
        self._jobs: queue.SimpleQueue[tuple[int, Checkpoint, dict[str, Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._group: WorkerGroup | None = None
        self._ends = False

    # ------------------------------------------------------------------ hooks

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        handle = checkpoint._as_handle()
        if VALIDATION_FILE not in handle.files():
            return
        seq = int(checkpoint.metadata["seq"])
        with self._changed:
            if self._ends:
                return
            self._waiting.add(seq)
        self._jobs.put((seq, checkpoint, arguments(self._config, handle.read(VALIDATION_FILE))))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="lockstep-validation", daemon=True)
            self._thread.start()

    def on_end(self, result: Result) -> None:
        self._end()
        if self._thread is not None:
            self._thread.join(60)
        atexit.unregister(self._end)

    def _end(self) -> None:
        self._ends = True
        self._jobs.put(None)
        if self._waiting and self._group is not None:
            self._group.stop()

    # ------------------------------------------------------------------ what the driver asks

    def waiting(self) -> set[int]:
        """The checkpoints, by seq, that are not checked yet, or of which `take()` has not told."""
        with self._changed:
            return {*self._waiting, *self._found}

    def goes_on(self) -> bool:
        """Whether those that wait will be checked."""
        return not self._ends and self._thread is not None and self._thread.is_alive()

    def take(self) -> dict[int, dict[str, Any]]:
        """What was found since the last call, by seq."""
        with self._changed:
            found, self._found = self._found, {}
        return found

    # ------------------------------------------------------------------ in the thread

    def _serve(self) -> None:
        try:
            while (job := self._jobs.get()) is not None and not self._ends:
                seq, checkpoint, kwargs = job
                found = self._call(seq, checkpoint, kwargs)
                if found is None:
                    break
                with self._changed:
                    self._found[seq] = found
                    self._waiting.discard(seq)
        finally:
            self._ends = True
            if self._group is not None and self._group.is_started:
                self._group.shutdown()

    def _call(self, seq: int, checkpoint: Checkpoint, kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """What the function found; None: the checks have ended."""
        try:
            if self._group is None:
                self._group = _group_of(self._config, self._verbose)
                # The group ends when the program exits. That is no failed check.
                atexit.register(self._end)
            if not self._group.is_started:
                self._group.start()
            return checked(self._group.execute(self._config.fn, checkpoint, **kwargs)[0])
        except KeyboardInterrupt:  # the run sees the signal too
            return None
        except Exception as error:
            if self._ends:
                return None
            warnings.warn(
                f"[validation] checkpoint {seq} has no validation metrics: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return {}


def arguments(config: ValidationConfig, requested: bytes) -> dict[str, Any]:
    """The function's keyword arguments."""
    given = None if config.task_config is None else config.task_config.fn_kwargs
    return {**(given or {}), **json.loads(requested)["fn_kwargs"]}


def checked(found: Any) -> dict[str, Any]:
    """What the function returned, as plain values; raises TypeError if it is no dict of them."""
    if not isinstance(found, Mapping):
        raise TypeError(f"the function returned a {type(found).__name__}; it must return a dict of metrics")
    return _core.plain_metrics(dict(found))


def _group_of(config: ValidationConfig, verbose: int) -> WorkerGroup:
    from lockstep.worker_group import WorkerGroup

    named = {"num_cpus": "CPU", "num_gpus": "GPU"}
    remote = config.ray_remote_kwargs or {}
    wanted = {named[name]: float(amount) for name, amount in remote.items() if name in named and amount}
    resources = {**wanted, **(config.resources or {})} or None
    scaling = ScalingConfig(
        num_workers=1, use_gpu=bool(resources and resources.get("GPU")), resources_per_worker=resources
    )
    return WorkerGroup(scaling, trainer="validation", verbose=verbose)
