"""Workers that stay alive: they run one function after the other, and keep their state between functions."""

from __future__ import annotations

import atexit
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from lockstep import _core, _pickling
from lockstep._calls import Answer, Call, OnRank, Workers
from lockstep._hooks import BackendHooks
from lockstep._interrupts import ends_uncaught
from lockstep._plain import plain
from lockstep._program import backend_needs, process_plan
from lockstep._run_data import RunData
from lockstep.backend import BackendConfig, hooks_class
from lockstep.callbacks import CallbackAdapter
from lockstep.checkpoint import Checkpoint
from lockstep.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from lockstep.errors import (
    ConfigError,
    EngineError,
    LockstepError,
    TrainingFailedError,
    TrainingInterrupted,
    TrainingPreempted,
)
from lockstep.result import Result
from lockstep.run_handle import may_claim_signals
from lockstep.trainer import DataParallelTrainer

END_WITHIN = 10.0
"""How long shutdown() waits for the workers to end by themselves, in seconds."""
_alive: weakref.WeakSet[WorkerGroup] = weakref.WeakSet()


@dataclass
class Job:
    """What the workers do. Raises SerializationError if it cannot be sent to them."""

    function: Callable[..., Any]
    config: dict[str, Any] | None = None
    directory: Path | None = None
    """The run's directory; None: the job is not a run and leaves no directory."""
    callbacks: Sequence[CallbackAdapter] = ()
    resume_from: Checkpoint | None = None
    max_failures: int = 0
    """How often it is retried, with new workers, after workers have died."""
    keep: bool = True
    """Whether the workers stay alive afterwards."""
    data: RunData = field(default_factory=RunData)

    def __post_init__(self) -> None:
        self.pickled = (_pickling.dump_function(self.function), _pickling.dump_config(self.config))
        self.pickled_data = self.data.dump()


