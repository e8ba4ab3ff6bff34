"""``fit()`` with a ``Backend`` whose hooks run in this process: they need workers before the training function runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lockstep import _core, _pickling
from lockstep.callbacks import CallbackAdapter
from lockstep.config import FailureConfig
from lockstep.sgd.worker_group import WorkerDied, WorkerGroup

if TYPE_CHECKING:
    from lockstep.trainer import DataParallelTrainer


def fit_in_group(
    trainer: DataParallelTrainer,
    options: dict[str, Any],
    payload: bytes,
    adapters: list[CallbackAdapter],
    resume_from: _core.Checkpoint | None,
) -> tuple[_core.RunOutcome, int]:
    """As ``_core.run``: every attempt is a run on a group of workers, which the backend joins first."""
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
        group.start()
        while True:
            for hook in hooks:
                hook.again = retries < 0 or failures < retries
            group.begin_training()
            outcome, signal, _ = group.launch(options, joined_payload, hooks, resume_from)
            if outcome.state != "failed" or not _may_go_on(adapters) or not (retries < 0 or failures < retries):
                return outcome, signal
            failures += 1
            options["restore"] = True
            options["run"]["storage_path"], options["run"]["name"] = os.path.split(outcome.path)
    except WorkerDied as death:
        raise death.result.error from None  # type: ignore[misc]
    finally:
        group.shutdown()


def _may_go_on(adapters: Sequence[CallbackAdapter]) -> bool:
    """Whether another attempt makes sense: a callback that raised would raise again."""
    return all(adapter.raised is None for adapter in adapters)


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
