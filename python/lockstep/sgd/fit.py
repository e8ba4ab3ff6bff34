"""``fit()`` with a ``Backend`` whose hooks run in this process: they need workers before the training function runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lockstep import _core, _pickling
from lockstep.callbacks import Callback, CallbackAdapter, RunInfo
from lockstep.config import FailureConfig
from lockstep.errors import ConfigError, EngineError
from lockstep.sgd.worker_group import WorkerDied, WorkerGroup
from lockstep.trainer import may_handle_signals

if TYPE_CHECKING:
    from lockstep.trainer import DataParallelTrainer


def fit_in_group(
    trainer: DataParallelTrainer,
    options: dict[str, Any],
    payload: bytes,
    adapters: list[CallbackAdapter],
    resume_from: _core.Checkpoint | None,
) -> tuple[_core.RunOutcome, int]:
    """As ``_core.run``: every attempt is a run on a group of workers, which the backend joins first.

    A hook that fails, or whose workers die, ends the attempt like a training function that does. It is added to
    `adapters` when it ended the run.
    """
    failure_config = trainer.run_config.failure_config or FailureConfig()
    retries = failure_config.max_failures
    function, config, _ = _pickling.unpack(payload)
    joined_payload = _pickling.pack(bytes(function), bytes(config), _pickling.dump_backend(None))
    options["run"]["max_failures"] = 0
    name = type(trainer).__name__
    group = WorkerGroup(
        trainer.scaling_config, trainer.backend_config, trainer=name, verbose=trainer.run_config.verbose
    )
    hooks = [_Attempts(adapter) for adapter in adapters]
    failures = 0
    try:
        while True:
            again = retries < 0 or failures < retries
            for hook in hooks:
                hook.again = again
            failed = _join(group)
            if failed is None:
                outcome, signal, _ = group.launch(options, joined_payload, hooks, resume_from)
            else:
                outcome, signal, _ = _core.run(options, payload, [*hooks, failed], resume_from, may_handle_signals())
            if outcome.state != "failed" or not again or not _may_go_on(adapters):
                if failed is not None:
                    adapters.append(failed)
                return outcome, signal
            if failed is not None:
                group.stop()
            failures += 1
            options["restore"] = True
            options["run"]["storage_path"], options["run"]["name"] = os.path.split(outcome.path)
    finally:
        _shut_down(group)


def _join(group: WorkerGroup) -> CallbackAdapter | None:
    """Starts the workers and lets the backend prepare them. What went wrong comes as a callback that fails the run, so
    that the run's files and the other callbacks tell of it."""
    try:
        if not group.is_started:
            group.start()
        group.begin_training()
        return None
    except WorkerDied as death:
        error: Exception = death.result.error or death
    except (ConfigError, EngineError) as raised:
        if not group.is_in_hook:
            raise  # there are no workers to be had
        error = raised
    except Exception as raised:
        error = raised
    adapter = CallbackAdapter(_Failing(error))
    adapter.name = group.doing
    return adapter


def _shut_down(group: WorkerGroup) -> None:
    """The run has ended: what goes wrong now does not change how."""
    try:
        group.shutdown()
    except Exception as error:
        warnings.warn(f"[fit] {group.doing} raised {type(error).__name__}: {error}", RuntimeWarning, stacklevel=4)


def _may_go_on(adapters: Sequence[CallbackAdapter]) -> bool:
    """Whether another attempt makes sense: a callback that raised would raise again."""
    return all(adapter.raised is None for adapter in adapters)


class _Failing(Callback):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def on_start(self, run: RunInfo) -> None:
        raise self._error


class _Attempts:
    """A callback that sees one run where there are several, one for each attempt."""

    def __init__(self, adapter: CallbackAdapter) -> None:
        self._adapter = adapter
        self._started = False
        self.name = adapter.name
        self.again = False
        """Whether another attempt may follow this one."""

    def on_start(self, run: Any) -> None:
        if not self._started:
            self._started = True
            self._adapter.on_start(run)

    def on_attempt_failed(self, failures: Sequence[dict[str, Any]], again: bool) -> None:
        self._adapter.on_attempt_failed(failures, self.again)

    def on_end(self, outcome: Any) -> None:
        if outcome.state != "failed" or not self.again or self._adapter.raised is not None:
            self._adapter.on_end(outcome)

    def __getattr__(self, hook: str) -> Any:
        return getattr(self._adapter, hook)