class WorkerGroup(Workers):
    """Processes that stay alive and are called, `scaling_config.num_workers` of them, connected by `backend_config`::

        with WorkerGroup(ScalingConfig(num_workers=2)) as group:  # or WorkerGroup(num_workers=2)
            group.execute(os.getpid)  # [4711, 4712]

    If workers have died, the next call starts new ones. Use it from one thread at a time; ``stop()`` may be called from
    any thread.
    """

    def __init__(
        self,
        scaling_config: ScalingConfig | None = None,
        backend_config: BackendConfig | None = None,
        *,
        num_workers: int | None = None,
        trainer: str = "WorkerGroup",
        verbose: int = 1,
    ) -> None:
        if num_workers is not None:
            if scaling_config is not None:
                raise ConfigError("[WorkerGroup] num_workers and scaling_config are both given; give one")
            scaling_config = ScalingConfig(num_workers=num_workers)
        if not isinstance(scaling_config, (ScalingConfig, type(None))):
            raise ConfigError(f"[WorkerGroup] scaling_config is {scaling_config!r}; it must be a ScalingConfig or None")
        if not isinstance(backend_config, (BackendConfig, type(None))):
            raise ConfigError(f"[WorkerGroup] backend_config is {backend_config!r}; it must be a BackendConfig or None")
        self.scaling_config = scaling_config or ScalingConfig()
        if self.scaling_config.num_workers == 0:
            raise ConfigError("[WorkerGroup] num_workers is 0; a group has at least 1 worker")
        super().__init__(self.scaling_config._fixed("WorkerGroup", "for a group, whose workers stay"))
        self.backend_config = backend_config or BackendConfig()
        kind = hooks_class(backend_config)
        self._hooks = None if kind is None else BackendHooks(kind(), self.backend_config, len(self))
        self._trainer = trainer
        self._verbose = verbose
        self._agent: _core.AgentSlot | None = None
        self._process = _core.RunPlan()
        self._backend = b""
        self._run: _core.Run | None = None
        self._up = False
        self._closing = False
        self.num_failures = 0
        """How often the workers of the current run were replaced."""
        self.thread: threading.Thread | None = None
        """The thread of the run that an iterator waits for."""
        self._busy = threading.Lock()

    # ------------------------------------------------------------------ its life

    @property
    def is_started(self) -> bool:
        """Between start() and shutdown()."""
        return self._agent is not None

    def start(self, initialization_hook: Callable[[], Any] | None = None, *, max_failures: int = 0) -> None:
        """Starts the workers and runs the hook on each, also on workers that replace dead ones."""
        if self.is_started:
            raise LockstepError("[WorkerGroup] the workers are started already; call shutdown() first")
        self._process = process_plan(DataParallelTrainer._preload, backend_needs(self.backend_config))
        hook = initialization_hook
        self._backend = _pickling.dump_backend(
            self.backend_config if hook is None else _With(self.backend_config, hook)
        )
        self._agent = _core.AgentSlot()
        _alive.add(self)
        try:
            self.run(Job(_nothing, max_failures=max_failures))
        except BaseException:
            self.stop()
            raise

    def shutdown(self) -> None:
        """Ends the workers; kills those that take longer than END_WITHIN. Does nothing if there are none."""
        if self._agent is None:
            return
        hooks = self._hooks
        late = threading.Timer(END_WITHIN, self._end_run, (self._agent,))
        late.daemon = True
        late.start()
        self._closing = True
        try:
            if self._are_alive():
                self.run(Job(_nothing, keep=False))
        except TrainingFailedError:
            pass  # they were about to end anyway
        finally:
            late.cancel()
            late.join()  # a thread in the core when the interpreter ends would abort the process
            self._closing = False
            self.stop()
        if hooks is not None and not hooks.is_shut_down:
            hooks.after(_call_nobody, len(self))
        error = None if hooks is None else hooks.shutdown_error
        if error is not None and not isinstance(error, EngineError):  # which says that they have ended already
            raise error

    def stop(self) -> None:
        """Kills the workers at once. A run on them fails. Any thread may call it."""
        agent, self._agent, self._up = self._agent, None, False
        _alive.discard(self)
        if agent is not None:
            self._end_run(agent)

    def _end_run(self, agent: _core.AgentSlot) -> None:
        if (run := self._run) is not None:
            run.stop(checkpoint=False)
        agent.stop()

    def _are_alive(self) -> bool:
        """Whether the workers of the last run are alive. If one has died since, the others have been ended."""
        if not self._up or self._agent is None:
            return False
        alive, lost = self._agent.kept()
        if alive < len(self) and not self._closing and self._verbose > 0:
            why = lost or "they are gone"
            print(f"lockstep: workers died since the last run ({why}); starting new ones", file=sys.stderr)
        return alive == len(self)

    def __enter__(self) -> WorkerGroup:
        if not self.is_started:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # ------------------------------------------------------------------ work

    def _call(self, call: Call, rank: int | None) -> list[Answer]:
        answers = self.run(Job(OnRank(call, rank)))
        return answers if rank is None else [answers[rank]]

    def run(self, job: Job) -> list[Any]:
        """Runs the job and returns the function's results by rank.

        Raises TrainingFailedError if the function raised or workers died too often, the error of a callback or hook,
        and TrainingInterrupted after Ctrl-C.
        """
        agent, hooks = self._agent, self._hooks
        if agent is None:
            raise LockstepError("[WorkerGroup] the workers are not started; call start() first")
        if agent.in_run or not self._busy.acquire(blocking=False):
            raise LockstepError("[WorkerGroup] the workers are in the middle of a run; one runs at a time")
        try:
            self._are_alive()
            self._up = False  # until the run has finished
            if hooks is not None:
                hooks.is_training = job.directory is not None
            function = _core.Function(_pickling.pack(*job.pickled, self._backend, *job.pickled_data))
            self._run = run = _core.Run(
                self._plan(job), function, list(job.callbacks), hooks, claims_signals=may_claim_signals(), agent=agent
            )
            self._check_has(agent)  # a stop() from now on ends the run
            run.run()
            outcome, signal, values = run.wait()
        finally:
            self._run = None
            self._busy.release()
        self._check_has(agent)
        if outcome.state == "finished":
            self._up = job.keep
            return [pickle.loads(value) if value else None for value in values]
        self._raise(outcome, signal, job)

    def _check_has(self, agent: _core.AgentSlot) -> None:
        if self._agent is not agent and not self._closing:
            raise LockstepError("[WorkerGroup] shutdown() ended the workers in the middle of a run")

    def _raise(self, outcome: _core.RunOutcome, signal: int, job: Job) -> NoReturn:
        result = Result._from_outcome(outcome, job.config, self._trainer, function=job.function, where="worker_group")
        if result.state == "preempted":
            raise ends_uncaught(TrainingPreempted("[worker_group] the machine is taken away", result, signal))
        if result.state == "interrupted":
            raise ends_uncaught(TrainingInterrupted("[worker_group] the run was interrupted", result, signal))
        raised = next((adapter.raised for adapter in job.callbacks if adapter.raised is not None), None)
        if raised is None and self._hooks is not None and result.failures and result.failures[-1].kind == "callback":
            raised = self._hooks.raised
        raise raised or result.error or TrainingFailedError("[WorkerGroup] the workers did not end in time", result)

    def _plan(self, job: Job) -> _core.RunPlan:
        plan = _core.RunPlan()
        plan.trainer = self._trainer
        plan.config = plain(job.config or {})
        plan.scaling = self.scaling_config._to_core()
        place = Path.cwd() / "group" if job.directory is None else job.directory
        plan.run = RunConfig(
            name=place.name,
            storage_path=place.parent,
            checkpoint_config=CheckpointConfig(num_to_keep=0),
            failure_config=FailureConfig(max_failures=job.max_failures),
            verbose=self._verbose,
        )._to_core()
        if job.resume_from is not None:
            plan.resume_from = job.resume_from._as_handle()
        plan.record = job.directory is not None
        plan.only_deaths = True
        plan.keep_workers = job.keep
        plan.program, plan.backend = self._process.program, self._process.backend
        return plan

    # ------------------------------------------------------------------ names that scripts for Ray use

    @property
    def _num_failures(self) -> int:
        return self.num_failures


class _With(BackendConfig):
    """A backend whose workers call a function when they start."""

    def __init__(self, backend: BackendConfig, function: Callable[[], Any]) -> None:
        self._backend = backend
        self._function: Callable[[], Any] | None = function

    def on_worker_start(self) -> None:
        self._backend.on_worker_start()

    def on_function_start(self) -> None:
        self._backend.on_function_start()
        function, self._function = self._function, None
        if function is not None:
            function()

    def on_worker_end(self) -> None:
        self._backend.on_worker_end()

    def is_consequence(self, error: BaseException) -> bool:
        return self._backend.is_consequence(error)


def _nothing() -> None:
    pass


def _call_nobody(rank: int | None, payload: bytes) -> NoReturn:
    raise EngineError("[WorkerGroup] the workers have ended: they cannot be called")


@atexit.register
def _end_all() -> None:
    """No thread may wait in the core for a run when the interpreter ends."""
    for group in list(_alive):
        group.stop()
        if group.thread is not None:
            group.thread.join()
